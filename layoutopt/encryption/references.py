"""References to keys: where a key is to be had. A key itself is never written down, printed or logged."""

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

KEY_VARIABLE: Final = "LAYOUTOPT_KEY"
"""The environment variable that names the reader's own reference, in place of the one that a table has."""

KEY_BYTES: Final = (16, 24, 32)
"""Lengths of keys of AES."""

_ENV: Final = "env:"
_COMMAND: Final = "command:"
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_SECONDS: Final = 120


def check_reference(reference: str) -> str:
    """A reference as it was given.

    Raises:
        SettingError: it is neither ``env:NAME`` nor ``command:WORDS``. It may be a key, so it is not shown.

    >>> check_reference("env:TABLE_KEY")
    'env:TABLE_KEY'
    """
    kind, _, rest = reference.partition(":")
    if f"{kind}:" not in (_ENV, _COMMAND) or not rest.strip():
        raise SettingError(
            "what was given for a key is no reference (it is not shown, since it may be the key itself); write "
            "env:NAME for an environment variable, or command:WORDS for a command that prints the key"
        )
    return reference


def is_command(reference: str) -> bool:
    """Whether a reference runs a command."""
    return reference.startswith(_COMMAND)


def given_reference() -> str | None:
    """The reader's own reference, of the environment; None where there is none."""
    return os.environ.get(KEY_VARIABLE) or None


@contextmanager
def giving(reference: str | None) -> Iterator[None]:
    """Let tables be opened by a reference within the block, in this process and those that it starts; None: as before.

    For programs, which own their environment, not for libraries.

    Raises:
        SettingError: as :func:`check_reference`.
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
    """The key that a reference leads to: 16, 24 or 32 bytes.

    Raises:
        SettingError: as :func:`check_reference`.
        EncryptionKeyError: the variable is not set, the command failed, or what they give is no key.
    """
    check_reference(reference)
    if is_command(reference):
        return _decoded(_printed_by(reference.removeprefix(_COMMAND)), f"what the command of {reference!r} printed")
    name = reference.removeprefix(_ENV)
    text = os.environ.get(name)
    if not text:
        raise EncryptionKeyError(
            f"the key {reference!r} can't be had: the environment variable {name!r} is not set; set it to the key, or "
            f"name another reference by --key or {KEY_VARIABLE}"
        )
    return _decoded(text, f"the environment variable {name!r}")


@lru_cache(maxsize=16)
def _printed_by(command: str) -> str:
    """What a command prints; asked once in a process, since a vault takes its time."""
    try:
        done = subprocess.run(  # the user's own command, by no shell
            shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = "it took too long" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        raise EncryptionKeyError(
            f"the key 'command:{command}' can't be had ({reason}); run the command by hand to see why"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise EncryptionKeyError(
            f"the key 'command:{command}' can't be had: the command failed with {done.returncode} ({said}); run it by "
            "hand to see why"
        )
    return done.stdout.decode("utf-8", "replace")


def _decoded(text: str, where: str) -> bytes:
    """A key, written as hexadecimal digits or base64."""
    words = text.strip()
    try:
        key = bytes.fromhex(words) if _is_hex_key(words) else base64.b64decode(words, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) not in KEY_BYTES:
        raise EncryptionKeyError(
            f"{where} is no key: it should be 16, 24 or 32 bytes, as hexadecimal digits or base64; make one by "
            "`openssl rand -hex 32`"
        )
    return key


def _is_hex_key(text: str) -> bool:
    return _HEX.fullmatch(text) is not None and len(text) // 2 in KEY_BYTES
