"""Conditions on conditions, tuples and constant arrays, in terms of plain comparisons.

``(a = 1) IS TRUE`` tests the truth of a condition, ``(a, b) IN ((1, 2))`` compares structs, and
``a = ANY(ARRAY[1, 2])`` compares with each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

from sqlglot import exp

from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import is_number

# A value of three-valued logic; None for NULL.
Truth: TypeAlias = bool | None
_VALUES: Final[tuple[Truth, ...]] = (True, False, None)
# The nodes that are conditions, beside columns and calls of type boolean.
_CONDITIONS: Final = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.In, exp.Between, exp.Is, exp.Like, exp.ILike, exp.RegexpLike, exp.Contains, exp.StartsWith, exp.EndsWith,
)  # fmt: skip


@dataclass(frozen=True)
class TruthTest:
    """A condition that depends on the truth of another one.

    Attributes:
        condition: the other condition.
        true_for: its values for which the test is TRUE.
        false_for: its values for which the test is FALSE; for all others the test is NULL.
    """

    condition: exp.Expr
    true_for: frozenset[Truth]
    false_for: frozenset[Truth]


def split_truth_test(node: exp.Expr) -> TruthTest | None:
    """Return a test of a condition, which is no column or call; None for other nodes.

    >>> from layoutopt.sql.dialect import parse_statement
    >>> test = split_truth_test(parse_statement("SELECT (a = 1) IS TRUE").expressions[0])
    >>> test.condition.sql(), sorted(test.true_for), sorted(test.false_for, key=str)
    ('a = 1', [True], [False, None])
    """
    if isinstance(node, exp.Coalesce) and len(node.expressions) == 1:
        return _make_test(node.this, node.expressions[0], lambda value, default: default if value is None else value)
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 1 and node.name.casefold() in _NULL_TESTS:
        is_null = node.name.casefold() == "isnull"
        return _make_test(node.expressions[0], exp.Null(), lambda value, _: (value is None) == is_null)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Not):
        test = split_truth_test(exp.Is(this=node.this.copy(), expression=node.expression.this.copy()))
        return None if test is None else TruthTest(test.condition, test.false_for, test.true_for)
    compute = _COMPARED.get(type(node))
    if compute is None:
        return None
    left, right = node.this, node.expression
    return _make_test(left, right, compute) or _make_test(right, left, compute)


_NULL_TESTS: Final = frozenset({"isnull", "isnotnull"})
_COMPARED: Final[dict[type[exp.Expr], Callable[[Truth, Truth], Truth]]] = {
    exp.Is: lambda value, constant: value is constant,
    exp.NullSafeEQ: lambda value, constant: value is constant,
    exp.NullSafeNEQ: lambda value, constant: value is not constant,
    exp.EQ: lambda value, constant: None if None in (value, constant) else value is constant,
    exp.NEQ: lambda value, constant: None if None in (value, constant) else value is not constant,
}


def _make_test(tested: exp.Expr, constant: exp.Expr, compute: Callable[[Truth, Truth], Truth]) -> TruthTest | None:
    condition, constant = tested.unnest(), constant.unnest()
    if not isinstance(condition, _CONDITIONS) or not isinstance(constant, exp.Boolean | exp.Null):
        return None
    target = None if isinstance(constant, exp.Null) else bool(constant.this)
    results = {value: compute(value, target) for value in _VALUES}
    return TruthTest(
        condition,
        frozenset(value for value, result in results.items() if result is True),
        frozenset(value for value, result in results.items() if result is False),
    )


def rewrite_elements(node: exp.Expr, read_type: Callable[[exp.Expr], str]) -> exp.Expr | None:
    """Return a condition on tuples, or on the elements of a constant array, as AND and OR; None for other nodes.

    Args:
        node: the condition.
        read_type: returns an operand's type.

    Raises:
        Unusable: the meaning is unknown.

    >>> from layoutopt.sql.dialect import parse_statement
    >>> def rewrite(text):
    ...     node = parse_statement(f"SELECT {text}").expressions[0]
    ...     return rewrite_elements(node, lambda operand: "int").sql("spark")
    >>> rewrite("(a, b) IN ((1, 2))")
    'a IS NOT DISTINCT FROM 1 AND b IS NOT DISTINCT FROM 2'
    >>> rewrite("exists(array(1, 2), x -> a = x)"), rewrite("a IN (SELECT explode(array(1, 2)))")
    ('a = 1 OR a = 2', 'a = 1 OR a = 2')
    """
    if isinstance(node.this, exp.Tuple):
        return _rewrite_tuple(node)
    if isinstance(node, exp.Exists) and isinstance(node.expression, exp.Lambda) and isinstance(node.this, exp.Array):
        return _join(exp.Or, [_apply(node.expression, element) for element in _elements(node.this, read_type)])
    if isinstance(node, exp.In):
        array = _find_unnested(node.args.get("query"))
        if array is not None:
            elements, tested = _elements(array, read_type), read_type(node.this)
            if elements and not _is_alike(tested, read_type(elements[0])):
                raise Unusable("coercion", f"{node.sql('spark')[:80]} compares {tested} with elements of another type")
            return _join(exp.Or, [exp.EQ(this=node.this.copy(), expression=element) for element in elements])
    if isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        array = _find_quantified(node.expression)
        if array is not None:
            parts = [type(node)(this=node.this.copy(), expression=element) for element in _elements(array, read_type)]
            return _join(exp.And, parts)
    return None


def _join(connector: type[exp.Connector], parts: Sequence[exp.Expr]) -> exp.Expr:
    if not parts:
        return exp.Boolean(this=connector is exp.And)
    return reduce(lambda left, right: connector(this=left, expression=right), parts)


def _elements(array: exp.Expr, read_type: Callable[[exp.Expr], str]) -> list[exp.Expr]:
    """Return copies of an array's elements, which have one type, so that the array casts none."""
    kinds = {read_type(element) for element in array.expressions} - {"void"}
    if len(kinds) > 1 or any(element.find(exp.Column) for element in array.expressions):
        raise Unusable("coercion", f"{array.sql('spark')[:80]} is supported for constants of one type only")
    return [element.copy() for element in array.expressions]


