"""What was written is what the source has: rows and checksums in total, and every partition by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.checks import Content, check_content, check_positions
from layoutopt.catalog.entries import written_content, written_positions
from layoutopt.errors import ContentMismatchError
from layoutopt.scan.segments import LayoutRead, SegmentRead, file_reads
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.patterns import as_no_pattern
from layoutopt.spark.core.source import checksum_column, measure_content
from layoutopt.spark.loading.job import Loading
from layoutopt.spark.session.files import STRICT
from layoutopt.spark.session.read import in_workers
from layoutopt.writer.checksum import is_hashable
from layoutopt.writer.written import Written


def check_written(one: Loading, written: Written) -> None:
    """Refuse blocks that are not the source's rows; a task that ran twice may be observed twice, so sum again first."""
    table = BlockTable.from_arrow(written.blocks, one.plan)
    measured = written_content(table)
    content = Content(measured.rows, {**dict(measured.sums), **_read_back(one, written.blocks)})
    if one.basis.content is not None:
        known = {name: sum for name, sum in content.sums.items() if name in one.basis.content.sums}
        check_content(one.basis.content, Content(content.rows, known), one.source_name)
    try:
        check_content(written.observed, content, one.source_name)
    except ContentMismatchError:
        check_content(measure_content(one.source, one.source_name), content, one.source_name)
    if one.plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), one.source_name)


def _read_back(one: Loading, blocks: pa.Table) -> dict[str, int]:
    """Checksums of the columns that only Spark can hash (nested, collated), from the files written."""
    unhashed = {c.name for c in one.plan.schema.columns if not is_hashable(c.type)}
    sums: dict[str, int] = {}
    for index, layout in enumerate(one.plan.scheme.layouts):
        fields = [f for f in one.source.schema.fields if f.name in unhashed and f.name in layout.master]
        unhashed -= {field.name for field in fields}
        if fields:
            sums |= _read_back_layout(one, blocks, index, StructType(fields))
    return sums


def _read_back_layout(one: Loading, blocks: pa.Table, layout: int, fields: StructType) -> dict[str, int]:
    of_layout = blocks.filter(pa.compute.equal(blocks["layout"], layout))
    if not of_layout.num_rows:
        return dict.fromkeys(fields.names, 0)
    columns = [checksum_column(field.name, field.dataType).alias(field.name) for field in fields]
    with translate_spark_errors("the files just written"):
        row = _rows_written(one, of_layout, fields).agg(*columns).first()
    return {} if row is None else {name: int(row[name]) for name in fields.names}


def _rows_written(one: Loading, blocks: pa.Table, fields: StructType) -> DataFrame:
    """Some columns of all blocks of a layout, by Spark's own reader where it can read the files."""
    if one.files.is_plain:
        paths = [one.files.full_path(path) for path in dict.fromkeys(blocks["file"].to_pylist())]
        return one.spark.read.schema(fields).options(**STRICT).parquet(*map(as_no_pattern, paths))
    table = BlockTable.from_arrow(blocks, one.plan)
    files = file_reads(table, np.lexsort((table.row_group, table.file)))
    segments = [SegmentRead("", 0, (LayoutRead(0, tuple(fields.names), (file,)),)) for file in files]
    return in_workers(one.spark, one.files, segments, one.plan.schema.select(fields.names).columns)
