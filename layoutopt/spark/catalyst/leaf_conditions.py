"""Handlers of Catalyst's conditions: each returns the rows for which a condition is TRUE, or FALSE."""

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
from layoutopt.spark.catalyst.expressions import (
    compared_only,
    make_array_contains,
    text_argument,
    to_python_number,
)
from layoutopt.spark.catalyst.trees import (
    OperandReader,
    Tree,
    describe,
    get_constant,
    literal_key,
    text_constant,
    unknown,
)
from layoutopt.sql.elements import element_condition, is_supported_element
from layoutopt.sql.expressions import MIRRORED, OPPOSITE, compare_subjects
from layoutopt.sql.filters import safe_regex
from layoutopt.sql.operands import Subject
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import fails_unless_replaced, in_set, is_number

Handler = Callable[[Tree, bool, OperandReader], Node]

_MOST_ELEMENTS: Final = 64


def comparison(operator: str) -> Handler:
    """Return the handler of a comparison."""

    def read(tree: Tree, truth: bool, reader: OperandReader) -> Node:
        left, right = tree.pair
        sign = operator if truth else OPPOSITE[operator]
        first, second = get_constant(left), get_constant(right)
        if first is not None and second is not None:
            return _compare_constants(first, sign, second)
        if second is not None:
            return _compare_constant(left, sign, second, reader)
        if first is not None:
            return _compare_constant(right, MIRRORED[sign], first, reader)
        if left.type == "boolean" and sign in ("=", "<>") and not _are_subjects(left, right, reader):
            cases = (
                conjunction([reader.node(left, value), reader.node(right, value == (sign == "="))])
                for value in (True, False)
            )
            return disjunction(cases)
        return compare_subjects(reader.subject(left), sign, reader.subject(right))

    return read


def _compare_constants(left: Const, sign: str, right: Const) -> Node:
    if left.value is None or right.value is None:
        return FALSE
    if left.type != right.type or key_kind(left.type) is None:
        raise Unusable("coercion", f"{left.type} is compared with {right.type}")
    return Constant(ValueSet.normalised(_intervals(sign, right.value), left.type).contains(left.value))


def _are_subjects(left: Tree, right: Tree, reader: OperandReader) -> bool:
    try:
        return bool(reader.subject(left) and reader.subject(right))
    except Unusable:
        return False


def _compare_constant(tree: Tree, sign: str, constant: Const, reader: OperandReader) -> Node:
    if constant.value is None:
        return FALSE  # comparing with NULL is never TRUE and never FALSE
    if tree.type == "boolean" and constant.type == "boolean" and sign in ("=", "<>"):
        return reader.node(tree, bool(constant.value) == (sign == "="))
    subject = read_compared(tree, reader)
    return match_values(subject, compare_with_constant(subject, sign, constant), reader)


def read_compared(tree: Tree, reader: OperandReader) -> Subject:
    """Read an expression that is compared with a constant; it may be ``floor`` of a double or ``a DIV 10``."""
    return compared_only(tree, reader) or reader.subject(tree)


def match_values(subject: Subject, values: ValueSet, reader: OperandReader, null: bool = False) -> Node:
    """Return the rows whose value is in a set, and those with NULL if ``null``.

    Raises:
        Unusable: the expression may fail and can't be replaced.
    """
    if fails_unless_replaced(subject.expr):
        raise Unusable("can-fail", "the expression is supported only beside constants of its type")
    return in_set(subject.expr, values, null, reader.zone)


def compare_with_constant(subject: Subject, sign: str, constant: Const) -> ValueSet:
    """Return the values of a subject for which a comparison with a constant is TRUE.

    Raises:
        Unusable: the types have no common order here.
    """
    kind, value = subject.expr.type, constant.value
    assert value is not None, "NULL is handled before"
    if key_kind(kind) is None or key_kind(constant.type) is None:
        raise Unusable("unordered-type", f"values of type {kind} are not compared here")
    if kind == constant.type:
        return ValueSet.normalised(_intervals(sign, value), kind)
    if not (is_number(kind) and is_number(constant.type)):
        raise Unusable("coercion", f"{kind} is compared with {constant.type}")
    return compare(sign, to_python_number(constant), kind)


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


