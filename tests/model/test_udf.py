"""Functions of the user's: how they are declared, and when changed code is another function."""

from __future__ import annotations

import datetime as dt
import linecache
import re
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType

import numpy as np
import pytest

import layoutopt
from layoutopt.errors import SettingError
from layoutopt.model.predicates import Call, Col, InSet, Predicate, describe, to_sql
from layoutopt.model.predicates.subsume import subsumes
from layoutopt.model.udf import as_udf, by_name, udf
from layoutopt.model.values import ValueSet
from layoutopt.sql.query_blocks import rejects_nulls


def shout(text: str) -> str:
    return text.upper()


def on(day: dt.date) -> dt.datetime:
    return dt.datetime.combine(day, dt.time())


def call(digest: str) -> Call:
    return Call(f"_layoutopt_shout_{digest}", (Col("s", "string"),), "string")


def test_a_plain_function_is_declared_by_its_return_type() -> None:
    found = as_udf(shout, "loud")
    assert (found.name, found.returns, found.parameters, found("a")) == ("loud", "string", ("text",), "A")
    assert len(found.digest) == 16
    assert as_udf(found, "other").digest == found.digest


def test_a_declared_function_keeps_what_it_declares() -> None:
    @layoutopt.udf("double", implies={"<": ":a < :value"}, version="7")
    def Half(a: float) -> float:  # noqa: N802
        return a / 2

    assert as_udf(Half) is Half
    assert (Half.name, dict(Half.implies), Half(3)) == ("half", {"<": ":a < :value"}, 1.5)


def above(limit: object, least: object = 0) -> Callable[..., bool]:
    def big(a: float, least: object = least) -> bool:
        return a > limit and a >= least  # type: ignore[operator]

    return big


def doubled() -> int:
    return 2


LIMITS: list[object] = [
    1, 1.0, True, "1", b"1", None, dt.date(2026, 1, 1), (1, 2), [1, 2], (1, (2,)), {1: 2}, {2: 1}, {1, 2},
    frozenset({1}), shout, doubled, above(1), above(2), above(above(1)), layoutopt.udf("string")(shout),
    re.compile("a"), re.compile("a" * 300), re.compile("a" * 301), re.compile("a", re.I), dt, len,
]  # fmt: skip


def test_functions_that_another_made_are_told_apart_by_what_they_hold() -> None:
    digests = [udf("boolean")(above(limit)).digest for limit in LIMITS]
    assert digests == [udf("boolean")(above(limit)).digest for limit in LIMITS]
    assert len(set(digests)) == len(LIMITS)
    assert udf("boolean")(above(1, least=1)).digest not in digests
    with pytest.raises(SettingError, match=r"the function big depends on <object object.*version='1'"):
        udf("boolean")(above(object()))
    assert udf("boolean", version="1")(above(object())).digest == udf("boolean", version="1")(above(3)).digest


def test_what_a_decorator_holds_counts_too() -> None:
    def limited(limit: int) -> Callable[..., bool]:
        @wraps(shout)
        def value_of(text: str) -> bool:
            return len(shout(text)) < limit

        return value_of

    one, two, other = (udf("boolean")(limited(limit)) for limit in (1, 1, 2))
    assert one.name == "shout"
    assert one.digest == two.digest != other.digest


def typed_in(monkeypatch: pytest.MonkeyPatch, *cells: str) -> Callable[..., object]:
    """The function `f` of a notebook: its module has no file, but each cell a source."""
    module = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", module)
    for number, cell in enumerate(cells):
        name = f"<cell {number} of {hash(cells)}>"
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell, name, "exec"), vars(module))
    found: Callable[..., object] = module.f
    return found


F_CELL = "def f(a):\n    return [helper(each) for each in a]\n"
CELLS = [
    (F_CELL, "def helper(x):\n    return x + LIMIT\n", "LIMIT = 1\n"),
    (F_CELL, "def helper(x):\n    return x + LIMIT\n", "LIMIT = 2\n"),
    (F_CELL, "def helper(x):\n    return x - LIMIT\n", "LIMIT = 1\n"),
    (F_CELL, "def helper(x):\n    return f and x\n"),
    (F_CELL, "from math import sin as helper\n"),
    (F_CELL, "from math import cos as helper\n"),
]


def test_what_a_function_of_a_notebook_names_is_of_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = [udf("int")(typed_in(monkeypatch, *cells)).digest for cells in CELLS]
    assert len(set(digests)) == len(CELLS)
    assert digests == [udf("int")(typed_in(monkeypatch, "other = 1\n", *cells)).digest for cells in CELLS]


def test_another_version_is_another_function() -> None:
    one, two = (layoutopt.udf("string", version=version)(shout) for version in "12")
    assert one.digest != two.digest
    assert layoutopt.udf("string", version="1")(shout) == one
    assert layoutopt.udf("boolean", version="1")(shout).digest != one.digest


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: as_udf(on), "the return type of on is unknown"),
        (lambda: as_udf(3), "3 is no function"),
        (lambda: layoutopt.udf("timestamp")(on), "returns 'timestamp'"),
        (lambda: layoutopt.udf("string", name="Ä")(shout), "no function name"),
        (lambda: layoutopt.udf("string", implies={"<>": "TRUE"})(shout), "unknown key '<>'"),
        (lambda: layoutopt.udf("string", implies="TRUE")(shout), "unknown key 'true'"),
        (lambda: layoutopt.udf("string", implies={"=": ":txet = 1"})(shout), "names :txet; its parameters are text"),
        (
            lambda: by_name([as_udf(shout), udf("string", name="shout", version="2")(len)]),
            "two functions are called shout",
        ),
    ],
)
def test_what_can_not_be_is_refused_in_one_sentence(make: object, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        make()  # type: ignore[operator]


def test_calls_of_changed_code_are_other_functions() -> None:
    old, new = (InSet(call(digest * 16), ValueSet.point("A")) for digest in "ab")
    assert subsumes((Predicate((old,)),), old)
    assert not subsumes((Predicate((old,)),), new)
    assert describe(old) == "shout(s) = 'A'"
    assert to_sql(old) == "_layoutopt_shout_aaaaaaaaaaaaaaaa(`s`) = 'A'"


def test_no_rule_takes_a_users_function_for_one_of_sparks() -> None:
    """By its name alone `try_add` keeps order and is NULL where an argument is."""
    assert not rejects_nulls(InSet(udf_call("try_add"), ValueSet.point(1)))
    assert rejects_nulls(InSet(Call("try_add", (Col("a", "int"), Col("b", "int")), "int"), ValueSet.point(1)))


def udf_call(name: str) -> Call:
    declared = udf("int", name=name, version="1")(lambda a, b: 1)
    return Call(declared.measured_name, (Col("a", "int"), Col("b", "int")), "int")


def test_a_function_that_fails_for_a_row_gives_null() -> None:
    assert as_udf(shout).or_null()(None) is None
    assert as_udf(shout).or_null()("a") == "A"


def test_a_result_of_another_type_is_an_error_and_no_null() -> None:
    found = udf("double", version="1")
    assert found(lambda_of(3)).checked()() == 3.0
    assert type(found(lambda_of(np.float64(2))).checked()()) is float
    assert found(lambda_of(None)).checked()() is None
    for value in (True, "3", dt.date(2026, 1, 1)):
        with pytest.raises(RuntimeError, match=r"the function given returned .*, which is no double"):
            found(lambda_of(value)).checked()()
        assert found(lambda_of(value)).or_null()() is None


def lambda_of(value: object) -> Callable[[], object]:
    def given() -> object:
        return value

    return given
