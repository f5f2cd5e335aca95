"""Choose what reads the blocks that a query needs, and build its plan: one function decides for all queries.

* ``native``: Spark's own Parquet reader, which skips row groups by a condition on ``_block`` that is pushed to Parquet.
* ``tasks``: Spark's tasks, which read by Arrow what Spark's reader cannot: rows put together from several layouts,
  encrypted files and external ones, blocks with deleted rows. They also read few of very many row groups sooner, since
  the catalog says where these are and no footer has to be decoded.
* ``driver``: this process, which reads what little is left while tasks would still begin. It holds at most
  :data:`_MOST_HELD` bytes, on any cluster.

Seconds were measured on two cores of 2026; only their ratios count.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from pyspark.sql import SparkSession

from layoutopt.inspect.work import work_of
from layoutopt.model.engine_costs import Work
from layoutopt.scan.arrow_types import arrow_type
from layoutopt.scan.reads import TableRead, has_deleted_rows, rows_at_once, split_by_deletes
from layoutopt.spark.catalyst.rule import analyzed
from layoutopt.spark.session.files import SnapshotFiles
from layoutopt.spark.session.read import (
    arrow_stream,
    count_rows,
    is_pushable,
    needed_blocks,
    read_by_tasks,
    rows_to_dataframe,
)

# So many values the driver decodes and puts together while tasks would begin and hand them over.
_MOST_VALUES: Final = 4_000_000
# Compressed column chunks that the driver reads.
_MOST_BYTES: Final = 16 << 20
# Rows in memory: texts may be far more than their chunks.
_MOST_HELD: Final = 64 << 20
# Of these, rows that become a part of the plan: of more, Spark's tasks read Arrow sooner.
_MOST_LOCAL: Final = 512 << 10
# Seconds in which Spark decodes what a footer says of one column chunk.
_FOOTER_CHUNK: Final = 2.7e-6
# Seconds until tasks begin, and end.
_TASKS: Final = 0.06
# Seconds in which a task opens a file.
_FILE: Final = 1e-3
# Seconds more for a value that a task reads.
_VALUE: Final = 20e-9
# Where fewer of the files have their chunks in the catalog, tasks decode footers too. Older tables have none.
_KNOWN_SHARE: Final = 0.75


class Reader(Enum):
    """What reads the blocks of a scan."""

    NATIVE = "native"
    TASKS = "tasks"
    DRIVER = "driver"


def choose_reader(read: TableRead, by_driver: bool) -> Reader:
    """Return the reader that takes the least time for a read that has columns.

    Args:
        read: what is left of the table.
        by_driver: whether the driver may read.
    """
    data, work = read.table.catalog.data, work_of(read.pruned)
    joined = any(len(plan.choice) > 1 for plan in read.pruned)
    sooner = are_tasks_sooner(read, work)
    if not (joined or sooner or not data.is_plain or has_deleted_rows(read)):
        return Reader.NATIVE
    few = work.bytes <= _MOST_BYTES and work.values + work.joined_values <= _MOST_VALUES
    if by_driver and few and data.is_plain and all(_is_same_to_both(column.type) for column in read.columns):
        return Reader.DRIVER
    return Reader.TASKS if joined or sooner or not data.is_plain else Reader.NATIVE


def are_tasks_sooner(read: TableRead, work: Work) -> bool:
    """Whether tasks read few of many small row groups sooner than Spark's reader, which has to decode footers."""
    if read.table.catalog.data.local_root is None:  # in a store, tasks decode footers, too
        return False
    if work.footer_chunks * _FOOTER_CHUNK < _TASKS + work.files * _FILE + work.values * _VALUE:
        return False
    known = [file.chunks is not None for one in read.segments for layout in one.layouts for file in layout.files]
    return sum(known) > _KNOWN_SHARE * len(known)


def _is_same_to_both(type: str) -> bool:
    """Whether values of a Spark type arrive unchanged from Arrow; nested and padded ones may not."""
    return arrow_type(type) is not None and type != "void" and "char(" not in type


def plan_read(
    spark: SparkSession, read: TableRead, scan: Any, files: SnapshotFiles | None, label: str, by_driver: bool
) -> Any:
    """Return the plan that stands in a scan's place.

    Args:
        spark: the session.
        read: what is left of the table.
        scan: the rule's scan.
        files: of the read's snapshot; None where Spark's own reader cannot read them.
        label: what Spark's pages call the scan.
        by_driver: whether the driver may read.

    Raises:
        DataFileError: the driver reads, and a data file is missing or damaged.
    """
    if not read.columns:
        return scan.count(count_rows(read))
    reader = choose_reader(read, by_driver)
    if reader is Reader.DRIVER:
        rows = rows_at_once(read, _MOST_HELD)
        rows = None if rows is None else rows.select(list(read.scan.columns))
        if rows is not None and rows.nbytes <= _MOST_LOCAL:
            return scan.local(arrow_stream(rows), label)
        if rows is not None:
            return scan.held(analyzed(rows_to_dataframe(spark, rows, read.columns)), int(rows.nbytes), label)
        reader = choose_reader(read, by_driver=False)
    if reader is Reader.TASKS or files is None:
        return scan.over(analyzed(read_by_tasks(spark, read, read.segments, label)))
    clean, rest = split_by_deletes(read)
    others = None if rest is None else analyzed(read_by_tasks(spark, rest, rest.segments, label))
    return _native(clean, scan, files, label, others)


def _native(read: TableRead, scan: Any, files: SnapshotFiles, label: str, others: Any) -> Any:
    opened, ids = needed_blocks(read)
    # Plans' files are numbered one plan after the other, so these ascend.
    numbers = [number for of_plan, here in zip(files.numbers, opened, strict=True) for number in of_plan[here].tolist()]
    size = sum(int(plan.bytes[plan.read].sum()) for plan in read.pruned)
    return scan.read(
        files.java,
        ",".join(map(str, numbers)),
        None if ids is None else ",".join(map(str, ids.tolist())),
        "\n".join(column.name for column in read.columns if not is_pushable(read, column)),
        size,
        label,
        others,
    )
