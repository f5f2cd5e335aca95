"""Files of tables that may be encrypted: contents and names between who asks for them and how they are stored."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from layoutopt.catalog.paths import MARKER, hides_values, is_of_catalog
from layoutopt.errors import CatalogError, EncryptedTableError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from layoutopt.encryption.table_keys import TableKeys

_SEEN: Final = "_marker_seen"


class KeyedFiles:
    """What a table's files know of keys; ``root``, ``key`` and ``lent`` are those of ``TableFiles``."""

    root: str
    key: str | None
    lent: tuple[TableKeys, ...] | None

    def read_bytes(self, path: str) -> bytes:
        """A file's content."""
        raise NotImplementedError

    def full_path(self, path: str) -> str:
        """The path or URL of a file."""
        raise NotImplementedError

    def _note_marker(self, data: bytes) -> None:
        """Remember the marker, which never changes: it says whether there are keys."""
        self.__dict__[_SEEN] = data

    def _forget_keys(self) -> None:
        self.__dict__.pop("keys", None)

    @cached_property
    def keys(self) -> TableKeys | None:
        """What opens and seals the table's files; None where it is not encrypted, or not there.

        Raises:
            SettingError, EncryptionKeyError: the key can't be had, or is another one.
            CatalogError: the table's marker is damaged.
        """
        if self.lent is not None:
            return next(iter(self.lent), None)
        try:
            marker = self.__dict__.get(_SEEN) or self.read_bytes(MARKER)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if b"encryption" not in marker:
            return None
        from layoutopt.encryption.table_keys import keys_in_marker  # which takes its time to import

        return keys_in_marker(marker, self.full_path(MARKER), self.key)

    @property
    def is_plain(self) -> bool:
        """Whether engines that know nothing of the table may read its data files as they are."""
        return self.keys is None

    def check_plain(self) -> None:
        """Refuse files that a reader of plain Parquet can't read.

        Raises:
            EncryptedTableError: they are encrypted.
        """
        if self.keys is not None:
            raise EncryptedTableError(
                f"the table {self.root!r} is encrypted, and other engines have no key to its files; read it by "
                "`query`, in Python or in a Spark session that layoutopt enabled"
            )

    def encryption(self, path: str) -> pq.FileEncryptionProperties | None:
        """What pyarrow writes a data file by; None where the table is not encrypted."""
        return None if self.keys is None else self.keys.encryption(self.stored_path(path))

    def decryption(self, path: str) -> pq.FileDecryptionProperties | None:
        """What pyarrow reads a data file by; None where the table is not encrypted."""
        return None if self.keys is None else self.keys.decryption(self.stored_path(path))

    def stored_path(self, path: str) -> str:
        """Where a file is stored: an encrypted table has others for names that tell of values; a stored path stays."""
        start, name, end = hides_values(path)
        return path if not name or self.keys is None else f"{start}{self.keys.name(name)}{end}"

    def _opened(self, path: str, data: bytes) -> bytes:
        """The content of a file as it is stored.

        Raises:
            CatalogError: the table is encrypted, and this is not the file that was written there.
        """
        if not is_of_catalog(path) or self.keys is None:
            return data
        try:
            return self.keys.unseal(self.stored_path(path), data)
        except ValueError as error:
            raise CatalogError(
                f"the catalog file {self.full_path(path)} of an encrypted table can't be opened: {error}; restore it "
                "from a copy or load again"
            ) from error

    def _sealed(self, path: str, content: bytes) -> bytes:
        """A file's content as it is stored."""
        if not is_of_catalog(path) or self.keys is None:
            return content
        return self.keys.seal(self.stored_path(path), content)
