"""Conditions on functions of columns, rows to ask them of, and blocks of these: for the tests of derived bounds."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from layoutopt.catalog.bounds import column_bounds
from layoutopt.catalog.statistics import block_statistics
from layoutopt.evaluation.keys import key_array, stored_keys
from layoutopt.indexes.lists import matching_keys
from layoutopt.model.predicates import And, Comparison, Constant, Expr, InSet, Like, Node, Or, to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.skipping.cannot_match import BlockStatistics
from layoutopt.sql.scans import find_scans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = Schema(
    tuple(
        Column(name, type)
        for name, type in {
            "a": "int", "b": "int", "l": "bigint", "t": "tinyint", "x": "double", "f": "float", "p": "decimal(15,2)",
            "d": "date", "e": "date", "ts": "timestamp", "n": "timestamp_ntz", "s": "string",
        }.items()
    )
)  # fmt: skip
ARROW = pa.schema(
    [
        ("a", pa.int32()), ("b", pa.int32()), ("l", pa.int64()), ("t", pa.int8()), ("x", pa.float64()),
        ("f", pa.float32()), ("p", pa.decimal128(15, 2)), ("d", pa.date32()), ("e", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")), ("s", pa.string()),
    ]
)  # fmt: skip

_DATES = [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(2000, 2, 29), dt.date(9999, 12, 31)]
_TEXTS = ["", "a", "ab", "abc", "abd", "b", "ba", "éa", "12", "-7", "2020-02-29", "😀", "\U0010ffff"]
_EDGES: dict[str, list[Any]] = {
    "a": [-(2**31), -1, 0, 1, 2**31 - 1],
    "b": [-(2**31), -3, 0, 7, 2**31 - 1],
    "l": [-(2**63), -(2**62), -1, 0, 2**62, 2**63 - 1],
    "t": [-128, 0, 127],
    "x": [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, 1e308, -1e308, 0.1],
    "f": [float("nan"), float("inf"), -0.0, 0.5, 3.0],
    "p": [Decimal("-9999999999999.99"), Decimal("-0.01"), Decimal(0), Decimal("0.05"), Decimal("9999999999999.99")],
    "d": _DATES,
    "e": _DATES,
    "ts": [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2021, 3, 28, 0, 59, 59, 999999, tzinfo=dt.UTC)],
    "n": [dt.datetime(1582, 10, 15), dt.datetime(2021, 10, 31, 1, 30)],
    "s": _TEXTS,
}


def rows(count: int, seed: int) -> pa.Table:
    """Rows of usual values, edges and NULL, in no order."""
    rng = random.Random(seed)
    return pa.Table.from_pylist([{name: _value(name, rng) for name in ARROW.names} for _ in range(count)], ARROW)


def _value(name: str, rng: random.Random) -> Any:
    chance = rng.random()
    if chance < 0.06:
        return None
    if chance < 0.2:
        return rng.choice(_EDGES[name])
    match name:
        case "a" | "b" | "l":
            return rng.randint(-200, 200)
        case "t":
            return rng.randint(-128, 127)
        case "x":
            return round(rng.uniform(-200, 200), rng.randint(0, 3))
        case "f":
            return rng.randint(-800, 800) / 4
        case "p":
            return Decimal(rng.randint(-20_000, 20_000)) / 100
        case "d" | "e":
            return dt.date(2018, 1, 1) + dt.timedelta(days=rng.randint(0, 1500))
        case "ts":
            return dt.datetime(2018, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=rng.randint(0, 1500 * 86_400))
        case "n":
            return dt.datetime(2018, 1, 1) + dt.timedelta(seconds=rng.randint(0, 1500 * 86_400))
    return "".join(rng.choice("abcé") for _ in range(rng.randint(1, 5)))


_EXPRESSIONS = {
    "int": [
        "a + {i}", "a - {i}", "{i} - a", "a * {i}", "a + b", "a - b", "a * b", "a % {i}", "a % b", "-a", "abs(a)",
        "abs(a - b)", "l + {i}", "l * {i}", "l - a", "l * l", "t + t", "t * {i}", "cast(l as int)", "cast(x as int)",
        "cast(p as int)", "cast(f as bigint)", "coalesce(a, {i})", "coalesce(a, b, 0)", "year(d)", "month(d)",
        "day(d)",
        "quarter(d)", "dayofyear(d)", "dayofweek(d)", "weekofyear(d)", "hour(ts)", "minute(ts)", "datediff(d, e)",
        "datediff(d, date'2020-01-01')", "(a + {i}) * 2 - b", "length(s)", "year(ts)", "month(ts)",
        "cast(a as tinyint)", "cast(s as int)", "abs(t)", "abs(l)",
        "floor(p)", "ceil(p)", "round(p)", "floor(p * 1.5)",
        "floor(a)", "round(a)", "floor(x)", "ceil(x)", "floor(x / 3)", "ceil(f * 2)",
        "greatest(a, b)", "least(a, b, {i})", "greatest(a, l) - b", "levenshtein(s, 'abd')",
        "CASE WHEN a > {i} THEN b WHEN s LIKE '%b_c' THEN a + 1 END", "if(b < a, a, b)", "nullif(a, {i}) + 1",
        "CASE a % 3 WHEN 0 THEN l WHEN 1 THEN b ELSE a END", "nvl2(s, a, l) * 2", "second(ts)", "instr(s, 'b')",
    ],
    "decimal": [
        "p + {i}", "p - p", "p * 1.1", "p * p", "a * 0.25", "p + a", "{i} - p", "-p", "round(p, 1)", "round(p, 3)",
        "round(p * 0.333, 2)", "coalesce(p, 0)", "greatest(p, 1.5)", "least(p, a)", "l * 1.5 + p", "p * a - p",
        "if(a > 0, p, -p)", "p + cast(t as decimal(3,0))", "p / 3", "p / p", "p / a", "{i} / p", "a / p",
        "p / (p + 0.5)",
    ],
    "double": [
        "x + {i}", "x * {i}", "{i} / x", "x / {i}", "a / {i}", "a / b", "x + x", "x - a", "abs(x)", "sqrt(x)",
        "cast(a as double)", "cast(p as double)", "cast(l as double) * 2", "f + x", "-x", "coalesce(x, 0.0)",
        "f * 2", "p * x",
        "x + 0.1", "f * 0.5", "f + l", "p / 3D", "round(x, 1)", "round(x)", "round(x / 3, 2)", "greatest(x, f)",
        "least(x, 1.5)",
        "CASE WHEN isnan(x) THEN 0D ELSE x END", "nullif(x, f)",
    ],
    "date": [
        "trunc(d, 'MM')", "trunc(d, 'YEAR')", "trunc(d, 'WEEK')", "trunc(d, 'QUARTER')", "last_day(d)",
        "cast(ts as date)", "cast(n as date)", "coalesce(d, e)", "d + {i}", "d - {k}", "date_add(d, {i})",
        "date_sub(d, {k})",
        "d + INTERVAL {k} MONTH", "d - INTERVAL 13 MONTHS", "add_months(d, {k})", "d + INTERVAL {k} DAYS",
        "greatest(d, e)",
        "trunc(d + INTERVAL 1 YEAR, 'YEAR')", "least(d, date'2020-01-01')", "if(d < e, d, e)", "e - INTERVAL 1 MONTH",
    ],
    "timestamp": [
        "date_trunc('DAY', ts)", "date_trunc('MONTH', ts)", "date_trunc('WEEK', ts)", "date_trunc('YEAR', d)",
        "date_trunc('HOUR', ts)", "cast(d as timestamp)", "cast(n as timestamp)",
        "ts + INTERVAL {k} DAY", "ts - INTERVAL 36 HOURS", "ts + INTERVAL 90 MINUTES", "ts - INTERVAL {k} MONTH",
        "d + INTERVAL 1 HOUR",
        "ts + INTERVAL 1 YEAR", "n + INTERVAL 1 DAY", "n - INTERVAL 2 MONTHS",
        "greatest(ts, timestamp'2020-01-01 00:00:00')",
    ],
    "string": ["left(s, {k})", "substring(s, 1, {k})", "substring(s, 0, 2)", "concat('a', s)", "lower(s)", "trim(s)",
        "split_part(s, 'b', 1)", "split_part(s, 'b', -1)", "substring_index(s, 'b', 1)",
        "regexp_extract(s, '^([ab]+)c', 1)",
        "regexp_extract(s, '[ab]{{2}}', 0)", "get_json_object(s, '$.a')", "if(a > 0, s, lower(s))",
        "coalesce(nullif(s, 'a'), 'b')", "upper(s)", "reverse(s)", "right(s, 2)", "concat(s, 'b')"],
}  # fmt: skip


# Functions of which only single values are known, by the type of what they return.
_OF_SINGLE_VALUES = {
    "string": [
        "cast(a as string)", "cast(l as string)", "cast(p as string)", "cast(d as string)", "cast(ts as string)",
        "cast(n as string)", "reverse(cast(a as string))", "concat(cast(d as string), s)",
        "left(cast(ts as string), 10)", "concat(s, cast(t as string), '-')",
    ],
    "int": ["cast(concat(t, '1') as int)", "cast(s as bigint)", "length(cast(l as string))", "hour(ts)",
            "minute(n)", "cast(substring(cast(d as string), 6, 2) as int)", "weekofyear(d)", "dayofweek(ts)",
            "levenshtein(s, 'ab')"],
    "decimal": ["cast(s as decimal(10,2))", "cast(concat(a, '.5') as decimal(12,1))"],
    "date": ["cast(s as date)", "cast(concat(year(d), '-01-01') as date)", "cast(cast(ts as string) as date)"],
    "double": ["cast(s as double)", "cast(cast(p as string) as double)"],
}  # fmt: skip
_SINGLE_TEXTS = ["1", "-7", "2020-02-29", "%1", "-%", "202%", "%-0_-%", "true", "%a%", "1_", "2018-05", "02", "%:30%"]


def single_conditions(count: int, seed: int) -> Iterator[tuple[str, Node]]:
    """As :func:`conditions`, on functions of which only single values are known."""
    rng = random.Random(seed)
    while count:
        kind = rng.choice(["string", "string", *_OF_SINGLE_VALUES])
        parts = [_single_condition(rng.choice(_OF_SINGLE_VALUES[kind]), kind, rng) for _ in range(rng.randint(1, 2))]
        (scan,) = find_scans(f"SELECT a FROM r WHERE {rng.choice([' AND ', ' OR ']).join(parts)}", {"r": SCHEMA})
        if not scan.unusable:
            yield " ".join(parts), scan.filter.root
            count -= 1


def _single_condition(expression: str, kind: str, rng: random.Random) -> str:
    if kind == "string" and rng.random() < 0.7:
        text = f"{expression} {rng.choice(['LIKE', 'NOT LIKE', '=', '<', 'RLIKE'])} '{rng.choice(_SINGLE_TEXTS)}'"
        text = text.replace("RLIKE '%", "RLIKE '")
    else:
        text = _compared(expression, kind, rng)
    return f"NOT ({text})" if rng.random() < 0.2 else text


def conditions(count: int, seed: int) -> Iterator[tuple[str, Node]]:
    """Conditions as text and as the filter that they are, without those that can't be used."""
    rng = random.Random(seed)
    while count:
        text = _condition(rng)
        (scan,) = find_scans(f"SELECT a FROM r WHERE {text}", {"r": SCHEMA})
        if not scan.unusable:
            yield text, scan.filter.root
            count -= 1


