"""Translate the condition of a scan in Spark's optimised plan to the model's AND/OR tree.

Spark has resolved all types, casts and constants. :data:`TABLE` has a handler for each supported class of Catalyst.
Other expressions become TRUE. Since NOT is pushed down to the leaves, this only weakens the filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from layoutopt.errors import LayoutoptError
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import (
    ANY_STRING,
    TRUE,
    And,
    InSet,
    Node,
    Or,
    canonical_pattern,
    conjunction,
    disjunction,
    like,
    simplified,
    untrue,
)
from layoutopt.model.schema import Schema
from layoutopt.model.udf import Udf
from layoutopt.spark.catalyst import expressions as e
from layoutopt.spark.catalyst.leaf_conditions import (
    Handler,
    array_exists,
    arrays_overlap,
    at_least_n,
    boolean_literal,
    boolean_value,
    comparison,
    equal_null_safe,
    in_list,
    in_set_keys,
    is_nan,
    is_null,
    like_pattern,
    like_several,
    regex,
    text_match,
)
from layoutopt.spark.catalyst.opaque import ComputePart, OpaqueParts
from layoutopt.spark.catalyst.trees import (
    Tree,
    describe,
    find_zones,
    int_constant,
    iterate_tree,
    parse_tree,
    passes_null,
    text_constant,
    unknown,
)
from layoutopt.sql.expressions import MIRRORED, OPPOSITE
from layoutopt.sql.operands import Context, Subject
from layoutopt.sql.problems import Unusable, UnusableCondition
from layoutopt.sql.scans import implied_node
from layoutopt.sql.types import normal_zone

_Part: TypeAlias = tuple[Tree, bool]
_MOST_BRANCHES: Final = 16
_MOST_CHOICES: Final = 4


@dataclass(frozen=True)
class Condition:
    """The translated condition of a scan.

    Attributes:
        root: TRUE for at least the rows for which the condition is TRUE.
        unusable: the parts that were left out.
        settings: the session's settings, with the time zone of the parts that depend on one.
    """

    root: Node
    unusable: tuple[UnusableCondition, ...]
    settings: SessionSettings


@dataclass(frozen=True)
class Entry:
    """The handlers of a class of Catalyst.

    Attributes:
        condition: reads it as a condition; None if it is read as a boolean value.
        value: reads it as an expression; None if it is only a condition.
        passes_null: whether it is NULL if an operand is.
    """

    condition: Handler | None = None
    value: e.Handler | None = None
    passes_null: bool = True


def _value(handler: e.Handler, passes_null: bool = True) -> Entry:
    return Entry(None, handler, passes_null)


_OPERATORS: Final = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
# The handlers of each supported class of Catalyst, by its simple name.
TABLE: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        # logic and constants; AND, OR and NOT are the reader's own
        "Literal": Entry(boolean_literal),
        **{name: Entry(comparison(operator)) for name, operator in _OPERATORS.items()},
        "EqualNullSafe": Entry(equal_null_safe, passes_null=False),
        "IsNull": Entry(is_null(wanted=True), passes_null=False),
        "IsNotNull": Entry(is_null(wanted=False), passes_null=False),
        "IsNaN": Entry(is_nan, passes_null=False),
        "AtLeastNNonNulls": Entry(at_least_n, passes_null=False),
        "In": Entry(in_list),
        "InSet": Entry(in_set_keys),
        # texts
        "StartsWith": Entry(text_match(before=False, after=True)),
        "EndsWith": Entry(text_match(before=True, after=False)),
        "Contains": Entry(text_match(before=True, after=True)),
        "Like": Entry(like_pattern),
        "LikeAll": Entry(like_several(every=True, negated=False)),
        "LikeAny": Entry(like_several(every=False, negated=False)),
        "NotLikeAll": Entry(like_several(every=True, negated=True)),
        "NotLikeAny": Entry(like_several(every=False, negated=True)),
        "RLike": Entry(regex),
        "Substring": _value(e.read_substring),
        "StringLocate": _value(e.locate),
        "StringSplitSQL": Entry(),  # within an element alone
        "GetJsonObject": _value(e.get_json_object),
        **{name: _value(e.function_call(f)) for f in FUNCTIONS.values() for name in f.catalyst},
        # columns and casts
        "AttributeReference": _value(e.read_column),
        "NamedLambdaVariable": _value(e.read_element),
        "Cast": _value(e.read_cast),
        **dict.fromkeys(
            ("KnownFloatingPointNormalized", "NormalizeNaNAndZero", "KnownNotNull", "KnownNullable", "Alias"),
            _value(e.see_through),
        ),
        # numbers
        "Add": _value(e.arithmetic("try_add")),
        "Subtract": _value(e.arithmetic("try_subtract")),
        "Multiply": _value(e.arithmetic("try_multiply")),
        "Divide": _value(e.arithmetic("try_divide")),
        "Remainder": _value(e.arithmetic("try_mod")),
        "UnaryMinus": _value(e.negate),
        "Abs": _value(e.absolute_value),
        # choices; CASE and IF are the reader's own
        "Coalesce": _value(e.same_type_call("coalesce"), passes_null=False),
        "Greatest": _value(e.same_type_call("greatest"), passes_null=False),
        "Least": _value(e.same_type_call("least"), passes_null=False),
        # dates and times
        "DateAdd": _value(e.add_days(1)),
        "DateSub": _value(e.add_days(-1)),
        **dict.fromkeys(("AddMonths", "DateAddYMInterval", "TimestampAddYMInterval"), _value(e.add_months)),
        **dict.fromkeys(("TimestampAddInterval", "TimeAdd"), _value(e.add_interval)),
        # nested values
        "GetStructField": _value(e.struct_field),
        "GetArrayItem": _value(e.container_element(from_one=False)),
        "GetMapValue": _value(e.container_element(from_one=False)),
        "ElementAt": _value(e.container_element(from_one=True)),
        "MapKeys": _value(e.map_part(values=False)),
        "MapValues": _value(e.map_part(values=True)),
        "ArrayContains": _value(e.array_contains),
        "ArrayExists": Entry(array_exists),
        "ArraysOverlap": Entry(arrays_overlap),
        "VariantGet": _value(e.variant_get),
        "PythonUDF": _value(e.user_function, passes_null=False),
    }
)

_STRICT: Final = frozenset({name for name, entry in TABLE.items() if entry.passes_null} | {"Not"})
_REASONS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "NonDeterministic": ("non-deterministic", "the value may differ from run to run"),
        **dict.fromkeys(
            (
                "ScalarSubquery",
                "InSubquery",
                "Exists",
                "ListQuery",
                "DynamicPruningSubquery",
                "DynamicPruningExpression",
            ),
            ("subquery", "the condition needs the result of a subquery"),
        ),
    }
)


def read_condition(
    tree: list[Any],
    schema: Schema,
    settings: SessionSettings,
    udfs: Mapping[str, Udf],
    compute: ComputePart | None = None,
) -> Condition:
    """Translate the condition of a scan; parts that can't be translated are left out, and nothing is raised.

    Args:
        tree: the condition, as ``ReadBlocks.java`` writes it.
        settings: the session's settings.
        udfs: the declared functions by name; each must be the one that the session has under this name.
        compute: computes parts of the condition that can't be translated, which become :class:`Opaque`.

    >>> from layoutopt.model.schema import Column
    >>> column = ["AttributeReference", "int", [], {"name": "i"}]
    >>> tree = ["EqualTo", "boolean", [column, ["Literal", "int", [], {"value": 5}]], {}]
    >>> read_condition(tree, Schema((Column("i", "int"),)), SessionSettings(), {}).root.values.intervals
    ((5, 6),)
    """
    try:
        read = parse_tree(tree)
        zones = find_zones(read)
        zone = next(iter(zones)) if len(zones) == 1 else normal_zone(settings.time_zone)
        reader = _Reader(schema, udfs, zone)
        reader.opaque = None if compute is None else OpaqueParts(read, schema, compute)
        root = _distribute_bounds(reader.node(read))
    except Exception as error:  # read the whole table rather than fail
        problem = UnusableCondition("unsupported-expression", f"the condition can't be read ({error!r:.200})", "")
        return Condition(TRUE, (problem,), settings)
    return Condition(root, tuple(reader.unusable), replace(settings, time_zone=zone) if zones else settings)


def _distribute_bounds(node: Node) -> Node:
    """Return an equivalent condition in which bounds beside an OR also stand in its alternatives.

    Spark factors ``a >= 1`` out of ``a >= 1 AND a <= 5 AND b OR a >= 1 AND a <= 9 AND c``, which splits the ranges of
    ``a`` that features describe.
    """
    if isinstance(node, Or):
        return disjunction(map(_distribute_bounds, node.children))
    if not isinstance(node, And):
        return node
    parts = list(map(_distribute_bounds, node.children))
    bounds = {part.subject: part for part in parts if isinstance(part, InSet)}

    def add_bounds(alternative: Node) -> Node:
        tests = alternative.children if isinstance(alternative, And) else (alternative,)
        subjects = {test.subject for test in tests if isinstance(test, InSet)}
        return conjunction([*tests, *(bounds[subject] for subject in bounds if subject in subjects)])

    return conjunction(disjunction(map(add_bounds, part.children)) if isinstance(part, Or) else part for part in parts)


class _Reader:
    def __init__(
        self, schema: Schema, udfs: Mapping[str, Udf], zone: str, element: Subject | None = None, strict: bool = False
    ) -> None:
        self.schema, self.udfs, self.zone, self.element = schema, udfs, zone, element
        self.context = Context(_no_names, SessionSettings(zone, ansi=True))
        self.unusable: list[UnusableCondition] = []
        self.opaque: OpaqueParts | None = None
        self._strict = strict

    def of_element(self, element: Subject) -> _Reader:
        return _Reader(self.schema, self.udfs, self.zone, element, self._strict)

    def exact(self, tree: Tree, truth: bool = True) -> Node:
        return _Reader(self.schema, self.udfs, self.zone, self.element, strict=True).node(tree, truth)

    def node(self, tree: Tree, truth: bool = True) -> Node:
        """Return the rows for which a condition is TRUE (or FALSE), or more unless the reader is strict."""
        while tree.name == "Not" and len(tree.children) == 1:
            tree, truth = tree.children[0], not truth
        if tree.name in ("And", "Or"):
            return self._combine(_list_operands(tree, truth), all_hold=(tree.name == "And") == truth)
        try:
            return self._read_leaf(tree, truth)
        except Unusable as problem:
            if self._strict:
                raise
            return self._leave_out(tree, truth, problem.code, problem.detail)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, LayoutoptError) as error:
            if self._strict:
                raise Unusable("inexact", f"{describe(tree)}: {error}") from error
            return self._leave_out(tree, truth, "inexact", f"{describe(tree)}: {error}")

    def subject(self, tree: Tree) -> Subject:
        entry = TABLE.get(tree.name)
        if entry is None or entry.value is None:
            value = _strip_null_test(tree)
            if value is not None and tree.children[1].detail("value") is None:
                return self.subject(value)
            code, reason = _REASONS.get(tree.name, ("unsupported-function", "the function is not supported"))
            raise Unusable(code, f"{describe(tree)}: {reason}")
        return entry.value(tree, self)

    def _leave_out(self, tree: Tree, truth: bool, code: str, detail: str) -> Node:
        self.unusable.append(UnusableCondition(code, detail, describe(tree)))
        return TRUE if self.opaque is None else self.opaque.read(tree, truth)

    def _read_leaf(self, tree: Tree, truth: bool) -> Node:
        value = _strip_null_test(tree)
        if value is not None and (truth or tree.children[1].detail("value") is None):
            return self.node(value, truth)
        choices = [
            part for part in iterate_tree(tree) if part.name in ("If", "CaseWhen") and not _is_null_in_null_out(part)
        ]
        if choices:
            return self._read_choice(tree, choices, truth)
        entry = TABLE.get(tree.name)
        read = boolean_value if entry is None or entry.condition is None else entry.condition
        return conjunction([read(tree, truth, self), self._read_implication(tree, truth)])

    def _read_implication(self, tree: Tree, truth: bool) -> Node:
        """Return what a declared function implies for columns if it is TRUE, or compares so with a constant."""
        call, operator, value = tree, None, None
        if tree.name in _OPERATORS and len(tree.children) == 2:
            operator = _OPERATORS[tree.name] if truth else OPPOSITE[_OPERATORS[tree.name]]
            call, value = tree.children
            if call.name != "PythonUDF":
                call, value, operator = value, call, MIRRORED[operator]
        udf = self.udfs.get(str(call.detail("name"))) if call.name == "PythonUDF" else None
        if udf is None or not udf.implies or (operator is None and not truth):
            return TRUE
        arguments = [e.read_argument(child, self) for child in call.children]
        operand = None if value is None else e.read_argument(value, self)
        return implied_node(udf, operator, arguments, operand, self.schema, self.context.settings)

    def _read_choice(self, tree: Tree, choices: Sequence[Tree], truth: bool) -> Node:
        """Return exactly the rows for which a condition with CASE or IF is TRUE (or FALSE), branch by branch."""
        if any(part.name == "LambdaFunction" for part in iterate_tree(tree)) or len(choices) > _MOST_CHOICES:
            raise unknown(tree)
        # The branches of a condition are conditions. Otherwise the innermost choice goes first, so values have types.
        choice = tree if choices[0] == tree else choices[-1]
        tests, values = _list_branches(choice)
        if len(tests) > _MOST_BRANCHES:
            raise Unusable("unsupported-expression", f"{describe(tree)} has more than {_MOST_BRANCHES} branches")
        outcomes = [_replace_part(tree, choice, value) for value in values]
        branches: list[Node] = []
        no_earlier: Node = TRUE
        for test, outcome in zip(tests, outcomes, strict=False):
            node = self.exact(test)
            branches.append(conjunction([no_earlier, node, self.exact(outcome, truth)]))
            no_earlier = conjunction([no_earlier, untrue(node)])
        return disjunction([*branches, conjunction([no_earlier, self.exact(outcomes[-1], truth)])])

    def _combine(self, parts: Sequence[_Part], all_hold: bool) -> Node:
        parts, nodes = _merge_affixes(parts, all_hold, self)
        nodes += [(part, self.node(*part)) for part in parts]
        if all_hold:
            return conjunction(node for part, node in nodes if not _is_implied_null_test(part, nodes))
        return disjunction(node for _, node in nodes)


def _no_names(column: object) -> Any:
    raise Unusable("unsupported-expression", f"{column} is not a column of the scan")


def _list_operands(tree: Tree, truth: bool) -> list[_Part]:
    """Return the operands of a chain of ANDs or ORs of any depth, each with the wanted truth value."""
    is_all = (tree.name == "And") == truth
    operands, stack = [], [(tree, truth)]
    while stack:
        part, wanted = stack.pop()
        while part.name == "Not" and len(part.children) == 1:
            part, wanted = part.children[0], not wanted
        if part.name in ("And", "Or") and ((part.name == "And") == wanted) == is_all and len(part.children) == 2:
            stack += [(part.children[1], wanted), (part.children[0], wanted)]
        else:
            operands.append((part, wanted))
    return operands


def _is_implied_null_test(part: _Part, nodes: Sequence[tuple[_Part, Node]]) -> bool:
    """Return whether a part is an IS NOT NULL that another part of the conjunction implies; Spark adds many of them."""
    tree, truth = part
    if tree.name != ("IsNotNull" if truth else "IsNull") or len(tree.children) != 1:
        return False
    target = tree.children[0]
    return any(test != part and node != TRUE and _rejects_null(*test, target) for test, node in nodes)


def _rejects_null(tree: Tree, truth: bool, target: Tree) -> bool:
    """Return whether a condition is never TRUE (or FALSE) if an expression within it is NULL."""
    while tree.name == "Not" and len(tree.children) == 1:
        tree, truth = tree.children[0], not truth
    if tree.name in ("And", "Or"):
        every = any if (tree.name == "And") == truth else all
        return every(_rejects_null(child, truth, target) for child in tree.children)
    if tree.name in ("IsNotNull", "IsNull"):
        return (tree.name == "IsNotNull") == truth and any(passes_null(x, target, _STRICT) for x in tree.children)
    return passes_null(tree, target, _STRICT)


def _merge_affixes(
    parts: Sequence[_Part], all_hold: bool, reader: _Reader
) -> tuple[list[_Part], list[tuple[_Part, Node]]]:
    """Merge the parts into which Spark splits ``s LIKE 'a%b'``; return the other parts, and the patterns.

    They are ``length(s) >= 2 AND startswith(s, 'a') AND endswith(s, 'b')``, or the opposites joined by OR.
    """
    rest, patterns = list(parts), list[tuple[_Part, Node]]()
    for length in parts:
        text, size = _match_length_test(*length, all_hold)
        starts = [part for part in rest if _is_affix(part, "StartsWith", text, all_hold)]
        ends = [part for part in rest if _is_affix(part, "EndsWith", text, all_hold)]
        pair = next(((a, z) for a in starts for z in ends if len(_get_affix(a)) + len(_get_affix(z)) == size), None)
        if text is None or pair is None or length not in rest:
            continue
        pattern = canonical_pattern([_get_affix(pair[0]), ANY_STRING, _get_affix(pair[1])])
        try:
            node = simplified(like(e.text_argument(text, reader), pattern, negated=not all_hold))
        except Unusable:
            continue
        patterns.append((pair[0], node))
        for part in (length, *pair):
            rest.remove(part)
    return rest, patterns


def _match_length_test(tree: Tree, truth: bool, all_hold: bool) -> tuple[Tree | None, int]:
    """Return the text of ``length(s) >= n`` (in a disjunction, ``< n``), and n; (None, 0) for other conditions."""
    wanted = "GreaterThanOrEqual" if truth == all_hold else "LessThan"
    if tree.name != wanted or len(tree.children) != 2:
        return None, 0
    length, size = tree.children
    if length.name != "Length" or len(length.children) != 1 or size.name != "Literal":
        return None, 0
    return length.children[0], int_constant(size, tree)


def _is_affix(part: _Part, name: str, text: Tree | None, all_hold: bool) -> bool:
    tree, truth = part
    is_one = tree.name == name and truth == all_hold and len(tree.children) == 2
    return is_one and tree.children[0] == text and "\ufffd" not in _get_affix(part)


def _get_affix(part: _Part) -> str:
    """Return the constant of a test of a text's start or end; U+FFFD, which is not supported, if it is not constant."""
    try:
        return text_constant(part[0].children[1], part[0])
    except Unusable:
        return "\ufffd"


