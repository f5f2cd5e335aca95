"""Relations that stand for what a scan leaves over, as texts over views of a table's files that are made once.

Planning a query must cost little where the query itself is quick. So the files of a snapshot's layout are listed once
for a session and kept as views; a query reads one of them, or a SELECT over it. Spark leaves out files by their names
before it starts, and row groups by their blocks while it reads. Each has its price: where a view shows the names of
files, Spark puts all that it knows of a file beside each row. So there is a view for each need, and a few files that
queries ask for together have one of their own: Spark cuts files into tasks by the bytes of all files of a view, so that
one file of many is a task for one core.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from layoutopt.model.columns import BLOCK
from layoutopt.model.layout import Plan
from layoutopt.model.types import quoted
from layoutopt.model.values.constants import text_sql
from layoutopt.scan.opened import OpenedTable
from layoutopt.scan.reads import TableRead
from layoutopt.scan.table import Table
from layoutopt.spark.session.absent import absent_columns, null_columns
from layoutopt.spark.session.conditions import Candidates, Choice, blocks_of, choose
from layoutopt.spark.session.listing import most_listed
from layoutopt.spark.session.pushdown import readable
from layoutopt.spark.session.read import parquet_files
from layoutopt.spark.session.small_row_groups import are_read_by_tasks

_FILE: Final = "_w_file"  # no table has names that begin so
_MOST_FILES: Final = 2_000  # named in a text; of more than that all are opened
_FEW_FILES: Final = 32  # of which a view is made; Spark looks for more of them by a job of its own
_CUT_BYTES: Final = 1 << 23  # for each core: Spark cuts off 4 MB at least, so less is cut unevenly or not at all
_MOST_PARTS: Final = 4  # each is one more relation to be planned
_ROWS_OF_A_PART: Final = 100_000
_MOST_VIEWS: Final = 256  # of a layout's; each keeps what Spark knows of its files


@dataclass(frozen=True, eq=False)
class LayoutViews:
    """Views of the rows of a layout's files, by name.

    Attributes:
        rows: of all files, with the table's columns alone.
        blocks: the same with their blocks.
        files: the same with their blocks and files.
        of_few: of a few files, by their paths, with their blocks; made when they are first asked for.
    """

    rows: str
    blocks: str
    files: str
    of_few: dict[tuple[str, ...], str] = field(default_factory=dict)
    _making: Lock = field(default_factory=Lock)

    @property
    def names(self) -> tuple[str, ...]:
        """All views there are."""
        return (self.rows, self.blocks, self.files, *self.of_few.values())

    def view_of(self, spark: SparkSession, read: TableRead, layout: int, paths: Sequence[str]) -> str | None:
        """The view of a few files of the layout; None where there are too many views."""
        key = tuple(sorted(paths))
        table = read.table
        with self._making:
            if key not in self.of_few and len(self.of_few) < _MOST_VIEWS:
                full_paths = [table.catalog.data.full_path(path) for path in key]
                rows = parquet_files(spark, full_paths, table.schema.columns)
                self.of_few[key] = _make_view(rows, [*_readable(table, layout), BLOCK])
            return self.of_few.get(key)


def make_layout_views(spark: SparkSession, table: Table, layout: int) -> LayoutViews:
    """Lists the files of a layout, and makes views of all their rows."""
    rows = parquet_files(spark, table.data_files(layout), table.schema.columns)
    texts = _readable(table, layout)
    # A column may be called _metadata, too. A file's path would be written in more than one way.
    with_file = rows.select("*", rows.metadataColumn("_metadata")["file_name"].alias(_FILE))
    return LayoutViews(
        rows=_make_view(rows, texts),
        blocks=_make_view(rows, [*texts, BLOCK]),
        files=_make_view(with_file, [*texts, BLOCK, _FILE]),
    )


def _readable(table: OpenedTable, layout: int) -> list[str]:
    elsewhere = _held_elsewhere(table, layout)
    return [
        absent_columns([column])[0] if column.name in elsewhere else readable(table, column, [layout])
        for column in table.schema.columns
    ]


def _held_elsewhere(table: OpenedTable, layout: int) -> frozenset[str]:
    """The columns that a layout has by no plan, though others have them: in its files they look like NULL."""
    plans = table.catalog.plans.values()
    here = {name for plan in plans for name in _columns_of(plan, layout)}
    return frozenset(name for plan in plans for name in plan.schema.names if name not in here)


def _columns_of(plan: Plan, layout: int) -> tuple[str, ...]:
    layouts = plan.scheme.layouts
    return layouts[layout].columns if layout < len(layouts) else ()


def _make_view(rows: DataFrame, texts: Sequence[str]) -> str:
    """Makes a view of some expressions over rows; returns its name."""
    name = f"_layoutopt_{uuid.uuid4().hex}"
    rows.selectExpr(*texts).createTempView(name)
    return name


def relation_of(spark: SparkSession, read: TableRead, views: Mapping[int, LayoutViews], alone: bool = False) -> str:
    """What to read in the table's place, with all its columns: a view, or a query in parentheses.

    Args:
        spark: the session whose views they are.
        read: what is left of the table; each of its segments is read from one layout, and has no deleted rows.
        views: those of each layout that is read.
        alone: whether the text reads nothing else: in parts a table looks as many times as large to Spark, which may
            then not send it to all tasks of a join.
    """
    schema = read.table.schema
    if not read.columns and (rows := read.rows):
        return f"(SELECT {', '.join(absent_columns(schema.columns))} FROM range({rows}))"
    arms = [arm for layout, of in sorted(views.items()) for arm in _arms(spark, read, layout, of, alone)]
    if len(arms) == 1 and arms[0].view in {of.rows for of in views.values()}:
        return quoted(arms[0].view)
    if not arms:
        return f"(SELECT {', '.join(null_columns(schema.columns))} WHERE false)"
    columns = ", ".join(quoted(name) for name in schema.names)
    return f"({' UNION ALL '.join(f'SELECT {columns} FROM {quoted(arm.view)}{arm.where}' for arm in arms)})"


@dataclass(frozen=True)
class _Arm:
    """The rows that one layout gives: of a view, those that meet a condition."""

    view: str
    where: str


def _arms(spark: SparkSession, read: TableRead, layout: int, views: LayoutViews, parted: bool) -> list[_Arm]:
    """The rows that one layout gives, in parts where that is allowed and all cores then have something to read."""
    blocks, files = blocks_of(read, layout)
    if not blocks.needed.any():
        return []
    if len(blocks.needed_files) <= _FEW_FILES and not np.isin(blocks.file, blocks.needed_files).all():
        few = views.view_of(spark, read, layout, [files[index] for index in blocks.needed_files])
        if few is not None:
            blocks = blocks.in_needed_files()
            return _asked(spark, few, blocks, choose(blocks, len(read.columns), False, most_listed(spark)), parted)
    names = [path.rsplit("/", 1)[-1] for path in files]
    can_name_files = len(blocks.needed_files) <= _MOST_FILES and len(set(names)) == len(names)
    chosen = choose(blocks, len(read.columns), can_name_files, most_listed(spark))
    if chosen.files is None:
        return _asked(spark, views.blocks if chosen.condition else views.rows, blocks, chosen, parted)
    conditions = [f"{_FILE} IN ({', '.join(text_sql(names[index]) for index in chosen.files)})"]
    if chosen.condition:
        conditions.append(f"({chosen.condition})")
    return [_Arm(views.files, f" WHERE {' AND '.join(conditions)}")]


def _asked(spark: SparkSession, view: str, blocks: Candidates, chosen: Choice, parted: bool) -> list[_Arm]:
    """What is asked of a view's blocks, in parts where Spark would read its files by few tasks.

    Args:
        spark: the session.
        view: of files with all these blocks, which every part opens.
        blocks: those of the view's files.
        chosen: which are read.
        parted: whether it may be in parts; only listed blocks are.
    """
    parts = _parts(blocks, spark.sparkContext.defaultParallelism) if parted and chosen.listed is not None else 1
    conditions = [part.condition for part in chosen.in_parts(blocks.rows[blocks.needed], parts)]
    return [_Arm(view, f" WHERE {condition}" if condition else "") for condition in conditions]


def _parts(blocks: Candidates, cores: int) -> int:
    """In how many parts to read what is needed of a view's files.

    Of small ones Spark cuts none, whatever rows they have. Large ones it cuts for all cores, and many small ones it
    deals out to them.
    """
    if blocks.bytes.sum() >= _CUT_BYTES * cores:
        return 1
    files, rows = len(np.unique(blocks.file)), int(blocks.rows[blocks.needed].sum())
    return max(1, min(cores, _MOST_PARTS, -(-2 * cores // files), rows // _ROWS_OF_A_PART))


def layouts_read(read: TableRead) -> Sequence[int] | None:
    """The layouts that a scan reads, ascending; None where tasks of ours read it.

    They do so where rows are put together from several layouts, where files are encrypted or others', and where Spark's
    own reader takes longer.
    """
    if not read.table.catalog.data.is_plain or any(len(pruned.choice) > 1 for pruned in read.pruned):
        return None
    if are_read_by_tasks(read):
        return None
    return read.layouts
