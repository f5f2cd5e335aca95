"""Reading surviving row groups with Spark: its native Parquet reader where one layout is read, Arrow where rows are put
together from several.

Spark skips row groups by a filter on ``_block`` that it pushes to Parquet. Pushdown loses NaN rows of float columns
(Spark compares with min/max, which leave NaN out), so float columns that may hold one, and structs of floats, are read
through an identity that Spark can't push through; every other filter of the query may be pushed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.keys import FLOATS
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import QueryError
from layoutopt.foreign.source_files import SourceFiles
from layoutopt.model.columns import BLOCK
from layoutopt.model.predicates import TRUE, Filter, Node
from layoutopt.model.schema import Column as SchemaColumn
from layoutopt.model.schema import schema_ddl
from layoutopt.model.types import quoted
from layoutopt.scan import check_switch as switch
from layoutopt.scan.checked import table_read
from layoutopt.scan.checking.texts import check_text
from layoutopt.scan.files import footer_of
from layoutopt.scan.foreign.rows import live_rows
from layoutopt.scan.read import read_segments
from layoutopt.scan.reads import TableRead, split_by_deletes
from layoutopt.scan.segments import SegmentRead, by_file
from layoutopt.scan.table import Scan, Table
from layoutopt.spark.core.functions import declare, declared, is_registered
from layoutopt.spark.core.patterns import as_no_pattern
from layoutopt.spark.core.sessions import own_parquet_reader, session_meaning
from layoutopt.spark.core.workers import Batches, Task, map_in_workers
from layoutopt.spark.session.absent import absent_columns, or_absent
from layoutopt.spark.session.by_driver import driver_rows, is_read_by_driver
from layoutopt.spark.session.checking import check_answer
from layoutopt.spark.session.conditions import blocks_of, choose
from layoutopt.spark.session.listing import most_listed
from layoutopt.spark.session.pushdown import readable
from layoutopt.spark.session.small_row_groups import are_read_by_tasks
from layoutopt.sql.references import Span, references_of, splice_relations

log = logging.getLogger("layoutopt.spark")

# A file that vacuum has deleted since must never read as empty, whatever the session says of other sources.
# Pages have checksums; footers, whose digests only layoutopt knows, are the business of `verify` here.
# Dates are written as they are: no session's mode for files of unknown writers may move those before 1582.
STRICT = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
# Parquet's reader finds 0.0 and -0.0 different in a dictionary, where Spark finds them equal.
_NO_DICTIONARIES = {"parquet.filter.dictionary.enabled": "false"}
_ROWS_A_TASK: Final = 1_000_000


def scan_to_dataframe(spark: SparkSession, scan: Scan) -> DataFrame:
    """The answer to a scan's text as a DataFrame: Spark runs the text, each mention of the table reads what survives.

    Features are used only where the session's settings are those under which they were measured. Where a text may mean
    something else in the session than what is analysed, the tables are read whole, with a warning.

    Raises:
        QueryError: the text's mentions of the table can't be told apart.
        SkippingError: skipping is checked, and a row that the text asks for is skipped.
        pyspark.errors.PySparkException: Spark can't run the text.
    """
    meaning = session_meaning(spark)
    scan = replace(scan, table=with_functions(spark, scan.table))
    reads = reads_in_session(spark, scan)
    answer = _answer(spark, scan, reads)
    if switch.is_on() and not check_text(scan.sql, reads, meaning.settings):
        check_answer(scan.sql, answer, lambda: _answer(spark, scan, tuple(map(_whole, reads))))
    return answer


def reads_in_session(spark: SparkSession, scan: Scan) -> tuple[TableRead, ...]:
    """What a scan's text reads of its table in a session: all, with a warning, where it may mean something else there.

    Raises as :meth:`Table.scan`.
    """
    meaning = session_meaning(spark)
    reads = scan.table.reads_under(scan.sql, meaning.settings)
    why = meaning.unclear(scan.sql)
    if why:
        log.warning("%s: the tables of %.80r are read whole", why, scan.sql)
        reads = tuple(map(_whole, reads))
    return reads


def with_functions(spark: SparkSession, table: Table) -> Table:
    """The table with the functions that mean the same in the session; those that it lacks are declared there."""
    missing = [udf for udf in table.udfs.values() if not is_registered(spark, udf.name)]
    declare(spark, *missing)
    known = declared(spark)
    same = {name: udf for name, udf in table.udfs.items() if known.get(name) == udf}
    return table if same == table.udfs else replace(table, udfs=same)


def _answer(spark: SparkSession, scan: Scan, reads: Sequence[TableRead]) -> DataFrame:
    """What Spark makes of a scan's text over views of what its mentions read."""
    views: list[str] = []
    relations: dict[Span, str] = {}
    try:
        for one in reads:
            if one.scan.span is None:
                raise QueryError(f"a mention of {scan.table.name!r} can't be found in the text; write its name plainly")
            view = f"_layoutopt_{uuid.uuid4().hex}"
            relations[one.scan.span] = quoted(view)
            now = is_read_by_driver(one, references_of(scan.sql).explicit)
            (rows_now_or_later if now else read_to_dataframe)(spark, one).createTempView(view)
            views.append(view)
        return spark.sql(splice_relations(scan.sql, relations))
    finally:
        # spark.sql() has resolved the views: the DataFrame needs their names no more.
        for view in views:
            spark.catalog.dropTempView(view)


