"""Handlers of Catalyst's conditions: each gives the rows for which one is TRUE, or those for which it is FALSE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from layoutopt.model.predicates import (
    ANY_STRING,
    FALSE,
    Call,
    Const,
    Constant,
    Expr,
    InSet,
    Node,
    Or,
    canonical_pattern,
    conjunction,
    disjunction,
    like,
    parse_like,
    simplified,
    untrue,
)
from layoutopt.model.types import nested_parts
from layoutopt.model.values import NAN_KEY, ValueSet, compare, key_kind
from layoutopt.model.values.keys import Key, successor
from layoutopt.spark.catalyst.expressions import contained, text_argument, value_of, whole_of_double
from layoutopt.spark.catalyst.trees import Reader, Tree, constant_of, key_of, text_constant, text_of, unknown
from layoutopt.sql.elements import is_followed, is_met
from layoutopt.sql.expressions import MIRRORED, OPPOSITE, compare_subjects
from layoutopt.sql.filters import safe_regex
from layoutopt.sql.operands import Subject
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import fails_unless_replaced, in_set, is_number

Handler = Callable[[Tree, bool, Reader], Node]

_MOST_ELEMENTS: Final = 64


def compared(operator: str) -> Handler:
    """Return the handler of a comparison."""

    def read(tree: Tree, truth: bool, reader: Reader) -> Node:
        left, right = tree.pair
        sign = operator if truth else OPPOSITE[operator]
        first, second = constant_of(left), constant_of(right)
        if first is not None and second is not None:
            return _constants_compared(first, sign, second)
        if second is not None:
            return _against_constant(left, sign, second, reader)
        if first is not None:
            return _against_constant(right, MIRRORED[sign], first, reader)
        if left.type == "boolean" and sign in ("=", "<>") and not _are_subjects(left, right, reader):
            return _conditions_compared(left, right, sign == "=", reader)
        return compare_subjects(reader.subject(left), sign, reader.subject(right))

    return read


def _constants_compared(left: Const, sign: str, right: Const) -> Node:
    if left.value is None or right.value is None:
        return FALSE
    if left.type != right.type or key_kind(left.type) is None:
        raise Unusable("coercion", f"{left.type} is compared with {right.type}")
    return Constant(ValueSet.normalised(_intervals(sign, right.value), left.type).contains(left.value))


def _are_subjects(left: Tree, right: Tree, reader: Reader) -> bool:
    try:
        return bool(reader.subject(left) and reader.subject(right))
    except Unusable:
        return False


def _conditions_compared(left: Tree, right: Tree, same: bool, reader: Reader) -> Node:
    ways = [conjunction([reader.node(left, truth), reader.node(right, truth == same)]) for truth in (True, False)]
    return disjunction(ways)


def _against_constant(tree: Tree, sign: str, constant: Const, reader: Reader) -> Node:
    if constant.value is None:
        return FALSE  # comparing with NULL is never TRUE and never FALSE
    if tree.type == "boolean" and constant.type == "boolean" and sign in ("=", "<>"):
        return reader.node(tree, bool(constant.value) == (sign == "="))
    given = beside_constant(tree, reader)
    return on_values(given, values_compared(given, sign, constant), reader)


def beside_constant(tree: Tree, reader: Reader) -> Subject:
    """Return what stands beside a constant, where ``floor(x)`` of a double may stand too."""
    found = whole_of_double(tree, reader)
    return reader.subject(tree) if found is None else found


def on_values(given: Subject, values: ValueSet, reader: Reader, null: bool = False) -> Node:
    """Return the rows whose value is one of a set, or NULL where ``null``.

    Raises:
        Unusable: the expression may fail, and can't be replaced.
    """
    if fails_unless_replaced(given.expr):
        raise Unusable("can-fail", "floor or ceil of a double is followed beside whole numbers only")
    return in_set(given.expr, values, null, reader.zone)


def values_compared(given: Subject, sign: str, constant: Const) -> ValueSet:
    """Return the values of a subject for which a comparison with a constant of its type is TRUE.

    Raises:
        Unusable: the types have no common order here.
    """
    kind, value = given.expr.type, constant.value
    assert value is not None, "NULL is handled before"
    if key_kind(kind) is None or key_kind(constant.type) is None:
        raise Unusable("unordered-type", f"values of type {kind} are not compared here")
    if kind == constant.type:
        return ValueSet.normalised(_intervals(sign, value), kind)
    if not (is_number(kind) and is_number(constant.type)):
        raise Unusable("coercion", f"{kind} is compared with {constant.type}")
    return compare(sign, value_of(constant), kind)


def _intervals(sign: str, key: Key) -> list[tuple[Key | None, Key | None]]:
    above = successor(key)
    match sign:
        case "=":
            return [(key, above)]
        case "<>":
            return [(None, key), (above, None)]
        case "<":
            return [(None, key)]
        case "<=":
            return [(None, above)]
        case ">":
            return [(above, None)]
    return [(key, None)]


def equal_null_safe(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``a <=> b``, which is never NULL."""
    left, right = tree.pair
    constant = constant_of(right)
    if constant is None:
        constant, left, right = constant_of(left), right, left
        if constant is None:
            return _both_null_or_equal(left, right, truth, reader)
    if constant.value is None:
        return null_test(left, truth, reader)
    if left.type == "boolean":
        found = reader.exact(left, bool(constant.value)) if not truth else reader.node(left, bool(constant.value))
        return found if truth else untrue(found)
    given = beside_constant(left, reader)
    return on_values(given, values_compared(given, "=" if truth else "<>", constant), reader, null=not truth)


