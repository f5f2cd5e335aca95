"""Footers: Thrift values are read as written, and a footer made of chunk sizes reads what the file's own does."""

from __future__ import annotations

import io
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.storage import footers
from layoutopt.catalog.storage.footers import (
    BINARY,
    I32,
    I64,
    LIST,
    STOP,
    STRUCT,
    ChunkSizes,
    FooterTemplate,
    ThriftReader,
    UnknownFooterError,
    footer_at_end,
    template_of,
)
from layoutopt.writer.encodings import column_bytes, list_chunks, row_group_starts

TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "tiny": pa.int8(),
    "price": pa.decimal128(15, 2),
    "wide": pa.decimal128(38, 3),
    "x": pa.float64(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "there": pa.timestamp("us"),
    "word": pa.string(),
    "large": pa.large_string(),
    "raw": pa.binary(),
    "list": pa.list_(pa.int32()),
    "st": pa.struct([("a", pa.int64()), ("word", pa.string())]),
    "map": pa.map_(pa.string(), pa.int32()),
}
NESTED = ("list", "st", "map")


def values(name: str, type: pa.DataType, rows: int, random: np.random.Generator) -> pa.Array:
    """Values with NULLs, many of them twice."""
    numbers = [None if random.random() < 0.2 else int(of) for of in random.integers(0, 20, rows)]
    if name == "list":
        return pa.array([None if of is None else [of, None] * (of % 3) for of in numbers], type)
    if name == "st":
        return pa.array([None if of is None else {"a": of, "word": str(of)} for of in numbers], type)
    if name == "map":
        return pa.array([None if of is None else [(str(i), i) for i in range(of % 4)] for of in numbers], type)
    if pa.types.is_binary(type) or pa.types.is_string(type) or pa.types.is_large_string(type):
        return pa.array([None if of is None else f"value {of}" for of in numbers]).cast(type)
    if pa.types.is_boolean(type):
        return pa.array([None if of is None else of > 9 for of in numbers], type)
    if pa.types.is_decimal(type):
        return pa.array([None if of is None else Decimal(of) for of in numbers], type)
    return pa.array(numbers, pa.int32() if name == "day" else pa.int64()).cast(type)


def written(names: list[str], groups: list[int], **options: Any) -> tuple[bytes, pq.FileMetaData]:
    """A file of so many rows a row group."""
    random, sink = np.random.default_rng(len(names)), io.BytesIO()
    rows = sum(groups)
    table = pa.table({name: values(name, TYPES[name], rows, random) for name in names})
    with pq.ParquetWriter(sink, table.schema, write_page_checksum=True, **options) as writer:
        start = 0
        for count in groups:
            writer.write_table(table.slice(start, count), row_group_size=count)
            start += count
    return sink.getvalue(), pq.read_metadata(sink)


def sizes_of(metadata: pq.FileMetaData) -> ChunkSizes:
    chunks = list_chunks(metadata)
    starts = np.array(row_group_starts(chunks), dtype=np.int64)
    sizes = column_bytes(chunks, metadata.schema.to_arrow_schema())
    names = tuple(sorted(sizes))  # in another order than the file's
    return ChunkSizes((*names, "elsewhere"), starts, np.stack([*(sizes[name] for name in names), 0 * starts], axis=1))


@given(st.data())
@pytest.mark.parametrize("index", [False, True])
def test_it_reads_what_the_whole_footer_reads(index: bool, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, unique=True))
    flat = [name for name in names if name not in NESTED]
    groups = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=20))
    codec = data.draw(st.sampled_from(["zstd", "snappy", "gzip", "none"]))
    dictionary = data.draw(st.booleans())
    content, metadata = written(names, groups, compression=codec, use_dictionary=dictionary, write_page_index=index)
    template = template_of(footer_at_end(content))
    assert list(template.elements) == flat
    wanted = data.draw(st.lists(st.sampled_from(flat), min_size=1, unique=True)) if flat else []
    if not wanted:
        return
    chosen = sorted(data.draw(st.sets(st.integers(0, len(groups) - 1), min_size=1)))
    trimmed = template.footer(wanted, sizes_of(metadata).only(np.array(chosen)), [groups[i] for i in chosen])
    assert (trimmed.num_row_groups, trimmed.num_columns) == (len(chosen), len(wanted))
    with pq.ParquetFile(io.BytesIO(content), metadata=trimmed, page_checksum_verification=True) as file:
        found = file.read()
    expected = pq.ParquetFile(io.BytesIO(content)).read_row_groups(chosen, columns=wanted).select(wanted)
    assert found.equals(expected)
    assert found.schema.equals(expected.schema)


