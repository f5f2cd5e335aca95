"""Index files: what is stored is read back, the same bytes for any division into parts, and in few bytes."""

from __future__ import annotations

import io
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from layoutopt.catalog.paths import FileDigest, index_path
from layoutopt.catalog.storage import index_files
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import (
    IndexFile,
    attach_dictionary,
    decode_index,
    encode_index,
    encode_lists,
    is_coded,
    merge_dictionaries,
    merge_index,
    pack_index,
    plain_lists,
    read_index,
)
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.registry import BUILT_IN, find_index
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col, InSet, Like, Node, like, parse_like
from layoutopt.model.values import ValueSet

RNG = np.random.default_rng(3)
TEXTS = pa.large_list(pa.large_binary())
BLOCKS = st.lists(st.none() | st.lists(st.binary(max_size=5), unique=True, max_size=6).map(sorted), min_size=1)
SIZES = st.sampled_from([1, 40, 200, index_files.PIECE_BYTES])


def column(type: str, distinct: int, blocks: int = 24, rows: int = 300) -> BlockColumn:
    values = RNG.integers(0, distinct, blocks * rows)
    array = pa.array([f"Customer#{value:09d}" for value in values.tolist()] if type == "string" else values)
    return BlockColumn(pa.chunked_array([array]), rows * np.arange(blocks + 1), type)


def measured(kind: str, type: str, distinct: int, parameter: float = 16_384, **sizes: int) -> pa.Array:
    return find_index(kind).measure(column(type, distinct, **sizes), parameter)


def parts_of(stored: pa.Array, cuts: list[int]) -> list[bytes]:
    """An index cut before some blocks, each part encoded as its task does; a part may have no block."""
    ends = [0, *sorted(min(cut, len(stored)) for cut in cuts), len(stored)]
    return [pack_index(stored.slice(a, b - a)) for a, b in pairwise(ends)]


def at_once(stored: pa.Array) -> bytes:
    """The content of an index file, encoded with all of its lists in memory."""
    if stored.type == TEXTS:
        dictionary = sorted(set(stored.flatten().to_pylist()))
        place = {text: i for i, text in enumerate(dictionary)}
        places = [None if texts is None else [place[text] for text in texts] for texts in stored.to_pylist()]
        listed = [dictionary, *[[]] * (len(stored) - 1)]
        table = pa.table({"index": pa.array(places, pa.large_list(pa.int64())), "dictionary": pa.array(listed, TEXTS)})
        return parquet(table, {"index": "DELTA_BINARY_PACKED", "dictionary": "DELTA_BYTE_ARRAY"})
    table = pa.table({"index": stored})
    options = [{"index": "DELTA_BINARY_PACKED"}] if stored.type == pa.large_list(pa.int64()) else []
    return min((parquet(table, encodings) for encodings in [{}, *options]), key=len)


def parquet(table: pa.Table, encodings: dict[str, str]) -> bytes:
    sink, how = io.BytesIO(), dict[str, Any]()
    if encodings:
        encodings = {f"{name}.list.element": encoding for name, encoding in encodings.items()}
        how = {"use_dictionary": False, "column_encoding": encodings}
    pq.write_table(table, sink, compression="zstd", write_statistics=False, **how)
    return sink.getvalue()


