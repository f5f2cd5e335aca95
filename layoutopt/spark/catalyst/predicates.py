"""Read the condition of a scan in Spark's optimised plan as the model's AND/OR tree.

Spark has resolved every type, written every cast and computed every constant, so nothing is guessed here: a condition
means what its tree says. One table has a row for each class of Catalyst's that is understood; TRUE stands in for any
other, which makes the filter weaker and never wrong, since NOT is pushed down to the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from layoutopt.errors import LayoutoptError
from layoutopt.model.feature import Settings
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
from layoutopt.spark.catalyst import conditions as c
from layoutopt.spark.catalyst import expressions as e
from layoutopt.spark.catalyst.trees import (
    Tree,
    parts_of,
    passes_null,
    text_constant,
    text_of,
    tree_of,
    unknown,
    whole_constant,
    zones_of,
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
    """What the condition of a scan says.

    Attributes:
        root: the rows for which the condition is TRUE make it TRUE.
        unusable: the parts that it leaves out.
        settings: those under which it was read, with the zone of its parts that depend on one.
    """

    root: Node
    unusable: tuple[UnusableCondition, ...]
    settings: Settings


@dataclass(frozen=True)
class Entry:
    """How a class of Catalyst's is read.

    Attributes:
        condition: reads it as a condition; None where it is read as a boolean value.
        value: reads it as an expression; None where it is a condition only.
        passes_null: whether it is NULL wherever an operand is.
    """

    condition: c.Handler | None = None
    value: e.Handler | None = None
    passes_null: bool = True


def _value(handler: e.Handler, passes_null: bool = True) -> Entry:
    return Entry(None, handler, passes_null)


_STRINGS: Final = ("string", "string")

_OPERATORS: Final = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
TABLE: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        # logic and constants; AND, OR and NOT are the reader's own
        "Literal": Entry(c.boolean_literal),
        **{name: Entry(c.compared(operator)) for name, operator in _OPERATORS.items()},
        "EqualNullSafe": Entry(c.equal_null_safe, passes_null=False),
        "IsNull": Entry(c.is_null(wanted=True), passes_null=False),
        "IsNotNull": Entry(c.is_null(wanted=False), passes_null=False),
        "IsNaN": Entry(c.is_nan, passes_null=False),
        "AtLeastNNonNulls": Entry(c.at_least_n, passes_null=False),
        "In": Entry(c.in_list),
        "InSet": Entry(c.in_set_of_keys),
        # texts
        "StartsWith": Entry(c.containing(before=False, after=True)),
        "EndsWith": Entry(c.containing(before=True, after=False)),
        "Contains": Entry(c.containing(before=True, after=True)),
        "Like": Entry(c.like_pattern),
        "LikeAll": Entry(c.like_several(every=True, negated=False)),
        "LikeAny": Entry(c.like_several(every=False, negated=False)),
        "NotLikeAll": Entry(c.like_several(every=True, negated=True)),
        "NotLikeAny": Entry(c.like_several(every=False, negated=True)),
        "RLike": Entry(c.regex),
        "Lower": _value(e.called("lower", ("string",), "string")),
        "Upper": _value(e.called("upper", ("string",), "string")),
        "Reverse": _value(e.called("reverse", ("string",), "string")),
        "Length": _value(e.called("length", ("string",), "int")),
        "Substring": _value(e.substring),
        "StringTrim": _value(e.called("trim", ("string",), "string")),
        "StringTrimLeft": _value(e.called("ltrim", ("string",), "string")),
        "StringTrimRight": _value(e.called("rtrim", ("string",), "string")),
        "Concat": _value(e.concatenated),
        "StringInstr": _value(e.called("instr", _STRINGS, "int")),
        "StringLocate": _value(e.located),
        "Levenshtein": _value(e.called("levenshtein", _STRINGS, "int")),
        "SubstringIndex": _value(e.substring_index),
        "StringSplitSQL": Entry(),  # within an element alone
        "RegExpExtract": _value(e.regexp_extract),
        "GetJsonObject": _value(e.get_json_object),
        # columns and casts
        "AttributeReference": _value(e.read_column),
        "NamedLambdaVariable": _value(e.read_element),
        "Cast": _value(e.cast_of),
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
        "UnaryMinus": _value(e.negative),
        "Abs": _value(e.absolute),
        "Floor": _value(e.whole("floor")),
        "Ceil": _value(e.whole("ceil")),
        "Round": _value(e.rounded),
        "Sqrt": _value(e.called("sqrt", ("double",), "double")),
        # choices; CASE and IF are the reader's own
        "Coalesce": _value(e.one_of("coalesce"), passes_null=False),
        "Greatest": _value(e.one_of("greatest"), passes_null=False),
        "Least": _value(e.one_of("least"), passes_null=False),
        # dates and times
        "Year": _value(e.called("year", ("date",), "int")),
        "Quarter": _value(e.called("quarter", ("date",), "int")),
        "Month": _value(e.called("month", ("date",), "int")),
        "WeekOfYear": _value(e.called("weekofyear", ("date",), "int")),
        "DayOfMonth": _value(e.called("day", ("date",), "int")),
        "DayOfYear": _value(e.called("dayofyear", ("date",), "int")),
        "DayOfWeek": _value(e.called("dayofweek", ("date",), "int")),
        "LastDay": _value(e.called("last_day", ("date",), "date")),
        "DateDiff": _value(e.called("datediff", ("date", "date"), "int")),
        "Hour": _value(e.clock_part("hour")),
        "Minute": _value(e.clock_part("minute")),
        "Second": _value(e.clock_part("second")),
        "TruncDate": _value(e.truncated_date),
        "TruncTimestamp": _value(e.truncated_time),
        "DateAdd": _value(e.days_added(1)),
        "DateSub": _value(e.days_added(-1)),
        **dict.fromkeys(("AddMonths", "DateAddYMInterval", "TimestampAddYMInterval"), _value(e.months_added)),
        **dict.fromkeys(("TimestampAddInterval", "TimeAdd"), _value(e.time_added)),
        # nested values
        "GetStructField": _value(e.field_of),
        "GetArrayItem": _value(e.element_of(from_one=False)),
        "GetMapValue": _value(e.element_of(from_one=False)),
        "ElementAt": _value(e.element_of(from_one=True)),
        "MapKeys": _value(e.part_of_map(values=False)),
        "MapValues": _value(e.part_of_map(values=True)),
        "ArrayMax": _value(e.end_of_array("array_max")),
        "ArrayMin": _value(e.end_of_array("array_min")),
        "ArrayContains": _value(e.contains),
        "ArrayExists": Entry(c.array_exists),
        "ArraysOverlap": Entry(c.arrays_overlap),
        "VariantGet": _value(e.variant_get),
        "PythonUDF": _value(e.user_defined, passes_null=False),
    }
)
"""How each class of Catalyst's is read, by its simple name."""

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


