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
from layoutopt.spark.session.conditions import blocks_of, choose
from layoutopt.spark.session.pushdown import readable
from layoutopt.spark.session.read import null_columns, parquet_files, projected

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
    blocks, files = blocks_of(read, layout)
    if not blocks.needed.any():
        return ""
    names = [path.rsplit("/", 1)[-1] for path in files]
    opened = np.unique(blocks.file[blocks.needed])
    can_name_files = len(opened) <= _MOST_FILES and len(set(names)) == len(names)
    chosen = choose(blocks, len(read.columns), can_name_files)
    conditions = []
    if chosen.files is not None:
        conditions.append(f"{_FILE} IN ({', '.join(_literal(names[index]) for index in chosen.files)})")
    if chosen.condition:
        conditions.append(f"({chosen.condition})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(quoted(name) for name in read.table.schema.names)
    return f"SELECT {columns} FROM {quoted(view)}{where}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def layouts_read(read: TableRead) -> Sequence[int] | None:
    """The layouts that a scan reads, ascending; None where it puts rows together from several."""
    if any(len(pruned.choice) > 1 for pruned in read.pruned):
        return None
    found: Iterable[int] = (choice.layout for pruned in read.pruned for choice in pruned.choice)
    return sorted(set(found))