def written(folder: Path, stored: pa.Array) -> pa.Array:
    """What is read of an index file with these values."""
    files, data = TableFiles(str(folder)), encode_index(stored)
    named = IndexFile(IndexSpec(Col("a", "string"), "bloom"), index_path("load", 0, "0" * 64), FileDigest.of(data))
    with suppress(FileNotFoundError):
        files.delete(named.path)
    files.write_new(named.path, data)
    return read_index(files, named, len(stored))


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
@pytest.mark.parametrize("type", ["string", "bigint"])
@pytest.mark.parametrize("small", [0, index_files.SMALL_BYTES])
def test_parts_make_the_bytes_that_the_whole_makes(
    kind: str, type: str, small: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(index_files, "SMALL_BYTES", small)
    index = find_index(kind)
    if index.storage(type) is None:
        return
    for distinct in (40, 10_000):  # values that all blocks list, and values that hardly any two do
        stored = index.measure(column(type, distinct), index.parameter.default)
        whole = encode_index(stored)
        assert [merge_index(parts_of(stored, cuts)) == whole for cuts in ([], [7], [1, 1, 9, 20])] == [True] * 3
        if not pa.types.is_struct(stored.type):
            assert whole == at_once(stored)
        assert plain_lists(written(tmp_path, stored)).equals(stored)


@given(BLOCKS, st.lists(st.integers(0, 20), max_size=4), SIZES, SIZES, st.sampled_from([0, 4_000, 1 << 20]))
def test_lists_of_texts_are_merged_whatever_they_are(
    blocks: list[list[bytes] | None], cuts: list[int], piece: int, batch: int, small: int
) -> None:
    stored = pa.array(blocks, TEXTS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(index_files, "PIECE_BYTES", piece)
        patched.setattr(index_files, "BATCH_BYTES", batch)
        patched.setattr(index_files, "SMALL_BYTES", small)
        merged = merge_index(parts_of(stored, cuts))
        assert merged == encode_index(stored)
    assert plain_lists(decode_index(merged)).equals(stored)
    if piece == index_files.PIECE_BYTES:
        assert merged == at_once(stored)


def test_a_long_index_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = measured("value-list", "string", 1_000)
    whole = encode_index(stored)
    monkeypatch.setattr(index_files, "PIECE_BYTES", 20_000)
    merged = merge_index(parts_of(stored, [3, 11]))
    assert pq.read_metadata(pa.BufferReader(merged)).num_row_groups > 1
    assert is_coded(decode_index(whole).type)
    assert plain_lists(decode_index(merged)).equals(stored)
    assert len(merged) < 1.2 * len(whole)


@given(st.lists(st.lists(st.binary(max_size=3), unique=True)), st.sampled_from([0, 30, 1000]))
def test_dictionaries_are_merged(dictionaries_of: list[list[bytes]], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(index_files, "BATCH_BYTES", batch)
        merged = merge_dictionaries(
            [pa.array(each, pa.large_binary()) for each in dictionaries_of] or [pa.array([], pa.large_binary())]
        )
    assert merged.to_pylist() == sorted({text for each in dictionaries_of for text in each})


def test_a_part_takes_few_bytes() -> None:
    stored = measured("value-list", "bigint", 10_000)
    assert len(pack_index(stored)) < 0.4 * stored.nbytes


def test_keys_side_by_side_take_no_more_than_a_filter_that_errs() -> None:
    numbers = column("bigint", 150_000, blocks=4, rows=10_000)
    listed = len(encode_index(find_index("value-list").measure(numbers, 16_384)))
    assert listed < 1.05 * len(encode_index(find_index("bloom").measure(numbers, 0.05)))


def test_texts_that_many_blocks_list_are_stored_once(tmp_path: Path) -> None:
    stored = measured("value-list", "string", 4_000, blocks=40, rows=2_000)
    read = written(tmp_path, stored)
    assert is_coded(read.type)
    assert len(encode_index(stored)) < 0.5 * len(encode_index(stored.slice(0, 1))) * len(stored)
    assert encode_index(read) == encode_index(stored)
    both = pa.concat_arrays([read, written(tmp_path, stored.slice(3, 9))])
    assert plain_lists(both).equals(pa.concat_arrays([stored, stored.slice(3, 9)]))
    assert plain_lists(both.take(pa.array([41, 2]))).equals(stored.take(pa.array([4, 2])))


LISTED = st.lists(st.none() | st.lists(st.sampled_from(["", "a", "ab", "b", "é", "zz"]), unique=True), min_size=1)


@given(LISTED, st.sampled_from(["a%", "%b", "%", "_b", "é"]), st.sampled_from(["a", "b", "zz", "q"]))
def test_lists_of_places_say_what_lists_of_texts_say(blocks: list[list[str] | None], pattern: str, value: str) -> None:
    column = Col("a", "string")
    lists = pa.array([None if each is None else sorted(each) for each in blocks], pa.large_list(pa.large_string()))
    plain = lists.cast(pa.large_list(pa.large_binary()))
    places = attach_dictionary(*encode_lists(plain))
    assert plain_lists(places).equals(plain)
    asked: list[Node] = [InSet(column, ValueSet.interval(value, None)), InSet(column, ValueSet.point(value))]
    asked.append(like(column, parse_like(pattern)))
    for kind in ("value-list", "prefix", "suffix"):
        for literal in asked:
            if isinstance(literal, InSet | Like):
                answers = [
                    StoredIndex(IndexSpec(column, kind), find_index(kind), len(blocks), lambda of=of: of)  # type: ignore[misc]
                    .cannot_match(literal)
                    .tolist()
                    for of in (plain, places)
                ]
                assert answers[0] == answers[1]


def test_a_place_beyond_the_dictionary_is_damage() -> None:
    with pytest.raises(pa.ArrowInvalid, match="not in the dictionary"):
        attach_dictionary(pa.array([[0, 2]], pa.large_list(pa.int64())), pa.array([b"a", b"b"], pa.large_binary()))