@pytest.fixture
def made() -> tuple[FooterTemplate, ChunkSizes]:
    content, metadata = written(["int", "st", "word"], [5, 6])
    return template_of(footer_at_end(content)), sizes_of(metadata)


@pytest.mark.parametrize("name", ["st", "a", "nowhere"])
def test_nested_and_missing_columns_are_not_told(made: tuple[FooterTemplate, ChunkSizes], name: str) -> None:
    template, sizes = made
    with pytest.raises(UnknownFooterError):
        template.footer(["int", name], sizes, [5, 6])


@pytest.mark.parametrize(("name", "row_group", "size"), [("elsewhere", 1, 9), ("word", slice(None), 0), ("word", 1, 0)])
def test_a_file_of_other_columns_than_are_known_is_not_read(
    made: tuple[FooterTemplate, ChunkSizes], name: str, row_group: int | slice, size: int
) -> None:
    template, sizes = made
    changed = sizes.sizes.copy()
    changed[row_group, sizes.names.index(name)] = size
    for unknown in (replace(sizes, sizes=changed), replace(sizes, starts=np.array([4, -1]))):
        with pytest.raises(UnknownFooterError):
            template.footer(["int"], unknown, [5, 6])


def test_files_of_one_schema_share_a_template() -> None:
    first, second, other = (
        template_of(footer_at_end(written(["int", "word"], groups, compression=codec)[0]))
        for groups, codec in (([5, 6], "zstd"), ([7], "zstd"), ([7], "snappy"))
    )
    assert first is second
    assert first is not other


@given(st.data())
def test_a_footer_of_others_is_never_half_understood(data: st.DataObject) -> None:
    """Whatever a footer says, there is a template, or it is told that there is none."""
    footer = bytearray(footer_at_end(written(["int", "word", "st"], [5, 6])[0]))
    for _ in range(data.draw(st.integers(1, 4))):
        footer[data.draw(st.integers(0, len(footer) - 1))] = data.draw(st.integers(0, 255))
    try:
        template = template_of(bytes(footer))
    except UnknownFooterError:
        return
    assert isinstance(template, FooterTemplate)


def test_a_footer_without_arrows_schema_or_row_groups_is_not_understood() -> None:
    plain = footer_at_end(written(["int"], [5], store_schema=False)[0])
    empty = footer_at_end(written(["int"], [])[0])
    for footer in (plain, empty, b""):
        with pytest.raises(UnknownFooterError):
            template_of(footer)


NUMBERS = st.integers(0, 2**62)


@given(NUMBERS, st.binary(max_size=300), st.lists(NUMBERS, max_size=40))
def test_what_is_written_is_read(number: int, text: bytes, numbers: list[int]) -> None:
    data = (
        footers.encode_field(1, I64)
        + footers.encode_number(number)
        + footers.encode_field(2, BINARY)
        + footers.encode_text(text)
    )
    data += (
        footers.encode_field(1, LIST) + footers.encode_items(I64, [footers.encode_number(of) for of in numbers]) + STOP
    )
    reader = ThriftReader(b"?" + data + b"?", 1)
    found: dict[int, object] = {}
    for field, kind in reader.fields():
        if kind == I64:
            found[field] = reader.number()
        elif kind == BINARY:
            found[field] = reader.text()
        else:
            found[field] = [reader.number() for _ in reader.items()]
    assert found == {1: number, 3: text, 4: numbers}
    assert reader.at == 1 + len(data)
    passing = ThriftReader(data)
    passing.skip(STRUCT)
    assert passing.at == len(data)


def test_all_of_a_footer_can_be_passed_over() -> None:
    footer = footer_at_end(written(list(TYPES), [30, 30, 40], write_page_index=True)[0])
    reader = ThriftReader(footer)
    reader.skip(STRUCT)
    assert reader.at == len(footer) - 8


@pytest.mark.parametrize("data", [b"", footers.encode_text(b"abc")[:-1], footers.encode_items(I32, [b"\x02"] * 3)[:-1]])
def test_data_that_end_too_soon_are_told(data: bytes) -> None:
    with pytest.raises(IndexError):
        ThriftReader(footers.encode_field(1, BINARY if len(data) == 3 else LIST) + data).skip(STRUCT)


def test_what_no_footer_has_is_told() -> None:
    with pytest.raises(ValueError, match="kind 13"):
        ThriftReader(b"").skip(13)
