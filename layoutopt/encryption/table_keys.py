"""A table's keys: a random data key, wrapped by the user's key, and keys derived from it for each file.

The user's key encrypts only the data key, so it can be replaced without rewriting files. Every file has its own key,
derived from the data key and the file's path, so nonces need not be unique among files.

A sealed file is ``LOE1``, a random nonce of 12 bytes, and the AES-GCM ciphertext with its tag of 16 bytes. The
associated data are ``LOE1`` and the file's path: a moved file can't be opened.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from layoutopt.encryption.references import check_reference, given_reference, is_command, key_of
from layoutopt.errors import CatalogError, EncryptionKeyError, SettingError

if TYPE_CHECKING:
    import pyarrow.parquet as pq


# The first bytes of sealed files; the digit is the version.
MAGIC: Final = b"LOE1"

_NONCE: Final = 12
_TAG: Final = 16


def seal(key: bytes, place: str, content: bytes) -> bytes:
    """Encrypt a file's content for one path; a key may be used for 2^32 of them.

    >>> key = bytes(32)
    >>> unseal(key, "a", seal(key, "a", b"rows"))
    b'rows'
    """
    nonce = os.urandom(_NONCE)
    return MAGIC + nonce + AESGCM(key).encrypt(nonce, content, MAGIC + place.encode("utf-8"))


def unseal(key: bytes, place: str, data: bytes) -> bytes:
    """Return the content of a sealed file; raise ValueError if it was changed, or sealed by another key or path."""
    if len(data) < len(MAGIC) + _NONCE + _TAG or not data.startswith(MAGIC):
        raise ValueError("it is not encrypted, or cut off")
    start = len(MAGIC) + _NONCE
    try:
        return AESGCM(key).decrypt(data[len(MAGIC) : start], data[start:], MAGIC + place.encode("utf-8"))
    except InvalidTag as error:
        raise ValueError("it was changed, or moved from another path") from error


ALGORITHM: Final = "AES_GCM_V1"
_KEY_BYTES: Final = 32
_NAME_DIGITS: Final = 32
_CHECK_DIGITS: Final = 16
_WRAPPED: Final = "layoutopt data key"


@dataclass(frozen=True)
class TableKeys:
    """The keys of one table's files, all derived from 32 random bytes."""

    data_key: bytes = field(repr=False)

    def seal(self, place: str, content: bytes) -> bytes:
        """Return the stored bytes of a catalog file at a path in the table's folder."""
        return seal(self._derive("file", place), place, content)

    def unseal(self, place: str, data: bytes) -> bytes:
        """Return the content of a catalog file; raises ValueError as :func:`unseal`."""
        return unseal(self._derive("file", place), place, data)

    def name(self, text: str) -> str:
        """Return a deterministic name that hides a text, unless it is one: ``__`` and 32 digits."""
        if _is_hidden_name(text):
            return text
        return f"__{self._derive('name', text).hex()[:_NAME_DIGITS]}"

    def encryption(self, place: str) -> pq.FileEncryptionProperties:
        """Return pyarrow's properties for writing a data file: all columns and the footer, bound to its path."""
        import pyarrow.parquet.encryption as modular

        return modular.create_encryption_properties(
            self._derive("file", place), aad_prefix=place.encode("utf-8"), store_aad_prefix=False,
            encryption_algorithm=ALGORITHM, plaintext_footer=False,
        )  # fmt: skip

    def decryption(self, place: str) -> pq.FileDecryptionProperties:
        """Return pyarrow's properties for reading a data file; a plain file is refused."""
        import pyarrow.parquet.encryption as modular

        return modular.create_decryption_properties(
            self._derive("file", place), aad_prefix=place.encode("utf-8"), allow_plaintext_files=False
        )

    def _derive(self, purpose: str, subject: str) -> bytes:
        return _expand(self.data_key, f"layoutopt {purpose}\0{subject}", _KEY_BYTES)


def _expand(key: bytes, info: str, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, info.encode("utf-8")).derive(key)


def _is_hidden_name(text: str) -> bool:
    digits = text.removeprefix("__")
    return len(text) == len(digits) + 2 and len(digits) == _NAME_DIGITS and set(digits) <= set("0123456789abcdef")


def new_encryption(reference: str) -> dict[str, str]:
    """Return the encryption entry of a new table's marker: the reference, and a new data key wrapped by the key."""
    key = key_of(reference)
    wrapped = seal(_derive_wrapping_key(key), _WRAPPED, os.urandom(_KEY_BYTES))
    return {
        "algorithm": ALGORITHM,
        "key": reference,
        "key_check": _make_key_check(key),
        "data_key": base64.b64encode(wrapped).decode("ascii"),
    }


def read_keys(marker: bytes, where: str, given: str | None = None) -> TableKeys | None:
    """Return the keys of a table from its marker; None where it is not encrypted; ``where`` names it in messages.

    The reference is ``given``, else the environment's, else the table's. A command that only the table names is not
    run: anyone with write access there could run programs here.

    Raises:
        SettingError, EncryptionKeyError: the key is unavailable or wrong.
        CatalogError: the marker is damaged.
    """
    encryption = _read_encryption(marker, where)
    if encryption is None:
        return None
    try:
        stored = str(encryption["key"])
        wrapped = base64.b64decode(encryption["data_key"], validate=True)
        check = str(encryption["key_check"])
        is_known = encryption["algorithm"] == ALGORITHM
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CatalogError(f"the encryption entry of {where} is damaged; restore it from a copy") from error
    if not is_known:
        raise CatalogError(f"{where} names the encryption {encryption['algorithm']!r}; install a newer layoutopt")
    key = key_of(_choose_reference(stored, given, where))
    if not hmac.compare_digest(_make_key_check(key), check):
        raise EncryptionKeyError(
            f"the given key is not the one that {where} was encrypted with ({stored!r}, check {check}); give the right "
            "one with --key"
        )
    try:
        return TableKeys(unseal(_derive_wrapping_key(key), _WRAPPED, wrapped))
    except ValueError as error:
        raise CatalogError(f"the data key in {where} is damaged; restore it from a copy") from error


def _choose_reference(stored: str, given: str | None, where: str) -> str:
    reference = given or given_reference()
    if reference is not None:
        return check_reference(reference)
    if is_command(stored):
        raise EncryptionKeyError(
            f"{where} names a command for its key, {stored!r}, which is not run automatically; if you trust it, give "
            "it with --key, `[encryption] key` or LAYOUTOPT_KEY"
        )
    try:
        return check_reference(stored)
    except SettingError as error:
        raise CatalogError(f"the encryption entry of {where} is damaged; restore it from a copy") from error


def _read_encryption(marker: bytes, where: str) -> Mapping[str, Any] | None:
    try:
        content = json.loads(marker.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{where} is damaged ({error}); restore it from a copy") from error
    encryption = content.get("encryption") if isinstance(content, dict) else None
    if encryption is not None and not isinstance(encryption, dict):
        raise CatalogError(f"the encryption entry of {where} is damaged; restore it from a copy")
    return encryption


def _derive_wrapping_key(key: bytes) -> bytes:
    return _expand(key, "layoutopt wrapping", _KEY_BYTES)


def _make_key_check(key: bytes) -> str:
    """Return a check value that identifies the user's key without revealing it."""
    return _expand(key, "layoutopt check", _KEY_BYTES).hex()[:_CHECK_DIGITS]
