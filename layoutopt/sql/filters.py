"""Conditions to filters: translate a SQL condition to the model's AND/OR tree of the rows for which it is TRUE.

SQL's logic has three values, so each condition is translated to the rows where it is TRUE, or those where it is FALSE
(``truth``); NOT swaps the two and disappears. A part without an exact meaning is replaced by TRUE. NOT is already
pushed down and the tree is monotone, so TRUE only makes the filter weaker, never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from layoutopt.errors import LayoutoptError
from layoutopt.model.predicates import (
    ANY_STRING,
    FALSE,
    TRUE,
    Call,
    Constant,
    Expr,
    Node,
    canonical_pattern,
    conjunction,
    disjunction,
    like,
    parse_like,
    simplified,
    untrue,
)
from layoutopt.model.udf import NO_UDFS
from layoutopt.model.values import NAN_KEY, ValueSet, compare, key_kind, to_key
from layoutopt.sql.calls import Choice, find_choice, read_compared_only
from layoutopt.sql.dialect_checks import (
    check_comparison,
    has_ordinary_nan,
    is_check,
    plain_text,
    read_patterns,
    to_java_regexp,
)
from layoutopt.sql.dialect_meaning import REGEXP
from layoutopt.sql.elements import some_element_node, without_lambda
from layoutopt.sql.expressions import MIRRORED, OPPOSITE, check_compared, compare_subjects, read_operand
from layoutopt.sql.operands import Context, Operand, Subject, cast_subject, explicit_cast, to_const
from layoutopt.sql.problems import Unusable, UnusableCondition
from layoutopt.sql.truth_tests import TruthTest, rewrite_elements, split_truth_test
from layoutopt.sql.types import (
    TypedConstant,
    cast_constant,
    comparison_type,
    constant_result,
    fails_unless_replaced,
    in_set,
    is_formatted,
    is_number,
)
from layoutopt.sql.udf_implications import implied_conditions

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
# The code of a part about another scan: not a problem, just not this scan's filter.
OTHER_TABLE = "other-table"


class FilterReader:
    """A translator of one scan's conditions that records what it leaves out.

    Attributes:
        unusable: the parts replaced by TRUE, in order.
    """

    def __init__(self, context: Context, strict: bool = False) -> None:
        self._context = replace(context, is_strict=True) if strict else context
        self._strict = strict
        self.unusable: list[UnusableCondition] = []

    def read(self, condition: exp.Expr, truth: bool = True) -> Node:
        """Return the rows for which the condition is TRUE (or, with ``truth=False``, FALSE).

        Raises:
            Unusable: a part has no exact meaning; only if the reader is strict.
        """
        condition = condition.unnest()
        if isinstance(condition, exp.Not):
            return self.read(condition.this, not truth)
        if isinstance(condition, exp.And | exp.Or):
            parts = [self.read(part, truth) for part in _flatten(condition)]
            return conjunction(parts) if isinstance(condition, exp.And) == truth else disjunction(parts)
        try:
            return conjunction([self._read_leaf(condition, truth), *self._read_implied(condition, truth)])
        except Unusable as problem:
            if self._strict:
                raise
            if problem.code != OTHER_TABLE:
                self._leave_out(problem.code, problem.detail, condition)
        except (ValueError, OverflowError, ArithmeticError, LayoutoptError) as error:
            if self._strict:
                raise
            self._leave_out("inexact", str(error), condition)
        return TRUE

    def _leave_out(self, code: str, detail: str, condition: exp.Expr) -> None:
        self.unusable.append(UnusableCondition(code, plain_text(detail), plain_text(condition.sql("spark"))))

    def _read_implied(self, condition: exp.Expr, truth: bool) -> list[Node]:
        """Return what the condition's user-defined functions imply about plain columns."""
        operator = _OPERATORS.get(type(condition))
        if operator is not None and not truth:
            operator = OPPOSITE[operator]
        mirrored = operator and MIRRORED[operator]
        implied = implied_conditions(condition, operator, mirrored, truth, self._context.udfs)
        reader = FilterReader(replace(self._context, udfs=NO_UDFS, known={}))
        return [reader.read(implication) for implication in implied]

    def _read_choice(self, choice: Choice, truth: bool) -> Node:
        """Return the rows for which a condition with a CASE is TRUE (or FALSE), as an OR of its branches.

        All parts must be exact: TRUE in place of a test would make later branches too narrow.
        """
        reader = FilterReader(self._context, strict=True)
        branches: list[Node] = []
        earlier: Node = TRUE  # no earlier test is TRUE
        for test, outcome in zip(choice.tests, choice.outcomes, strict=False):
            test_node = reader.read(test)
            branches.append(conjunction([earlier, test_node, reader.read(outcome, truth)]))
            earlier = conjunction([earlier, untrue(test_node)])
        return disjunction([*branches, conjunction([earlier, reader.read(choice.outcomes[-1], truth)])])

    def _read_truth_test(self, test: TruthTest, truth: bool) -> Node:
        """Return the rows for which the tested condition has one of the values that the test is TRUE (or FALSE) for."""
        values = test.true_for if truth else test.false_for
        if None not in values:
            return disjunction(self.read(test.condition, value) for value in values if value is not None)
        reader = FilterReader(self._context, strict=True)  # TRUE in place of a part would make the opposite too narrow
        return conjunction(untrue(reader.read(test.condition, value)) for value in (True, False) if value not in values)

    def _read_type(self, node: exp.Expr) -> str:
        return read_operand(node, self._context).type

    def _read_leaf(self, condition: exp.Expr, truth: bool) -> Node:
        choice = find_choice(condition, self._context, lambda node: read_operand(node, self._context))
        if choice is not None:
            return self._read_choice(choice, truth)
        test = split_truth_test(condition)
        if test is not None:
            return self._read_truth_test(test, truth)
        elements = rewrite_elements(condition, self._read_type)
        if elements is not None:
            return self.read(elements, truth)
        plain = without_lambda(condition, truth)
        if plain is not None:
            _check_element_order(plain, self._context)
            return FilterReader(self._context, strict=True).read(plain, truth)
        if condition.args.get("negate") and not isinstance(condition.expression, exp.Any | exp.All):
            truth = not truth  # sqlglot's form of NOT LIKE
        if isinstance(condition, exp.Boolean):
            return Constant(bool(condition.this) == truth)
        if type(condition) in _OPERATORS:
            return _read_comparison(condition, truth, self._context)
        reader = _LEAF_READERS.get(type(condition), _read_boolean)
        return reader(condition, truth, self._context)


