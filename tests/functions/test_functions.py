"""Every function of the registry against Spark: what its record says of its values, of NULL and of other engines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import QueryError
from layoutopt.evaluation import engine
from layoutopt.evaluation.engine import EngineQuery, EngineView
from layoutopt.evaluation.expressions import evaluate
from layoutopt.functions.function import never
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.functions.texts import has_one_case
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import Call, Col, Const, Expr, InSet
from layoutopt.model.values import ValueSet
from layoutopt.skipping.cannot_match import BlockStatistics
from layoutopt.skipping.derived_bounds import derive_bounds
from layoutopt.sql.dialect import parse_statement
from layoutopt.sql.duckdb.translate import portable_sql
from layoutopt.sql.expressions import read_subject
from layoutopt.sql.operands import Context
from layoutopt.sql.types import in_set
from tests.skipping.falsifiable import SCHEMA, Values, computed, rows, sorted_blocks, statistics_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATTERN = "'^([ab]+)c'"
# Conditions on calls of each function; the columns are those of tests/skipping/falsifiable.py.
CALLS: Mapping[str, str] = {
    "try_add": "a + 7 | l + 1 | a + b | x + 0.1D | p + 1.5 | d + INTERVAL 1 MONTH | ts + INTERVAL 36 HOURS "
    "| n - INTERVAL 2 MONTHS",
    "try_subtract": "a - 7 | 12 - l | a - b | x - a | p - 1.5 | -a",
    "try_multiply": "a * 3 | l * -7 | a * b | x * 0.5D | p * 1.1 | p * p",
    "try_divide": "a / 3 | 10 / x | x / b | p / 3 | a / p",
    "try_mod": "a % 7 | a % b | l % -3",
    "try_cast": "cast(p AS int) | cast(l AS int) | cast(x AS bigint) "
    "| cast(s AS int) | cast(d AS timestamp) | cast(ts AS date) | cast(n AS date) | cast(n AS timestamp)",
    "abs": "abs(a) | abs(l) | abs(x) | abs(p)",
    "sqrt": "sqrt(x) | sqrt(a)",
    "floor": "floor(p) | floor(p * 1.5)",
    "ceil": "ceil(p) | ceil(p * 0.25)",
    "round": "round(p) | round(p, 1) | round(x, 2)",
    "coalesce": "coalesce(a, b) | coalesce(d, e) | coalesce(s, 'b')",
    "greatest": "greatest(a, b) | greatest(x, f) | greatest(d, e)",
    "least": "least(a, b, 3) | least(x, 1.5D) | least(d, e)",
    "date_add": "date_add(d, 40) | date_sub(d, 3) | d + 1000 | d - INTERVAL 2 WEEKS",
    "trunc": "trunc(d, 'YEAR') | trunc(d, 'QUARTER') | trunc(d, 'MM') | trunc(d, 'WEEK')",
    "date_trunc": "date_trunc('MONTH', ts) | date_trunc('WEEK', ts) | date_trunc('HOUR', ts) | date_trunc('DAY', d)",
    "datediff": "datediff(d, e) | datediff(date'2020-01-01', d)",
    "hour": "hour(ts) | hour(n)",
    "minute": "minute(ts) | minute(n)",
    "second": "second(ts) | second(n)",
    "rlike": "s RLIKE '^a[bc]' | s RLIKE 'b+'",
    "left": "left(s, 0)",
    "substring": "substring(s, 1, 2) | left(s, 3) | substring(s, 0, 2) | substring(s, 2) | substring(s, -2, 1)",
    "right": "right(s, a)",
    "concat": "concat('a', s) | s || 'b' | concat(s, 'b', s)",
    "instr": "instr(s, 'b')",
    "levenshtein": "levenshtein(s, 'abd')",
    "split_part": "split_part(s, 'b', 1) | split_part(s, 'b', -1) | split_part(s, '', 2)",
    "substring_index": "substring_index(s, 'b', 1) | substring_index(s, 'b', -1)",
    "regexp_extract": f"regexp_extract(s, {_PATTERN}, 1) | regexp_extract(s, '[ab]{{2}}', 0)",
    "soundex": "soundex(s) | soundex(concat(s, 'Tymczak, wh'))",
    "get_json_object": "get_json_object(s, '$.a')",
    **{name: f"{name}(s)" for name in ("lower", "upper", "reverse", "trim", "ltrim", "rtrim", "length")},
    **{
        name: f"{name}(d) | {name}(e)"
        for name in ("year", "quarter", "month", "weekofyear", "day", "dayofyear", "dayofweek", "last_day", "unix_date")
    },
}
# Functions of nested values: tests/spark/test_nested.py and tests/sql/test_nested.py.
_NESTED = {"array_max", "array_min", "try_variant_get"}


def test_every_function_has_calls() -> None:
    assert CALLS.keys() | _NESTED == FUNCTIONS.keys()


def read_calls(name: str) -> tuple[Call, ...]:
    """The calls of a function as filters contain them."""
    if name == "left":  # Spark's optimiser, and so the reader, replaces it; older documents may have it
        return tuple(Call("left", (Col("s", "string"), Const(length, "int")), "string") for length in (-1, 0, 2))
    if name == "rlike":
        patterns = ("^a[bc]", "b+")
        return tuple(Call(name, (Col("s", "string"), Const(pattern, "string")), "boolean") for pattern in patterns)
    context = Context(lambda column: (SCHEMA.find(column.name), ()), SessionSettings())
    read = [
        read_subject(parse_statement(f"SELECT {text}").expressions[0], context) for text in CALLS[name].split(" | ")
    ]
    calls = tuple(subject.expr for subject in read if isinstance(subject.expr, Call) and subject.expr.fn == name)
    assert len(calls) == len(read), read
    return calls


@dataclass(frozen=True)
class Truth:
    """Generated rows, and Spark's values of the calls, their arguments and the columns.

    Attributes:
        table: the rows.
        values: Spark's values.
        blocks: the rows of each block.
        statistics: the statistics of the blocks.
    """

    table: pa.Table
    values: Mapping[Expr, Values]
    blocks: list[np.ndarray[Any, Any]]
    statistics: BlockStatistics


@pytest.fixture(scope="module")
def truth(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    table = rows(600, 11)
    path = tmp_path_factory.mktemp("functions") / "rows.parquet"
    pq.write_table(table, path)
    calls = [call for name in CALLS for call in read_calls(name)]
    wanted = dict.fromkeys(part for call in calls for part in (call, *call.args) if part.columns)
    blocks = sorted_blocks(table, 8)
    found = computed(spark.read.parquet(str(path)), tuple(wanted))
    return Truth(table, found, blocks, statistics_of(table, blocks))


@pytest.mark.spark
@pytest.mark.parametrize("name", CALLS)
def test_bounds_hold_every_value_and_count_the_nulls(name: str, truth: Truth) -> None:
    bounded = [(call, derive_bounds(call, truth.statistics)) for call in read_calls(name)]
    assert any(bounds is not None for _, bounds in bounded)
    for call, bounds in bounded:
        if bounds is None:
            continue
        values = truth.values[call]
        for place, block in enumerate(truth.blocks):
            keys = [values.keys[row] for row in block if values.known[row]]
            if bounds.known[place]:
                assert all(bounds.low[place] <= key <= bounds.high[place] for key in keys), (call, block)
            if bounds.nulls[place] >= 0:
                assert bounds.nulls[place] == len(block) - len(keys), (call, block)


@pytest.mark.spark
@pytest.mark.parametrize("name", CALLS)
def test_null_is_given_as_the_record_says(name: str, truth: Truth) -> None:
    function = FUNCTIONS[name]
    for call in read_calls(name):
        has_null = np.zeros(truth.table.num_rows, np.bool_)
        for argument in call.args:
            has_null |= ~truth.values[argument].known if argument.columns else False
        is_null = ~truth.values[call].known
        assert not (function.strict and (has_null & ~is_null).any()), call
        assert not (function.total and (is_null & ~has_null).any()), call


@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in CALLS if FUNCTIONS[name].compute is not None])
def test_a_computed_value_is_the_one_of_spark(name: str, truth: Truth) -> None:
    known = 0
    for call in read_calls(name):
        for row in range(truth.table.num_rows):
            arguments = [key_of(argument, row, truth) for argument in call.args]
            value = FUNCTIONS[name].evaluate(arguments)
            known += value is not None
            assert value is None or value == key_of(call, row, truth), (call, arguments)
    assert known


def key_of(expr: Expr, row: int, truth: Truth) -> Any:
    """The key of an expression in a row, or None."""
    if isinstance(expr, Const):
        return expr.value
    values = truth.values[expr]
    if not values.known[row]:
        return None
    key = values.keys[row]
    return key.item() if isinstance(key, np.generic) else key


@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in CALLS if FUNCTIONS[name].first_argument is not None])
def test_a_value_comes_from_exactly_the_arguments_of_its_set(name: str, truth: Truth) -> None:
    for call in read_calls(name):
        values, arguments = truth.values[call], truth.values[call.args[0]]
        for value in sorted(set(values.keys[values.known].tolist())):
            for wanted in (ValueSet.point(value), ValueSet.interval(value, None), ValueSet.interval(None, value)):
                node = in_set(call, wanted, False, "UTC")
                assert isinstance(node, InSet)
                assert node.subject == call.args[0]
                for row in np.flatnonzero(values.known):
                    assert node.values.contains(int(arguments.keys[row])) == wanted.contains(int(values.keys[row]))


@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in CALLS if FUNCTIONS[name].on_ascii is not None])
def test_arrow_computes_what_spark_does(name: str, truth: Truth) -> None:
    for call in read_calls(name):
        evaluated = evaluate(call, truth.table)
        assert evaluated is not None
        assert evaluated.unknown is not None
        for row, value in enumerate(evaluated.values.to_pylist()):
            assert evaluated.unknown[row] or value == key_of(call, row, truth), call


@pytest.mark.spark
@pytest.mark.parametrize("name", CALLS)
def test_the_embedded_engine_computes_what_spark_does(name: str, truth: Truth) -> None:
    answered, view = 0, EngineView("rows_of_r", truth.table.schema, truth.table.to_batches)
    for text, call in zip(CALLS[name].split(" | "), read_calls(name), strict=False):
        with suppress(QueryError):  # Spark may fail there too; filters have NULL
            portable = portable_sql(f"SELECT {text} AS v FROM r", {"r": SCHEMA}, "rows_of_r")
            query = EngineQuery(portable.sql, portable.columns, (view,), "UTC", False, portable.functions)
            column = engine.answer(query)["v"]
            ours, values = Values.of(column, portable.columns[0].type), truth.values[call]
            assert (ours.known == values.known).all(), text
            assert (ours.keys[ours.known] == values.keys[values.known]).all(), text
            answered += 1
    assert answered or FUNCTIONS[name].is_portable is never, "a record says that DuckDB computes the same"


@pytest.mark.spark
def test_spark_changes_the_case_of_letters_as_python_does(spark: SparkSession) -> None:
    letters = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000 and has_one_case(chr(code))]
    frame = spark.createDataFrame(pa.table({"letter": letters})).selectExpr("letter", "lower(letter)", "upper(letter)")
    found = frame.toArrow().to_pydict()
    assert len(letters) > 60_000
    assert list(found.values()) == [letters, [letter.lower() for letter in letters], [x.upper() for x in letters]]
