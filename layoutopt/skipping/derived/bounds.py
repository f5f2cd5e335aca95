"""Bounds of a function's values in every block, from bounds of the columns that it reads (Edara 2021, 5.3.6 and 5.3.7).

Soundness: every value of the function that is not NULL has its key between the derived bounds, as for columns; the
counts of NULLs are exact or unknown. So the rules for columns (:mod:`layoutopt.skipping.zone_maps`) hold for functions
as they stand. A function that is not in :data:`FUNCTIONS`, or an argument without bounds, has none.

Functions are those of filters, which fail on no row: a value that can't be computed is NULL, which no literal is TRUE
of but IS NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.model.arrays import Ints
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import key_kind
from layoutopt.skipping.block_statistics import UNKNOWN_NULLS, BlockStatistics, ColumnBounds
from layoutopt.skipping.derived import decimals, moved, numbers, texts, times
from layoutopt.skipping.derived.moved import is_interval
from layoutopt.skipping.derived.ranges import FLOATS, Range, has_int_keys, limits

Rule = Callable[[Call, Sequence[Range]], Range | None]
_DEEPEST: Final = 16
_INT_MOST: Final = limits("int")[1]
# Derived bounds of so many functions are kept.
_MOST_KEPT: Final = 32


@dataclass(frozen=True)
class Function:
    """What is known of a function.

    Attributes:
        rule: the range of its values, from those of its arguments; None where nothing is known.
        takes: of what kind each argument is, by :data:`_KINDS`; of a call with others, which only a damaged document
            has, nothing is known. None: the rule looks at none.
        total: whether it is NULL only where an argument is.
        optional: how many of the last arguments may be left out.
    """

    rule: Rule
    takes: tuple[str, ...] | None = None
    total: bool = False
    optional: int = 0

    def fits(self, args: Sequence[ColumnBounds]) -> bool:
        """Whether arguments are those that it takes."""
        if self.takes is None:
            return True
        enough = len(self.takes) - self.optional <= len(args) <= len(self.takes)
        return enough and all(_KINDS[kind](arg.type) for kind, arg in zip(self.takes, args, strict=False))


def bounds_of(expr: Expr, statistics: BlockStatistics) -> ColumnBounds | None:
    """What is known of an expression in each block; None where nothing is."""
    if isinstance(expr, Col):
        bounds = statistics.bounds.get(expr.name)
        return bounds if bounds is not None and bounds.type == expr.type else None
    if isinstance(expr, Const) or not expr.columns:
        return None
    kept = statistics.derived
    if expr not in kept:
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        kept[expr] = _derived(expr, statistics, 0)
    return kept[expr]


def _of(expr: Expr, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    if isinstance(expr, Const):
        return _constant(expr, statistics.n, statistics.rows)
    return _derived(expr, statistics, depth + 1) if isinstance(expr, Call) else bounds_of(expr, statistics)


def _derived(call: Call, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    # A boolean function may be the user's own, whatever it is called.
    function = FUNCTIONS.get(call.fn) if call.type != "boolean" or call.fn == "rlike" else None
    if depth > _DEEPEST or (function is None and call.fn not in _OF_SEVERAL):
        return None
    if call.fn == "try_add" and any(map(is_interval, call.args)):
        function = _BY_INTERVAL
    args = [_of(arg, statistics, depth) for arg in call.args if not is_interval(arg)]
    if function is None:
        return _OF_SEVERAL[call.fn](call, args, statistics)
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args) or not function.fits(known):
        return None
    found = function.rule(call, [_range(arg) for arg in known])
    if found is None:
        return _without_range(call, _nulls(function, known, statistics.rows), statistics.n)
    nulls = _nulls(function, known, statistics.rows)
    usable = found.known & (nulls != statistics.rows)
    return ColumnBounds(found.low, found.high, usable, nulls, call.type)


def _range(of: ColumnBounds) -> Range:
    """Bounds as a range; whatever stands where they are not known becomes harmless."""
    if of.low.dtype == np.int64:
        return Range(np.where(of.known, of.low, 0), np.where(of.known, of.high, 0), of.known, of.type)
    return Range(of.low, of.high, of.known, of.type)


def _nulls(function: Function, args: Sequence[ColumnBounds], rows: Ints) -> Ints:
    """How many values are NULL: all where all of an argument's are, and else what is known of a total function."""
    counts = np.array([arg.nulls for arg in args])
    nulls = np.full(len(rows), UNKNOWN_NULLS, dtype=np.int64)
    if function.total:
        # Of several arguments nobody knows whether they are NULL in the same rows.
        others = np.sort(counts, axis=0)[:-1]
        alone = (counts >= 0).all(axis=0) & (others == 0).all(axis=0)
        nulls[alone] = counts.max(axis=0)[alone]
    only_nulls = (counts == rows).any(axis=0)
    nulls[only_nulls] = rows[only_nulls]
    return nulls