def _flatten(condition: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of one connector, without recursion: logs hold chains of thousands."""
    kind, operands, stack = type(condition), [], [condition]
    while stack:
        part = stack.pop().unnest()
        if type(part) is kind:
            stack += [part.args["expression"], part.this]
        else:
            operands.append(part)
    return operands


def split_conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """Return the conditions joined by AND at the top, left to right."""
    condition = condition.unnest()
    return _flatten(condition) if isinstance(condition, exp.And) else [condition]


def _check_element_order(plain: exp.Expr, context: Context) -> None:
    """Check that comparing an array's largest or smallest element uses the order of the elements' own type.

    ``exists(texts, x -> x > 5)`` compares numbers, but the largest text of ``array('10', '3')`` is '3'.

    Raises:
        Unusable: the comparison uses another order.
    """
    if not isinstance(plain, exp.GT | exp.GTE | exp.LT | exp.LTE):
        return
    element, compared = (read_operand(side, context).type for side in (plain.this, plain.expression))
    kind = comparison_type(element, compared, ansi=context.settings.ansi)
    same_order = is_number(element) and is_number(kind)
    if kind != element and not same_order and (element, kind) != ("date", "timestamp"):
        raise Unusable("coercion", f"{plain.sql('spark')} compares {element} as {kind}, in another order")


_SAFE_REGEX = re.compile(r"[\w\s.,:;@#%&=<>!~\"'/^$|*+?-]*")


def _read_like(node: exp.Expr, truth: bool, context: Context, escape: str = "\\") -> Node:
    """Return ``x LIKE 'a%'`` or ILIKE, of one pattern, or of ANY or ALL of several."""
    if isinstance(node.expression, exp.Any | exp.All):
        return _read_like_list(node, truth, context, escape)
    patterns = read_patterns(node.expression)
    if patterns is not None:
        plain = [type(node)(this=node.this.copy(), expression=exp.Literal.string(pattern)) for pattern in patterns]
        parts = [_read_like(part, truth, context) for part in plain]
        return disjunction(parts) if truth else conjunction(parts)
    text, pattern = _read_text_and_pattern(node, context)
    if pattern is None:
        return FALSE
    if "\ufffd" in pattern:
        raise Unusable("inexact", f"{node.sql('spark')} also matches bytes that are not UTF-8, which bounds exclude")
    if isinstance(node, exp.ILike):
        if not pattern.isascii():
            raise Unusable("inexact", f"{node.sql('spark')} depends on Unicode's case tables")
        pattern, text = pattern.lower(), Call("lower", (text,), "string")
    return simplified(like(text, parse_like(pattern, escape), not truth))


def _read_like_list(node: exp.Expr, truth: bool, context: Context, escape: str) -> Node:
    quantifier = node.expression
    patterns = quantifier.this.unnest()
    if not isinstance(patterns, exp.Tuple):
        raise Unusable("subquery", f"{node.sql('spark')[:80]} needs the result of a subquery")
    # x NOT LIKE ALL (...) is NOT LIKE for each pattern, not the opposite of LIKE ALL.
    part_truth = truth != bool(node.args.get("negate"))
    conditions = [type(node)(this=node.this.copy(), expression=pattern.copy()) for pattern in patterns.expressions]
    parts = [_read_like(condition, part_truth, context, escape) for condition in conditions]
    return disjunction(parts) if isinstance(quantifier, exp.Any) == truth else conjunction(parts)


def _read_escaped_like(node: exp.Expr, truth: bool, context: Context) -> Node:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")
    return _read_like(node.this, truth != bool(node.this.args.get("negate")), context, node.expression.name)


def _contains_reader(before: bool, after: bool) -> Callable[[exp.Expr, bool, Context], Node]:
    """Return a reader of conditions that a text contains another, with anything before or after it."""

    def read(node: exp.Expr, truth: bool, context: Context) -> Node:
        text, part = _read_text_and_pattern(node, context)
        if part is None:
            return FALSE
        pattern = canonical_pattern([*[ANY_STRING] * before, part, *[ANY_STRING] * after])
        return simplified(like(text, pattern, not truth))

    return read


def _read_regex(node: exp.Expr, truth: bool, context: Context) -> Node:
    text, pattern = _read_text_and_pattern(node, context)
    if pattern is None:
        return FALSE
    if not safe_regex(pattern):
        raise Unusable("can-fail", f"Java may reject the pattern {pattern!r}")
    call = Call("rlike", (text, to_const(TypedConstant(pattern, "string"))), "boolean")
    return in_set(call, ValueSet.point(int(truth)), False, context.settings.time_zone)


def _read_dialect_regex(node: exp.Expr, truth: bool, context: Context) -> Node:
    dialect, tested, pattern, extent, flags = node.expressions
    if not safe_regex(pattern.name):
        raise Unusable("can-fail", f"Java may reject the pattern {pattern.name!r}")
    text, _ = _read_text_and_pattern(exp.EQ(this=tested.copy(), expression=pattern.copy()), context)
    if extent.name == "whole" and not flags.name and not re.search(r"[.^$*+?|]", pattern.name):
        value = ValueSet.point(pattern.name)
        return in_set(text, value if truth else value.complement(), False, context.settings.time_zone)
    java = to_java_regexp(pattern.name, dialect.name, extent.name == "whole", flags.name == "i")
    call = Call("rlike", (text, to_const(TypedConstant(java, "string"))), "boolean")
    return in_set(call, ValueSet.point(int(truth)), False, context.settings.time_zone)


def safe_regex(pattern: str) -> bool:
    """Return whether Java certainly accepts a pattern and matches it in bounded time and stack.

    >>> safe_regex("^a.*b$"), safe_regex("(a|b)*"), safe_regex("[")
    (True, False, False)
    """
    return bool(_SAFE_REGEX.fullmatch(pattern)) and not re.search(r"[*+?]{2}|^[*+?]|[|^][*+?]", pattern)


def _read_text_and_pattern(node: exp.Expr, context: Context) -> tuple[Expr, str | None]:
    """Return the tested text, as Spark casts it, and the constant that it is tested with; None for NULL."""
    tested, pattern = read_operand(node.this, context), read_operand(node.expression, context)
    if isinstance(tested, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.this.sql('spark')} is a constant")
    if tested.type == "binary":
        raise Unusable("unordered-type", f"{node.this.sql('spark')} is binary; only text is matched")
    text = explicit_cast(cast_subject(tested, "string", context))
    if not isinstance(pattern, TypedConstant):
        raise Unusable("unsupported-expression", f"the pattern {node.expression.sql('spark')} is not constant")
    value = cast_constant(pattern, "string", context.settings.time_zone).value
    return text, value if isinstance(value, str) else None


def _read_comparison(node: exp.Expr, truth: bool, context: Context) -> Node:
    if isinstance(node.expression, exp.Any | exp.All):
        raise Unusable("subquery", f"{node.sql('spark')[:80]} compares with every value of a subquery")
    left, right = _read_side(node.this, context), _read_side(node.expression, context)
    return _compare_operands(left, _OPERATORS[type(node)], right, truth, context, node)


def _add_ordinary_nan(node: Node, operand: Subject, truth: bool, context: Context) -> Node:
    """Return the rows for which ``x > 5`` is TRUE (or FALSE) where NaN is larger than no number."""
    nan = ValueSet.point(NAN_KEY)
    is_nan = in_set(operand.expr, nan.complement() if truth else nan, False, context.settings.time_zone)
    return conjunction([node, is_nan]) if truth else disjunction([node, is_nan])


def _compare_operands(
    left: Operand, operator: str, right: Operand, truth: bool, context: Context, node: exp.Expr
) -> Node:
    """Return a comparison, which is (a part of) the node's condition."""
    check_comparison(operator, left, [right], context.settings.time_zone)
    if operator in (">", ">=", "<", "<="):
        larger = left if operator[0] == ">" else right
        other = right if larger is left else left
        if has_ordinary_nan(larger) and isinstance(other, TypedConstant) and other.value is not None:
            without = replace(larger, dialect="")
            sides = (without, right) if larger is left else (left, without)
            compared = _compare_operands(sides[0], operator, sides[1], truth, context, node)
            return _add_ordinary_nan(compared, larger, truth, context)
    if not truth:
        operator = OPPOSITE[operator]
    if isinstance(left, TypedConstant):
        if isinstance(right, TypedConstant):
            return Constant(_compare_constants(left, operator, right, context))
        left, right, operator = right, left, MIRRORED[operator]
    if not isinstance(right, TypedConstant):
        return _compare_columns(left, operator, right, context)
    result = constant_result(left.type, operator, right)
    if result is None:
        return _compare_with_constant(left, operator, right, context)
    if result:
        raise Unusable("inexact", f"{node.sql('spark')} is TRUE for every number; in Spark it may be TRUE for NULL too")
    return FALSE


def _read_side(node: exp.Expr, context: Context) -> Operand:
    compared = read_compared_only(node, context, lambda argument: read_operand(argument, context))
    return read_operand(node, context) if compared is None else compared


def _in_values(subject: Subject, values: ValueSet, context: Context) -> Node:
    if fails_unless_replaced(subject.expr):
        raise Unusable("can-fail", "the expression is supported in comparisons with constants of its type only")
    if context.is_strict and is_formatted(subject.expr):
        raise Unusable("inexact", "the text of a time is exact from 1600 to 9999 only")
    return in_set(subject.expr, values, False, context.settings.time_zone)


def _compare_constants(left: TypedConstant, operator: str, right: TypedConstant, context: Context) -> bool:
    kind, zone = comparison_type(left.type, right.type, ansi=context.settings.ansi), context.settings.time_zone
    first, second = cast_constant(left, kind, zone).value, cast_constant(right, kind, zone).value
    if first is None or second is None:
        return False
    return compare(operator, second, kind).contains(to_key(first, kind))


def _compare_with_constant(left: Subject, operator: str, right: TypedConstant, context: Context) -> Node:
    kind, has_null = _common_type([right], left, context)
    if has_null:
        return FALSE  # comparing with NULL is never TRUE and never FALSE
    subject, (values,) = _value_sets(left, operator, [right], kind, context)
    return _in_values(subject, values, context)


def _common_type(
    constants: Iterable[TypedConstant], subject: Subject, context: Context, in_list: bool = False
) -> tuple[str, bool]:
    """Return the type that all sides are compared in, and whether one of the constants is NULL."""
    if key_kind(subject.type) is None:
        raise Unusable("unordered-type", f"values of type {subject.type} can't be compared")
    kind, has_null = subject.type, False
    for constant in constants:
        kind = comparison_type(kind, constant.type, ansi=context.settings.ansi, in_list=in_list)
        has_null = has_null or constant.value is None
    return kind, has_null


def _value_sets(
    left: Subject, operator: str, constants: Sequence[TypedConstant], kind: str, context: Context
) -> tuple[Subject, list[ValueSet]]:
    """Return the subject as compared in type ``kind``, and its values for which each comparison is TRUE."""
    cast_values = [cast_constant(constant, kind, context.settings.time_zone).value for constant in constants]
    values = [value for value in cast_values if value is not None]
    if left.type == kind or (kind == "double" and is_number(left.type)):
        try:
            return left, [compare(operator, value, left.expr.type) for value in values]
        except ValueError:
            pass  # inexact on the column's own values: compare the values of the cast instead
    subject = cast_subject(left, kind, context)
    return subject, [compare(operator, value, subject.expr.type) for value in values]


def _compare_columns(left: Subject, operator: str, right: Subject, context: Context) -> Node:
    kind = comparison_type(left.type, right.type, ansi=context.settings.ansi)
    if key_kind(kind) is None:
        raise Unusable("unordered-type", f"values of type {kind} can't be compared")
    for side in (left, right):
        check_compared(side.expr)
    return compare_subjects(cast_subject(left, kind, context), operator, cast_subject(right, kind, context))


def _is_null(subject: Subject, truth: bool, context: Context) -> Node:
    values = ValueSet.empty() if truth else ValueSet.all()
    return in_set(subject.expr, values, truth, context.settings.time_zone)


def _read_is(node: exp.Expr, truth: bool, context: Context) -> Node:
    target = node.expression
    if isinstance(target, exp.Not):  # IS NOT NULL in some dialects
        target, truth = target.this, not truth
    if isinstance(target, exp.Null):
        return _read_null_test(node.this, truth, context)
    if isinstance(target, exp.Boolean):
        return _read_null_safe_equal(exp.NullSafeEQ(this=node.this.copy(), expression=target.copy()), truth, context)
    raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")


def _read_null_test(tested: exp.Expr, truth: bool, context: Context) -> Node:
    operand = read_operand(tested, context)
    if isinstance(operand, TypedConstant):
        return Constant((operand.value is None) == truth)
    return _is_null(operand, truth, context)


def _read_null_safe_equal(node: exp.Expr, truth: bool, context: Context) -> Node:
    left, right = read_operand(node.this, context), read_operand(node.expression, context)
    if isinstance(left, TypedConstant):
        left, right = right, left
    if isinstance(left, TypedConstant) or not isinstance(right, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is supported for a column and a constant only")
    if right.value is None:
        return _is_null(left, truth, context)
    check_comparison("=", left, [right], context.settings.time_zone)
    kind, _ = _common_type([right], left, context)
    subject, (values,) = _value_sets(left, "=" if truth else "<>", [right], kind, context)
    return in_set(subject.expr, values, not truth, context.settings.time_zone)


def _read_constant_in(tested: TypedConstant, constants: Sequence[TypedConstant], truth: bool, context: Context) -> Node:
    if {constant.type for constant in constants} != {tested.type}:
        raise Unusable("coercion", f"{tested.value!r} is compared with a list of other types")
    operator = "=" if truth else "<>"
    results = [_compare_constants(tested, operator, constant, context) for constant in constants]
    return Constant(any(results) if truth else all(results))


def _read_in(node: exp.Expr, truth: bool, context: Context) -> Node:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        raise Unusable("subquery", f"{node.sql('spark')[:80]} needs the result of a subquery")
    tested = _read_side(node.this, context)
    items = [read_operand(item, context) for item in node.expressions]
    constants = [item for item in items if isinstance(item, TypedConstant)]
    if isinstance(tested, TypedConstant) and len(constants) == len(items):
        return _read_constant_in(tested, constants, truth, context)
    if isinstance(tested, TypedConstant) or len(constants) < len(items):
        raise Unusable("unsupported-expression", f"{node.sql('spark')[:80]} is supported for lists of constants only")
    check_comparison("=", tested, constants, context.settings.time_zone)
    kind, has_null = _common_type(constants, tested, context, in_list=True)
    if has_null and not truth:
        return FALSE  # x NOT IN (..., NULL) is FALSE or NULL, never TRUE
    subject, sets = _value_sets(tested, "=", [c for c in constants if c.value is not None], kind, context)
    union = _unite(sets)
    values = ValueSet.normalised((union if truth else union.complement()).intervals, subject.expr.type)
    return _in_values(subject, values, context)


def _unite(sets: Sequence[ValueSet]) -> ValueSet:
    """Return the union of many sets, most of them points."""
    union = ValueSet.of([key for values in sets for key in values.points() or ()])
    for values in sets:
        if values.points() is None:
            union = union.union(values)
    return union


def _read_between(node: exp.Expr, truth: bool, context: Context) -> Node:
    if node.args.get("symmetric"):
        raise Unusable("unsupported-expression", f"{node.sql('spark')}: Spark has no BETWEEN SYMMETRIC")
    tested = _read_side(node.this, context)
    bounds = [
        _compare_operands(tested, operator, _read_side(node.args[end], context), truth, context, node)
        for operator, end in ((">=", "low"), ("<=", "high"))
    ]
    return conjunction(bounds) if truth else disjunction(bounds)


def _read_is_nan(node: exp.Expr, truth: bool, context: Context) -> Node:
    operand = read_operand(node.this, context)
    if isinstance(operand, TypedConstant) or operand.expr.type not in ("float", "double"):
        raise Unusable("coercion", f"{node.sql('spark')} is supported for float and double columns only")
    nan = ValueSet.point(NAN_KEY)
    # Spark's isnan(NULL) is FALSE.
    return in_set(operand.expr, nan if truth else nan.complement(), not truth, context.settings.time_zone)


def _read_named_function(node: exp.Expr, truth: bool, context: Context) -> Node:
    name = node.name.casefold()
    if name in ("isnull", "isnotnull") and len(node.expressions) == 1:
        return _read_null_test(node.expressions[0], truth == (name == "isnull"), context)
    if name == REGEXP and is_check(node):
        return _read_dialect_regex(node, truth, context)
    return _read_boolean(node, truth, context)


def _read_exists(node: exp.Expr, truth: bool, context: Context) -> Node:
    if isinstance(node.expression, exp.Lambda):
        return some_element_node(node, truth, context, lambda test, inner: FilterReader(inner, strict=True).read(test))
    raise Unusable("subquery", f"{node.sql('spark')[:80]} needs the result of a subquery")


def _read_boolean(node: exp.Expr, truth: bool, context: Context) -> Node:
    operand = read_operand(node, context)
    if isinstance(operand, TypedConstant):
        value = cast_constant(operand, "boolean", context.settings.time_zone).value
        return Constant(value is truth)
    if operand.type != "boolean":
        raise Unusable("coercion", f"{node.sql('spark')} is {operand.type}, expected boolean")
    return in_set(operand.expr, ValueSet.point(int(truth)), False, context.settings.time_zone)


# Each reader takes the condition, whether to return the rows for which it is TRUE (else FALSE), and its context.
_LEAF_READERS: dict[type[exp.Expr], Callable[[exp.Expr, bool, Context], Node]] = {
    exp.Is: _read_is,
    exp.In: _read_in,
    exp.Between: _read_between,
    exp.NullSafeEQ: _read_null_safe_equal,
    exp.EqualNull: _read_null_safe_equal,
    exp.NullSafeNEQ: lambda node, truth, context: _read_null_safe_equal(node, not truth, context),
    exp.Like: _read_like,
    exp.ILike: _read_like,
    exp.Escape: _read_escaped_like,
    exp.RegexpLike: _read_regex,
    exp.StartsWith: _contains_reader(before=False, after=True),
    exp.EndsWith: _contains_reader(before=True, after=False),
    exp.Contains: _contains_reader(before=True, after=True),
    exp.IsNan: _read_is_nan,
    exp.Anonymous: _read_named_function,
    exp.Exists: _read_exists,
}