def _is_alike(tested: str, element: str) -> bool:
    """Return whether ``IN`` with a subquery compares the types as ``=`` does."""
    return tested == element or element == "void" or (is_number(tested) and is_number(element))


def _apply(test: exp.Expr, element: exp.Expr) -> exp.Expr:
    """Return a lambda's body with an element in place of its variable."""
    name = test.expressions[0].name
    if len(test.expressions) != 1 or test.this.find(exp.Lambda):
        raise Unusable("unsupported-expression", f"{test.sql('spark')} is not supported")

    def replace(part: exp.Expr) -> exp.Expr:
        is_variable = isinstance(part, exp.Identifier) and part.name == name and not isinstance(part.parent, exp.Column)
        return element.copy() if is_variable else part

    body: exp.Expr = test.this.copy().transform(replace)
    return body


def _find_unnested(query: exp.Expr | None) -> exp.Expr | None:
    """Return the array of ``SELECT explode(array(...))``."""
    select = query.unnest() if query is not None else None
    if not isinstance(select, exp.Select) or {name for name, value in select.args.items() if value} != {"expressions"}:
        return None
    (first, *rest) = select.expressions
    is_array = not rest and isinstance(first, exp.Explode) and isinstance(first.this, exp.Array)
    return first.this if is_array else None


def _find_quantified(node: exp.Expr) -> exp.Expr | None:
    """Return the array of ``ALL(array(...))``, which sqlglot leaves as a function's call."""
    if not isinstance(node, exp.Anonymous) or node.name.upper() != "ALL" or len(node.expressions) != 1:
        return None
    return node.expressions[0] if isinstance(node.expressions[0], exp.Array) else None


def _rewrite_tuple(node: exp.Expr) -> exp.Expr:
    """Return a comparison of a struct with constants by its fields: NULL equals NULL, and comes first."""
    fields = node.this.expressions
    rows = node.expressions if isinstance(node, exp.In) else [node.expression]
    if not rows or not all(isinstance(row, exp.Tuple) and len(row.expressions) == len(fields) for row in rows):
        raise Unusable("unsupported-expression", f"{node.sql('spark')[:80]} is supported for tuples of constants only")
    if isinstance(node, exp.In | exp.EQ):
        return _join(exp.Or, [_equal(fields, row.expressions) for row in rows])
    if isinstance(node, exp.NEQ):
        return exp.Not(this=exp.Paren(this=_equal(fields, rows[0].expressions)))
    raise Unusable("unsupported-expression", f"{node.sql('spark')[:80]} compares the order of tuples")


def _equal(fields: Sequence[exp.Expr], values: Sequence[exp.Expr]) -> exp.Expr:
    pairs = zip(fields, values, strict=True)
    return _join(exp.And, [exp.NullSafeEQ(this=field.copy(), expression=value.copy()) for field, value in pairs])
