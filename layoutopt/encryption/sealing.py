"""Sealed files: encrypted whole by AES-GCM, each under a key and a nonce of its own, and bound to its place.

A sealed file is ``LOE1``, a random nonce of 12 bytes, and the ciphertext with its tag of 16 bytes. The associated data
is ``LOE1`` and the file's place: a file that was moved to another place does not open there.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

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
