"""The partitions that a source has, each with the files that its rows are from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.catalog.partition_names import PlainValue


@dataclass(frozen=True)
class SourceFile:
    """A file of the source: its URI, its size in bytes, and when it was changed (microseconds since 1970)."""

    uri: str
    size: int
    modified: int


@dataclass(frozen=True)
class SourcePartition:
    """A partition as the source has it.

    Attributes:
        value: of the partition column, plain; None is NULL, or that the table has no partitions.
        files: those that hold rows of it, sorted.
        rows: how many it has.
    """

    value: PlainValue
    files: tuple[SourceFile, ...]
    rows: int = 0

    @property
    def fingerprint(self) -> str:
        """The digest of the files, 64 hexadecimal digits."""
        lines = [f"{file.uri}\n{file.size}\n{file.modified}\n" for file in self.files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def batch_of(partitions: Sequence[SourcePartition]) -> str:
    """The name of a batch that nobody named: a digest of the files that it came from."""
    files = sorted({file for partition in partitions for file in partition.files}, key=lambda file: file.uri)
    return hashlib.sha256("".join(f"{file}\n" for file in files).encode()).hexdigest()[:32]