def _whole(read: TableRead) -> TableRead:
    """All that the mentioned table holds."""
    scan = replace(read.scan, columns=read.table.schema.names, filter=Filter.of(TRUE))
    return table_read(read.table, scan, read.table.settings)


def spark_sql(spark: SparkSession, table: Table, sql: str) -> DataFrame:
    """The answer to a SQL text over a table, as a DataFrame; raises as :func:`scan_to_dataframe`."""
    return scan_to_dataframe(spark, table.scan(sql))


def rows_now_or_later(spark: SparkSession, read: TableRead) -> DataFrame:
    """The columns that are read, by the driver now; all, by tasks when an action runs, where that is too much."""
    found = driver_rows(spark, read)
    return read_to_dataframe(spark, read) if found is None else found


def read_to_dataframe(spark: SparkSession, read: TableRead) -> DataFrame:
    """The rows that survive, under the table's whole schema, so that ``*`` means the same as on the source.

    The native reader leaves unread columns to Spark, which prunes them; elsewhere they fail if asked for. It knows
    nothing of deleted rows, so blocks that have some are read as rows of several layouts are.
    """
    segments = read.segments
    by_tasks = not read.table.catalog.data.is_plain or any(len(segment.layouts) > 1 for segment in segments)
    if read.columns and segments and (by_tasks or are_read_by_tasks(read)):
        return _with_all_columns(spark, read, _by_arrow(spark, read, segments))
    clean, rest = split_by_deletes(read)
    if rest is None:
        return _of_one_layout(spark, read)
    if not read.columns:
        return _counted(spark, read)
    rows = _with_all_columns(spark, rest, _by_arrow(spark, rest, rest.segments))
    return rows.unionAll(_of_one_layout(spark, clean)) if clean.segments else rows


def _of_one_layout(spark: SparkSession, read: TableRead) -> DataFrame:
    """The rows of a read of one layout, none of whose blocks has a deleted row."""
    if read.table.catalog.data.is_plain and all(len(pruned.source.plan.scheme.layouts) == 1 for pruned in read.pruned):
        read = replace(read, scan=replace(read.scan, columns=read.table.schema.names))
    if not read.segments:
        return spark.createDataFrame([], schema_ddl(read.table.schema.columns))
    if not read.columns:
        return _counted(spark, read)
    return _by_native_reader(spark, read)


def _counted(spark: SparkSession, read: TableRead) -> DataFrame:
    """As many rows as the catalog says are left, with no values."""
    data = read.table.catalog.data
    files = (file for segment in read.segments for file in segment.layouts[0].files)
    count = sum(live_rows(data, file, partial(footer_of, data)) for file in files)
    return spark.range(count).selectExpr(*absent_columns(read.table.schema.columns))


def _with_all_columns(spark: SparkSession, read: TableRead, rows: DataFrame) -> DataFrame:
    present = {column.name for column in read.columns}
    return projected(spark, rows, [or_absent(column, present) for column in read.table.schema.columns])


