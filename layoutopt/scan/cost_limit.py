"""Refuse reads above a limit of bytes, by the catalog alone, before anything is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from layoutopt.errors import CostLimitError
from layoutopt.model.predicates import Node
from layoutopt.scan.opened_table import OpenedTable, sum_read
from layoutopt.scan.table_read import TableRead

# So many columns are named in a message, the ones that skip most first.
_MOST_NAMED: Final = 3


def check_bytes(reads: Sequence[TableRead], limit: int) -> None:
    """Raise CostLimitError if a query's reads take more than so many compressed bytes."""
    sizes = [sum_read(read.pruned).bytes for read in reads]
    if sum(sizes) > limit:
        largest = reads[sizes.index(max(sizes))]
        raise above_limit(sum(sizes), limit, largest.table, largest.scan.filter.root, _count_column_bytes(largest))


def above_limit(
    size: int, limit: int, table: OpenedTable, root: Node, column_bytes: Mapping[str, int]
) -> CostLimitError:
    """Return the error of a query above a limit, with ways to narrow it.

    Args:
        size: the compressed bytes that the query would read.
        limit: the bytes that it may read.
        table: the table of which it reads most.
        root: its filter on that table.
        column_bytes: the bytes that it would read of each of the table's columns.
    """
    filters = " or ".join(_list_filters(table, root))
    ways = [f"filter by {filters}"] if filters else []
    if len(column_bytes) > 1:
        name, largest = max(column_bytes.items(), key=lambda item: item[1])
        ways.append(f"leave out columns like {name!r} ({largest:,} bytes)")
    return CostLimitError(
        f"the query would read {size:,} bytes of {table.name!r}, more than the limit of {limit:,}; "
        f"{', '.join([*ways, 'or raise the limit'])}; `layoutopt explain` tells what each part of its filter skips"
    )


def _list_filters(table: OpenedTable, root: Node) -> list[str]:
    """Return the columns that skip blocks and that a filter lacks, by kind, as texts.

    The partition column is left out if the filter already skips partitions by other columns.
    """
    plans = [source.plan for source in table.sources]
    weights: Counter[str] = Counter()
    for plan in plans:
        for feature in plan.features:
            weights.update(dict.fromkeys(feature.columns, feature.weight))
    by_partition = bool(table.partitions_out(root).any())
    columns_by_kind = {
        "the partition column": [plan.partition_by for plan in plans if plan.partition_by and not by_partition],
        "in features": [name for name, _ in weights.most_common()],
        "indexed": [name for plan in plans for index in plan.indexes for name in sorted(index.subject.columns)],
    }
    named = set(root.columns)
    filters = []
    for kind, names in columns_by_kind.items():
        usable = [name for name in dict.fromkeys(names) if name not in named][:_MOST_NAMED]
        if usable:
            filters.append(f"{' or '.join(map(repr, usable))} ({kind})")
            named.update(usable)
    return filters


def _count_column_bytes(read: TableRead) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for plan in read.pruned:
        blocks = plan.source.blocks
        for choice in plan.choice:
            mask = plan.read & (blocks.layout == choice.layout)
            sizes.update({name: int(blocks.column_bytes(name)[mask].sum()) for name in choice.columns})
    return dict(sizes)