def equal_null_safe(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``a <=> b``, which is never NULL."""
    left, right = tree.pair
    constant = get_constant(right)
    if constant is None:
        constant, left, right = get_constant(left), right, left
        if constant is None:
            return _compare_null_safe(left, right, truth, reader)
    if constant.value is None:
        return null_test(left, truth, reader)
    if left.type == "boolean":
        value = bool(constant.value)
        return reader.node(left, value) if truth else untrue(reader.exact(left, value))
    subject = read_compared(left, reader)
    return match_values(
        subject, compare_with_constant(subject, "=" if truth else "<>", constant), reader, null=not truth
    )


def _compare_null_safe(left: Tree, right: Tree, truth: bool, reader: OperandReader) -> Node:
    sides = reader.subject(left), reader.subject(right)
    nulls = [null_test(side, True, reader) for side in (left, right)]
    if truth:
        return disjunction([compare_subjects(sides[0], "=", sides[1]), conjunction(nulls)])
    not_nulls = [null_test(side, False, reader) for side in (left, right)]
    one_null = [conjunction([nulls[0], not_nulls[1]]), conjunction([not_nulls[0], nulls[1]])]
    return disjunction([compare_subjects(sides[0], "<>", sides[1]), *one_null])


def is_null(wanted: bool) -> Handler:
    """Return the handler of IS NULL or IS NOT NULL."""

    def read(tree: Tree, truth: bool, reader: OperandReader) -> Node:
        return null_test(tree.only, truth == wanted, reader)

    return read


def null_test(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Return the rows for which an expression is NULL, or is not NULL.

    Raises:
        Unusable: the expression is not supported.
    """
    constant = get_constant(tree)
    if constant is not None:
        return Constant((constant.value is None) == truth)
    try:
        subject = reader.subject(tree)
    except Unusable:
        if tree.type != "boolean":
            raise
        if truth:
            return conjunction(untrue(reader.exact(tree, value)) for value in (True, False))
        return disjunction(reader.node(tree, value) for value in (True, False))
    return match_values(subject, ValueSet.empty() if truth else ValueSet.all(), reader, null=truth)


def is_nan(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``isnan(x)``, which is FALSE for NULL."""
    subject = reader.subject(tree.only)
    if subject.expr.type not in ("float", "double"):
        raise Unusable("coercion", f"{describe(tree)} is supported for float and double columns only")
    nan = ValueSet.point(NAN_KEY)
    return match_values(subject, nan if truth else nan.complement(), reader, null=not truth)


def at_least_n(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read the condition of ``dropna``: whether at least n operands are neither NULL nor NaN."""
    needed = int(str(tree.detail("n")))
    if needed not in (1, len(tree.children)) or not tree.children:
        raise unknown(tree)
    tests = []
    for child in tree.children:
        subject = reader.subject(child)
        nan = ValueSet.point(NAN_KEY) if subject.expr.type in ("float", "double") else ValueSet.empty()
        tests.append(match_values(subject, nan.complement() if truth else nan, reader, null=not truth))
    return conjunction(tests) if (needed == len(tree.children)) == truth else disjunction(tests)


def in_list(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``x IN (1, 2)``, as Catalyst has short lists."""
    tested, *items = tree.children
    constants = [get_constant(item) for item in items]
    known = [constant for constant in constants if constant is not None]
    if len(known) == len(constants) and get_constant(tested) is None:
        return _test_in(tested, known, truth, reader)
    equal = comparison("=")
    tests = [equal(Tree("EqualTo", "boolean", (tested, item), {}), truth, reader) for item in items]
    return disjunction(tests) if truth else conjunction(tests)


def in_set_keys(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``x IN (1, 2, ...)``, as Catalyst has long lists of constants."""
    tested, values = tree.only, tree.detail("values")
    if not isinstance(values, list):
        raise unknown(tree)
    constants = [Const(literal_key(value, tested.type, describe(tree)), tested.type) for value in values]
    return _test_in(tested, constants, truth, reader)


def _test_in(tested: Tree, constants: Sequence[Const], truth: bool, reader: OperandReader) -> Node:
    known = [constant for constant in constants if constant.value is not None]
    if len(known) < len(constants) and not truth:
        return FALSE  # x NOT IN (..., NULL) is FALSE or NULL, never TRUE
    subject = read_compared(tested, reader)
    sets = [compare_with_constant(subject, "=", constant) for constant in known]
    united = ValueSet.of(key for values in sets for key in values.points() or ())
    for values in sets:
        if values.points() is None:
            united = united.union(values)
    wanted = united if truth else united.complement()
    return match_values(subject, ValueSet.normalised(wanted.intervals, subject.expr.type), reader)


def text_match(before: bool, after: bool) -> Handler:
    """Return the handler of StartsWith, EndsWith or Contains: anything may stand before or after the part."""

    def read(tree: Tree, truth: bool, reader: OperandReader) -> Node:
        tested, part = tree.pair
        constant = get_constant(part)
        if constant is not None and constant.value is None:
            return FALSE
        pattern = canonical_pattern([*[ANY_STRING] * before, text_constant(part, tree), *[ANY_STRING] * after])
        return simplified(like(text_argument(tested, reader), pattern, not truth))

    return read


def like_pattern(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``x LIKE 'a_b'``."""
    tested, pattern = tree.pair
    return _like(tested, text_constant(pattern, tree), str(tree.detail("escapeChar")), truth, reader)


def _like(tested: Tree, pattern: str, escape: str, truth: bool, reader: OperandReader) -> Node:
    if "\ufffd" in pattern:
        raise Unusable("inexact", f"LIKE {pattern!r} also matches bytes that are not UTF-8, which bounds ignore")
    return simplified(like(text_argument(tested, reader), parse_like(pattern, escape), not truth))


def like_several(every: bool, negated: bool) -> Handler:
    """Return the handler of LIKE ALL, LIKE ANY or their negations, which negate each pattern."""

    def read(tree: Tree, truth: bool, reader: OperandReader) -> Node:
        patterns = tree.detail("patterns")
        if not isinstance(patterns, list) or not patterns:
            raise unknown(tree)
        tests: list[Node] = []
        for value in patterns:
            pattern = literal_key(value, "string", describe(tree))
            tests.append(FALSE if pattern is None else _like(tree.only, str(pattern), "\\", truth != negated, reader))
        return conjunction(tests) if every == truth else disjunction(tests)

    return read


def regex(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``x RLIKE 'a.*b'``."""
    tested, pattern = tree.pair
    text = text_constant(pattern, tree)
    if not safe_regex(text):
        raise Unusable("can-fail", f"{text!r} may not be a valid Java pattern")
    call = Call("rlike", (text_argument(tested, reader), Const(text, "string")), "boolean")
    return in_set(call, ValueSet.point(int(truth)), False, reader.zone)


def array_exists(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``exists(xs, x -> x > 5)``, by the array's bounds, a contained value, or a pattern."""
    array, function = tree.pair
    if function.name != "LambdaFunction" or len(function.children) != 2:
        raise unknown(tree)
    body, variable = function.children
    values = reader.subject(array).expr
    kind, parts = nested_parts(values.type)
    if kind != "array" or len(parts) != 1 or "collate" in parts[0] or parts[0].startswith("char"):
        raise unknown(tree)
    constants = _list_equal_constants(body, variable)
    if constants is not None:
        if not truth and tree.detail("followThreeValuedLogic") != "true":
            raise unknown(tree)
        return _test_contains_any(values, constants, truth, tree, reader)
    problem = Unusable("unsupported-expression", f"{describe(tree)} is not supported")
    if not truth or key_kind(parts[0]) is None:
        raise problem
    element = Call("element", (), parts[0])  # a placeholder for an element
    test = reader.of_element(Subject(element, parts[0])).exact(body)
    tests = test.children if isinstance(test, Or) else (test,)
    if not is_supported_element(parts[0]) and not all(map(_has_one_bound, tests)):
        raise problem
    return disjunction([element_condition(values, test, element, problem) for test in tests])


def _has_one_bound(test: Node) -> bool:
    """Return whether a test has one bound, so that the largest or the smallest element decides it."""
    if not isinstance(test, InSet) or len(test.values.intervals) != 1 or test.null:
        return False
    low, high = test.values.intervals[0]
    return (low is None) != (high is None)


def _list_equal_constants(body: Tree, variable: Tree) -> list[Const] | None:
    """Return the constants of ``x = 5`` or ``x IN (5, 6)``; None for other tests."""
    if body.name == "EqualTo" and variable in body.children:
        values = [get_constant(child) for child in body.children if child != variable]
    elif body.name == "In" and body.children[:1] == (variable,):
        values = [get_constant(child) for child in body.children[1:]]
    elif body.name == "InSet" and body.children == (variable,) and isinstance(body.detail("values"), list):
        values = [Const(literal_key(v, variable.type, describe(body)), variable.type) for v in body.detail("values")]
    else:
        return None
    known = [value for value in values if value is not None]
    return known if known and len(known) == len(values) else None


def _test_contains_any(array: Expr, values: Sequence[Const], truth: bool, tree: Tree, reader: OperandReader) -> Node:
    if len(values) > _MOST_ELEMENTS or not values:
        raise Unusable("unsupported-expression", f"{describe(tree)} is supported for 1 to {_MOST_ELEMENTS} values")
    calls = [make_array_contains(array, value, describe(tree)) for value in values]
    tests = [in_set(call, ValueSet.point(int(truth)), False, reader.zone) for call in calls]
    return disjunction(tests) if truth else conjunction(tests)


def arrays_overlap(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read ``arrays_overlap(xs, array(1, 2))``; either operand may be the constant array."""
    array, constant = tree.pair
    if array.name == "Literal":
        array, constant = constant, array
    value = constant.detail("value")
    kind, parts = nested_parts(constant.type)
    if constant.name != "Literal" or kind != "array" or not isinstance(value, dict) or "array" not in value:
        raise unknown(tree)
    values = [Const(literal_key(item, parts[0], describe(tree)), parts[0]) for item in value["array"]]
    return _test_contains_any(reader.subject(array).expr, values, truth, tree, reader)


def boolean_literal(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read TRUE, FALSE or NULL."""
    constant = get_constant(tree)
    assert constant is not None, "a literal is a constant"
    return Constant(constant.value is not None and bool(constant.value) == truth)


def boolean_value(tree: Tree, truth: bool, reader: OperandReader) -> Node:
    """Read a boolean column or function."""
    if tree.type != "boolean":
        raise Unusable("coercion", f"{describe(tree)} is {tree.type}, not a condition")
    subject = reader.subject(tree)
    if subject.type != "boolean":
        raise Unusable("coercion", f"{describe(tree)} is {subject.type}, not a condition")
    return match_values(subject, ValueSet.point(int(truth)), reader)