def read_condition(tree: list[Any], schema: Schema, settings: Settings, udfs: Mapping[str, Udf]) -> Condition:
    """Read the condition of a scan; never fail.

    Args:
        tree: the condition, as ``ReadBlocks.java`` writes it.
        schema: the table's columns.
        settings: the session's.
        udfs: the functions that users declared, by name; each is surely the one that the session calls so.

    >>> from layoutopt.model.schema import Column
    >>> column = ["AttributeReference", "int", [], {"name": "i"}]
    >>> tree = ["EqualTo", "boolean", [column, ["Literal", "int", [], {"value": 5}]], {}]
    >>> read_condition(tree, Schema((Column("i", "int"),)), Settings(), {}).root.values.intervals
    ((5, 6),)
    """
    try:
        read = tree_of(tree)
        zones = zones_of(read)
        zone = next(iter(zones)) if len(zones) == 1 else normal_zone(settings.time_zone)
        reader = _Reader(schema, udfs, zone)
        root = _with_bounds(reader.node(read))
    except Exception as error:  # whatever a tree may hold, the scan is read whole rather than not at all
        problem = UnusableCondition("unsupported-expression", f"the condition can't be read ({error!r:.200})", "")
        return Condition(TRUE, (problem,), settings)
    return Condition(root, tuple(reader.unusable), replace(settings, time_zone=zone) if zones else settings)


