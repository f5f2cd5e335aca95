"""Conditions to filters: a SQL condition becomes the model's AND/OR tree of the rows for which it is TRUE.

SQL's logic has three values, so each condition is asked for the rows where it is TRUE or for those where it is FALSE
(``truth``); NOT swaps the two and is gone. Where a part has no exact meaning here, TRUE stands in for it: with NOT
already pushed down the tree is monotone, so a part replaced by TRUE only makes the filter weaker, never wrong.
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
from layoutopt.sql.calls import Choice, choice_in, whole_of_double
from layoutopt.sql.elements import some_element, without_lambda
from layoutopt.sql.expressions import MIRRORED, OPPOSITE, compare_subjects, operand
from layoutopt.sql.operands import Context, Operand, Subject, cast_subject, const, explicit_cast
from layoutopt.sql.problems import Unusable, UnusableCondition
from layoutopt.sql.types import (
    TypedConstant,
    cast_constant,
    compared_type,
    fails_unless_replaced,
    in_set,
    is_number,
    is_whole_of_double,
    outcome_for_all,
)
from layoutopt.sql.udf_implications import implied_conditions

# ----------------------------------------------------------------------------------------------------
# Conditions on texts as filters: LIKE, regular expressions, and what a text starts with, ends with or contains.
#
# Each function takes the condition, whether the rows for which it is TRUE are asked for (else FALSE), and its context.

_SAFE_REGEX = re.compile(r"[\w\s.,:;@#%&=<>!~\"'/^$|*+?-]*")


def like_condition(node: exp.Expr, truth: bool, context: Context, escape: str = "\\") -> Node:
    """``x LIKE 'a%'`` and ILIKE, of one pattern or ANY or ALL of several."""
    if isinstance(node.expression, exp.Any | exp.All):
        return _like_several(node, truth, context, escape)
    text, pattern = _text_and_pattern(node, context)
    if pattern is None:
        return FALSE
    if "\ufffd" in pattern:
        raise Unusable("inexact", f"{node.sql('spark')} also finds bytes that are no UTF-8, which bounds are not of")
    if isinstance(node, exp.ILike):
        if not pattern.isascii():
            raise Unusable("inexact", f"{node.sql('spark')} depends on Unicode's case tables")
        pattern, text = pattern.lower(), Call("lower", (text,), "string")
    return simplified(like(text, parse_like(pattern, escape), not truth))


def _like_several(node: exp.Expr, truth: bool, context: Context, escape: str) -> Node:
    quantifier = node.expression
    patterns = quantifier.this.unnest()
    if not isinstance(patterns, exp.Tuple):
        raise Unusable("subquery", f"{node.sql('spark')[:80]} needs the result of a subquery")
    # x NOT LIKE ALL (...) is NOT LIKE for each pattern, not the opposite of LIKE ALL
    wanted = truth != bool(node.args.get("negate"))
    singles = [type(node)(this=node.this.copy(), expression=pattern.copy()) for pattern in patterns.expressions]
    each = [like_condition(single, wanted, context, escape) for single in singles]
    return disjunction(each) if isinstance(quantifier, exp.Any) == truth else conjunction(each)


def escaped_like(node: exp.Expr, truth: bool, context: Context) -> Node:
    """``x LIKE 'a!%' ESCAPE '!'``."""
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has no exact meaning here")
    return like_condition(node.this, truth != bool(node.this.args.get("negate")), context, node.expression.name)


def containing(before: bool, after: bool) -> Callable[[exp.Expr, bool, Context], Node]:
    """The function for conditions that a text has another in it, with anything before or after it."""

    def read(node: exp.Expr, truth: bool, context: Context) -> Node:
        text, part = _text_and_pattern(node, context)
        if part is None:
            return FALSE
        pattern = canonical_pattern([*[ANY_STRING] * before, part, *[ANY_STRING] * after])
        return simplified(like(text, pattern, not truth))

    return read


def regex(node: exp.Expr, truth: bool, context: Context) -> Node:
    """``x RLIKE 'a.*b'``."""
    text, pattern = _text_and_pattern(node, context)
    if pattern is None:
        return FALSE
    if not safe_regex(pattern):
        raise Unusable("can-fail", f"the pattern {pattern!r} may not be one that Java takes")
    call = Call("rlike", (text, const(TypedConstant(pattern, "string"))), "boolean")
    return in_set(call, ValueSet.point(int(truth)), False, context.settings.time_zone)


def safe_regex(pattern: str) -> bool:
    """Whether a pattern is surely one that Java takes, and takes in bounded time and stack.

    >>> safe_regex("^a.*b$"), safe_regex("(a|b)*"), safe_regex("[")
    (True, False, False)
    """
    return bool(_SAFE_REGEX.fullmatch(pattern)) and not re.search(r"[*+?]{2}|^[*+?]|[|^][*+?]", pattern)


def _text_and_pattern(node: exp.Expr, context: Context) -> tuple[Expr, str | None]:
    """The text that is tested, as Spark casts it, and the constant that it is tested with; None for NULL."""
    tested, pattern = operand(node.this, context), operand(node.expression, context)
    if isinstance(tested, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.this.sql('spark')} is a constant")
    if tested.type == "binary":
        raise Unusable("unordered-type", f"{node.this.sql('spark')} is binary, which is not matched as text here")
    text = explicit_cast(cast_subject(tested, "string", context))
    if not isinstance(pattern, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.expression.sql('spark')} is no constant pattern")
    value = cast_constant(pattern, "string", context.settings.time_zone).value
    return text, value if isinstance(value, str) else None


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
OTHER_TABLE = "other-table"
"""The code of a part that is about another scan: no problem, just not this scan's filter."""


