"""The block index (the file, partition, segment and layout of each block): its schema and its checks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.paths import is_safe_path
from layoutopt.catalog.statistics import statistics_type
from layoutopt.errors import CatalogError
from layoutopt.model.layout import Plan
from layoutopt.model.records import short
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import words_for

# Names repeat in long runs. Statistics hardly repeat: dictionaries of them cost more than they save.
REPEATING = ["file", "partition", "footer"]

# The column of measured indexes in tables of unwritten blocks; blocks files never have it.
INDEXES = "indexes"

# Valid blocks take a few times their compressed bytes. A higher ratio is an attempt to fill the memory.
_MOST_EXPANSION = 256
_FREE_BYTES = 64 * 2**20
_LONGEST_TEXT = 8 * 1024
# Columns that older tables lack.
_LATER = {"footer": pa.string(), "start": pa.int64()}


def block_schema(schema: Schema, n_words: int) -> pa.Schema:
    """Return the Arrow schema of a table with one row a block.

    ``words`` holds the union vector's bit patterns as ``n_words`` int64; ``stats`` has one child ``c<i>`` for the i-th
    column of ``schema``, null where the block does not hold that column. ``footer`` is the digest of the file's footer.
    ``start`` is the offset of the block's column chunks if they lie in the order of the file's columns. Both are null
    where unknown.
    """
    return pa.schema(
        [
            pa.field("file", pa.string(), nullable=False),
            pa.field("row_group", pa.int32(), nullable=False),
            pa.field("block", pa.int64(), nullable=False),
            pa.field("partition", pa.string(), nullable=False),
            pa.field("segment", pa.int32(), nullable=False),
            pa.field("layout", pa.int16(), nullable=False),
            pa.field("part", pa.int8(), nullable=False),
            pa.field("rows", pa.int64(), nullable=False),
            pa.field("bytes", pa.int64(), nullable=False),
            pa.field("tid_bytes", pa.int64(), nullable=False),
            pa.field("words", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
            pa.field("stats", statistics_type(schema), nullable=False),
            pa.field("footer", pa.string()),
            pa.field("start", pa.int64()),
        ],
        metadata={"layoutopt.words": str(n_words)},
    )


def damage_error(where: str, reason: str) -> CatalogError:
    """Return the error for a blocks file whose content can't be used."""
    return CatalogError(f"{where} is damaged ({short(reason)}); restore the file from a copy or load again")


def check_expansion(metadata: pq.FileMetaData, size: int, where: str) -> None:
    """Raise CatalogError if the metadata of a file of ``size`` bytes declares far more bytes in memory."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    decoded = sum(group.column(i).total_uncompressed_size for group in groups for i in range(group.num_columns))
    most = _FREE_BYTES + _MOST_EXPANSION * size
    for needed in (decoded, 8 * metadata.num_rows):
        if needed > most:
            raise damage_error(where, f"its {size} bytes expand to {needed}")


def plain_texts(table: pa.Table, where: str) -> pa.Table:
    """Return dictionary-encoded texts as plain ones; raise CatalogError if one is too long to be a path or a digest."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            for chunk in table.column(i).chunks:
                longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
                if longest > _LONGEST_TEXT:
                    raise damage_error(where, f"its column {field.name} has a text of {longest} bytes")
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    return table


def check_block_index(table: pa.Table, plan: Plan, where: str) -> pa.Table:
    """Return the columns of :func:`block_schema` but ``stats``; raise CatalogError where one is missing or invalid.

    The ``footer`` and ``start`` of older tables are null.
    """
    for name, type in _LATER.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, type))
    fields = [field for field in block_schema(plan.schema, words_for(len(plan.features))) if field.name != "stats"]
    for field in fields:
        if field.name not in table.column_names:
            raise damage_error(where, f"it has no column {field.name}")
        _check_column(table[field.name], field, where)
    widths = pc.unique(pc.list_value_length(table["words"])).to_pylist()
    if set(widths) - {None, words_for(len(plan.features))}:
        raise damage_error(where, f"its union vectors have {widths} words, the plan {words_for(len(plan.features))}")
    layouts = len(plan.scheme.layouts)
    if table.num_rows and pc.max(table["layout"]).as_py() >= layouts:
        raise damage_error(where, f"it names layout {pc.max(table['layout']).as_py()}, the plan has {layouts}")
    _check_names(table, where)
    return table.select([field.name for field in fields]).combine_chunks()


def _check_column(column: pa.ChunkedArray, field: pa.Field, where: str) -> None:
    if column.type != field.type and not (pa.types.is_list(column.type) and column.type.value_type == pa.int64()):
        raise damage_error(where, f"its column {field.name} is of type {column.type}")
    if not (field.nullable or field.name == "words") and column.null_count:
        raise damage_error(where, f"its column {field.name} has a null")
    if field.name == "words" and pc.list_flatten(column).null_count:
        raise damage_error(where, "a union vector has a null word")
    lowest = {"rows": 1, "block": None}.get(field.name, 0)
    known = len(column) - column.null_count
    if pa.types.is_integer(field.type) and lowest is not None and known and pc.min(column).as_py() < lowest:
        raise damage_error(where, f"its column {field.name} has the value {pc.min(column).as_py()}")


def _check_names(table: pa.Table, where: str) -> None:
    for name in ("file", "partition"):
        for path in pc.unique(table[name]).to_pylist():
            if not is_safe_path(path):
                raise damage_error(where, f"it names {path!r}, which is no path inside the table")
    if pc.count_distinct(table["block"]).as_py() < table.num_rows:
        raise damage_error(where, "it has a block twice")
