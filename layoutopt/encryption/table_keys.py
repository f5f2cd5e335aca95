"""The keys of a table: a random data key, wrapped by the user's key, and what is derived of it for each file.

The user's key encrypts nothing but the data key, so that another one can take its place without a file being written
anew. Every file has a key of its own, derived of the data key and its place, so no nonce has to be unique among files.
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


# ----------------------------------------------------------------------------------------------------
# Sealed files: encrypted whole by AES-GCM, each under a key and a nonce of its own, and bound to its place.
#
# A sealed file is ``LOE1``, a random nonce of 12 bytes, and the ciphertext with its tag of 16 bytes. The associated
# data
# is ``LOE1`` and the file's place: a file that was moved to another place does not open there.

MAGIC: Final = b"LOE1"
"""What sealed files begin with; the digit is the version."""

_NONCE: Final = 12
_TAG: Final = 16


def seal(key: bytes, place: str, content: bytes) -> bytes:
    """Encrypt a content for one place; a key may be used for 2^32 of them.

    >>> key = bytes(32)
    >>> unseal(key, "a", seal(key, "a", b"rows"))
    b'rows'
    """
    nonce = os.urandom(_NONCE)
    return MAGIC + nonce + AESGCM(key).encrypt(nonce, content, MAGIC + place.encode("utf-8"))


def unseal(key: bytes, place: str, data: bytes) -> bytes:
    """The content that was sealed.

    Raises:
        ValueError: the data was changed, or sealed by another key or for another place; says which of these it may be.
    """
    if len(data) < len(MAGIC) + _NONCE + _TAG or not data.startswith(MAGIC):
        raise ValueError("it is not encrypted, or cut off")
    start = len(MAGIC) + _NONCE
    try:
        return AESGCM(key).decrypt(data[len(MAGIC) : start], data[start:], MAGIC + place.encode("utf-8"))
    except InvalidTag as error:
        raise ValueError("it was changed, or put in the place of another file") from error


ALGORITHM: Final = "AES_GCM_V1"
_KEY_BYTES: Final = 32
_NAME_DIGITS: Final = 32
_CHECK_DIGITS: Final = 16
_WRAPPED: Final = "layoutopt data key"


@dataclass(frozen=True)
class TableKeys:
    """What opens and seals the files of one table.

    Attributes:
        data_key: 32 random bytes, of which all other keys are derived.
    """

    data_key: bytes = field(repr=False)

    def seal(self, place: str, content: bytes) -> bytes:
        """A catalog file as it is stored at a place in the table's folder."""
        return seal(self._derived("file", place), place, content)

    def unseal(self, place: str, data: bytes) -> bytes:
        """Return the content of a catalog file; raises ValueError as :func:`unseal`."""
        return unseal(self._derived("file", place), place, data)

    def name(self, text: str) -> str:
        """A name that stands for a text, the same one each time, and says nothing of it: ``__`` and 32 digits.

        No partition is called so: names that begin with ``__`` are escaped. A name that was made here stays as it is.
        """
        if _is_name(text):
            return text
        return f"__{self._derived('name', text).hex()[:_NAME_DIGITS]}"

    def encryption(self, place: str) -> pq.FileEncryptionProperties:
        """What pyarrow writes the data file at a place by: all columns and the footer, bound to the place."""
        import pyarrow.parquet.encryption as modular

        return modular.create_encryption_properties(
            self._derived("file", place), aad_prefix=place.encode("utf-8"), store_aad_prefix=False,
            encryption_algorithm=ALGORITHM, plaintext_footer=False,
        )  # fmt: skip

    def decryption(self, place: str) -> pq.FileDecryptionProperties:
        """What pyarrow reads the data file at a place by; a file that is not encrypted is refused."""
        import pyarrow.parquet.encryption as modular

        return modular.create_decryption_properties(
            self._derived("file", place), aad_prefix=place.encode("utf-8"), allow_plaintext_files=False
        )

    def _derived(self, purpose: str, of: str) -> bytes:
        return _expanded(self.data_key, f"layoutopt {purpose}\0{of}", _KEY_BYTES)


def _expanded(key: bytes, info: str, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, info.encode("utf-8")).derive(key)


def _is_name(text: str) -> bool:
    digits = text.removeprefix("__")
    return len(text) == len(digits) + 2 and len(digits) == _NAME_DIGITS and set(digits) <= set("0123456789abcdef")


def new_encryption(reference: str) -> dict[str, str]:
    """What the marker of a new table says of its encryption: the reference, and a new data key wrapped by the key.

    Raises:
        SettingError, EncryptionKeyError: as :func:`~layoutopt.encryption.references.key_of`.
    """
    key = key_of(reference)
    wrapped = seal(_wrapping(key), _WRAPPED, os.urandom(_KEY_BYTES))
    return {
        "algorithm": ALGORITHM,
        "key": reference,
        "key_check": _check_of(key),
        "data_key": base64.b64encode(wrapped).decode("ascii"),
    }


def keys_in_marker(marker: bytes, where: str, given: str | None = None) -> TableKeys | None:
    """The keys of the table that has a marker; None where it is not encrypted.

    Args:
        marker: the marker's content.
        where: names it in messages.
        given: the reader's own reference; by default that of the environment, then that of the table. A command that
            only the table names is not run: whoever may write there would run programs here.

    Raises:
        SettingError, EncryptionKeyError: the key can't be had, or is another one.
        CatalogError: what stands there is damaged.
    """
    encryption = _encryption_in(marker, where)
    if encryption is None:
        return None
    try:
        stored = str(encryption["key"])
        wrapped = base64.b64decode(encryption["data_key"], validate=True)
        check = str(encryption["key_check"])
        known = encryption["algorithm"] == ALGORITHM
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CatalogError(f"what {where} says of the encryption is damaged; restore it from a copy") from error
    if not known:
        raise CatalogError(f"{where} names the encryption {encryption['algorithm']!r}; install a newer layoutopt")
    key = key_of(_reference(stored, given, where))
    if not hmac.compare_digest(_check_of(key), check):
        raise EncryptionKeyError(
            f"the key that was given is not the one that {where} was encrypted by ({stored!r}, check {check}); name "
            "the right one by --key"
        )
    try:
        return TableKeys(unseal(_wrapping(key), _WRAPPED, wrapped))
    except ValueError as error:
        raise CatalogError(f"the data key in {where} is damaged; restore it from a copy") from error


def _reference(stored: str, given: str | None, where: str) -> str:
    own = given or given_reference()
    if own is not None:
        return check_reference(own)
    if is_command(stored):
        raise EncryptionKeyError(
            f"{where} names a command for its key, {stored!r}, and commands that a table names are not run by "
            "themselves; name it by --key, `[encryption] key` or LAYOUTOPT_KEY if you trust it"
        )
    try:
        return check_reference(stored)
    except SettingError as error:
        raise CatalogError(f"what {where} says of the encryption is damaged; restore it from a copy") from error


def _encryption_in(marker: bytes, where: str) -> Mapping[str, Any] | None:
    try:
        content = json.loads(marker.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{where} is damaged ({error}); restore it from a copy") from error
    found = content.get("encryption") if isinstance(content, dict) else None
    if found is not None and not isinstance(found, dict):
        raise CatalogError(f"what {where} says of the encryption is damaged; restore it from a copy")
    return found


def _wrapping(key: bytes) -> bytes:
    return _expanded(key, "layoutopt wrapping", _KEY_BYTES)


def _check_of(key: bytes) -> str:
    """What tells the user's key from another one, and says nothing of it."""
    return _expanded(key, "layoutopt check", _KEY_BYTES).hex()[:_CHECK_DIGITS]