class FilterReader:
    """Translates the conditions of one scan and remembers what it had to leave out.

    Attributes:
        unusable: the parts that TRUE stands in for, in order.
    """

    def __init__(self, context: Context, strict: bool = False) -> None:
        self._context = context
        self._strict = strict
        self.unusable: list[UnusableCondition] = []

    def node(self, condition: exp.Expr, truth: bool = True) -> Node:
        """The rows for which the condition is TRUE (or, with ``truth=False``, FALSE); never fails."""
        condition = condition.unnest()
        if isinstance(condition, exp.Not):
            return self.node(condition.this, not truth)
        if isinstance(condition, exp.And | exp.Or):
            parts = [self.node(part, truth) for part in _operands(condition)]
            return conjunction(parts) if isinstance(condition, exp.And) == truth else disjunction(parts)
        try:
            return conjunction([self._leaf(condition, truth), *self._implied(condition, truth)])
        except Unusable as problem:
            if self._strict:
                raise
            if problem.code != OTHER_TABLE:
                self._leave_out(condition, problem.code, problem.detail)
        except (ValueError, OverflowError, ArithmeticError, LayoutoptError) as error:
            if self._strict:
                raise
            self._leave_out(condition, "inexact", str(error))
        return TRUE

    def _implied(self, condition: exp.Expr, truth: bool) -> list[Node]:
        """What the condition's user-defined functions say of plain columns, in conditions without such functions."""
        operator = _OPERATORS.get(type(condition))
        if operator is not None and not truth:
            operator = OPPOSITE[operator]
        mirrored = operator and MIRRORED[operator]
        implied = implied_conditions(condition, operator, mirrored, truth, self._context.udfs)
        plain = FilterReader(replace(self._context, udfs=NO_UDFS))
        return [plain.node(each) for each in implied]

    def _leave_out(self, condition: exp.Expr, code: str, detail: str) -> None:
        self.unusable.append(UnusableCondition(code, detail, condition.sql("spark")))

    def _chosen(self, choice: Choice, truth: bool) -> Node:
        """The rows for which a condition with a choice is TRUE (or FALSE): by each way through it, exact or not at all.

        Where a test is not followed nothing is said: TRUE in its place would make the ways behind it too narrow.
        """
        exactly = FilterReader(self._context, strict=True)
        ways: list[Node] = []
        before: Node = TRUE
        for test, outcome in zip(choice.tests, choice.outcomes, strict=False):
            met = exactly.node(test)
            ways.append(conjunction([before, met, exactly.node(outcome, truth)]))
            before = conjunction([before, untrue(met)])
        return disjunction([*ways, conjunction([before, exactly.node(choice.outcomes[-1], truth)])])

    def _leaf(self, condition: exp.Expr, truth: bool) -> Node:
        choice = choice_in(condition, self._context, lambda node: operand(node, self._context))
        if choice is not None:
            return self._chosen(choice, truth)
        plain = without_lambda(condition, truth)
        if plain is not None:
            _check_order(plain, self._context)
            return FilterReader(self._context, strict=True).node(plain, truth)
        if condition.args.get("negate") and not isinstance(condition.expression, exp.Any | exp.All):
            truth = not truth  # how sqlglot writes NOT LIKE
        if isinstance(condition, exp.Boolean):
            return Constant(bool(condition.this) == truth)
        if type(condition) in _OPERATORS:
            return _comparison(condition, truth, self._context)
        reader = _LEAVES.get(type(condition), _boolean)
        return reader(condition, truth, self._context)


