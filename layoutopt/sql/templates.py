"""Statements as templates: texts that differ in constants alone are parsed and resolved once.

A regular expression takes the constants out of a text. What is left, with the kind of each constant, is its template.
Of each template one text is analysed with stand-ins for its constants. A constant whose stand-in is found once in the
tree, in a condition, is bound: another text of the template sets it there, and only the condition is read again, by the
same reader as always, if it holds for a scan. All other constants (of LIMIT, intervals, columns of a select list) are a
part of the template.

Some texts of each template are analysed as a whole too, and where the results differ, the template is not used. A log's
texts only propose features; they never decide what is skipped. Everything about templates is in caches of limited size,
so a log of any length takes the same memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from sqlglot import exp

from layoutopt.model.feature import SessionSettings
from layoutopt.model.schema import Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.dialect import parse_statement
from layoutopt.sql.operands import Context, Operand
from layoutopt.sql.problems import StatementError, Unusable
from layoutopt.sql.query_blocks import PlacedCondition
from layoutopt.sql.scans import (
    ReadCondition,
    TableScan,
    build_scan,
    condition_context,
    find_scans,
    place_scans,
    read_condition,
)
from layoutopt.sql.scopes import FromItem

_ITEM: Final = re.compile(r"'[^'\\]*'|[0-9]+(?:\.[0-9]+)?(?![\w.])")
# Quoted names, comments, prefixed texts and texts with escapes stay in the template. Plain texts and numbers don't, nor
# do the lists of IN that have nothing else; only these have a named group. A search for a set of characters is fast, so
# what may begin a match comes first, and each case looks back at it.
_CONSTANT: Final = re.compile(
    rf"""["`/'\-0-9iI](?:
        (?<=-)-[^\r\n]* | (?<=/)\*.*?\*/ | (?<=`)[^`]*` | (?<=")(?:[^"\\]|\\.|"")*"
        | (?<=\w')(?:[^'\\]|\\.|'')*' | (?<=')[^'\\]*(?:\\.|'')(?:[^'\\]|\\.|'')*'
        | (?<=')(?P<text>)[^'\\]*'
        | (?<=[0-9])(?<![\w.$@:#?][0-9])(?P<number>)[0-9]*(?:\.[0-9]+)?(?![\w.])
        | (?<=[iI])(?<![\w.$@:#?][iI])[nN]\s*+
          (?P<list>\(\s*+(?:{_ITEM.pattern})\s*+(?:,\s*+(?:{_ITEM.pattern})\s*+)*+\))
    )""",
    re.DOTALL | re.VERBOSE,
)
_PLACE: Final = re.compile("\0[a-z]")
# A text that begins with a date keeps this form in its stand-in, as parsers look at it.
_DATE: Final = re.compile(r"\d{4}(-\d\d-\d\d.*)", re.DOTALL)
# The first of the numbers that stand in; of dates the first year.
_FIRST_NUMBER: Final = 7_340_001
_FIRST_YEAR: Final = 5_001
# A text with more constants is mostly values; it is analysed as it is.
_MOST_CONSTANTS: Final = 1_000
_MOST_TEMPLATES: Final = 2_000
_MOST_CONDITIONS: Final = 100_000
# Conditions with more characters in their constants, of long lists, are not kept.
_MOST_KEPT: Final = 2_000
# The first text of a template is analysed as a whole too, then each that is so many times as far on.
_CHECKED_AFTER: Final = 8
# A constant may be bound below one of these nodes, unless a query or a pivot is between.
_CONDITIONS: Final = (exp.Where, exp.Join, exp.Having, exp.Predicate)
# Of a node, where it stands in its text.
_POSITIONS: Final = frozenset({"line", "col", "start", "end"})


def take_constants(sql: str) -> tuple[str, list[str]]:
    """Return a text's skeleton, with the kind of each constant in its place, and the constants.

    >>> take_constants("SELECT a1 FROM t WHERE b >= -2.50 AND c IN ('x', 'it''s', '1994-01-01')")
    ("SELECT a1 FROM t WHERE b >= -\\x00f AND c IN (\\x00s, 'it''s', \\x00d)", ['2.50', "'x'", "'1994-01-01'"])
    >>> take_constants("SELECT a1 FROM t WHERE b IN (1, 2.5) AND c NOT IN ('x')")
    ('SELECT a1 FROM t WHERE b IN \\x00l AND c NOT IN \\x00l', ['(1, 2.5)', "('x')"])
    """
    constants: list[str] = []

    def take(match: re.Match[str]) -> str:
        text = match[0]
        if match.lastgroup is None:
            return text
        constant = match["list"] or text
        constants.append(constant)
        return f"{text.removesuffix(constant)}\0{_kind_of(constant)}"

    return _CONSTANT.sub(take, sql), constants


def _kind_of(constant: str) -> str:
    if constant[0] == "(":
        return "l"
    if constant[0] != "'":
        return "f" if "." in constant else "i"
    text = constant[1:-1]
    return "d" if _DATE.match(text) else "n" if text.isdecimal() else "s"


def _stand_in(constant: str, number: int) -> str:
    """Return another constant of the same kind, which no text has."""
    kind, value = _kind_of(constant), str(_FIRST_NUMBER + number)
    if kind == "l":
        return f"({_stand_in(_ITEM.findall(constant)[0], number)})"
    if kind == "d":
        return f"'{_FIRST_YEAR + number}{constant[5:]}"
    return {"i": value, "f": f"{value}.25", "n": f"'{value}'", "s": f"'constant {value}'"}[kind]


@dataclass(frozen=True)
class _Condition:
    """A condition of a scan.

    Attributes:
        meaning: equal for conditions, also of other templates, that are read alike with the same constants.
        slots: the nodes of its bound constants with their numbers in the text.
    """

    meaning: object
    placed: PlacedCondition = field(compare=False)
    item: FromItem = field(compare=False)
    slots: tuple[tuple[exp.Literal, int], ...] = field(compare=False)
    context: Context = field(compare=False)


@dataclass(eq=False)
class _Skeleton:
    """The numbers of the constants that are bound in texts of a skeleton; None as long as it is unknown."""

    bound: frozenset[int] | None = None


@dataclass(eq=False)
class _Template:
    """A skeleton with the constants that are not bound.

    Attributes:
        scans: its scans with their conditions; None as long as they are unknown.
        problem: the code and the detail of why its first text can't be analysed; None if it can, or is unknown.
        texts: how many texts were bound.
        next_check: the text, by this count, that is next analysed as a whole too.
        is_sound: whether all texts that were also analysed as a whole had the same scans.
    """

    scans: Sequence[tuple[FromItem, Sequence[_Condition]]] | None = None
    problem: tuple[str, str] | None = None
    texts: int = 0
    next_check: int = 1
    is_sound: bool = True

    def is_check_due(self) -> bool:
        """Count a text, and return whether it is to be analysed as a whole too."""
        self.texts += 1
        if self.texts < self.next_check:
            return False
        self.next_check *= _CHECKED_AFTER
        return True


class ScanFinder:
    """Finds the scans of a log's statements, as :func:`~layoutopt.sql.scans.find_scans` does but by templates.

    Scans have no spans. Of statements that can't be analysed, the problem's detail may be that of another text of the
    template. The arguments are those of ``find_scans``.
    """

    def __init__(
        self,
        tables: Mapping[str, Schema],
        settings: SessionSettings | None = None,
        udfs: Udfs = NO_UDFS,
        *,
        any_qualifier: bool = False,
    ) -> None:
        self._tables, self._settings, self._udfs = tables, settings or SessionSettings(), udfs
        self._any_qualifier = any_qualifier
        # By text and dialect; templates also by the constants that are not bound. New ones are empty.
        self._skeletons = lru_cache(_MOST_TEMPLATES)(lambda skeleton, dialect: _Skeleton())
        self._templates = lru_cache(_MOST_TEMPLATES)(lambda skeleton, dialect, fixed: _Template())
        self._meanings = lru_cache(_MOST_CONDITIONS)(lambda description: object())
        self._read = lru_cache(_MOST_CONDITIONS)(self._read_condition)

    def find(self, sql: str, dialect: str = "spark") -> list[TableScan]:
        """Return the scans of one statement; raises as ``find_scans``."""
        text, constants = take_constants(sql)
        template = self._find_template(sql, dialect, text, constants)
        if template is None:
            return self.find_whole(sql, dialect)
        assert template.scans is not None
        try:
            scans = self._bind(template.scans, constants)
        except RecursionError:
            return self.find_whole(sql, dialect)
        if template.is_check_due():
            whole = self.find_whole(sql, dialect)
            template.is_sound = whole == scans
            return whole
        return scans

    def _find_template(self, sql: str, dialect: str, text: str, constants: Sequence[str]) -> _Template | None:
        """Return a text's template, with its scans; None if the text must be analysed as a whole."""
        if len(constants) > _MOST_CONSTANTS or "\0" in sql:
            return None
        skeleton = self._skeletons(text, dialect)
        if skeleton.bound is None:
            skeleton.bound = _find_bound(text, dialect, constants)
        bound = skeleton.bound
        fixed = tuple([constant for number, constant in enumerate(constants) if number not in bound])
        template = self._templates(text, dialect, fixed)
        if template.problem is not None and not template.is_check_due():
            raise StatementError(*template.problem)
        if template.scans is None and template.is_sound:
            try:
                template.scans = self._place(text, dialect, constants, bound)
            except (StatementError, RecursionError) as error:
                if isinstance(error, StatementError) and not bound:
                    template.problem = error.code, error.detail
                else:
                    template.problem = self._find_problem(sql, dialect)
                template.is_sound = template.problem is not None
                if template.problem is not None:
                    raise StatementError(*template.problem) from None
        return template if template.is_sound else None

    def _find_problem(self, sql: str, dialect: str) -> tuple[str, str] | None:
        """Return the code and the detail of why a statement can't be analysed; None if it can."""
        try:
            self.find_whole(sql, dialect)
        except StatementError as problem:
            return problem.code, problem.detail
        return None

    def find_whole(self, sql: str, dialect: str = "spark") -> list[TableScan]:
        """Return the scans of one statement, which is analysed on its own; raises as ``find_scans``."""
        scans = find_scans(
            sql, self._tables, dialect, settings=self._settings, udfs=self._udfs, any_qualifier=self._any_qualifier
        )
        return [replace(scan, span=None) for scan in scans]

    def _place(
        self, skeleton: str, dialect: str, constants: Sequence[str], bound: frozenset[int]
    ) -> Sequence[tuple[FromItem, Sequence[_Condition]]]:
        stand_ins = {number: _stand_in(constants[number], number) for number in bound}
        text = _put_constants(skeleton, [stand_ins.get(number, constant) for number, constant in enumerate(constants)])
        numbers = {_literal_in(stand_in): number for number, stand_in in stand_ins.items()}
        tree = parse_statement(text, dialect).copy()  # it is changed, and parsed trees are shared
        placed = place_scans(tree, self._tables, self._any_qualifier)
        return [(item, [self._make_condition(part, item, numbers) for part in parts]) for item, parts in placed]

    def _make_condition(self, placed: PlacedCondition, item: FromItem, numbers: Mapping[str, int]) -> _Condition:
        """Return a condition whose parts without bound constants are read once."""
        slots = _find_slots(placed, numbers)
        context = condition_context(placed, item, self._settings, self._udfs)
        changing = {id(node) for literal, _ in slots for node in (literal, *_ancestors(literal))}
        known: dict[int, Operand | None] = {
            id(node): None for node in placed.condition.walk() if id(node) not in changing
        }
        # A nested query, and what a function implies, may name columns that are not the condition's own.
        is_own = placed.condition.find(exp.Query) is None and not any(udf.implies for udf in self._udfs.values())
        meaning = self._meanings(_describe(placed, item, slots, context)) if is_own else object()
        return _Condition(meaning, placed, item, slots, replace(context, known=known))

    def _bind(
        self, scans: Sequence[tuple[FromItem, Sequence[_Condition]]], constants: Sequence[str]
    ) -> list[TableScan]:
        return [
            build_scan(
                item,
                [self._read_bound(part, tuple([constants[number] for _, number in part.slots])) for part in conditions],
                has_span=False,
            )
            for item, conditions in scans
        ]

    def _read_bound(self, condition: _Condition, constants: tuple[str, ...]) -> ReadCondition:
        read = self._read if sum(map(len, constants)) <= _MOST_KEPT else self._read_condition
        return read(condition, constants)

    def _read_condition(self, condition: _Condition, constants: tuple[str, ...]) -> ReadCondition:
        for (literal, _), constant in zip(condition.slots, constants, strict=True):
            if constant[0] == "(":
                assert literal.parent is not None  # it stays the IN when other literals have taken the place
                literal.parent.set("expressions", list(map(_make_literal, _ITEM.findall(constant))))
            else:
                literal.set("this", constant[1:-1] if constant[0] == "'" else constant)
        return read_condition(condition.placed, condition.item, condition.context)


def _describe(
    placed: PlacedCondition, item: FromItem, slots: Sequence[tuple[exp.Literal, int]], context: Context
) -> tuple[object, ...]:
    """Return all that :func:`~layoutopt.sql.scans.read_condition` depends on, but the constants in slots."""
    nodes = list(placed.condition.walk())
    places = {id(node): place for place, node in enumerate(nodes)}
    bound = {id(literal) for literal, _ in slots}
    described = [
        (type(node), places.get(id(node.parent)), node.arg_key, node.index, *_describe_node(node, id(node) in bound))
        for node in nodes
    ]
    columns = [_resolve(node, context) for node in nodes if isinstance(node, exp.Column)]
    inference = placed.is_inferred, placed.crosses_types
    return placed.mode, inference, placed.items == {item}, item.frozen, tuple(described), tuple(columns)


def _describe_node(node: exp.Expr, is_bound: bool) -> tuple[str, str, str]:
    """Return a node's own values; nodes below it are left out, and the value of a bound literal."""
    values = {
        name: [part for part in value if not isinstance(part, exp.Expr)] if isinstance(value, list) else value
        for name, value in node.args.items()
        if not isinstance(value, exp.Expr) and not (is_bound and name == "this")
    }
    meta = {name: value for name, value in node.meta.items() if name not in _POSITIONS}
    return repr(values), repr(meta), repr(node.comments)


def _resolve(column: exp.Column, context: Context) -> object:
    try:
        return context.resolve(column)
    except Unusable as problem:
        return problem.code, problem.detail


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _find_bound(skeleton: str, dialect: str, constants: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the constants whose stand-in is one literal of the tree, in a condition.

    That of a list is the only one in its IN.
    """
    stand_ins = [_stand_in(constant, number) for number, constant in enumerate(constants)]
    try:
        tree = parse_statement(_put_constants(skeleton, stand_ins), dialect)
    except StatementError:
        return frozenset()
    found: dict[str, list[exp.Literal]] = {}
    for literal in tree.find_all(exp.Literal):
        found.setdefault(_text_of(literal), []).append(literal)
    return frozenset(
        number
        for number, stand_in in enumerate(stand_ins)
        if len(literals := found.get(_literal_in(stand_in), [])) == 1
        and isinstance(literals[0].find_ancestor(*_CONDITIONS, exp.Query, exp.Pivot), _CONDITIONS)
        and (stand_in[0] != "(" or _is_only_item(literals[0]))
    )


def _is_only_item(literal: exp.Literal) -> bool:
    return isinstance(literal.parent, exp.In) and literal.parent.expressions == [literal]


def _literal_in(stand_in: str) -> str:
    """Return the text of a stand-in's literal."""
    return stand_in[1:-1] if stand_in[0] == "(" else stand_in


def _make_literal(constant: str) -> exp.Expr:
    return exp.Literal.string(constant[1:-1]) if constant[0] == "'" else exp.Literal.number(constant)


def _put_constants(skeleton: str, constants: Sequence[str]) -> str:
    values = iter(constants)
    return _PLACE.sub(lambda _: next(values), skeleton)


def _find_slots(placed: PlacedCondition, numbers: Mapping[str, int]) -> tuple[tuple[exp.Literal, int], ...]:
    literals = [(literal, numbers.get(_text_of(literal))) for literal in placed.condition.find_all(exp.Literal)]
    return tuple((literal, number) for literal, number in literals if number is not None)


def _text_of(literal: exp.Literal) -> str:
    return f"'{literal.this}'" if literal.is_string else str(literal.this)