def _with_bounds(node: Node) -> Node:
    """Return an equal condition whose alternatives have the bounds that hold beside them.

    Spark's optimiser takes out of ``a >= 1 AND a <= 5 AND b OR a >= 1 AND a <= 9 AND c`` what all alternatives have, so
    that none has a range of ``a`` any more, which features are of.
    """
    if isinstance(node, Or):
        return disjunction(map(_with_bounds, node.children))
    if not isinstance(node, And):
        return node
    parts = list(map(_with_bounds, node.children))
    bounds = {part.subject: part for part in parts if isinstance(part, InSet)}

    def bounded(way: Node) -> Node:
        beside = way.children if isinstance(way, And) else (way,)
        subjects = {part.subject for part in beside if isinstance(part, InSet)}
        return conjunction([*beside, *(bounds[subject] for subject in bounds if subject in subjects)])

    return conjunction(disjunction(map(bounded, part.children)) if isinstance(part, Or) else part for part in parts)


class _Reader:
    """Reads trees, and remembers what it left out.

    Attributes:
        unusable: the parts that TRUE stands in for.
    """

    def __init__(
        self, schema: Schema, udfs: Mapping[str, Udf], zone: str, element: Subject | None = None, strict: bool = False
    ) -> None:
        self.schema, self.udfs, self.zone, self.element = schema, udfs, zone, element
        self.context = Context(_no_names, Settings(zone, ansi=True))
        self.unusable: list[UnusableCondition] = []
        self._strict = strict

    def of_element(self, element: Subject) -> _Reader:
        """Return the reader of a lambda's body."""
        return _Reader(self.schema, self.udfs, self.zone, element, self._strict)

    def exact(self, tree: Tree, truth: bool = True) -> Node:
        """Return just the rows for which a condition is TRUE (or FALSE).

        Raises:
            Unusable: a part is not understood.
        """
        return _Reader(self.schema, self.udfs, self.zone, self.element, strict=True).node(tree, truth)

    def node(self, tree: Tree, truth: bool = True) -> Node:
        """Return the rows for which a condition is TRUE (or FALSE); more, unless the reader is strict."""
        while tree.name == "Not" and len(tree.children) == 1:
            tree, truth = tree.children[0], not truth
        if tree.name in ("And", "Or"):
            return self._joined(_operands(tree, truth), all_hold=(tree.name == "And") == truth)
        try:
            return self._leaf(tree, truth)
        except Unusable as problem:
            if self._strict:
                raise
            self._leave_out(tree, problem.code, problem.detail)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, LayoutoptError) as error:
            if self._strict:
                raise Unusable("inexact", f"{text_of(tree)}: {error}") from error
            self._leave_out(tree, "inexact", f"{text_of(tree)}: {error}")
        return TRUE

    def subject(self, tree: Tree) -> Subject:
        """Return an expression of columns.

        Raises:
            Unusable: it has no exact, error-free meaning here, or is a constant.
        """
        entry = TABLE.get(tree.name)
        if entry is None or entry.value is None:
            plain = _without_null_test(tree)
            if plain is not None and tree.children[1].detail("value") is None:
                return self.subject(plain)
            code, why = _REASONS.get(tree.name, ("unsupported-function", "the function is not followed"))
            raise Unusable(code, f"{text_of(tree)}: {why}")
        return entry.value(tree, self)

    def _leave_out(self, tree: Tree, code: str, detail: str) -> None:
        self.unusable.append(UnusableCondition(code, detail, text_of(tree)))

    def _leaf(self, tree: Tree, truth: bool) -> Node:
        plain = _without_null_test(tree)
        if plain is not None and (truth or tree.children[1].detail("value") is None):
            return self.node(plain, truth)
        choices = [
            part for part in parts_of(tree) if part.name in ("If", "CaseWhen") and not _is_null_in_null_out(part)
        ]
        if choices:
            return self._chosen(tree, choices, truth)
        entry = TABLE.get(tree.name)
        read = c.boolean_value if entry is None or entry.condition is None else entry.condition
        return conjunction([read(tree, truth, self), self._implied(tree, truth)])

    def _implied(self, tree: Tree, truth: bool) -> Node:
        """What a user's function says of plain columns where it is TRUE, or compares so with a constant."""
        call, operator, value = tree, None, None
        if tree.name in _OPERATORS and len(tree.children) == 2:
            operator = _OPERATORS[tree.name] if truth else OPPOSITE[_OPERATORS[tree.name]]
            call, value = tree.children
            if call.name != "PythonUDF":
                call, value, operator = value, call, MIRRORED[operator]
        udf = self.udfs.get(str(call.detail("name"))) if call.name == "PythonUDF" else None
        if udf is None or not udf.implies or (operator is None and not truth):
            return TRUE
        arguments = [e.argument(child, self) for child in call.children]
        compared = None if value is None else e.argument(value, self)
        return implied_node(udf, operator, arguments, compared, self.schema, self.context.settings)

    def _chosen(self, tree: Tree, choices: Sequence[Tree], truth: bool) -> Node:
        """The rows for which a condition with a choice is TRUE (or FALSE): by each way through it, exactly."""
        if any(part.name == "LambdaFunction" for part in parts_of(tree)) or len(choices) > _MOST_CHOICES:
            raise unknown(tree)
        # Values have types once the choices within them are made; the alternatives of a condition are conditions.
        choice = tree if choices[0] == tree else choices[-1]
        tests, values = _branches(choice)
        if len(tests) > _MOST_BRANCHES:
            raise Unusable("unsupported-expression", f"{text_of(tree)} has too many branches")
        outcomes = [_replaced(tree, choice, value) for value in values]
        ways: list[Node] = []
        before: Node = TRUE
        for test, outcome in zip(tests, outcomes, strict=False):
            met = self.exact(test)
            ways.append(conjunction([before, met, self.exact(outcome, truth)]))
            before = conjunction([before, untrue(met)])
        return disjunction([*ways, conjunction([before, self.exact(outcomes[-1], truth)])])

    def _joined(self, parts: Sequence[_Part], all_hold: bool) -> Node:
        """The conjunction of parts, or their disjunction."""
        parts, found = _with_affixes(parts, all_hold, self)
        found += [(part, self.node(*part)) for part in parts]
        if all_hold:
            return conjunction(node for part, node in found if not _follows(part, found))
        return disjunction(node for _, node in found)