def _condition(rng: random.Random) -> str:
    kind = rng.choice([*_EXPRESSIONS, "int", "double", "columns", "regex"])
    if kind == "columns":
        sides = rng.choice([("a", "b + {i}"), ("a", "b * 2"), ("d", "last_day(e)"), ("x", "a + 1"), ("l", "a * b")])
        text = f"{sides[0]} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {sides[1]}"
    elif kind == "regex":
        text = rng.choice(["s rlike '^a[bc]'", "s rlike '^ab?'", "s rlike '^b+a'", "NOT s rlike '^a'"])
    else:
        text = _compared(rng.choice(_EXPRESSIONS[kind]), kind, rng)
    if rng.random() < 0.1:
        text = f"NOT ({text})"
    return text.format(i=rng.choice([-7, -2, 0, 1, 3, 12, 100, 1000]), k=rng.randint(0, 3))


def _compared(expression: str, kind: str, rng: random.Random) -> str:
    chance = rng.random()
    if chance < 0.06:
        return f"{expression} BETWEEN {_constant(kind, rng)} AND {_constant(kind, rng)}"
    if kind == "string" and chance > 0.85:
        return rng.choice(["{} LIKE 'a%'", "{} LIKE 'ab_%'", "startswith({}, 'b')", "{} LIKE '%c'"]).format(expression)
    if chance < 0.14:
        return f"{expression} IS {rng.choice(['', 'NOT '])}NULL"
    operator = rng.choice(["=", "=", "<>", "<", "<=", ">", ">=", "IN"])
    constant = _constant(kind, rng)
    if operator == "IN":
        return f"{expression} IN ({constant}, {_constant(kind, rng)})"
    return f"{expression} {operator} {constant}"


