"""Index files have the same bytes however their blocks come in parts, and those that they always had."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from layoutopt.catalog.storage import index_files as dictionaries
from layoutopt.catalog.storage import index_files as index_encoding
from layoutopt.catalog.storage.index_files import (
    decode_index,
    encode_index,
    is_coded,
    merge_dictionaries,
    merge_index,
    pack_index,
    plain_lists,
)
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.registry import BUILT_IN, find_index

RNG = np.random.default_rng(3)
TEXTS = pa.large_list(pa.large_binary())
BLOCKS = st.lists(st.none() | st.lists(st.binary(max_size=5), unique=True, max_size=6).map(sorted), min_size=1)
SIZES = st.sampled_from([1, 40, 200, index_encoding.PIECE_BYTES])


def column(type: str, of: int) -> BlockColumn:
    values = RNG.integers(0, of, 24 * 300)
    texts = pa.array([f"Customer#{value:09d}" for value in values.tolist()])
    return BlockColumn(pa.chunked_array([texts if type == "string" else pa.array(values)]), 300 * np.arange(25), type)


def parts_of(stored: pa.Array, cuts: list[int]) -> list[bytes]:
    """An index cut before some blocks, each part encoded as its task does; a part may be of no block."""
    ends = [0, *sorted(min(cut, len(stored)) for cut in cuts), len(stored)]
    return [pack_index(stored.slice(a, b - a)) for a, b in pairwise(ends)]


def at_once(stored: pa.Array) -> bytes:
    """The content of an index file as loads encoded it that had all of its lists in memory."""
    texts = stored.type == TEXTS
    dictionary = sorted(set(stored.flatten().to_pylist())) if texts else []
    tables: list[tuple[pa.Table, dict[str, str]]] = [(pa.table({"index": stored}), {})]
    of = {pa.large_list(pa.int64()): "DELTA_BINARY_PACKED", TEXTS: "DELTA_BYTE_ARRAY"}
    if stored.type in of:
        tables.append((tables[0][0], {"index": of[stored.type]}))
    if texts:
        place = {text: i for i, text in enumerate(dictionary)}
        places = [None if each is None else [place[text] for text in each] for each in stored.to_pylist()]
        listed = [dictionary, *[[]] * (len(stored) - 1)]
        two = pa.table({"index": pa.array(places, pa.large_list(pa.int64())), "dictionary": pa.array(listed, TEXTS)})
        tables.append((two, {"index": "DELTA_BINARY_PACKED", "dictionary": "DELTA_BYTE_ARRAY"}))
    return min((parquet(table, encodings) for table, encodings in tables), key=len)


def parquet(table: pa.Table, encodings: dict[str, str]) -> bytes:
    sink, how = io.BytesIO(), dict[str, Any]()
    if encodings:
        encodings = {f"{name}.list.element": encoding for name, encoding in encodings.items()}
        how = {"use_dictionary": False, "column_encoding": encodings}
    pq.write_table(table, sink, compression="zstd", write_statistics=False, **how)
    return sink.getvalue()


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
@pytest.mark.parametrize("type", ["string", "bigint"])
@pytest.mark.parametrize("small", [0, index_encoding.SMALL_BYTES])
def test_parts_make_the_bytes_that_the_whole_makes(
    kind: str, type: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_encoding, "SMALL_BYTES", small)
    index = find_index(kind)
    if index.storage(type) is None:
        return
    for of in (40, 10_000):  # values that all blocks list, and values that hardly any two do
        stored = index.measure(column(type, of), index.parameter.default)
        whole = encode_index(stored)
        assert [merge_index(parts_of(stored, cuts)) == whole for cuts in ([], [7], [1, 1, 9, 20])] == [True] * 3
        if not pa.types.is_struct(stored.type):
            assert whole == at_once(stored)


@given(BLOCKS, st.lists(st.integers(0, 20), max_size=4), SIZES, SIZES, st.sampled_from([0, 4_000, 1 << 20]))
def test_lists_of_texts_are_merged_whatever_they_are(
    blocks: list[list[bytes] | None], cuts: list[int], piece: int, batch: int, small: int
) -> None:
    stored = pa.array(blocks, TEXTS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(index_encoding, "PIECE_BYTES", piece)
        patched.setattr(dictionaries, "BATCH_BYTES", batch)
        patched.setattr(index_encoding, "SMALL_BYTES", small)
        merged = merge_index(parts_of(stored, cuts))
        assert merged == encode_index(stored)
    assert plain_lists(decode_index(merged)).equals(stored)
    if piece == index_encoding.PIECE_BYTES:
        assert merged == at_once(stored)


def test_a_long_index_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = find_index("value-list").measure(column("string", 1_000), 16_384)
    whole = encode_index(stored)
    monkeypatch.setattr(index_encoding, "PIECE_BYTES", 20_000)
    merged = merge_index(parts_of(stored, [3, 11]))
    assert pq.read_metadata(pa.BufferReader(merged)).num_row_groups > 1
    assert is_coded(decode_index(whole).type)
    assert plain_lists(decode_index(merged)).equals(stored)
    assert len(merged) < 1.2 * len(whole)


@given(st.lists(st.lists(st.binary(max_size=3), unique=True)), st.sampled_from([0, 30, 1000]))
def test_dictionaries_are_merged(dictionaries_of: list[list[bytes]], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dictionaries, "BATCH_BYTES", batch)
        merged = merge_dictionaries(
            [pa.array(each, pa.large_binary()) for each in dictionaries_of] or [pa.array([], pa.large_binary())]
        )
    assert merged.to_pylist() == sorted({text for each in dictionaries_of for text in each})


def test_a_part_takes_few_bytes() -> None:
    stored = find_index("value-list").measure(column("bigint", 10_000), 16_384)
    assert len(pack_index(stored)) < 0.4 * stored.nbytes