def _without_range(call: Call, nulls: Ints, n: int) -> ColumnBounds:
    zeros = np.zeros(n, dtype=np.int64)
    return ColumnBounds(zeros, zeros, np.zeros(n, dtype=np.bool_), nulls, call.type)


def _constant(const: Const, n: int, rows: Ints) -> ColumnBounds | None:
    if const.value is None:
        return _without_range(Call("null", (), const.type), rows.copy(), n)
    nulls = np.zeros(n, dtype=np.int64)
    ends = np.empty(n, dtype=np.int64 if has_int_keys(const.type) else np.object_)
    ends[:] = const.value
    return ColumnBounds(ends, ends, np.ones(n, dtype=np.bool_), nulls, const.type)


def _coalesced(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """The first argument that is not NULL: within the hull of those up to the first that never is."""
    if not args or not has_int_keys(call.type) or any(arg is None or arg.type != call.type for arg in args):
        return None
    rows, n = statistics.rows, statistics.n
    open_, known = np.ones(n, np.bool_), np.ones(n, np.bool_)
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    for arg in args:
        assert arg is not None, "looked at above"
        asked = open_ & (arg.nulls != rows)  # where all of it is NULL it gives nothing
        known &= ~asked | arg.known
        low, high = np.where(asked, np.minimum(low, arg.low), low), np.where(asked, np.maximum(high, arg.high), high)
        open_ = open_ & (arg.nulls != 0)
    counts = np.array([arg.nulls for arg in args if arg is not None])
    nulls = np.where((counts == 0).any(axis=0), 0, UNKNOWN_NULLS)
    nulls = np.where((counts == rows).all(axis=0), rows, nulls)
    return ColumnBounds(low, high, known & (low <= high), nulls.astype(np.int64), call.type)


def _extreme(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """``greatest`` or ``least`` of the arguments that are not NULL."""
    if not args or not has_int_keys(call.type) or any(arg is None or arg.type != call.type for arg in args):
        return None
    rows, n, turn = statistics.rows, statistics.n, 1 if call.fn == "greatest" else -1
    # As if of greatest: the keys of least are turned round, and so are its ends.
    given = [arg for arg in args if arg is not None]
    asked = [arg.nulls != rows for arg in given]
    ends = [(arg.low, arg.high) if turn > 0 else (~arg.high, ~arg.low) for arg in given]
    smallest = np.iinfo(np.int64).min
    high = np.max([np.where(some, end, smallest) for some, (_, end) in zip(asked, ends, strict=True)], axis=0)
    hull = np.min([np.where(some, end, ~smallest) for some, (end, _) in zip(asked, ends, strict=True)], axis=0)
    always = [np.where(arg.nulls == 0, end, smallest) for arg, (end, _) in zip(given, ends, strict=True)]
    low = np.maximum(hull, np.max(always, axis=0))
    known = np.logical_and.reduce([~some | arg.known for some, arg in zip(asked, given, strict=True)])
    counts = np.array([arg.nulls for arg in given])
    nulls = np.where((counts == 0).any(axis=0), 0, UNKNOWN_NULLS)
    nulls = np.where((counts == rows).all(axis=0), rows, nulls).astype(np.int64)
    known &= np.logical_or.reduce(asked) & np.ones(n, np.bool_)
    low, high = (low, high) if turn > 0 else (~high, ~low)
    return ColumnBounds(np.where(known, low, 0), np.where(known, high, 0), known, nulls, call.type)


def _arithmetic(of: Callable[[Range, Range, str], Range | None], call: Call, args: Sequence[Range]) -> Range | None:
    if decimal_digits(call.type) is not None:
        if call.fn == "try_divide":
            return decimals.divided(args[0], args[1], call.type)
        sign = _EXACT_SIGNS.get(call.fn)
        return None if sign is None else decimals.exact(sign, args[0], args[1], call.type)
    return of(args[0], args[1], call.type) if _KINDS["number"](call.type) else None


def _rounded(call: Call, args: Sequence[Range]) -> Range | None:
    places = call.args[1].value if isinstance(call.args[1], Const) else None
    return decimals.rounded(args[0], places, call.type) if isinstance(places, int) and 0 <= places <= 30 else None


def _cast(call: Call, args: Sequence[Range]) -> Range | None:
    (given,) = args
    if given.type == call.type:
        return given
    if {given.type, call.type} <= _TIMES:
        return times.cast_time(given, call.type)
    if given.type in _TIMES | {"boolean"} or call.type in _TIMES | {"boolean"} or key_kind(given.type) != "int":
        return None
    return numbers.cast_number(given, call.type)


def _truncated(place: int, of: Callable[[Range, str], Range | None], call: Call, args: Sequence[Range]) -> Range | None:
    unit = call.args[place]
    known = isinstance(unit, Const) and isinstance(unit.value, str)
    return of(args[1 - place], str(unit.value)) if known and isinstance(unit, Const) else None


def _left(call: Call, args: Sequence[Range]) -> Range | None:
    length = call.args[1]
    if not isinstance(length, Const) or not isinstance(length.value, int):
        return None
    return texts.beginning(args[0], length.value)


def _substring(call: Call, args: Sequence[Range]) -> Range | None:
    length = texts.substring_length(call.args)
    return None if length is None else texts.beginning(args[0], length)


def _concat(call: Call, args: Sequence[Range]) -> Range | None:
    first = call.args[0]
    if len(args) != 2 or args[1].type != "string" or not isinstance(first, Const) or not isinstance(first.value, str):
        return None
    return texts.preceded(first.value, args[1])


def _of_date(call: Call, args: Sequence[Range]) -> Range | None:
    return times.date_part(args[0], call.fn)


def _is_number(type: str) -> bool:
    return type in FLOATS or type in INTEGER_BITS or decimal_digits(type) is not None


_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_DATE_PARTS: Final = ("year", "quarter", "month", "weekofyear", "day", "dayofyear", "dayofweek")

_KINDS: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "number": lambda type: (
            type in FLOATS or type in INTEGER_BITS or (bool(decimal_digits(type)) and has_int_keys(type))
        ),
        "date": lambda type: type == "date",
        "time": lambda type: type in _TIMES,
        "text": lambda type: type == "string",
        "int": lambda type: type == "int",
    }
)