def _strip_null_test(tree: Tree) -> Tree | None:
    """Return ``f(x)`` of ``if(x IS NULL, NULL, f(x))``, as Spark writes ``right(x, 2)``; None for other expressions.

    In a condition, Spark may have replaced NULL by FALSE.
    """
    if tree.name != "If" or len(tree.children) != 3:
        return None
    test, value, otherwise = tree.children
    is_empty = value.name == "Literal" and value.detail("value") in (None, False) and "value" in value.details
    if test.name != "IsNull" or len(test.children) != 1 or not is_empty:
        return None
    if value.detail("value") is False and value.type != "boolean":
        return None
    return otherwise if passes_null(otherwise, test.children[0], _STRICT) else None


def _is_null_in_null_out(tree: Tree) -> bool:
    return _strip_null_test(tree) is not None and tree.children[1].detail("value") is None


def _list_branches(choice: Tree) -> tuple[list[Tree], list[Tree]]:
    """Return the tests of a choice, and their values followed by the value of ELSE."""
    if choice.name == "If":
        test, value, otherwise = choice.children
        return [test], [value, otherwise]
    children = list(choice.children)
    otherwise = children.pop() if len(children) % 2 else Tree("Literal", choice.type, (), {"value": None})
    return children[::2], [*children[1::2], otherwise]


def _replace_part(tree: Tree, part: Tree, value: Tree) -> Tree:
    if tree == part:
        return value
    return tree._replace(children=tuple(_replace_part(child, part, value) for child in tree.children))
