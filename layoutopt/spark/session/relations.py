"""Relations that stand for what a scan leaves over, as texts over views of a table's files that are made once.

Planning a query must cost little where the query itself is quick. So the files of a snapshot's layout are listed once
for a session and kept as a view with two more columns, the block and the file of each row; a query reads a SELECT over
it. Spark leaves out files by the one before it starts, and row groups by the other while it reads.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from pyspark.sql import SparkSession

from layoutopt.model.columns import BLOCK
from layoutopt.model.schema import Schema
from layoutopt.model.types import quoted
from layoutopt.scan.reads import TableRead
from layoutopt.scan.table import Table
from layoutopt.spark.session.read import block_condition, null_columns, parquet_files, projected, readable

_FILE: Final = "_w_file"  # no table has names that begin so
_MOST_FILES: Final = 2_000  # named in a text; of more than that all are opened


def make_layout_view(spark: SparkSession, table: Table, layout: int) -> str:
    """Lists the files of a layout, and makes a view of all their rows; returns its name."""
    rows = parquet_files(spark, table.files(layout), table.schema.columns)
    # Views hide a file's metadata, so its name is taken first. Its path would be written in more than one way.
    with_file = rows.select("*", rows.metadataColumn("_metadata")["file_name"].alias(_FILE))
    texts = [readable(table, column, [layout]) for column in table.schema.columns]
    name = f"_layoutopt_files_{uuid.uuid4().hex}"
    projected(spark, with_file, [*texts, BLOCK, _FILE]).createTempView(name)
    return name


def relation_of(read: TableRead, views: Mapping[int, str]) -> str:
    """A query in parentheses whose rows are those that survive, with all columns of the table.

    Args:
        read: what is left of the table; each of its segments is read from one layout.
        views: a view for each layout that is read.
    """
    schema = read.table.schema
    if not read.columns:
        rows = sum(int(plan.source.blocks.rows[plan.read].sum()) for plan in read.pruned)
        return f"({_nothing(schema)} FROM range({rows}))"
    arms = [_arm(read, layout, view) for layout, view in sorted(views.items())]
    return f"({' UNION ALL '.join(arm for arm in arms if arm) or f'{_nothing(schema)} FROM range(0)'})"


def _nothing(schema: Schema) -> str:
    return f"SELECT {', '.join(null_columns(schema.columns))}"


def _arm(read: TableRead, layout: int, view: str) -> str:
    """The rows that one layout gives; an empty text where it gives none."""
    blocks: list[int] = []
    chosen: set[str] = set()
    others: set[str] = set()
    complete = True
    for pruned in read.pruned:
        of = pruned.source.blocks
        here = of.layout == layout
        wanted = pruned.read & here
        opened = np.zeros(len(of.files), dtype=np.bool_)
        opened[of.file[wanted]] = True
        blocks += of.block_id[wanted].tolist()
        chosen |= {_name(of.files[index]) for index in np.flatnonzero(opened)}
        others |= {_name(of.files[index]) for index in np.unique(of.file[here & ~opened[of.file]])}
        complete &= bool((wanted | ~opened[of.file]).all())
    if not blocks:
        return ""
    conditions = []
    if others and len(chosen) <= _MOST_FILES:
        conditions.append(f"{_FILE} IN ({', '.join(map(_literal, sorted(chosen)))})")
    # Names of files need not be unique, numbers of blocks are.
    if not complete or chosen & others or (others and not conditions):
        conditions.append(f"({block_condition(sorted(blocks))})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    names = ", ".join(quoted(name) for name in read.table.schema.names)
    return f"SELECT {names} FROM {quoted(view)}{where}"


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def layouts_read(read: TableRead) -> Sequence[int] | None:
    """The layouts that a scan reads, ascending; None where it puts rows together from several."""
    if any(len(pruned.choice) > 1 for pruned in read.pruned):
        return None
    found: Iterable[int] = (choice.layout for pruned in read.pruned for choice in pruned.choice)
    return sorted(set(found))