_EXACT_SIGNS: Final = MappingProxyType({"try_add": "+", "try_subtract": "-", "try_multiply": "*"})
_OF_SEVERAL: Final = MappingProxyType({"coalesce": _coalesced, "greatest": _extreme, "least": _extreme})
_BY_INTERVAL: Final = Function(lambda call, args: moved.by_interval(call, args[0]), ("time",))

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {
        "try_add": Function(partial(_arithmetic, numbers.added), ("number", "number")),
        "try_subtract": Function(partial(_arithmetic, numbers.subtracted), ("number", "number")),
        "try_multiply": Function(partial(_arithmetic, numbers.multiplied), ("number", "number")),
        "try_divide": Function(partial(_arithmetic, numbers.divided), ("number", "number")),
        "try_mod": Function(partial(_arithmetic, numbers.remainder), ("number", "number")),
        "try_cast": Function(_cast),
        "abs": Function(lambda call, args: numbers.absolute(args[0], call.type), ("number",)),
        "sqrt": Function(lambda call, args: numbers.square_root(args[0], call.type), ("number",), total=True),
        "floor": Function(lambda call, args: decimals.floored(args[0], False, call.type), ("number",), total=True),
        "ceil": Function(lambda call, args: decimals.floored(args[0], True, call.type), ("number",), total=True),
        "round": Function(_rounded, ("number", "int"), total=True),
        "date_add": Function(lambda call, args: moved.by_days(call, args[0]), ("date", "int"), total=True),
        "trunc": Function(partial(_truncated, 1, times.truncated_date), ("date", "text")),
        "date_trunc": Function(partial(_truncated, 0, times.truncated_timestamp), ("text", "time")),
        "last_day": Function(lambda call, args: times.last_day(args[0]), ("date",), total=True),
        "datediff": Function(lambda call, args: times.days_between(args[0], args[1]), ("date", "date"), total=True),
        **{name: Function(_of_date, ("date",), total=True) for name in _DATE_PARTS},
        **{name: Function(lambda call, args: times.clock_part(args[0], call.fn), ("time",), total=True)
           for name in ("hour", "minute", "second")},
        "levenshtein": Function(lambda call, args: times.constant_range(0, _INT_MOST, args[0]), ("text", "text"), True),
        "left": Function(_left, ("text", "int"), total=True),
        "substring": Function(_substring, ("text", "int", "int"), total=True, optional=1),
        "concat": Function(_concat, total=True),
        # Of these only NULLs are known: they don't keep the order of texts.
        **{name: Function(lambda call, args: None, total=True)
           for name in ("lower", "upper", "reverse", "trim", "ltrim", "rtrim", "length", "instr", "right", "rlike",
                        "split_part", "substring_index", "regexp_extract")},
        **{name: Function(lambda call, args: None)
            for name in ("get_json_object", "try_variant_get", "array_max", "array_min")},
    }
)  # fmt: skip
"""Functions by their Spark names, with what is known of each; ``coalesce`` has a rule of its own."""