def _no_names(column: object) -> Any:
    raise Unusable("unsupported-expression", f"{column} is no column of the scan")


def _operands(tree: Tree, truth: bool) -> list[_Part]:
    """The operands of a chain of one connector and what is asked of each, however deep the chain is."""
    is_all = (tree.name == "And") == truth
    found, waiting = [], [(tree, truth)]
    while waiting:
        part, wanted = waiting.pop()
        while part.name == "Not" and len(part.children) == 1:
            part, wanted = part.children[0], not wanted
        if part.name in ("And", "Or") and ((part.name == "And") == wanted) == is_all and len(part.children) == 2:
            waiting += [(part.children[1], wanted), (part.children[0], wanted)]
        else:
            found.append((part, wanted))
    return found


def _follows(part: _Part, found: Sequence[tuple[_Part, Node]]) -> bool:
    """Whether a part only says that an expression is not NULL, which another part of the conjunction says too.

    Spark adds such parts to whatever is NULL where an operand is.
    """
    tree, truth = part
    if tree.name != ("IsNotNull" if truth else "IsNull") or len(tree.children) != 1:
        return False
    target = tree.children[0]
    return any(other != part and node != TRUE and _rejects_null(*other, target) for other, node in found)


def _rejects_null(tree: Tree, truth: bool, target: Tree) -> bool:
    """Whether a condition is never TRUE (or FALSE) where an expression within it is NULL."""
    while tree.name == "Not" and len(tree.children) == 1:
        tree, truth = tree.children[0], not truth
    if tree.name in ("And", "Or"):
        every = any if (tree.name == "And") == truth else all
        return every(_rejects_null(child, truth, target) for child in tree.children)
    if tree.name in ("IsNotNull", "IsNull"):
        return (tree.name == "IsNotNull") == truth and any(passes_null(x, target, _STRICT) for x in tree.children)
    return passes_null(tree, target, _STRICT)


