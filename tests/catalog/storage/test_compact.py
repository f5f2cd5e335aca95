"""The compact protocol: what is written is read again, and all of a real footer can be passed over."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.storage import footers as compact
from layoutopt.catalog.storage.footers import BINARY, I32, I64, LIST, STOP, STRUCT, Reader, footer_at_end

NUMBERS = st.integers(0, 2**62)


@given(NUMBERS, st.binary(max_size=300), st.lists(NUMBERS, max_size=40))
def test_what_is_written_is_read(number: int, text: bytes, numbers: list[int]) -> None:
    data = (
        compact.encode_field(1, I64)
        + compact.encode_number(number)
        + compact.encode_field(2, BINARY)
        + compact.encode_text(text)
    )
    data += (
        compact.encode_field(1, LIST) + compact.encode_items(I64, [compact.encode_number(of) for of in numbers]) + STOP
    )
    reader = Reader(b"?" + data + b"?", 1)
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
    passing = Reader(data)
    passing.skip(STRUCT)
    assert passing.at == len(data)


def test_all_of_a_footer_can_be_passed_over() -> None:
    table = pa.table(
        {
            "x": pa.array(np.arange(100) / 7),
            "s": pa.array([f"text {i}" for i in range(100)]),
            "st": pa.array([{"a": i, "b": [i]} for i in range(100)]),
            "flag": pa.array([True, False] * 50),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=30, write_page_index=True)
    footer = footer_at_end(sink.getvalue())
    reader = Reader(footer)
    reader.skip(STRUCT)
    assert reader.at == len(footer) - 8


@pytest.mark.parametrize("data", [b"", compact.encode_text(b"abc")[:-1], compact.encode_items(I32, [b"\x02"] * 3)[:-1]])
def test_data_that_end_too_soon_are_told(data: bytes) -> None:
    with pytest.raises(IndexError):
        Reader(compact.encode_field(1, BINARY if len(data) == 3 else LIST) + data).skip(STRUCT)


def test_what_no_footer_has_is_told() -> None:
    with pytest.raises(ValueError, match="kind 13"):
        Reader(b"").skip(13)