def _operands(condition: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one connector, however deep (no recursion: logs hold chains of thousands)."""
    kind, found, waiting = type(condition), [], [condition]
    while waiting:
        part = waiting.pop().unnest()
        if type(part) is kind:
            waiting += [part.args["expression"], part.this]
        else:
            found.append(part)
    return found


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """The conditions that are joined by AND at the top, left to right."""
    condition = condition.unnest()
    return _operands(condition) if isinstance(condition, exp.And) else [condition]


def _check_order(plain: exp.Expr, context: Context) -> None:
    """Refuse the largest element in place of all where elements are compared in another order than their own.

    ``exists(texts, x -> x > 5)`` compares numbers: of ``array('10', '3')`` the largest text is '3'.

    Raises:
        Unusable: they are.
    """
    if not isinstance(plain, exp.GT | exp.GTE | exp.LT | exp.LTE):
        return
    end, other = (operand(side, context).type for side in (plain.this, plain.expression))
    kind = compared_type(end, other, ansi=context.settings.ansi)
    if kind != end and not (is_number(end) and is_number(kind)) and (end, kind) != ("date", "timestamp"):
        raise Unusable("coercion", f"{plain.sql('spark')} compares {end} as {kind}, in another order")


def _comparison(node: exp.Expr, truth: bool, context: Context) -> Node:
    operator = _OPERATORS[type(node)]
    if not truth:
        operator = OPPOSITE[operator]
    if isinstance(node.expression, exp.Any | exp.All):
        raise Unusable("subquery", f"{node.sql('spark')[:80]} compares with every value of a subquery")
    left, right = _side(node.this, context), _side(node.expression, context)
    if isinstance(left, TypedConstant):
        if isinstance(right, TypedConstant):
            return Constant(_holds(left, operator, right, context))
        left, right, operator = right, left, MIRRORED[operator]
    if not isinstance(right, TypedConstant):
        return _columns(left, operator, right, context)
    outcome = outcome_for_all(left.type, operator, right)
    if outcome is None:
        return _against_constant(left, operator, right, context)
    if outcome:
        raise Unusable("inexact", f"{node.sql('spark')} is TRUE for every number, and for Spark may be for NULL too")
    return FALSE


def _side(node: exp.Expr, context: Context) -> Operand:
    """What stands on one side of a comparison."""
    whole = whole_of_double(node, context, lambda argument: operand(argument, context))
    return operand(node, context) if whole is None else whole


def _on_values(viewed: Subject, values: ValueSet, context: Context) -> Node:
    """The rows whose value is one of a set."""
    if fails_unless_replaced(viewed.expr):
        raise Unusable("can-fail", "floor or ceil of a double is followed beside whole numbers only")
    return in_set(viewed.expr, values, False, context.settings.time_zone)


def _holds(left: TypedConstant, operator: str, right: TypedConstant, context: Context) -> bool:
    kind, zone = compared_type(left.type, right.type, ansi=context.settings.ansi), context.settings.time_zone
    first, second = cast_constant(left, kind, zone).value, cast_constant(right, kind, zone).value
    if first is None or second is None:
        return False
    return compare(operator, second, kind).contains(to_key(first, kind))


def _against_constant(left: Subject, operator: str, right: TypedConstant, context: Context) -> Node:
    kind, null = _common([right], left, context)
    if null:
        return FALSE  # comparing with NULL is never TRUE and never FALSE
    viewed, (values,) = _value_sets(left, operator, [right], kind, context)
    return _on_values(viewed, values, context)


def _common(
    constants: Iterable[TypedConstant], viewed: Subject, context: Context, listed: bool = False
) -> tuple[str, bool]:
    """The type that all sides are compared in, and whether one of the constants is NULL."""
    if key_kind(viewed.type) is None:
        raise Unusable("unordered-type", f"values of type {viewed.type} are not compared here")
    kind, null = viewed.type, False
    for constant in constants:
        kind = compared_type(kind, constant.type, ansi=context.settings.ansi, listed=listed)
        null = null or constant.value is None
    return kind, null


def _value_sets(
    left: Subject, operator: str, constants: Sequence[TypedConstant], kind: str, context: Context
) -> tuple[Subject, list[ValueSet]]:
    """The subject as it is compared in type ``kind``, and its values for which each comparison is TRUE."""
    cast = [cast_constant(constant, kind, context.settings.time_zone).value for constant in constants]
    values = [value for value in cast if value is not None]
    if left.type == kind or (kind == "double" and is_number(left.type)):
        try:
            return left, [compare(operator, value, left.expr.type) for value in values]
        except ValueError:
            pass  # not exact on the column's own values: compare what the cast gives instead
    viewed = cast_subject(left, kind, context)
    return viewed, [compare(operator, value, viewed.expr.type) for value in values]


def _columns(left: Subject, operator: str, right: Subject, context: Context) -> Node:
    kind = compared_type(left.type, right.type, ansi=context.settings.ansi)
    if key_kind(kind) is None:
        raise Unusable("unordered-type", f"values of type {kind} are not compared here")
    if is_whole_of_double(left.expr) or is_whole_of_double(right.expr):
        raise Unusable("can-fail", "floor or ceil of a double is followed beside constants only")
    return compare_subjects(cast_subject(left, kind, context), operator, cast_subject(right, kind, context))


def _is_null(viewed: Subject, truth: bool, context: Context) -> Node:
    values = ValueSet.empty() if truth else ValueSet.all()
    return in_set(viewed.expr, values, truth, context.settings.time_zone)


def _is(node: exp.Expr, truth: bool, context: Context) -> Node:
    target = node.expression
    if isinstance(target, exp.Not):  # IS NOT NULL in some dialects
        target, truth = target.this, not truth
    if isinstance(target, exp.Null):
        return _null_test(node.this, truth, context)
    if isinstance(target, exp.Boolean):
        return _null_safe_equal(exp.NullSafeEQ(this=node.this.copy(), expression=target.copy()), truth, context)
    raise Unusable("unsupported-expression", f"{node.sql('spark')} has no exact meaning here")


def _null_test(tested: exp.Expr, truth: bool, context: Context) -> Node:
    given = operand(tested, context)
    if isinstance(given, TypedConstant):
        return Constant((given.value is None) == truth)
    return _is_null(given, truth, context)


def _null_safe_equal(node: exp.Expr, truth: bool, context: Context) -> Node:
    left, right = operand(node.this, context), operand(node.expression, context)
    if isinstance(left, TypedConstant):
        left, right = right, left
    if isinstance(left, TypedConstant) or not isinstance(right, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is followed for a column and a constant only")
    if right.value is None:
        return _is_null(left, truth, context)
    kind, _ = _common([right], left, context)
    viewed, (values,) = _value_sets(left, "=" if truth else "<>", [right], kind, context)
    return in_set(viewed.expr, values, not truth, context.settings.time_zone)


def _null_safe_different(node: exp.Expr, truth: bool, context: Context) -> Node:
    return _null_safe_equal(node, not truth, context)


def _constant_in(tested: TypedConstant, constants: Sequence[TypedConstant], truth: bool, context: Context) -> Node:
    if {constant.type for constant in constants} != {tested.type}:
        raise Unusable("coercion", f"{tested.value!r} is looked for among values of other types")
    signs = "=" if truth else "<>"
    held = [_holds(tested, signs, constant, context) for constant in constants]
    return Constant(any(held) if truth else all(held))


def _in(node: exp.Expr, truth: bool, context: Context) -> Node:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        raise Unusable("subquery", f"{node.sql('spark')[:80]} needs the result of a subquery")
    tested = _side(node.this, context)
    items = [operand(item, context) for item in node.expressions]
    constants = [item for item in items if isinstance(item, TypedConstant)]
    if isinstance(tested, TypedConstant) and len(constants) == len(items):
        return _constant_in(tested, constants, truth, context)
    if isinstance(tested, TypedConstant) or len(constants) < len(items):
        raise Unusable("unsupported-expression", f"{node.sql('spark')[:80]} is followed for a list of constants only")
    kind, null = _common(constants, tested, context, listed=True)
    if null and not truth:
        return FALSE  # x NOT IN (..., NULL) is FALSE or NULL, never TRUE
    viewed, found = _value_sets(tested, "=", [c for c in constants if c.value is not None], kind, context)
    union = _union(found)
    wanted = union if truth else union.complement()
    values = ValueSet.normalised(wanted.intervals, viewed.expr.type)
    return _on_values(viewed, values, context)


def _union(sets: Sequence[ValueSet]) -> ValueSet:
    """The union of many sets, most of them points."""
    points = [key for values in sets for key in values.points() or ()]
    others = [values for values in sets if values.points() is None]
    united = ValueSet.of(points)
    for values in others:
        united = united.union(values)
    return united


def _between(node: exp.Expr, truth: bool, context: Context) -> Node:
    if node.args.get("symmetric"):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} is symmetric, which Spark does not know")
    bounds = [
        _comparison(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()), truth, context),
        _comparison(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()), truth, context),
    ]
    return conjunction(bounds) if truth else disjunction(bounds)


def _is_nan(node: exp.Expr, truth: bool, context: Context) -> Node:
    given = operand(node.this, context)
    if isinstance(given, TypedConstant) or given.expr.type not in ("float", "double"):
        raise Unusable("coercion", f"{node.sql('spark')} is followed for float and double columns only")
    nan = ValueSet.point(NAN_KEY)
    # Spark's isnan(NULL) is FALSE
    return in_set(given.expr, nan if truth else nan.complement(), not truth, context.settings.time_zone)


def _named(node: exp.Expr, truth: bool, context: Context) -> Node:
    name = node.name.casefold()
    if name in ("isnull", "isnotnull") and len(node.expressions) == 1:
        return _null_test(node.expressions[0], truth == (name == "isnull"), context)
    return _boolean(node, truth, context)


def _exists(node: exp.Expr, truth: bool, context: Context) -> Node:
    if isinstance(node.expression, exp.Lambda):
        return some_element(node, truth, context, lambda test, within: FilterReader(within, strict=True).node(test))
    raise Unusable("subquery", f"{node.sql('spark')[:80]} needs the result of a subquery")


def _boolean(node: exp.Expr, truth: bool, context: Context) -> Node:
    given = operand(node, context)
    if isinstance(given, TypedConstant):
        value = cast_constant(given, "boolean", context.settings.time_zone).value
        return Constant(value is truth)
    if given.type != "boolean":
        raise Unusable("coercion", f"{node.sql('spark')} is {given.type}, not a condition")
    return in_set(given.expr, ValueSet.point(int(truth)), False, context.settings.time_zone)


_LEAVES: dict[type[exp.Expr], Callable[[exp.Expr, bool, Context], Node]] = {
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.NullSafeEQ: _null_safe_equal,
    exp.EqualNull: _null_safe_equal,
    exp.NullSafeNEQ: _null_safe_different,
    exp.Like: like_condition,
    exp.ILike: like_condition,
    exp.Escape: escaped_like,
    exp.RegexpLike: regex,
    exp.StartsWith: containing(before=False, after=True),
    exp.EndsWith: containing(before=True, after=False),
    exp.Contains: containing(before=True, after=True),
    exp.IsNan: _is_nan,
    exp.Anonymous: _named,
    exp.Exists: _exists,
}