def _both_null_or_equal(left: Tree, right: Tree, truth: bool, reader: Reader) -> Node:
    sides = reader.subject(left), reader.subject(right)
    nulls = [null_test(side, True, reader) for side in (left, right)]
    some = [null_test(side, False, reader) for side in (left, right)]
    if truth:
        return disjunction([compare_subjects(sides[0], "=", sides[1]), conjunction(nulls)])
    ways = [conjunction([nulls[0], some[1]]), conjunction([some[0], nulls[1]])]
    return disjunction([compare_subjects(sides[0], "<>", sides[1]), *ways])


def is_null(wanted: bool) -> Handler:
    """Return the handler of IS NULL or IS NOT NULL."""

    def read(tree: Tree, truth: bool, reader: Reader) -> Node:
        return null_test(tree.only, truth == wanted, reader)

    return read


def null_test(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Return the rows for which an expression is NULL, or is not.

    Raises:
        Unusable: the expression is not understood.
    """
    constant = constant_of(tree)
    if constant is not None:
        return Constant((constant.value is None) == truth)
    given = reader.subject(tree)
    return on_values(given, ValueSet.empty() if truth else ValueSet.all(), reader, null=truth)


def is_nan(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``isnan(x)``, which is FALSE for NULL."""
    given = reader.subject(tree.only)
    if given.expr.type not in ("float", "double"):
        raise Unusable("coercion", f"{text_of(tree)} is followed for float and double columns only")
    nan = ValueSet.point(NAN_KEY)
    return on_values(given, nan if truth else nan.complement(), reader, null=not truth)


def at_least_n(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read what ``dropna`` asks: whether so many operands are neither NULL nor NaN."""
    needed = int(str(tree.detail("n")))
    if needed not in (1, len(tree.children)) or not tree.children:
        raise unknown(tree)
    tests = []
    for child in tree.children:
        given = reader.subject(child)
        nan = ValueSet.point(NAN_KEY) if given.expr.type in ("float", "double") else ValueSet.empty()
        tests.append(on_values(given, nan.complement() if truth else nan, reader, null=not truth))
    return conjunction(tests) if (needed == len(tree.children)) == truth else disjunction(tests)


def in_list(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``x IN (1, 2)``, of few values."""
    tested, *items = tree.children
    constants = [constant_of(item) for item in items]
    known = [constant for constant in constants if constant is not None]
    if len(known) == len(constants) and constant_of(tested) is None:
        return _among(tested, known, truth, reader)
    equal = compared("=")
    tests = [equal(Tree("EqualTo", "boolean", (tested, item), {}), truth, reader) for item in items]
    return disjunction(tests) if truth else conjunction(tests)


def in_set_of_keys(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``x IN (1, 2, ...)``, of many values."""
    tested, values = tree.only, tree.detail("values")
    if not isinstance(values, list):
        raise unknown(tree)
    constants = [Const(key_of(value, tested.type, text_of(tree)), tested.type) for value in values]
    return _among(tested, constants, truth, reader)


def _among(tested: Tree, constants: Sequence[Const], truth: bool, reader: Reader) -> Node:
    known = [constant for constant in constants if constant.value is not None]
    if len(known) < len(constants) and not truth:
        return FALSE  # x NOT IN (..., NULL) is FALSE or NULL, never TRUE
    given = beside_constant(tested, reader)
    sets = [values_compared(given, "=", constant) for constant in known]
    united = ValueSet.of(key for values in sets for key in values.points() or ())
    for values in sets:
        if values.points() is None:
            united = united.union(values)
    wanted = united if truth else united.complement()
    return on_values(given, ValueSet.normalised(wanted.intervals, given.expr.type), reader)


def containing(before: bool, after: bool) -> Handler:
    """Return the handler of a text that has another in it, with anything before or after it."""

    def read(tree: Tree, truth: bool, reader: Reader) -> Node:
        tested, part = tree.pair
        constant = constant_of(part)
        if constant is not None and constant.value is None:
            return FALSE
        pattern = canonical_pattern([*[ANY_STRING] * before, text_constant(part, tree), *[ANY_STRING] * after])
        return simplified(like(text_argument(tested, reader), pattern, not truth))

    return read


def like_pattern(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``x LIKE 'a_b'``."""
    tested, pattern = tree.pair
    return _like(tested, text_constant(pattern, tree), str(tree.detail("escapeChar")), truth, reader)


def _like(tested: Tree, pattern: str, escape: str, truth: bool, reader: Reader) -> Node:
    if "\ufffd" in pattern:
        raise Unusable("inexact", f"LIKE {pattern!r} also finds bytes that are no UTF-8, which bounds are not of")
    return simplified(like(text_argument(tested, reader), parse_like(pattern, escape), not truth))


def like_several(every: bool, negated: bool) -> Handler:
    """Return the handler of LIKE ALL, LIKE ANY and their negations, in which each pattern is negated."""

    def read(tree: Tree, truth: bool, reader: Reader) -> Node:
        patterns = tree.detail("patterns")
        if not isinstance(patterns, list) or not patterns:
            raise unknown(tree)
        tests: list[Node] = []
        for written in patterns:
            pattern = key_of(written, "string", text_of(tree))
            matches = FALSE if pattern is None else _like(tree.only, str(pattern), "\\", truth != negated, reader)
            tests.append(matches)
        return conjunction(tests) if every == truth else disjunction(tests)

    return read


def regex(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``x RLIKE 'a.*b'``."""
    tested, pattern = tree.pair
    written = text_constant(pattern, tree)
    if not safe_regex(written):
        raise Unusable("can-fail", f"the pattern {written!r} may not be one that Java takes")
    call = Call("rlike", (text_argument(tested, reader), Const(written, "string")), "boolean")
    return in_set(call, ValueSet.point(int(truth)), False, reader.zone)


def array_exists(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``exists(xs, x -> x > 5)``: by an end of the array, by what it contains, or by a pattern."""
    array, function = tree.pair
    if function.name != "LambdaFunction" or len(function.children) != 2:
        raise unknown(tree)
    body, variable = function.children
    found = reader.subject(array).expr
    kind, parts = nested_parts(found.type)
    if kind != "array" or len(parts) != 1 or "collate" in parts[0] or parts[0].startswith("char"):
        raise unknown(tree)
    sought = _sought(body, variable)
    if sought is not None:
        if not truth and tree.detail("followThreeValuedLogic") != "true":
            raise unknown(tree)
        return _some_contained(found, sought, truth, tree, reader)
    refused = Unusable("unsupported-expression", f"{text_of(tree)} is not followed")
    if not truth or key_kind(parts[0]) is None:
        raise refused
    element = Call("element", (), parts[0])  # stands for an element while the test is read
    met = reader.of_element(Subject(element, parts[0])).exact(body)
    tests = met.children if isinstance(met, Or) else (met,)
    if not is_followed(parts[0]) and not all(map(_is_half_line, tests)):
        raise refused
    return disjunction([is_met(found, test, element, refused) for test in tests])


def _is_half_line(test: Node) -> bool:
    """Whether a test is of one bound, which the largest or the smallest element meets."""
    if not isinstance(test, InSet) or len(test.values.intervals) != 1 or test.null:
        return False
    low, high = test.values.intervals[0]
    return (low is None) != (high is None)


def _sought(body: Tree, variable: Tree) -> list[Const] | None:
    """The values that ``x = 5`` or ``x IN (5, 6)`` looks for; None of other tests."""
    if body.name == "EqualTo" and variable in body.children:
        values = [constant_of(child) for child in body.children if child != variable]
    elif body.name == "In" and body.children[:1] == (variable,):
        values = [constant_of(child) for child in body.children[1:]]
    elif body.name == "InSet" and body.children == (variable,) and isinstance(body.detail("values"), list):
        values = [Const(key_of(v, variable.type, text_of(body)), variable.type) for v in body.detail("values")]
    else:
        return None
    known = [value for value in values if value is not None]
    return known if known and len(known) == len(values) else None


def _some_contained(array: Expr, values: Sequence[Const], truth: bool, tree: Tree, reader: Reader) -> Node:
    if len(values) > _MOST_ELEMENTS or not values:
        raise Unusable("unsupported-expression", f"{text_of(tree)} is followed for 1 to {_MOST_ELEMENTS} values")
    calls = [contained(array, value, text_of(tree)) for value in values]
    tests = [in_set(call, ValueSet.point(int(truth)), False, reader.zone) for call in calls]
    return disjunction(tests) if truth else conjunction(tests)


def arrays_overlap(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read ``arrays_overlap(xs, array(1, 2))``, the constant array on either side."""
    array, given = tree.pair
    if array.name == "Literal":
        array, given = given, array
    value = given.detail("value")
    kind, parts = nested_parts(given.type)
    if given.name != "Literal" or kind != "array" or not isinstance(value, dict) or "array" not in value:
        raise unknown(tree)
    values = [Const(key_of(each, parts[0], text_of(tree)), parts[0]) for each in value["array"]]
    return _some_contained(reader.subject(array).expr, values, truth, tree, reader)


def boolean_literal(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read TRUE, FALSE or NULL."""
    constant = constant_of(tree)
    assert constant is not None, "a literal is a constant"
    return Constant(constant.value is not None and bool(constant.value) == truth)


def boolean_value(tree: Tree, truth: bool, reader: Reader) -> Node:
    """Read a boolean column or function."""
    if tree.type != "boolean":
        raise Unusable("coercion", f"{text_of(tree)} is {tree.type}, not a condition")
    given = reader.subject(tree)
    if given.type != "boolean":
        raise Unusable("coercion", f"{text_of(tree)} is {given.type}, not a condition")
    return on_values(given, ValueSet.point(int(truth)), reader)
