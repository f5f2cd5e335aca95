"""The check before every commit: what was written is what the source has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.errors import ContentMismatchError

TidSums = Mapping[tuple[str, int, int], Mapping[str, int]]
"""Sums of hash(tid, value) by (partition key, segment, layout) and column; a column without one is left out."""


@dataclass(frozen=True)
class Content:
    """What a set of rows holds, whatever their order: how many, and by column the sum of unsigned 32-bit hashes.

    A sum notices a duplicate (unlike xor) and fits an int64 below 2^31 rows. A lost row shows even where its hash is 0.
    """

    rows: int
    sums: Mapping[str, int]


def check_content(source: Content, written: Content, place: str) -> None:
    """Refuse rows that are not the source's; ``place`` names them in messages ("partition 1994").

    Raises:
        ContentMismatchError: rows or checksums differ, or only one side has a column; the columns are named.
    """
    if source.rows != written.rows:
        raise ContentMismatchError(
            f"{place} has {source.rows} rows in the source but {written.rows} were written; nothing was committed, "
            "load again, from a source that nobody changes meanwhile"
        )
    differing = [name for name in _all_names(source, written) if source.sums.get(name) != written.sums.get(name)]
    if differing:
        raise ContentMismatchError(
            f"{place} differs from the source in {', '.join(differing)}; nothing was committed, "
            "load again, from a source that nobody changes meanwhile"
        )


def check_positions(expected: TidSums, written: TidSums, place: str) -> None:
    """Refuse rows that would be put together wrongly: values that lie at other tids than they have in the source.

    Args:
        expected: from the source's rows.
        written: from the blocks.
        place: names the source in messages.

    Raises:
        ContentMismatchError: sums differ, or only one side has one; segments and columns are named.
    """
    for where in [*expected, *(where for where in written if where not in expected)]:
        sums, found = expected.get(where, {}), written.get(where, {})
        differing = [name for name in dict.fromkeys([*sums, *found]) if sums.get(name) != found.get(name)]
        if differing:
            partition, segment, layout = where
            raise ContentMismatchError(
                f"in segment {segment} of partition {partition!r} layout {layout} has {', '.join(differing)} at other "
                f"row positions than {place}; nothing was committed, load again and report it if it happens twice"
            )


def check_partitions(
    entries: Sequence[PartitionEntry],
    names: PartitionNames,
    values: Mapping[str, PlainValue],
    counted: Mapping[str, int],
    source: str,
) -> None:
    """Refuse partitions that have other rows than were counted, or rows of another value than they stand for.

    What stands in the rows is taken from them as they were written, not from how partitions were named.

    Args:
        entries: as they were measured.
        names: of the partitions.
        values: what each stands for, by its key.
        counted: the rows of each in the source, by its key, where they are known.
        source: names it in messages.

    Raises:
        ContentMismatchError: names the partition.
    """
    for entry in entries:
        said = f"partition {names.shown(values[entry.key])} of {source}"
        if counted.get(entry.key, entry.rows) != entry.rows:
            raise ContentMismatchError(
                f"{said} has {counted[entry.key]} rows but {entry.rows} were written; nothing was committed, "
                "load again, from a source that nobody changes meanwhile"
            )
        if not names.is_of(entry, values[entry.key]):
            raise ContentMismatchError(
                f"{said} got rows of other partitions; nothing was committed, load again and report it if it happens "
                "twice"
            )


def _all_names(source: Content, written: Content) -> list[str]:
    """The columns of either side, each once, the source's first."""
    return list(dict.fromkeys([*source.sums, *written.sums]))
