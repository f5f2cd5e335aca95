"""Bounds of functions from bounds of their arguments: falsifiable expressions (Edara 2021, 5.3).

Soundness: every value of the function that is not NULL has its key between the derived bounds, as for columns; counts
of NULLs are exact or unknown. So the rules for columns (:mod:`layoutopt.skipping.zone_maps`) hold for functions, too.
Rules are in the functions' records (:mod:`layoutopt.functions.registry`). A function without a rule, or with an
argument without bounds, has no bounds.

Filters contain only functions that fail on no row: a value that can't be computed is NULL, for which only IS NULL is
TRUE.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.functions.dates import SHIFT, is_interval
from layoutopt.functions.function import Function
from layoutopt.functions.ranges import Range, has_int_keys
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.arrays import Bits, Ints, Keys
from layoutopt.model.predicates import Call, Col, Const, Expr, InSet, Opaque
from layoutopt.model.values import Key, ValueSet, key_kind
from layoutopt.skipping.block_statistics import UNKNOWN_NULLS, BlockStatistics, ColumnBounds

_OPTIONAL_QUANTIFIERS: Final = "*?{"
_SPECIAL: Final = ".^$+()[]\\}"


def implied_prefix(literal: InSet) -> InSet | None:
    """Return the prefix condition that ``text RLIKE '^prefix...'`` being TRUE implies; None for any other literal."""
    call = literal.subject
    if not isinstance(call, Call) or call.fn != "rlike" or len(call.args) != 2:
        return None
    if literal.null or literal.values != ValueSet.point(1):
        return None
    text, pattern = call.args
    if not isinstance(pattern, Const) or not isinstance(pattern.value, str) or text.type != "string":
        return None
    prefix = _regex_prefix(pattern.value)
    return InSet(text, ValueSet.prefix(prefix)) if prefix else None


def _regex_prefix(pattern: str) -> str:
    """Return a prefix of every text that matches a Java regular expression; '' if uncertain.

    >>> _regex_prefix("^ab+c.*"), _regex_prefix("^abc?"), _regex_prefix("^ab|c"), _regex_prefix("ab")
    ('ab', 'ab', '', '')
    """
    if not pattern.startswith("^") or "|" in pattern:
        return ""
    prefix = ""
    for character in pattern[1:]:
        if character in _OPTIONAL_QUANTIFIERS:
            return prefix[:-1]
        if character in _SPECIAL:
            return prefix
        prefix += character
    return prefix


_MAX_DEPTH: Final = 16
# The cache of derived bounds is cleared beyond so many functions.
_MAX_CACHED: Final = 32
# Functions are evaluated on the single values of so many blocks at most, which bounds the time of a decision.
_MAX_EVALUATED: Final = 10_000


def derive_bounds(expr: Expr, statistics: BlockStatistics) -> ColumnBounds | None:
    """Return the bounds of an expression in each block; None if there are none."""
    if isinstance(expr, Col):
        bounds = statistics.bounds.get(expr.name)
        return bounds if bounds is not None and bounds.type == expr.type else None
    if isinstance(expr, Const) or not expr.columns:
        return None
    cache = statistics.derived
    if expr not in cache:
        if len(cache) >= _MAX_CACHED:
            cache.clear()
        cache[expr] = _derive(expr, statistics, 0)
    return cache[expr]


def _derive_argument(expr: Expr, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    if isinstance(expr, Const):
        return _constant_bounds(expr, statistics.n, statistics.rows)
    return _derive(expr, statistics, depth + 1) if isinstance(expr, Call) else derive_bounds(expr, statistics)


def _derive(call: Call, statistics: BlockStatistics, depth: int) -> ColumnBounds | None:
    if isinstance(call, Opaque):
        return _compute_opaque(call, statistics)
    # A boolean function may be a UDF, whatever its name is.
    function = FUNCTIONS.get(call.fn) if call.type != "boolean" or call.fn in ("rlike", *_SELECTIONS) else None
    if depth > _MAX_DEPTH or function is None:
        return None
    if call.fn == "try_add" and any(map(is_interval, call.args)):
        function = SHIFT
    args = [_derive_argument(arg, statistics, depth) for arg in call.args if not is_interval(arg)]
    if call.fn in _SELECTIONS:
        return _SELECTIONS[call.fn](call, args, statistics)
    known_args = [arg for arg in args if arg is not None]
    if function.bounds is None or len(known_args) < len(args) or not function.accepts([arg.type for arg in known_args]):
        return None
    ranges = [_to_range(arg) for arg in known_args]
    nulls = _count_nulls(function, known_args, statistics.rows)
    bounds = _to_bounds(call.type, function.bounds(call, ranges), nulls, statistics)
    return _compute_single_values(call, known_args, bounds, statistics) if function.strict else bounds


def _to_bounds(type: str, values: Range | None, nulls: Ints, statistics: BlockStatistics) -> ColumnBounds:
    if values is None:
        return _without_range(type, nulls, statistics.n)
    return ColumnBounds(values.low, values.high, values.known & (nulls != statistics.rows), nulls, type)


def _compute_single_values(
    call: Call, args: Sequence[ColumnBounds], bounds: ColumnBounds, statistics: BlockStatistics
) -> ColumnBounds:
    """Return the bounds with the exact value where each argument has a single value (Edara 2021, 5.3.11).

    In such a block the function has that value, or is NULL where an argument is.
    """
    single = ~(bounds.known & np.equal(bounds.low, bounds.high).astype(np.bool_))
    for arg in args:
        single &= arg.known & np.equal(arg.low, arg.high).astype(np.bool_)
    places = np.flatnonzero(single)[:_MAX_EVALUATED]
    if not len(places) or key_kind(call.type) is None:
        return bounds
    low, high, known, nulls = _writable(bounds)
    values: dict[tuple[Key, ...], Key | None] = {}
    for place, keys in zip(places, zip(*(arg.low[places].tolist() for arg in args), strict=True), strict=True):
        try:
            if keys not in values:
                values[keys] = statistics.compute(call, keys)
        except ValueError:
            continue
        value = values[keys]
        if value is None:
            nulls[place] = statistics.rows[place]
        else:
            low[place] = high[place] = value
        known[place] = value is not None
    return ColumnBounds(low, high, known, nulls, call.type)


def _compute_opaque(call: Opaque, statistics: BlockStatistics) -> ColumnBounds | None:
    """Return the values of an opaque condition where each column has one value, or is NULL, in all rows of a block."""
    args = [derive_bounds(arg, statistics) for arg in call.args]
    choices = [_list_choices(arg, statistics.rows) for arg in args if arg is not None]
    if len(choices) < len(args) or not np.logical_and.reduce([place > 0 for _, place in choices]).any():
        return None
    distinct, place_of_block = np.unique(np.stack([place for _, place in choices]), axis=1, return_inverse=True)
    groups = [
        list(product(*(options[place] for (options, _), place in zip(choices, places, strict=True))))
        for places in distinct.T[:_MAX_EVALUATED].tolist()
    ]
    rows = list(dict.fromkeys(row for group in groups for row in group))
    value_of = dict(zip(rows, call.compute(rows), strict=True))
    low, high, nulls = np.zeros((3, len(distinct.T)), np.int64)
    known = np.zeros(len(distinct.T), np.bool_)
    for number, values in enumerate({value_of[row] for row in group} for group in groups):
        is_known = bool(values) and ... not in values
        known[number] = is_known and values != {None}
        low[number], high[number] = False not in values, True in values
        nulls[number] = (1 if values == {None} else 2 if None in values else 0) if is_known else 2
    nulls[len(groups) :] = 2
    of_block = place_of_block.reshape(-1)
    counts = np.choose(nulls[of_block], [0, statistics.rows, UNKNOWN_NULLS])
    return ColumnBounds(low[of_block], high[of_block], known[of_block], counts, call.type)


def _list_choices(bounds: ColumnBounds, rows: Ints) -> tuple[list[tuple[Key | None, ...]], Ints]:
    """Return the possible values of an expression, and the place of each block's among these.

    They are one value, NULL, or both; at place 0 is nothing, for blocks that may have other values.
    """
    is_null: Bits = bounds.nulls == rows
    single = bounds.known & np.equal(bounds.low, bounds.high).astype(np.bool_) & ~is_null
    keys, number = np.unique(bounds.low[single], return_inverse=True)
    place = np.where(is_null, 1, 0)
    place[single] = 2 + 2 * number + (bounds.nulls[single] != 0)
    return [(), (None,), *(choice for key in keys.tolist() for choice in ((key,), (key, None)))], place


def _writable(bounds: ColumnBounds) -> tuple[Keys, Keys, Bits, Ints]:
    """Return copies of bounds whose ends may be any keys of their type."""
    kind, known = np.int64 if has_int_keys(bounds.type) else np.object_, bounds.known.copy()
    low, high = (np.full(len(known), "" if key_kind(bounds.type) == "str" else 0, kind) for _ in range(2))
    low[known], high[known] = bounds.low[known], bounds.high[known]
    return low, high, known, bounds.nulls.copy()


def _to_range(bounds: ColumnBounds) -> Range:
    """Return bounds as a range, with harmless ends where they are unknown."""
    if bounds.low.dtype == np.int64:
        low, high = np.where(bounds.known, bounds.low, 0), np.where(bounds.known, bounds.high, 0)
        return Range(low, high, bounds.known, bounds.type)
    return Range(bounds.low, bounds.high, bounds.known, bounds.type)


def _count_nulls(function: Function, args: Sequence[ColumnBounds], rows: Ints) -> Ints:
    """Count NULLs: all rows if an argument is always NULL; otherwise known only for total functions."""
    counts = np.array([arg.nulls for arg in args])
    nulls = np.full(len(rows), UNKNOWN_NULLS, dtype=np.int64)
    if function.total:
        # NULLs of several arguments may or may not be in the same rows.
        smaller = np.sort(counts, axis=0)[:-1]
        single = (counts >= 0).all(axis=0) & (smaller == 0).all(axis=0)
        nulls[single] = counts.max(axis=0)[single]
    only_nulls = (counts == rows).any(axis=0)
    nulls[only_nulls] = rows[only_nulls]
    return nulls


def _without_range(type: str, nulls: Ints, n: int) -> ColumnBounds:
    zeros = np.zeros(n, dtype=np.int64)
    return ColumnBounds(zeros, zeros, np.zeros(n, dtype=np.bool_), nulls, type)


def _constant_bounds(const: Const, n: int, rows: Ints) -> ColumnBounds | None:
    if const.value is None:
        return _without_range(const.type, rows.copy(), n)
    ends = np.empty(n, dtype=np.int64 if has_int_keys(const.type) else np.object_)
    ends[:] = const.value
    return ColumnBounds(ends, ends, np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.int64), const.type)


def _same_type_args(call: Call, args: Sequence[ColumnBounds | None]) -> list[ColumnBounds] | None:
    known = [arg for arg in args if arg is not None and arg.type == call.type]
    return known if known and len(known) == len(args) and has_int_keys(call.type) else None


def _selection_nulls(args: Sequence[ColumnBounds], rows: Ints) -> Ints:
    """Count NULLs of a function that is NULL only if all arguments are."""
    counts = np.array([arg.nulls for arg in args])
    nulls = np.where((counts == 0).any(axis=0), 0, UNKNOWN_NULLS)
    return np.where((counts == rows).all(axis=0), rows, nulls).astype(np.int64)


def _coalesce(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """Bound the first argument that is not NULL by the hull of those up to the first that is never NULL."""
    known_args = _same_type_args(call, args)
    if known_args is None:
        return None
    rows, n = statistics.rows, statistics.n
    reached, known = np.ones(n, np.bool_), np.ones(n, np.bool_)
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    for arg in known_args:
        used = reached & (arg.nulls != rows)  # an argument that is always NULL adds no value
        known &= ~used | arg.known
        low, high = np.where(used, np.minimum(low, arg.low), low), np.where(used, np.maximum(high, arg.high), high)
        reached = reached & (arg.nulls != 0)
    return ColumnBounds(low, high, known & (low <= high), _selection_nulls(known_args, rows), call.type)


def _extreme(call: Call, args: Sequence[ColumnBounds | None], statistics: BlockStatistics) -> ColumnBounds | None:
    """Bound ``greatest`` or ``least`` of the arguments that are not NULL."""
    known_args = _same_type_args(call, args)
    if known_args is None:
        return None
    rows, n, is_greatest = statistics.rows, statistics.n, call.fn == "greatest"
    # Least is computed as greatest, with inverted keys and exchanged ends.
    used = [arg.nulls != rows for arg in known_args]
    ends = [(arg.low, arg.high) if is_greatest else (~arg.high, ~arg.low) for arg in known_args]
    smallest = np.iinfo(np.int64).min
    high = np.max([np.where(mask, end, smallest) for mask, (_, end) in zip(used, ends, strict=True)], axis=0)
    hull = np.min([np.where(mask, end, ~smallest) for mask, (end, _) in zip(used, ends, strict=True)], axis=0)
    always = [np.where(arg.nulls == 0, end, smallest) for arg, (end, _) in zip(known_args, ends, strict=True)]
    low = np.maximum(hull, np.max(always, axis=0))
    known = np.logical_and.reduce([~mask | arg.known for mask, arg in zip(used, known_args, strict=True)])
    known &= np.logical_or.reduce(used) & np.ones(n, np.bool_)
    low, high = (low, high) if is_greatest else (~high, ~low)
    nulls = _selection_nulls(known_args, rows)
    return ColumnBounds(np.where(known, low, 0), np.where(known, high, 0), known, nulls, call.type)


_SELECTIONS: Final = MappingProxyType({"coalesce": _coalesce, "greatest": _extreme, "least": _extreme})