def _with_affixes(
    parts: Sequence[_Part], all_hold: bool, reader: _Reader
) -> tuple[list[_Part], list[tuple[_Part, Node]]]:
    """Take the parts out that Spark's optimiser makes of ``s LIKE 'a%b'``; return the others, and the patterns.

    They are ``length(s) >= 2 AND startswith(s, 'a') AND endswith(s, 'b')``, or the opposites joined by OR.
    """
    left, patterns = list(parts), list[tuple[_Part, Node]]()
    for length in parts:
        tested, size = _least_length(*length, all_hold)
        starts = [part for part in left if _is_affix(part, "StartsWith", tested, all_hold)]
        ends = [part for part in left if _is_affix(part, "EndsWith", tested, all_hold)]
        pair = next(((a, z) for a in starts for z in ends if len(_affix(a)) + len(_affix(z)) == size), None)
        if tested is None or pair is None or length not in left:
            continue
        pattern = canonical_pattern([_affix(pair[0]), ANY_STRING, _affix(pair[1])])
        try:
            found = simplified(like(e.text_argument(tested, reader), pattern, negated=not all_hold))
        except Unusable:
            continue
        patterns.append((pair[0], found))
        for part in (length, *pair):
            left.remove(part)
    return left, patterns


def _least_length(tree: Tree, truth: bool, all_hold: bool) -> tuple[Tree | None, int]:
    """The text that has at least so many letters (or, in a disjunction, fewer)."""
    wanted = "GreaterThanOrEqual" if truth == all_hold else "LessThan"
    if tree.name != wanted or len(tree.children) != 2:
        return None, 0
    length, size = tree.children
    if length.name != "Length" or len(length.children) != 1 or size.name != "Literal":
        return None, 0
    return length.children[0], whole_constant(size, tree)


def _is_affix(part: _Part, name: str, tested: Tree | None, all_hold: bool) -> bool:
    tree, truth = part
    is_one = tree.name == name and truth == all_hold and len(tree.children) == 2
    return is_one and tree.children[0] == tested and "\ufffd" not in _affix(part)


def _affix(part: _Part) -> str:
    """The constant of a test of a text's start or end; a letter that no such test is followed for, where it is none."""
    try:
        return text_constant(part[0].children[1], part[0])
    except Unusable:
        return "\ufffd"


def _without_null_test(tree: Tree) -> Tree | None:
    """The last operand of ``if(x IS NULL, NULL, f(x))``, which Spark makes of ``right(x, 2)``; None of others.

    In a condition NULL may have become FALSE.
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
    return _without_null_test(tree) is not None and tree.children[1].detail("value") is None


def _branches(choice: Tree) -> tuple[list[Tree], list[Tree]]:
    """The tests of a choice in their order, and the value that each leads to, last the one where none is TRUE."""
    if choice.name == "If":
        test, value, otherwise = choice.children
        return [test], [value, otherwise]
    given = list(choice.children)
    otherwise = given.pop() if len(given) % 2 else Tree("Literal", choice.type, (), {"value": None})
    return given[::2], [*given[1::2], otherwise]


def _replaced(tree: Tree, part: Tree, value: Tree) -> Tree:
    if tree == part:
        return value
    return tree._replace(children=tuple(_replaced(child, part, value) for child in tree.children))