def projected(spark: SparkSession, rows: DataFrame, texts: Sequence[str], where: str = "") -> DataFrame:
    """Expressions over rows, by one text: building as many columns one by one takes Spark's driver some 0.1 s."""
    view = f"_layoutopt_{uuid.uuid4().hex}"
    rows.createTempView(view)
    try:
        condition = f" WHERE {where}" if where else ""
        # The class's method: the session's own may have been replaced.
        return SparkSession.sql(spark, f"SELECT {', '.join(texts)} FROM {view}{condition}")
    finally:
        spark.catalog.dropTempView(view)


def parquet_files(spark: SparkSession, paths: Sequence[str], columns: Sequence[SchemaColumn]) -> DataFrame:
    """All rows of data files by Spark's own reader, with their blocks; a column that a file lacks is NULL."""
    schema = schema_ddl((*columns, SchemaColumn(BLOCK, "bigint")))
    options = STRICT | (_NO_DICTIONARIES if any(column.type in FLOATS for column in columns) else {})
    with own_parquet_reader(spark):
        return spark.read.schema(schema).options(**options).parquet(*map(as_no_pattern, paths))


def _by_native_reader(spark: SparkSession, read: TableRead) -> DataFrame:
    blocks, files = blocks_of(read)
    chosen = choose(blocks.in_needed_files(), len(read.columns), False, most_listed(spark))
    full_path = read.table.catalog.data.full_path
    rows = parquet_files(spark, [full_path(files[index]) for index in blocks.needed_files], read.columns)
    present = {column.name for column in read.columns}
    texts = [
        readable(read.table, column, read.layouts) if column.name in present else or_absent(column, present)
        for column in read.table.schema.columns
    ]
    return projected(spark, rows, texts, chosen.condition)


def _by_arrow(spark: SparkSession, read: TableRead, segments: Sequence[SegmentRead]) -> DataFrame:
    """Tasks put rows of segments together by tid, or read files of others, or encrypted ones."""
    data = read.table.catalog.data
    return in_workers(spark, data, by_file(segments), read.columns, read.scan.filter.root)


def in_workers(
    spark: SparkSession,
    files: TableFiles,
    segments: Sequence[SegmentRead],
    columns: Sequence[SchemaColumn],
    condition: Node = TRUE,
) -> DataFrame:
    """Some columns of the rows of segments, as tasks read them by themselves; only row groups and paths travel."""
    known = files.for_tasks()
    if isinstance(known, SourceFiles):
        known = known.only({file.path for one in segments for file in one.layouts[0].files})
    reader = _segment_reader(known, list(segments), list(columns), condition)
    return map_in_workers(segment_numbers(spark, segments), reader, schema_ddl(columns))


def segment_numbers(spark: SparkSession, segments: Sequence[SegmentRead]) -> DataFrame:
    """The places of some segments in their order, dealt out to tasks that read them."""
    return spark.range(len(segments), numPartitions=_tasks(spark, segments))


def _tasks(spark: SparkSession, segments: Sequence[SegmentRead]) -> int:
    """One for each core, and up to four where there is work for them: each costs a worker as much as 100,000 rows."""
    rows = sum(sum(file.rows) for segment in segments for layout in segment.layouts for file in layout.files)
    cores = spark.sparkContext.defaultParallelism
    return min(len(segments), max(cores, min(4 * cores, rows // _ROWS_A_TASK)))


def _segment_reader(
    files: TableFiles, segments: list[SegmentRead], columns: list[SchemaColumn], condition: Node
) -> Task:
    checked = switch.is_on()  # executors have an environment of their own

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        known = files if isinstance(files, SourceFiles) else _files(files)
        for batch in batches:
            chosen = [segments[number] for number in batch.column(0).to_pylist()]
            yield from read_segments(known, chosen, columns, condition=condition, checked=checked)

    return read


@lru_cache(maxsize=1)
def _files(files: TableFiles) -> TableFiles:
    """A table's files, whose footers a worker knows from one task to the next: decoding them takes longer than rows."""
    return files
