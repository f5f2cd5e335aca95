"""Advise on the size of data files, for engines that skip whole files only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from layoutopt.catalog.table import Catalog

# Reading a smaller file whole costs about as much as opening it.
LEAST_BYTES: Final = 1_000_000
# The files advised for the rows that are in one file now.
_FILES: Final = 8
_COLUMNS: Final = ["partition", "layout", "part", "file", "bytes"]


def describe_file_sizes(catalog: Catalog) -> str | None:
    """Return :func:`describe_sizes` for all blocks of a snapshot."""
    return describe_sizes(sum_sizes(blocks.block_index) for blocks, _ in catalog.blocks_by_plan().values())


def sum_sizes(blocks: pa.Table) -> pa.Table:
    """Return how many files, blocks and bytes each part of a layout of a partition has.

    Args:
        blocks: one row each, with the columns of :func:`~layoutopt.catalog.blocks.block_schema`; all of a partition.
    """
    groups = blocks.select(_COLUMNS).group_by(["partition", "layout", "part"])
    return groups.aggregate([("file", "count_distinct"), ("bytes", "sum"), ("bytes", "count")])


def describe_sizes(sizes: Iterable[pa.Table]) -> str | None:
    """Return a sentence if engines that skip whole files can skip nothing within a partition, else None.

    Args:
        sizes: tables of :func:`sum_sizes`.

    >>> rows = {"partition": ["a"] * 4, "layout": [0] * 4, "part": [0] * 4, "file": ["f"] * 4}
    >>> rows["bytes"] = [2_000_000] * 4
    >>> print(describe_sizes([sum_sizes(pa.table(rows))]))
    all rows are in one file (8.0 MB on average), so engines that skip only whole files skip nothing \
within it; `plan --file-bytes 2MB` makes smaller files
    >>> describe_sizes([sum_sizes(pa.table(rows | {"file": ["f", "f", "g", "g"]}))])
    """
    tables = list(sizes)
    if not tables:
        return None
    sums = pa.concat_tables(tables)
    whole = sums.filter(pc.equal(sums["file_count_distinct"], 1))
    stored, all_stored = (pc.sum(each["bytes_sum"]).as_py() or 0 for each in (whole, sums))
    n_files, n_blocks = whole.num_rows, pc.sum(whole["bytes_count"]).as_py() or 0
    size = stored / max(1, n_files)
    if 2 * stored < all_stored or n_blocks <= n_files or size < LEAST_BYTES:
        return None
    advised = max(size / _FILES, size * n_files / n_blocks)
    text = f"{advised / 1e6:.0f}MB" if advised >= 1e6 else f"{advised / 1e3:.0f}KB"
    n_partitions, in_one = len(sums["partition"].unique()), len(whole["partition"].unique())
    each = "each partition" if in_one == n_partitions else f"each of {in_one:,} partitions"
    rows_of, within = ("all rows", "it") if n_partitions == 1 else (f"the rows of {each}", "a partition")
    return (
        f"{rows_of} are in one file ({size / 1e6:.1f} MB on average), so engines that skip only whole files skip "
        f"nothing within {within}; `plan --file-bytes {text}` makes smaller files"
    )