def _constant(kind: str, rng: random.Random) -> str:
    match kind:
        case "int":
            return str(rng.choice([-300, -100, -5, 0, 1, 3, 12, 31, 2019, 2020, 100, 300, 2**31 - 1, 10**15]))
        case "decimal":
            return rng.choice(["-150.5", "-1", "0", "0.1", "3", "99.75", "1e3", "12345678901.25", "a"])
        case "double":
            return rng.choice(["-150.5D", "-1D", "0D", "0.1D", "3D", "99.75D", "1e300", "double('NaN')"])
        case "date":
            return f"date'{dt.date(2018, 1, 1) + dt.timedelta(days=rng.randint(-30, 1500))}'"
        case "timestamp":
            return f"timestamp'{dt.date(2018, 1, 1) + dt.timedelta(days=rng.randint(-30, 1500))} 00:00:00'"
    return rng.choice(["''", "'a'", "'ab'", "'abc'", "'b'", "'é'", "'c'", "'zz'"])


def sorted_blocks(table: pa.Table, size: int) -> list[np.ndarray[Any, Any]]:
    """The rows' places cut into blocks: of the rows in order of each column, so that some blocks are narrow."""
    found = []
    for name in table.column_names:
        order = np.asarray(pa.compute.sort_indices(table[name]))
        found += [order[start : start + size] for start in range(0, len(order), size)]
    return found


