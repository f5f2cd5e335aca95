"""CASE, IF, NULLIF and NVL2 within a condition: the tests that are made one after the other, and what each leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from layoutopt.sql.calls.subjects import Context, Reader
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.rules import listed_type

_KINDS: Final = (exp.Case, exp.If, exp.Nullif, exp.Nvl2)
_MOST_BRANCHES: Final = 16
_MOST_CHOICES: Final = 4


@dataclass(frozen=True, eq=False)
class Choice:
    """A condition that holds a choice.

    Attributes:
        tests: in the order in which they are made; the first that is TRUE counts.
        outcomes: the condition with each test's value in the choice's place, and last with the value where none is.
    """

    tests: tuple[exp.Expr, ...]
    outcomes: tuple[exp.Expr, ...]


def choice_in(condition: exp.Expr, context: Context, read: Reader) -> Choice | None:
    """A choice within a condition; None where it has none.

    Raises:
        Unusable: it has too many branches, or their values have no common type here.
    """
    parts = list(condition.walk())
    places = [i for i, part in enumerate(parts) if isinstance(part, _KINDS) and part.arg_key != "ifs"]
    if not places or any(isinstance(part, exp.Query | exp.Lambda) for part in parts):
        return None
    # Values have types once the choices within them are made; the alternatives of a condition are conditions.
    place = places[-1] if places[0] else 0
    tests, values = _branches(parts[place])
    if len(tests) > _MOST_BRANCHES or len(places) > _MOST_CHOICES:
        raise Unusable("unsupported-expression", f"{condition.sql('spark')[:80]} has too many branches")
    if place:
        values = _of_one_type(values, context, read)
    return Choice(tuple(tests), tuple(_replaced(condition, place, value) for value in values))


def _branches(node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
    null = exp.Null()
    if isinstance(node, exp.Nullif):
        return [exp.EQ(this=node.this.copy(), expression=node.expression.copy())], [null, node.this]
    if isinstance(node, exp.Nvl2):
        return [exp.Is(this=node.this.copy(), expression=exp.Null()).not_()], [node.args["true"], node.args["false"]]
    if isinstance(node, exp.If):
        return [node.this], [node.args["true"], node.args.get("false") or null]
    ifs, given = node.args["ifs"], node.this
    tests = [each.this if given is None else exp.EQ(this=given.copy(), expression=each.this.copy()) for each in ifs]
    return tests, [*(each.args["true"] for each in ifs), node.args.get("default") or null]


def _of_one_type(values: Sequence[exp.Expr], context: Context, read: Reader) -> list[exp.Expr]:
    """The values as Spark casts them to their common type."""
    types = [read(value).type for value in values]
    kind = listed_type(types, ansi=context.settings.ansi)
    return [
        value if type == kind else exp.cast(value.copy(), kind, dialect="spark")
        for value, type in zip(values, types, strict=True)
    ]


def _replaced(condition: exp.Expr, place: int, value: exp.Expr) -> exp.Expr:
    if not place:
        return value.copy()
    copied = condition.copy()
    list(copied.walk())[place].replace(exp.Paren(this=value.copy()))
    return copied
