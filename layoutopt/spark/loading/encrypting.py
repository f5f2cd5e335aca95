"""What is looked at before a table is encrypted, or is not."""

from __future__ import annotations

from layoutopt.catalog.paths import MARKER
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.config.settings import LoadSettings
from layoutopt.encryption.references import KEY_VARIABLE, given_reference, key_of
from layoutopt.errors import EncryptedTableError, SettingError


def check_encryption(settings: LoadSettings) -> None:
    """Before anything is done: the key can be had, nobody is shown what it hides, and no table is clear by mistake.

    Raises:
        SettingError, EncryptionKeyError: the key can't be had; or one is given for a new table, but not to encrypt it.
        EncryptedTableError: the table is to be published too.
    """
    if settings.encrypt is None:
        if given_reference() is not None and not TableFiles(settings.table_path).exists(MARKER):
            raise SettingError(
                f"a key is given (--key, [encryption] key or {KEY_VARIABLE}), but the table {settings.table_path!r} is "
                "new and nothing says that it is to be encrypted; name the key by --encrypt, or leave it out"
            )
        return
    key_of(settings.encrypt)
    if settings.publish:
        raise EncryptedTableError(
            f"an encrypted table can't be published ({settings.publish[0]!r}): other engines have no key; leave "
            "--publish or --encrypt out"
        )
