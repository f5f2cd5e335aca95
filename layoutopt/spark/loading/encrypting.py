"""What is looked at before a table is encrypted."""

from __future__ import annotations

from layoutopt.config.settings import LoadSettings
from layoutopt.encryption.references import key_of
from layoutopt.errors import EncryptedTableError


def check_encryption(settings: LoadSettings) -> None:
    """Before anything is done: the key can be had, and nobody is to be shown what it hides.

    Raises:
        SettingError, EncryptionKeyError: it can't be had.
        EncryptedTableError: the table is to be published too.
    """
    if settings.encrypt is None:
        return
    key_of(settings.encrypt)
    if settings.publish:
        raise EncryptedTableError(
            f"an encrypted table can't be published ({settings.publish[0]!r}): other engines have no key; leave "
            "--publish or --encrypt out"
        )
