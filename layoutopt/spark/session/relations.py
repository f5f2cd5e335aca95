"""Relations that stand for what a scan leaves over, as texts over views of a table's files that are made once.

Planning a query must cost little where the query itself is quick. So the files of a snapshot's layout are listed once
for a session and kept as views; a query reads one of them, or a SELECT over it. Spark leaves out files by their names
before it starts, and row groups by their blocks while it reads. Each has its price: where a view shows the names of
files, Spark puts all that it knows of a file beside each row. So there is a view for each need.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from layoutopt.model.columns import BLOCK
from layoutopt.model.schema import Schema
from layoutopt.model.types import quoted
from layoutopt.model.values.constants import text_sql
from layoutopt.scan.reads import TableRead
from layoutopt.scan.table import Table
from layoutopt.spark.session.conditions import blocks_of, choose
from layoutopt.spark.session.pushdown import readable
from layoutopt.spark.session.read import null_columns, parquet_files

_FILE: Final = "_w_file"  # no table has names that begin so
_MOST_FILES: Final = 2_000  # named in a text; of more than that all are opened


@dataclass(frozen=True)
class LayoutViews:
    """Views of all rows of a layout's files, by name: with the table's columns alone, with their blocks, and with
    their blocks and files."""

    rows: str
    blocks: str
    files: str


def make_layout_views(spark: SparkSession, table: Table, layout: int) -> LayoutViews:
    """Lists the files of a layout, and makes views of all their rows."""
    rows = parquet_files(spark, table.files(layout), table.schema.columns)
    texts = [readable(table, column, [layout]) for column in table.schema.columns]
    name = f"_layoutopt_{uuid.uuid4().hex}"
    views = LayoutViews(f"{name}_rows", f"{name}_blocks", f"{name}_files")
    rows.selectExpr(*texts).createTempView(views.rows)
    rows.selectExpr(*texts, BLOCK).createTempView(views.blocks)
    # A column may be called _metadata, too. A file's path would be written in more than one way.
    with_file = rows.select("*", rows.metadataColumn("_metadata")["file_name"].alias(_FILE))
    with_file.selectExpr(*texts, BLOCK, _FILE).createTempView(views.files)
    return views


def relation_of(read: TableRead, views: Mapping[int, LayoutViews]) -> str:
    """What to read in the table's place, with all its columns: a view, or a query in parentheses.

    Args:
        read: what is left of the table; each of its segments is read from one layout.
        views: those of each layout that is read.
    """
    schema = read.table.schema
    if not read.columns:
        rows = sum(int(plan.source.blocks.rows[plan.read].sum()) for plan in read.pruned)
        return f"({_nothing(schema)} FROM range({rows}))"
    arms = [arm for layout, of in sorted(views.items()) if (arm := _arm(read, layout, of)) is not None]
    if len(arms) == 1 and not arms[0].where:
        return quoted(arms[0].view)
    columns = ", ".join(quoted(name) for name in schema.names)
    texts = [f"SELECT {columns} FROM {quoted(arm.view)}{arm.where}" for arm in arms]
    return f"({' UNION ALL '.join(texts) or f'{_nothing(schema)} FROM range(0)'})"


def _nothing(schema: Schema) -> str:
    return f"SELECT {', '.join(null_columns(schema.columns))}"


@dataclass(frozen=True)
class _Arm:
    """The rows that one layout gives: of a view, those that meet a condition."""

    view: str
    where: str


def _arm(read: TableRead, layout: int, views: LayoutViews) -> _Arm | None:
    """The rows that one layout gives; None where it gives none."""
    blocks, files = blocks_of(read, layout)
    if not blocks.needed.any():
        return None
    names = [path.rsplit("/", 1)[-1] for path in files]
    can_name_files = len(blocks.needed_files) <= _MOST_FILES and len(set(names)) == len(names)
    chosen = choose(blocks, len(read.columns), can_name_files)
    conditions = []
    if chosen.files is not None:
        conditions.append(f"{_FILE} IN ({', '.join(text_sql(names[index]) for index in chosen.files)})")
    if chosen.condition:
        conditions.append(f"({chosen.condition})")
    if not conditions:
        return _Arm(views.rows, "")
    return _Arm(views.blocks if chosen.files is None else views.files, f" WHERE {' AND '.join(conditions)}")


def layouts_read(read: TableRead) -> Sequence[int] | None:
    """The layouts that a scan reads, ascending; None where it puts rows together from several."""
    if any(len(pruned.choice) > 1 for pruned in read.pruned):
        return None
    return read.layouts
