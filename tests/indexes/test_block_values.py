"""What is worked out on the distinct values of blocks is what the rows themselves say, wherever they lie."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from layoutopt.catalog.statistics import measure
from layoutopt.evaluation.checksum import hash_array, sums_by_block
from layoutopt.evaluation.predicates import matching_rows
from layoutopt.indexes import protocol as module
from layoutopt.indexes.protocol import BlockValues, block_values
from layoutopt.inspect.file_check import BlockMatches
from layoutopt.model.arrays import Ints
from tests.scan.builder import building
from tests.scan.generated import conditions
from tests.scan.tables import SCHEMA, some_rows

NAN = float("nan")
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [-(2**31), -1, 0, 1, 5, 2**31 - 1]),
    "smallint": (pa.int16(), [-(2**15), -1, 0, 7]),
    "bigint": (pa.int64(), [-(2**63), 0, 1, 2, 3, 2**63 - 1]),
    "date": (pa.date32(), [0, 1, 40, 20_000]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, 1, -1, 3]),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("-0.01"), Decimal("0.00"), Decimal("0.05"), Decimal("9999999.99")]),
    "decimal(38,0)": (pa.decimal128(38, 0), [Decimal(-1), Decimal(2**70), Decimal(0)]),
    "double": (pa.float64(), [0.0, -0.0, 1.5, NAN, float("-inf")]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, NAN]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "a", "bb", "é", "x" * 70]),
    "binary": (pa.binary(), [b"", b"\xff", b"ab"]),
}


@st.composite
def columns(draw: st.DrawFn, type: str) -> tuple[pa.ChunkedArray, Ints]:
    """Blocks of values, some of them empty, in chunks that need not end where blocks do; and their offsets."""
    arrow, values = COLUMNS[type]
    some = st.sampled_from(values)
    cells = draw(st.lists(some | st.none() if draw(st.booleans()) else some, max_size=30))
    cuts = draw(st.lists(st.integers(0, len(cells)), max_size=6).map(sorted))
    chunks = draw(st.lists(st.integers(0, len(cells)), max_size=4).map(sorted))
    array = pa.array(cells, arrow)
    parts = [array.slice(a, b - a) for a, b in pairwise([0, *chunks, len(cells)])]
    if draw(st.booleans()) and not pa.types.is_boolean(arrow):
        parts = [part.dictionary_encode() for part in parts]
    return pa.chunked_array(parts), np.array([0, *cuts, len(cells)])


@pytest.mark.parametrize("probe", [0, 1000])
@pytest.mark.parametrize("type", COLUMNS)
@given(st.data())
def test_values_put_together_say_what_the_rows_say(probe: int, type: str, data: st.DataObject) -> None:
    column, offsets = data.draw(columns(type))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PROBE", probe)
        found = block_values(column, offsets, type)
    rows = pa.concat_arrays([chunk.cast(COLUMNS[type][0]) for chunk in column.chunks])
    hashes = hash_array(rows, type)
    mine = hash_array(found.values, type)
    assert found.spread(mine).tolist() == hashes.tolist()
    assert found.sums(mine).tolist() == sums_by_block(hashes, offsets).tolist()
    expected, measured = measure(rows, offsets, type), found.measured(type)
    assert measured.nulls.tolist() == expected.nulls.tolist()
    for name in ("nans", "low", "high"):
        one, other = getattr(measured, name), getattr(expected, name)
        assert (None if one is None else one.tolist()) == (None if other is None else other.tolist())


def test_equal_values_of_a_block_are_put_together() -> None:
    offsets = np.array([0, 3, 3, 6])
    for cells, type in (([5, 5, 6, 9, 9, 9], pa.int32()), (["a", "a", "b", "a", "a", "a"], pa.string())):
        column = pa.chunked_array([pa.array(cells, type)])
        found = block_values(column if type == pa.int32() else column.dictionary_encode(), offsets, "int")
        assert (found.values.tolist(), found.offsets.tolist()) == ([cells[0], cells[2], cells[3]], [0, 2, 2, 3])
        assert found.counts is not None
        assert found.counts.tolist() == [2, 1, 3]


@pytest.mark.parametrize("code", [-1, 2])
def test_a_code_outside_its_dictionary_is_refused(code: int) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([0, code], pa.int32()), pa.array(["a", "b"]), safe=False)
    with pytest.raises(pa.ArrowInvalid, match="dictionary"):
        block_values(pa.chunked_array([codes]), np.array([0, 2]), "string")


@given(conditions, st.lists(st.integers(0, 40), max_size=5).map(sorted), st.booleans(), st.data())
def test_the_blocks_with_a_matching_row_are_found(
    condition: str, cuts: list[int], coded: bool, data: st.DataObject
) -> None:
    try:
        feature = building(SCHEMA, [condition]).plan.features[0]
    except ValueError:
        reject()  # it holds for no row, or for all of them
    rows = some_rows(40)
    if coded:
        place = rows.schema.get_field_index("kind")
        rows = rows.set_column(place, "kind", rows["kind"].dictionary_encode())
    offsets = np.array([0, *cuts, 40])
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=len(cuts) + 1, max_size=len(cuts) + 1)))
    matched = matching_rows(feature.node, rows)
    assert matched is not None
    expected = [bool(matched[a:b].any() and want) for (a, b), want in zip(pairwise(offsets), wanted, strict=True)]
    types = {column.name: column.type for column in SCHEMA.columns}

    def values(name: str) -> BlockValues:
        return block_values(rows.column(name), offsets, types[name])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PROBE", data.draw(st.sampled_from([0, 1000])))
        found = BlockMatches(rows, offsets, remembered(values)).match(feature.node, wanted)
    assert found is not None
    assert found.tolist() == expected


def remembered(make: Callable[[str], BlockValues]) -> Callable[[str], BlockValues]:
    """Values are numbered as they are made, so one column's are made once."""
    made: dict[str, BlockValues] = {}
    return lambda name: made[name] if name in made else made.setdefault(name, make(name))