def statistics_of(table: pa.Table, blocks: Sequence[np.ndarray[Any, Any]]) -> BlockStatistics:
    """What a load would measure of these blocks."""
    offsets = np.cumsum([0, *map(len, blocks)])
    of_blocks = table.take(pa.array(np.concatenate(blocks)))
    stats = block_statistics(of_blocks, offsets, SCHEMA)
    counts = np.diff(offsets)
    bounds = {c.name: column_bounds(stats.field(i), counts, c.type) for i, c in enumerate(SCHEMA.columns)}
    return BlockStatistics(counts, bounds=bounds)


def parts_of(node: Node) -> Iterator[InSet | Like | Comparison]:
    """The literals of a condition."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from parts_of(child)
    elif not isinstance(node, Constant):
        yield node


def sides_of(literal: InSet | Like | Comparison) -> tuple[Expr, ...]:
    """The expressions that a literal is about."""
    return (literal.left, literal.right) if isinstance(literal, Comparison) else (literal.subject,)


@dataclass(frozen=True, eq=False)
class Values:
    """The values of an expression, as somebody else computed them: keys [rows], and where there is one."""

    keys: np.ndarray[Any, Any]
    known: np.ndarray[Any, Any]
    stored: pa.Array
    column: pa.ChunkedArray

    @classmethod
    def of(cls, array: pa.Array, type: str) -> Values:
        stored = stored_keys(array, type)
        return cls(key_array(array, type), np.asarray(stored.is_valid()), stored, array)


def computed(frame: DataFrame, expressions: Sequence[Expr]) -> dict[Expr, Values]:
    """The values of expressions as Spark has them, many in one query."""
    found: dict[Expr, Values] = {}
    for start in range(0, len(expressions), 200):
        part = expressions[start : start + 200]
        rows = frame.selectExpr(*(f"{to_sql(expr)} AS v{i}" for i, expr in enumerate(part))).toArrow()
        found |= {expr: Values.of(rows[i], expr.type) for i, expr in enumerate(part)}
    return found


def holds(node: Node, values: Mapping[Expr, Values]) -> np.ndarray[Any, Any]:
    """Of which rows a condition is TRUE, by the values of its expressions, ``bool[rows]``."""
    match node:
        case And(children) | Or(children):
            join = np.logical_and if isinstance(node, And) else np.logical_or
            found: np.ndarray[Any, Any] = join.reduce([holds(child, values) for child in children])
            return found
        case Constant(value):
            return np.full(len(next(iter(values.values())).keys), value)
        case Comparison(left, op, right):
            a, b = values[left], values[right]
            compared = {"=": np.equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal}[op](a.keys, b.keys)
            met: np.ndarray[Any, Any] = np.asarray(compared, dtype=np.bool_) & a.known & b.known
            return met
        case InSet(subject, _, null):
            of_subject = values[subject]
            inside = matching_keys(InSet(subject, node.values), of_subject.stored.fill_null(_filler(of_subject.stored)))
            either: np.ndarray[Any, Any] = np.where(of_subject.known, inside, null)
            return either
        case Like(subject):
            of_subject = values[subject]
            return np.asarray(matching_keys(node, of_subject.stored.fill_null(b"")) & of_subject.known)


def _filler(stored: pa.Array) -> Any:
    return b"" if pa.types.is_large_binary(stored.type) else Decimal(0) if pa.types.is_decimal(stored.type) else 0
