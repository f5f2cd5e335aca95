"""Key references: where a key is found. A key itself is never stored, printed or logged."""

from __future__ import annotations

import base64
import binascii
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from layoutopt.errors import EncryptionKeyError, SettingError

# The environment variable with the reader's own reference, which overrides a table's.
KEY_VARIABLE: Final = "LAYOUTOPT_KEY"

# The key lengths of AES.
KEY_BYTES: Final = (16, 24, 32)

_ENV: Final = "env:"
_COMMAND: Final = "command:"
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_SECONDS: Final = 120


def check_reference(reference: str) -> str:
    """Return the reference; raise SettingError, without showing it, unless it is ``env:NAME`` or ``command:WORDS``.

    >>> check_reference("env:TABLE_KEY")
    'env:TABLE_KEY'
    """
    kind, _, rest = reference.partition(":")
    if f"{kind}:" not in (_ENV, _COMMAND) or not rest.strip():
        raise SettingError(
            "the key reference is invalid (it is not shown, since it may be the key itself); write env:NAME for an "
            "environment variable, or command:WORDS for a command that prints the key"
        )
    return reference


def is_command(reference: str) -> bool:
    """Return whether a reference runs a command."""
    return reference.startswith(_COMMAND)


def given_reference() -> str | None:
    """Return the reader's own reference from the environment, or None."""
    return os.environ.get(KEY_VARIABLE) or None


@contextmanager
def use_reference(reference: str | None) -> Iterator[None]:
    """Set the reader's reference within the block, for this process and its children; None changes nothing.

    For programs, which own their environment, not for libraries.
    """
    before = os.environ.get(KEY_VARIABLE)
    if reference is not None:
        os.environ[KEY_VARIABLE] = check_reference(reference)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(KEY_VARIABLE, None)
        else:
            os.environ[KEY_VARIABLE] = before


def key_of(reference: str) -> bytes:
    """Return the key of a reference: 16, 24 or 32 bytes.

    Raises EncryptionKeyError if the variable is not set, the command failed, or the text is no key.
    """
    check_reference(reference)
    if is_command(reference):
        return _decode_key(_run_command(reference.removeprefix(_COMMAND)), f"what the command of {reference!r} printed")
    name = reference.removeprefix(_ENV)
    text = os.environ.get(name)
    if not text:
        raise EncryptionKeyError(
            f"the key {reference!r} is unavailable: the environment variable {name!r} is not set; set it to the key, "
            f"or give another reference with --key or {KEY_VARIABLE}"
        )
    return _decode_key(text, f"the environment variable {name!r}")


@lru_cache(maxsize=16)
def _run_command(command: str) -> str:
    """Return a command's output, cached per process since a vault is slow."""
    try:
        process = subprocess.run(  # the user's own command, by no shell
            shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = "it took too long" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        raise EncryptionKeyError(
            f"the key 'command:{command}' is unavailable ({reason}); run the command by hand to see why"
        ) from error
    if process.returncode != 0:
        stderr = " ".join(process.stderr.decode("utf-8", "replace").split())[:200]
        raise EncryptionKeyError(
            f"the key 'command:{command}' is unavailable: the command failed with {process.returncode} ({stderr}); "
            "run it by hand to see why"
        )
    return process.stdout.decode("utf-8", "replace")


def _decode_key(text: str, where: str) -> bytes:
    """Decode a key from hexadecimal digits or base64."""
    words = text.strip()
    is_hex = _HEX.fullmatch(words) is not None and len(words) // 2 in KEY_BYTES
    try:
        key = bytes.fromhex(words) if is_hex else base64.b64decode(words, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) not in KEY_BYTES:
        raise EncryptionKeyError(
            f"{where} is no key: expected 16, 24 or 32 bytes, as hexadecimal digits or base64; make one with "
            "`openssl rand -hex 32`"
        )
    return key
