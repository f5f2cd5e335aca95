"""Translate Iceberg's JSON filters into conditions that are sound for every reader.

A condition holds for each row for which some reader may evaluate the filter to TRUE. Readers differ. For NULL,
``x != 5`` is TRUE in Iceberg's Java evaluator and NULL in SQL. For NaN, ``x > 5`` is TRUE in Spark and FALSE in Arrow,
and ``NOT (x < 5)`` is the reverse. Negated comparisons therefore hold for NULL and NaN, unless the column has none.
Unsupported expressions (transforms, struct fields, unknown types) are TRUE.

Engines also differ in literals that a column can't represent: 0.1 for a 32-bit float, too many digits, -0.0. Such a
literal becomes a range of all its possible meanings; see :class:`LiteralPosition`.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from layoutopt.errors import QueryError
from layoutopt.model.predicates import FALSE, TRUE, Col, InSet, Node, conjunction, disjunction
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import NAN_KEY, Key, ValueSet, key_kind, successor, to_key
from layoutopt.model.values.keys import exact_number, float_key
from layoutopt.sql.types import normal_type

# A value of ``json.loads``.
Json = Any
# The comparisons of one filter that are evaluated; the rest counts as TRUE.
MOST_LITERALS: Final = 1_000
# The values of a list that are evaluated one by one; of longer lists, the minimum and maximum are used.
_MOST_VALUES: Final = 10_000
_OPPOSITE: Final = MappingProxyType(
    {
        "lt": "gt-eq", "lt-eq": "gt", "gt": "lt-eq", "gt-eq": "lt", "eq": "not-eq", "not-eq": "eq", "in": "not-in",
        "not-in": "in", "starts-with": "not-starts-with", "not-starts-with": "starts-with", "is-null": "not-null",
        "not-null": "is-null", "is-nan": "not-nan", "not-nan": "is-nan",
    }
)  # fmt: skip
_CONNECTIVES: Final = MappingProxyType({"and": "or", "or": "and"})
_NULL_TOO: Final = frozenset({"not-eq", "not-in", "not-starts-with", "not-nan"})
_CONSTANTS: Final[Mapping[object, bool]] = MappingProxyType({True: True, False: False, "true": True, "false": False})

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?\d{1,80}(?:\.\d{0,80})?(?:[eE][+-]?\d{1,4})?", re.ASCII)


@dataclass(frozen=True)
class LiteralPosition:
    """The position of a literal among the keys of its column's type.

    Attributes:
        low, high: the smallest and largest key that it may mean, both included.
        none_below, none_above: whether no reader orders a value with one of these keys below, or above, the literal.
    """

    low: Key
    high: Key
    none_below: bool = True
    none_above: bool = True

    @property
    def exact(self) -> bool:
        """Whether every reader maps the literal to one key and treats values of that key as equal to it."""
        return self.none_below and self.none_above


def literal_keys(value: object, type: str) -> LiteralPosition | None:
    """Return the keys of a JSON literal for a column of a Spark type, or None if unknown.

    Numbers beyond the type's range have keys beyond its domain, which compare correctly.

    >>> date, decimal = literal_keys("2024-02-29", "date"), literal_keys(1.005, "decimal(9,2)")
    >>> (date.low, date.high, date.exact), (decimal.low, decimal.high, decimal.exact)
    ((19782, 19782, True), (100, 101, False))
    >>> literal_keys("soon", "date") is None
    True
    """
    if isinstance(value, bool):
        return LiteralPosition(int(value), int(value)) if type == "boolean" else None
    if type in INTEGER_BITS:
        return LiteralPosition(value, value) if isinstance(value, int) else None
    if type in ("float", "double"):
        return _float_keys(value, type)
    digits = decimal_digits(type)
    if digits:
        return _decimal_keys(value, digits[1])
    if type in ("date", "timestamp", "timestamp_ntz"):
        return _time_keys(value, type)
    if isinstance(value, str) and key_kind(type) in ("str", "bytes"):
        return _text_keys(value, type)
    return None


def _number(value: object) -> int | float | Decimal | None:
    try:
        if isinstance(value, str):
            return Decimal(value) if _NUMBER.fullmatch(value) else None
    except InvalidOperation:
        return None
    return value if isinstance(value, int | float | Decimal) else None


def _float_keys(value: object, type: str) -> LiteralPosition | None:
    number = _number(value)
    if number is None:
        return None
    exact = Decimal(number)
    double = float(exact)
    if math.isnan(double) or (isinstance(value, int) and double != value):
        return None
    with np.errstate(over="ignore", under="ignore"):
        nearest = float(np.float32(double)) if type == "float" else double
    candidates = [double, nearest]
    if type == "float" and Decimal(double) != exact:  # a string may be rounded to float directly
        candidates += [float(np.nextafter(np.float32(nearest), np.float32(end))) for end in (-math.inf, math.inf)]
    low, high = min(map(float_key, candidates)), max(map(float_key, candidates))
    is_exact = low == high and Decimal(double) == exact  # some readers order 0.1 below its nearest double
    # The format orders -0.0 before 0.0, which have one key; not all readers keep the sign of a string.
    is_zero, is_negative = double == 0, math.copysign(1, double) < 0
    is_exact = is_exact and not (is_zero and isinstance(value, str))
    return LiteralPosition(
        low, high, is_exact and (not is_zero or is_negative), is_exact and not (is_zero and is_negative)
    )


def _decimal_keys(value: object, scale: int) -> LiteralPosition | None:
    number = _number(value)
    exact = None if number is None else exact_number(number)
    if exact is None:
        return None
    scaled = exact * 10**scale
    # Readers use a float literal's shortest text or its exact value, and round more digits differently.
    is_exact = scaled.denominator == 1
    return LiteralPosition(math.floor(scaled), math.ceil(scaled), is_exact, is_exact)


def _time_keys(value: object, type: str) -> LiteralPosition | None:
    if isinstance(value, int):  # days or microseconds since 1970
        return LiteralPosition(value, value)
    if not isinstance(value, str):
        return None
    zone = _TIME.fullmatch(value)
    try:
        if type == "date":
            key = to_key(dt.date.fromisoformat(value), type) if _DATE.fullmatch(value) else None
        elif zone is None or (type == "timestamp_ntz" and zone[1]):
            return None
        else:
            moment = dt.datetime.fromisoformat(value)
            # pyiceberg writes instants without their zone, which is UTC.
            utc = dt.UTC if type == "timestamp" and not zone[1] else moment.tzinfo
            key = to_key(moment.replace(tzinfo=utc), type)
    except ValueError:
        return None
    return None if key is None else LiteralPosition(key, key)


def _text_keys(value: str, type: str) -> LiteralPosition | None:
    if key_kind(type) == "bytes":
        if not _HEX.fullmatch(value):
            return None
        return LiteralPosition(bytes.fromhex(value), bytes.fromhex(value))
    try:
        key = to_key(value, type)
    except ValueError:  # half of a surrogate pair
        return None
    return LiteralPosition(key, key)


@dataclass(frozen=True)
class FilterTarget:
    """The table that filters are about.

    Attributes:
        columns: by name.
        may_be_null, may_be_nan: whether a column may have a NULL, or a NaN.
        unjudged: columns whose comparisons are TRUE, because readers interpret the literals differently.
    """

    columns: Mapping[str, Column]
    may_be_null: Callable[[str], bool] = lambda name: True
    may_be_nan: Callable[[str], bool] = lambda name: True
    unjudged: frozenset[str] = frozenset()

    def column(self, name: str, case_sensitive: bool) -> Column | None:
        """Return the column of a name; None for a field of a struct.

        Raises:
            QueryError: there is neither.
        """
        if name in self.columns:
            return self.columns[name]
        folded = {} if case_sensitive else {known.lower(): column for known, column in self.columns.items()}
        if name.lower() in folded:
            return folded[name.lower()]
        outer = name.partition(".")[0]
        if outer != name and (outer in self.columns or outer.lower() in folded):
            return None
        raise QueryError(f"the filter names {name!r:.80}, which is no column of the table; use one of its columns")


def to_condition(filter: Json, target: FilterTarget, *, case_sensitive: bool = True, deepest: int = 200) -> Node:
    """Return a condition that holds for every row for which some reader evaluates the filter to TRUE.

    Args:
        filter: Iceberg's expression as JSON, or None.
        target: the table's columns.
        case_sensitive: whether column names are case-sensitive.
        deepest: the largest nesting depth.

    Raises:
        QueryError: the filter is no expression, is nested too deep, or names an unknown column.
    """
    if filter is None:
        return TRUE
    return _Translation(target, case_sensitive, deepest).node(filter, False, 0)


def to_residual(filter: Json) -> Json:
    """Return the filter that readers still have to apply to a file's rows: the filter itself.

    Some clients write infinities and NaN as null, which no client can parse. Then the result is a filter that is always
    TRUE, but that no client treats as "every row matches".
    """
    if filter is None:
        return True
    if _is_readable(filter):
        return filter
    column = next(columns_in(filter), None)
    return filter if column is None else _always(column)


def residual_without(residual: Json, columns: Collection[str]) -> Json:
    """Return a residual that avoids comparisons of columns that a file lacks.

    Some readers treat a missing column as NULL when they skip row groups. All of them apply the whole filter to rows,
    with the partition values of missing columns.

    Args:
        residual: a result of :func:`to_residual`.
        columns: in lower case.
    """
    named = next((term for term in columns_in(residual) if term.lower() in columns), None)
    if named is None:
        return residual
    if residual.get("type") != "and":
        return _always(named)
    return {**residual, **{side: residual_without(residual.get(side), columns) for side in ("left", "right")}}


def _always(column: str) -> Json:
    return {"type": "or", "left": {"type": "is-null", "term": column}, "right": {"type": "not-null", "term": column}}


@dataclass
class _Translation:
    target: FilterTarget
    case_sensitive: bool
    deepest: int
    literals: int = field(default=0, init=False)

    def node(self, filter: Json, negated: bool, depth: int) -> Node:
        if isinstance(filter, bool | str) and filter in _CONSTANTS:
            return FALSE if _CONSTANTS[filter] == negated else TRUE
        kind = _kind(filter)
        if depth > self.deepest:
            raise QueryError(f"the filter is nested deeper than {self.deepest} expressions; flatten it")
        if kind in _CONSTANTS:
            return FALSE if _CONSTANTS[kind] == negated else TRUE
        if kind == "not":
            return self.node(_part(filter, "child"), not negated, depth + 1)
        if kind in _CONNECTIVES:
            join = conjunction if (kind == "and") != negated else disjunction
            return join([self.node(part, negated, depth + below) for part, below in _operands(filter, kind)])
        self.literals += 1
        return self._literal(filter, kind, negated) if kind in _OPPOSITE else TRUE

    def _literal(self, filter: Mapping[str, Json], kind: str, negated: bool) -> Node:
        name = _reference(_part(filter, "term"))
        column = None if name is None else self.target.column(name, self.case_sensitive)
        if column is None or column.name in self.target.unjudged or self.literals > MOST_LITERALS:
            return TRUE
        wanted = _OPPOSITE[kind] if negated else kind
        subject = Col(column.name, normal_type(column.type))
        may_be_null = self.target.may_be_null(column.name)
        if wanted in ("is-null", "not-null"):
            if wanted == "is-null":
                return InSet(subject, ValueSet.empty(), null=True) if may_be_null else FALSE
            return InSet(subject, ValueSet.all())
        values = _values(filter, wanted, column.type)
        if values is None:
            return TRUE
        if negated and column.type in ("float", "double") and self.target.may_be_nan(column.name):
            values = values.union(ValueSet.point(NAN_KEY))
        null = may_be_null and (negated or wanted in _NULL_TOO)
        return conjunction([InSet(subject, values, null)])


def _kind(filter: Json) -> str:
    kind = filter.get("type") if isinstance(filter, Mapping) else None
    if not isinstance(kind, str):
        raise QueryError(f"{_short(filter)} is no expression of Iceberg's; send an object with a type")
    return kind.lower().replace("_", "-")


def _part(filter: Mapping[str, Json], name: str) -> Json:
    if filter.get(name) is None:
        raise QueryError(f"the expression {_short(filter)} has no {name!r}; send one")
    return filter[name]


def _operands(filter: Mapping[str, Json], kind: str) -> Iterator[tuple[Json, int]]:
    """Yield an AND's or OR's operands in order, through nested ones of the same kind, with their extra depth."""
    waiting = [(filter, 0)]
    while waiting:
        part, below = waiting.pop()
        if isinstance(part, Mapping) and part.get("type") == filter["type"]:
            waiting += [(_part(part, "right"), below + 1), (_part(part, "left"), below + 1)]
        else:
            yield part, below


def _reference(term: Json) -> str | None:
    if isinstance(term, str):
        return term
    if not isinstance(term, Mapping):
        raise QueryError(f"{_short(term)} is no term of Iceberg's; send the name of a column")
    name = term.get("term")
    return name if term.get("type") == "reference" and isinstance(name, str) else None


def _values(filter: Mapping[str, Json], kind: str, type: str) -> ValueSet | None:
    """Return the values for which a literal holds for some reader (NaN ordered as in Spark), or None if unknown."""
    if kind in ("is-nan", "not-nan"):
        nan = ValueSet.point(NAN_KEY)
        return (nan if kind == "is-nan" else nan.complement()) if type in ("float", "double") else None
    if kind in ("starts-with", "not-starts-with"):
        return _match_prefix(_literal_value(_part(filter, "value")), kind, type)
    if kind in ("in", "not-in"):
        values = _part(filter, "values")
        if not isinstance(values, list):
            raise QueryError(f"the values of {_short(filter)} are no list; send one")
        return _match_list([literal_keys(_literal_value(value), type) for value in values], kind, type)
    keys = literal_keys(_literal_value(filter.get("value")), type)
    return None if keys is None or key_kind(type) is None else _compare(keys, kind)


def _literal_value(value: Json) -> Json:
    return value.get("value") if isinstance(value, Mapping) and value.get("type") == "literal" else value


def _match_prefix(text: Json, kind: str, type: str) -> ValueSet | None:
    if key_kind(type) != "str" or not isinstance(text, str) or literal_keys(text, type) is None:
        return None
    values = ValueSet.prefix(text)
    return values if kind == "starts-with" else values.complement()


def _match_list(keys: list[LiteralPosition | None], kind: str, type: str) -> ValueSet | None:
    known = [key for key in keys if key is not None]
    if len(known) < len(keys):
        return None
    if len(known) > _MOST_VALUES:
        lows, highs = [key.low for key in known], [key.high for key in known]
        return ValueSet.interval(min(lows), successor(max(highs))) if kind == "in" else None
    exact = ValueSet.of(key.low for key in known if key.exact)
    rounded = ValueSet.normalised(((key.low, successor(key.high)) for key in known if not key.exact), type)
    # Some readers round another literal to a listed value.
    return exact.union(rounded) if kind == "in" else exact.complement().union(rounded)


def _compare(keys: LiteralPosition, kind: str) -> ValueSet:
    low, high = keys.low, keys.high
    match kind:
        case "eq":
            return ValueSet.interval(low, successor(high))
        case "not-eq":
            return ValueSet.point(low).complement() if keys.exact else ValueSet.all()
        case "lt":
            return ValueSet.interval(None, low if keys.none_below else successor(high))
        case "lt-eq":
            return ValueSet.interval(None, successor(high))
        case "gt":
            return ValueSet.interval(successor(high) if keys.none_above else low, None)
        case _:
            return ValueSet.interval(low, None)


def _is_readable(filter: Json) -> bool:
    if isinstance(filter, Mapping):
        return all(map(_is_readable, filter.values()))
    if isinstance(filter, list):
        return all(map(_is_readable, filter))
    return filter is not None and not (isinstance(filter, float) and not math.isfinite(filter))


def columns_in(filter: Json) -> Iterator[str]:
    """Yield the columns that a filter names."""
    if isinstance(filter, Mapping):
        for name, part in filter.items():
            if name == "term" and isinstance(part, str):
                yield part
            else:
                yield from columns_in(part)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
