"""Conditions on values that have no bounds (in arrays, maps, JSON, texts, on two columns), and indexes of these."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.evaluation.expressions import is_worth_indexing, make_struct
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.indexes.measuring import measure_indexes
from layoutopt.indexes.protocol import BlockColumn, suits
from layoutopt.indexes.registry import find_index
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.arrays import Ints
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col, Expr, InSet, Like, Node
from layoutopt.model.schema import Column, Schema
from layoutopt.skipping.cannot_match import BlockIndex, BlockStatistics
from layoutopt.sql.scans import find_scans
from tests.skipping.falsifiable import SCHEMA, Values, parts_of, rows

NESTED: Final = Schema(
    (*SCHEMA.columns, Column("xs", "array<int>"), Column("m", "map<string,int>"), Column("j", "string"))
)
EXPRESSIONS: Final = {
    "int": [
        "array_max(xs)", "array_min(xs)", "m['a']", "m['b']", "a % 7", "length(s)", "instr(s, 'b')", "hour(ts)",
        "levenshtein(s, 'abd')", "a",
    ],
    "string": [
        "get_json_object(j, '$.a')", "get_json_object(j, '$.b[0]')", "get_json_object(j, '$.c.d')", "lower(s)",
        "upper(s)", "reverse(s)", "right(s, 2)", "substring(s, 2, 2)", "split_part(s, 'b', 1)", "trim(s)", "s",
        "regexp_extract(s, '^([ab]+)c', 1)",
    ],
    "exists": ["exists(xs, x -> x > {c})", "exists(xs, x -> x <= {c})", "exists(xs, x -> x >= {c})"],
    "element": [
        "array_contains(xs, {c})", "exists(xs, x -> x = {c})", "exists(xs, x -> x IN ({c}, 9))", "xs[1] = {c}",
        "arrays_overlap(xs, array({c}, {d}))", "array_contains(map_values(m), {c})", "map_contains_key(m, '{k}')",
        "array_contains(map_keys(m), '{k}') AND array_contains(xs, {c})", "exists(xs, x -> x BETWEEN {c} AND {d})",
        "exists(map_keys(m), k -> k LIKE '{k}_%' OR k LIKE '%{k}')", "exists(xs, x -> x <> {c} AND x < {d})",
    ],
    "box": ["a BETWEEN {c} AND {d} AND x BETWEEN {e} AND {f}", "a > {c} AND x < {e}", "a = {c} AND x >= {e}"],
}  # fmt: skip
_OF_ELEMENTS: Final = ("xs:bloom", "map_keys(m):bloom", "map_values(m):bloom")
ELEMENTS: Final = tuple(spec.subject for spec in parse_indexes(_OF_ELEMENTS, NESTED))
BOX: Final = make_struct([Col("a", "int"), Col("x", "double")])
_KINDS: Final = (
    "value-list", "bloom", "hybrid", "gap-list", "prefix", "suffix", "ngrams", "metric-distance", "formatted"
)  # fmt: skip


def nested_rows(count: int, seed: int) -> pa.Table:
    """Rows of :func:`rows`, and arrays, maps and JSON, some of it broken."""
    rng, table = random.Random(seed), rows(count, seed)
    numbers = [[-3, -1, 0, 1, 2, 5, 9, 40, None][rng.randrange(9)] for _ in range(997)]
    arrays = [rng.choices(numbers, k=rng.randint(0, 3)) if rng.random() > 0.1 else None for _ in range(count)]
    maps = [[(key, rng.choice(numbers)) for key in "abc" if rng.random() < 0.5] for _ in range(count)]
    table = table.append_column("xs", pa.array(arrays, pa.list_(pa.int32())))
    table = table.append_column("m", pa.array(maps, pa.map_(pa.string(), pa.int32())))
    return table.append_column("j", pa.array([_json(rng) for _ in range(count)]))


def _json(rng: random.Random) -> str | None:
    values: list[Any] = ["", "a", "ab", "abc", "b", 1, 12, 0.5, True, None, [1], {"d": "a"}]
    if rng.random() < 0.1:
        return rng.choice([None, "", "{", '{"a": }', "[1]", '{"a": "a", "a": "b"}'])
    return json.dumps({"a": rng.choice(values), "b": rng.choices(values, k=rng.randint(0, 2)), "c": rng.choice(values)})


def indexed_conditions(count: int, seed: int) -> Iterator[tuple[str, Node]]:
    """Conditions as text and as the filter that they are.

    Raises:
        AssertionError: one can't be used.
    """
    rng = random.Random(seed)
    for _ in range(count):
        text = _condition(rng)
        (scan,) = find_scans(f"SELECT a FROM r WHERE {text}", {"r": NESTED})
        assert not scan.unusable, text
        yield text, scan.filter.root


def _condition(rng: random.Random) -> str:
    kind = rng.choice(list(EXPRESSIONS))
    c, e = rng.choice([-150, -3, 0, 1, 2, 5, 40, 99]), rng.choice([-99.5, -0.5, 0.0, 7.25])
    text = rng.choice(EXPRESSIONS[kind]).format(c=c, d=c + 20, e=f"{e}D", f=f"{e + 30}D", k=rng.choice("abz"))
    if kind == "int":
        text += rng.choice([" = {}", " = {}", " <> {}", " IN ({}, 9)", " < {}", " >= {}", " IS NULL"]).format(c)
    if kind == "string":
        value = rng.choice(["", "a", "ab", "abc", "bc", "b", "12", "1", "é", "zz", "caé"])
        text += rng.choice([
            " = '{}'", " = '{}'", " <> '{}'", " IN ('{}', 'q')", " LIKE '{}%'", " LIKE '%{}'", " LIKE '%{}%'",
            " >= '{}'", " NOT LIKE '{}%'", " IS NULL",
        ]).format(value)  # fmt: skip
    if rng.random() < 0.15:
        text = f"({text}) OR a = {c}"
    return f"NOT ({text})" if rng.random() < 0.1 and kind != "exists" and "->" not in text else text


def _of_elements(subject: Expr, kind: str, rows: pa.Table, offsets: Ints) -> BlockIndex:
    """An index of elements, measured as a load does it."""
    spec = IndexSpec(subject, kind)
    stored = measure_indexes([spec], rows, offsets).field(0)
    return StoredIndex(spec, find_index(kind), len(offsets) - 1, lambda: stored)


def with_indexes(
    statistics: BlockStatistics,
    asked: Sequence[Node],
    values: Mapping[Expr, Values],
    table: pa.Table,
    blocks: Sequence[np.ndarray[Any, Any]],
    kinds: int = 3,
) -> BlockStatistics:
    """The statistics with some types of indexes of each expression that conditions are about, all of elements, and of
    two columns."""
    rng, offsets = random.Random(len(asked)), np.cumsum([0, *map(len, blocks)])
    places = pa.array(np.concatenate(blocks))
    found: dict[Expr, list[BlockIndex]] = defaultdict(list)

    def measure(subject: Expr, column: pa.ChunkedArray, kind: str) -> None:
        index = find_index(kind)
        of_blocks = BlockColumn(pa.chunked_array([column.take(places).combine_chunks()]), offsets, subject.type)
        stored = index.measure(of_blocks, index.parameter.default)
        found[subject].append(StoredIndex(IndexSpec(subject, kind), index, len(blocks), lambda: stored))

    literals = [literal for node in asked for literal in parts_of(node) if isinstance(literal, InSet | Like)]
    subjects = dict.fromkeys(literal.subject for literal in literals)
    subjects |= {Col("s", "string"): None}  # levenshtein is asked of its own
    for subject in filter(is_worth_indexing, subjects):
        column = table["s"] if subject == Col("s", "string") else values[subject].column
        fitting = [kind for kind in _KINDS if suits(find_index(kind), subject)]
        for kind in fitting if subject == Col("s", "string") else rng.sample(fitting, min(kinds, len(fitting))):
            measure(subject, column, kind)
    for subject in ELEMENTS:
        for kind in _KINDS:
            if suits(find_index(kind), subject):
                found[subject].append(_of_elements(subject, kind, table.take(places), offsets))
    points = pa.StructArray.from_arrays([table["a"].combine_chunks(), table["x"].combine_chunks()], names=["c0", "c1"])
    measure(BOX, pa.chunked_array([points]), "geo-box")
    return replace(statistics, indexes=found)
