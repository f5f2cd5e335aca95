"""Index files: what is stored is what is read, and lists of keys that ascend take few bytes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from layoutopt.catalog.paths import FileDigest, index_path
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import (
    IndexFile,
    attach_dictionary,
    encode_index,
    encode_lists,
    is_coded,
    plain_lists,
    read_index,
)
from layoutopt.indexes.protocol import BlockColumn, Index
from layoutopt.indexes.registry import BUILT_IN, find_index
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col, InSet, Like, Node, like, parse_like
from layoutopt.model.values import ValueSet

RNG = np.random.default_rng(0)


def keys(blocks: int, rows: int, of: int) -> BlockColumn:
    values = pa.array(RNG.integers(0, of, blocks * rows))
    return BlockColumn(pa.chunked_array([values]), rows * np.arange(blocks + 1), "bigint")


def texts(column: BlockColumn) -> BlockColumn:
    names = pa.array([f"Customer#{number:09d}" for number in column.values.to_pylist()])
    return BlockColumn(pa.chunked_array([names]), column.offsets, "string")


def written(folder: Path, stored: pa.Array) -> pa.Array:
    """What is read of an index file with these values."""
    files, data = TableFiles(str(folder)), encode_index(stored)
    named = IndexFile(IndexSpec(Col("a", "string"), "bloom"), index_path("load", "0" * 64), FileDigest.of(data))
    with suppress(FileNotFoundError):
        files.delete(named.path)
    files.write_new(named.path, data)
    return read_index(files, named, len(stored))


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_an_index_is_read_as_it_was_measured(tmp_path: Path, kind: str) -> None:
    index: Index = find_index(kind)
    numbers = keys(3, 200, 500)
    for column in (numbers, texts(numbers)):
        if index.storage(column.type) is not None:
            stored = index.measure(column, index.parameter.default)
            assert plain_lists(written(tmp_path, stored)).equals(stored)


def test_keys_side_by_side_take_no_more_than_a_filter_that_errs() -> None:
    column = keys(4, 10_000, 150_000)
    listed = len(encode_index(find_index("value-list").measure(column, 16_384)))
    filters = len(encode_index(find_index("bloom").measure(column, 0.05)))
    assert listed < 1.05 * filters


def test_texts_that_many_blocks_list_are_stored_once(tmp_path: Path) -> None:
    stored = find_index("value-list").measure(texts(keys(40, 2_000, 4_000)), 16_384)
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
