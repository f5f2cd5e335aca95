"""The checks before every commit: the written rows equal the source's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.errors import ContentMismatchError

# Sums of hash(tid, value) by (partition key, segment, layout) and column; columns without sums are left out.
TidSums = Mapping[tuple[str, int, int], Mapping[str, int]]


@dataclass(frozen=True)
class Content:
    """A fingerprint of a set of rows: their number and, by column, the sum of unsigned 32-bit hashes.

    Sums notice duplicates (unlike xor) and fit an int64 below 2^31 rows. The count notices a lost row whose hash is 0.
    """

    rows: int
    sums: Mapping[str, int]


def add_contents(contents: Sequence[Content]) -> Content:
    """Return the content of all rows, with the sums that all parts with rows have."""
    parts = [content for content in contents if content.rows] or contents[:1]
    names = [name for name in parts[0].sums if all(name in part.sums for part in parts)]
    return Content(sum(part.rows for part in parts), {name: sum(part.sums[name] for part in parts) for name in names})


def check_content(source: Content, written: Content, place: str) -> None:
    """Raise ContentMismatchError if rows or checksums differ; ``place`` names them in messages ("partition 1994")."""
    if source.rows != written.rows:
        raise ContentMismatchError(
            f"{place} has {source.rows} rows in the source but {written.rows} were written; nothing was committed, "
            "load again while the source does not change"
        )
    names = dict.fromkeys([*source.sums, *written.sums])
    differing = [name for name in names if source.sums.get(name) != written.sums.get(name)]
    if differing:
        raise ContentMismatchError(
            f"{place} differs from the source in {', '.join(differing)}; nothing was committed, "
            "load again while the source does not change"
        )


def check_positions(expected: TidSums, written: TidSums, place: str) -> None:
    """Raise ContentMismatchError if values are at other tids than in the source, which ``place`` names."""
    for group in [*expected, *(group for group in written if group not in expected)]:
        sums, own_sums = expected.get(group, {}), written.get(group, {})
        differing = [name for name in dict.fromkeys([*sums, *own_sums]) if sums.get(name) != own_sums.get(name)]
        if differing:
            partition, segment, layout = group
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
    """Raise ContentMismatchError where a partition has another row count, or rows of another partition value.

    The values are taken from the rows as written, not from the partitions' names.

    Args:
        entries: as measured from the blocks.
        names: of the partitions.
        values: each partition's value, by its key.
        counted: each partition's rows in the source, by its key, where known.
        source: names it in messages.
    """
    for entry in entries:
        label = f"partition {names.shown(values[entry.key])} of {source}"
        if counted.get(entry.key, entry.rows) != entry.rows:
            raise ContentMismatchError(
                f"{label} has {counted[entry.key]} rows but {entry.rows} were written; nothing was committed, "
                "load again while the source does not change"
            )
        if not names.fits_bounds(entry, values[entry.key]):
            raise ContentMismatchError(
                f"{label} got rows of other partitions; nothing was committed, load again and report it if it happens "
                "twice"
            )
