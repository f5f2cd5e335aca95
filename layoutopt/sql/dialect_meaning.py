"""What texts of other dialects mean: the expressions that are proved to mean what their translation means in Spark.

Texts that parse need not mean the same: ``dayofweek(d) = 0`` are Sundays to DuckDB, and no day to Spark. So a function,
an operator or a pattern is used only if :data:`MEANINGS` has it, or this module converts it. Everything else becomes a
call of :data:`UNPROVED`, which no filter can use. The tests run each entry in DuckDB, ClickHouse and PostgreSQL, or
compare it with the documentation of the system.

What depends on the type of a column or on the value of a constant is decided where the condition is read: calls of
``dialect_...`` in the translation name the check (:mod:`layoutopt.sql.dialect_checks`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias, TypeGuard
from zoneinfo import ZoneInfo

import sqlglot
from sqlglot import exp

from layoutopt.sql.problems import StatementError

# The calls that stand in a translation for what is checked where a condition is read.
TYPED: Final = "dialect_typed"
COMPARED: Final = "dialect_compared"
PATTERN: Final = "dialect_pattern"
REGEXP: Final = "dialect_regexp"
UNPROVED: Final = "dialect_unproved"
CHECKS: Final = frozenset({TYPED, COMPARED, PATTERN, REGEXP, UNPROVED})


@dataclass(frozen=True)
class Traits:
    """How a system compares values.

    Attributes:
        equal_texts: whether texts are equal only if they have the same bytes.
        ordered_texts: whether texts are ordered by their bytes.
        largest_nan: whether NaN equals itself and is larger than all numbers; False if it is neither; None if unknown.
        single_is_double: whether a number of single precision is compared as a double.
        double_literals: whether ``0.1`` is a double.
        escape: what escapes a wildcard of LIKE unless ESCAPE names it; "" for nothing, None if LIKE is not used.
        regexp: the regular expressions: ``re2``, ``any`` if ``.`` matches all characters, "" if they are not used.
        utc: whether instants have no other zone than UTC, unless a function names it.
        empty_is_null: whether '' is NULL.
    """

    equal_texts: bool = False
    ordered_texts: bool = False
    largest_nan: bool | None = None
    single_is_double: bool = False
    double_literals: bool = False
    escape: str | None = None
    regexp: str = ""
    utc: bool = False
    empty_is_null: bool = False


_TRINO: Final = Traits(equal_texts=True, ordered_texts=True, largest_nan=False, escape="", regexp="plain")
# Of other dialects nothing is known, and only numbers, dates and times are compared.
TRAITS: Final[Mapping[str, Traits]] = MappingProxyType(
    {
        "postgres": Traits(
            equal_texts=True, largest_nan=True, single_is_double=True, escape="\\", regexp="any"
        ),  # the order of texts is that of a locale
        "redshift": Traits(equal_texts=True, ordered_texts=True, largest_nan=True, escape="\\"),
        "duckdb": Traits(equal_texts=True, ordered_texts=True, largest_nan=True, escape="", regexp="re2"),
        "snowflake": Traits(equal_texts=True, ordered_texts=True, largest_nan=True, escape="", regexp="re2"),
        "bigquery": Traits(
            equal_texts=True, ordered_texts=True, largest_nan=False, double_literals=True, escape="\\", regexp="re2",
            utc=True,
        ),
        "clickhouse": Traits(
            equal_texts=True, ordered_texts=True, largest_nan=False, single_is_double=True, double_literals=True,
            escape="\\", regexp="any",
        ),
        "trino": _TRINO, "athena": _TRINO, "presto": _TRINO,
        "oracle": Traits(equal_texts=True, ordered_texts=True, escape="", empty_is_null=True),
        # Texts are compared by a collation that no log names; by default it ignores case.
        "tsql": Traits(escape="["), "fabric": Traits(escape="["), "mysql": Traits(),
        # Texts in JSON, whose letters, unlike numbers, are written in one way.
        "json": Traits(equal_texts=True),
        # A collation of texts that the condition names, such as Latin1_General_BIN2.
        "binary": Traits(equal_texts=True, ordered_texts=True, escape="["),
    }
)  # fmt: skip

# What an operand must be: a column name in an entry -> the types of columns, or the kind of constant.
OPERANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "_day": "date timestamp timestamp_ntz", "_date": "date",
        "_calendar": "date timestamp timestamp_ntz isodate", "_time": "timestamp timestamp_ntz", "_text": "string",
        "_whole": "tinyint smallint int bigint", "_int": "tinyint smallint int",
        "_number": "tinyint smallint int bigint decimal double",
        "_sum": "tinyint smallint int bigint decimal double date",
        "_wide": "tinyint smallint int date wide", "_exact": "tinyint smallint int bigint decimal",
        "_decimal": "decimal", "_array": "array<string>",
        "_positive": "positive", "_natural": "natural", "_nonzero": "nonzero", "_word": "word", "_isodate": "isodate",
        "_count": "whole",
    }
)  # fmt: skip

_DAYS: Final = """
    extract(year from _day)         => year(_day)
    extract(quarter from _day)      => quarter(_day)
    extract(month from _day)        => month(_day)
    extract(day from _day)          => day(_day)
    extract(hour from _time)        => hour(_time)
    extract(minute from _time)      => minute(_time)
    CAST(_day AS DATE)              => CAST(_day AS DATE)
    CAST(_whole AS INT)             => CAST(_whole AS INT)
    CAST(_whole AS BIGINT)          => CAST(_whole AS BIGINT)
"""
_NAMED_DAYS: Final = """
    year(_day)                      => year(_day)
    quarter(_day)                   => quarter(_day)
    month(_day)                     => month(_day)
    day(_day)                       => day(_day)
    hour(_time)                     => hour(_time)
    minute(_time)                   => minute(_time)
"""
_TRUNCATED: Final = """
    date_trunc('year', _day)        => date_trunc('YEAR', _day)
    date_trunc('quarter', _day)     => date_trunc('QUARTER', _day)
    date_trunc('month', _day)       => date_trunc('MONTH', _day)
    date_trunc('week', _day)        => date_trunc('WEEK', _day)
    date_trunc('day', _day)         => date_trunc('DAY', _day)
    date_trunc('hour', _time)       => date_trunc('HOUR', _time)
    date_trunc('minute', _time)     => date_trunc('MINUTE', _time)
"""
_TEXTS: Final = """
    substring(_text, _positive, _natural) => substring(_text, _positive, _natural)
    _text || _text2                 => concat(_text, _text2)
"""
_ARITHMETIC: Final = """
    _sum + _sum2                    => _sum + _sum2
    _sum - _sum2                    => _sum - _sum2
    _number * _number2              => _number * _number2
    _whole % _nonzero               => _whole % _nonzero
    -_number                        => -_number
"""
# Whole numbers have 64 bits or more, whatever the column has.
_WIDE_ARITHMETIC: Final = """
    _wide + _wide2                  => _wide + _wide2
    _wide - _wide2                  => _wide - _wide2
    _wide * _wide2                  => _wide * _wide2
"""
# The quotient of whole numbers without its fraction; a double holds it.
_WHOLE_QUOTIENT: Final = """
    _int / _nonzero                 => (_int - _int % _nonzero) / _nonzero
"""
_POSTGRES: Final = (
    _DAYS + _TRUNCATED + _TEXTS + _WHOLE_QUOTIENT + """
    extract(dow from _day)          => dayofweek(_day) - 1
    extract(doy from _day)          => dayofyear(_day)
    extract(week from _day)         => weekofyear(_day)
    left(_text, -_positive)         => substring(_text, 1, length(_text) - _positive)
    left(_text, _natural)           => left(_text, _natural)
    right(_text, _positive)         => right(_text, _positive)
    length(_text)                   => length(_text)
    strpos(_text, _word)            => instr(_text, _word)
    split_part(_text, _word, _positive) => split_part(_text, _word, _positive)
    greatest(_exact, _exact2)       => greatest(_exact, _exact2)
    least(_exact, _exact2)          => least(_exact, _exact2)
    abs(_number)                    => abs(_number)
"""
)  # fmt: skip

# Dialect -> a line for each expression: as the dialect writes it, and as Spark does. The first that matches is used.
MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "postgres": _POSTGRES + _ARITHMETIC + """
            extract(isodow from _day)   => (dayofweek(_day) + 5) % 7 + 1
            lower(_text)                => lower(_text)
            upper(_text)                => upper(_text)
            reverse(_text)              => reverse(_text)
            starts_with(_text, _text2)  => startswith(_text, _text2)
            trim(_text)                 => trim(_text)
            ltrim(_text)                => ltrim(_text)
            rtrim(_text)                => rtrim(_text)
            round(_decimal, _natural)   => round(_decimal, _natural)
            floor(_exact)               => floor(_exact)
            ceil(_exact)                => ceil(_exact)
        """,
        "redshift": _POSTGRES + _ARITHMETIC + """
            dateadd(day, _count, _date) => date_add(_date, _count)
        """,
        "duckdb": _DAYS + _NAMED_DAYS + _TRUNCATED + _TEXTS + _ARITHMETIC + """
            dayofweek(_day)             => dayofweek(_day) - 1
            weekday(_day)               => dayofweek(_day) - 1
            isodow(_day)                => (dayofweek(_day) + 5) % 7 + 1
            dayofmonth(_day)            => day(_day)
            dayofyear(_day)             => dayofyear(_day)
            week(_day)                  => weekofyear(_day)
            weekofyear(_day)            => weekofyear(_day)
            extract(dow from _day)      => dayofweek(_day) - 1
            extract(isodow from _day)   => (dayofweek(_day) + 5) % 7 + 1
            extract(doy from _day)      => dayofyear(_day)
            extract(week from _day)     => weekofyear(_day)
            date_part('year', _day)     => year(_day)
            date_part('month', _day)    => month(_day)
            date_part('day', _day)      => day(_day)
            date_part('dow', _day)      => dayofweek(_day) - 1
            date_part('isodow', _day)   => (dayofweek(_day) + 5) % 7 + 1
            date_part('week', _day)     => weekofyear(_day)
            last_day(_date)             => last_day(_date)
            date_diff('day', _date, _date2) => datediff(_date2, _date)
            _int // _nonzero            => (_int - _int % _nonzero) / _nonzero
            _whole / _nonzero           => _whole / _nonzero
            lower(_text)                => lower(_text)
            upper(_text)                => upper(_text)
            length(_text)               => length(_text)
            left(_text, _natural)       => left(_text, _natural)
            right(_text, _positive)     => right(_text, _positive)
            starts_with(_text, _text2)  => startswith(_text, _text2)
            prefix(_text, _text2)       => startswith(_text, _text2)
            ends_with(_text, _text2)    => endswith(_text, _text2)
            suffix(_text, _text2)       => endswith(_text, _text2)
            contains(_text, _text2)     => contains(_text, _text2)
            strpos(_text, _word)        => instr(_text, _word)
            split_part(_text, _word, _positive) => split_part(_text, _word, _positive)
            trim(_text)                 => trim(_text)
            greatest(_exact, _exact2)   => greatest(_exact, _exact2)
            least(_exact, _exact2)      => least(_exact, _exact2)
            abs(_number)                => abs(_number)
            round(_decimal, _natural)   => round(_decimal, _natural)
            floor(_exact)               => floor(_exact)
            ceil(_exact)                => ceil(_exact)
            list_contains(_array, _word) => IF(_array IS NULL, NULL, coalesce(array_contains(_array, _word), FALSE))
        """,
        "snowflake": _DAYS + _NAMED_DAYS + _TRUNCATED + _TEXTS + _WIDE_ARITHMETIC + """
            extract(year from _day)     => year(_day)
            dayofweek(_day)             => dayofweek(_day) - 1
            extract(dayofweek from _day) => dayofweek(_day) - 1
            extract(dow from _day)      => dayofweek(_day) - 1
            dayofweekiso(_day)          => (dayofweek(_day) + 5) % 7 + 1
            dayofmonth(_day)            => day(_day)
            dayofyear(_day)             => dayofyear(_day)
            weekiso(_day)               => weekofyear(_day)
            to_date(_day)               => CAST(_day AS DATE)
            last_day(_date)             => last_day(_date)
            dateadd(day, _count, _date) => date_add(_date, _count)
            dateadd(month, _count, _date) => add_months(_date, _count)
            datediff(day, _date, _date2) => datediff(_date2, _date)
            _whole % _nonzero           => _whole % _nonzero
            lower(_text)                => lower(_text)
            upper(_text)                => upper(_text)
            length(_text)               => length(_text)
            left(_text, _natural)       => left(_text, _natural)
            right(_text, _positive)     => right(_text, _positive)
            startswith(_text, _text2)   => startswith(_text, _text2)
            endswith(_text, _text2)     => endswith(_text, _text2)
            contains(_text, _text2)     => contains(_text, _text2)
        """,
        "bigquery": _DAYS + _TEXTS + _WIDE_ARITHMETIC + """
            EXTRACT(DAYOFWEEK FROM _day) => dayofweek(_day)
            EXTRACT(DAYOFYEAR FROM _day) => dayofyear(_day)
            EXTRACT(ISOWEEK FROM _day)  => weekofyear(_day)
            EXTRACT(WEEK FROM _day)     => ((dayofyear(_day) + 7 - dayofweek(_day)) -
                (dayofyear(_day) + 7 - dayofweek(_day)) % 7) / 7
            EXTRACT(DATE FROM _day)     => CAST(_day AS DATE)
            DATE(_day)                  => CAST(_day AS DATE)
            DATE_TRUNC(_date, WEEK)     => date_add(trunc(date_add(_date, 1), 'WEEK'), -1)
            DATE_TRUNC(_date, WEEK(MONDAY)) => trunc(_date, 'WEEK')
            DATE_TRUNC(_date, ISOWEEK)  => trunc(_date, 'WEEK')
            DATE_TRUNC(_date, MONTH)    => trunc(_date, 'MONTH')
            DATE_TRUNC(_date, QUARTER)  => trunc(_date, 'QUARTER')
            DATE_TRUNC(_date, YEAR)     => trunc(_date, 'YEAR')
            TIMESTAMP_TRUNC(_time, HOUR) => date_trunc('HOUR', _time)
            TIMESTAMP_TRUNC(_time, DAY) => date_trunc('DAY', _time)
            TIMESTAMP_TRUNC(_time, MONTH) => date_trunc('MONTH', _time)
            DATE_ADD(_date, INTERVAL _count DAY) => date_add(_date, _count)
            DATE_SUB(_date, INTERVAL _count DAY) => date_add(_date, -_count)
            DATE_ADD(_date, INTERVAL _count MONTH) => add_months(_date, _count)
            DATE_SUB(_date, INTERVAL _count MONTH) => add_months(_date, -_count)
            DATE_DIFF(_date, _date2, DAY) => datediff(_date, _date2)
            LAST_DAY(_date)             => last_day(_date)
            MOD(_whole, _nonzero)       => _whole % _nonzero
            DIV(_int, _nonzero)         => (_int - _int % _nonzero) / _nonzero
            _whole / _nonzero           => _whole / _nonzero
            LOWER(_text)                => lower(_text)
            UPPER(_text)                => upper(_text)
            LENGTH(_text)               => length(_text)
            LEFT(_text, _natural)       => left(_text, _natural)
            RIGHT(_text, _positive)     => right(_text, _positive)
            STARTS_WITH(_text, _text2)  => startswith(_text, _text2)
            ENDS_WITH(_text, _text2)    => endswith(_text, _text2)
            STRPOS(_text, _word)        => instr(_text, _word)
        """,
        "trino": _DAYS + _NAMED_DAYS + _TRUNCATED + _TEXTS + _WHOLE_QUOTIENT + """
            day_of_week(_day)           => (dayofweek(_day) + 5) % 7 + 1
            extract(dow from _day)      => (dayofweek(_day) + 5) % 7 + 1
            day_of_month(_day)          => day(_day)
            day_of_year(_day)           => dayofyear(_day)
            week(_day)                  => weekofyear(_day)
            date(_day)                  => CAST(_day AS DATE)
            date_add('day', _count, _date) => date_add(_date, _count)
            date_add('month', _count, _date) => add_months(_date, _count)
            date_diff('day', _date, _date2) => datediff(_date2, _date)
            _int + _int2                => _int + _int2
            _int - _int2                => _int - _int2
            _int * _int2                => _int * _int2
            _whole % _nonzero           => _whole % _nonzero
            lower(_text)                => lower(_text)
            upper(_text)                => upper(_text)
            length(_text)               => length(_text)
            strpos(_text, _word)        => instr(_text, _word)
            starts_with(_text, _text2)  => startswith(_text, _text2)
            contains(_array, _word)     => array_contains(_array, _word)
        """,
        "clickhouse": """
            toDate(_calendar)           => CAST(_calendar AS DATE)
            toYear(_day)                => year(_day)
            toQuarter(_day)             => quarter(_day)
            toMonth(_day)               => month(_day)
            toDayOfMonth(_day)          => day(_day)
            toDayOfYear(_day)           => dayofyear(_day)
            toDayOfWeek(_day)           => (dayofweek(_day) + 5) % 7 + 1
            toISOWeek(_day)             => weekofyear(_day)
            toHour(_time)               => hour(_time)
            toMinute(_time)             => minute(_time)
            toYYYYMM(_day)              => year(_day) * 100 + month(_day)
            toYYYYMMDD(_day)            => year(_day) * 10000 + month(_day) * 100 + day(_day)
            toStartOfYear(_day)         => date_trunc('YEAR', _day)
            toStartOfQuarter(_day)      => date_trunc('QUARTER', _day)
            toStartOfMonth(_day)        => date_trunc('MONTH', _day)
            toMonday(_day)              => date_trunc('WEEK', _day)
            toStartOfHour(_time)        => date_trunc('HOUR', _time)
            _wide + _wide2              => _wide + _wide2
            _wide - _wide2              => _wide - _wide2
            addDays(_date, _count)      => date_add(_date, _count)
            subtractDays(_date, _count) => date_add(_date, -_count)
            lengthUTF8(_text)           => length(_text)
            lowerUTF8(_text)            => lower(_text)
            startsWith(_text, _text2)   => startswith(_text, _text2)
            endsWith(_text, _text2)     => endswith(_text, _text2)
            empty(_text)                => length(_text) = 0
            notEmpty(_text)             => length(_text) > 0
            _text || _text2             => concat(_text, _text2)
            has(_array, _word)          => coalesce(array_contains(_array, _word), FALSE)
        """,
        "tsql": _DAYS + """
            YEAR(_day)                  => year(_day)
            MONTH(_day)                 => month(_day)
            DAY(_day)                   => day(_day)
            DATEPART(dayofyear, _day)   => dayofyear(_day)
            DATEADD(day, _count, _date) => date_add(_date, _count)
            _int + _int2                => _int + _int2
            _int - _int2                => _int - _int2
            _int * _int2                => _int * _int2
            _whole % _nonzero           => _whole % _nonzero
        """ + _WHOLE_QUOTIENT,
        "mysql": """
            year(_day)                  => year(_day)
            quarter(_day)               => quarter(_day)
            month(_day)                 => month(_day)
            dayofmonth(_day)            => day(_day)
            dayofyear(_day)             => dayofyear(_day)
            dayofweek(_day)             => dayofweek(_day)
            weekday(_day)               => (dayofweek(_day) + 5) % 7
            date(_day)                  => CAST(_day AS DATE)
        """,
        "oracle": """
            extract(year from _date)    => year(_date)
            extract(month from _date)   => month(_date)
            extract(day from _date)     => day(_date)
            trunc(_date, 'MM')          => trunc(_date, 'MM')
            to_date(_isodate, 'YYYY-MM-DD') => CAST(_isodate AS DATE)
        """,
    }
)  # fmt: skip
_SAME: Final = {"athena": "trino", "presto": "trino", "fabric": "tsql"}

_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_COMPARING: Final = (*_COMPARISONS, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between)
# Nodes that mean the same in each dialect, or that no filter uses.
_PLAIN: Final = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Literal, exp.RawString, exp.Null, exp.Boolean, exp.Star,
    exp.Tuple, exp.Array, exp.Any, exp.All, exp.Unnest, exp.Exists, exp.Is, exp.Coalesce, exp.If, exp.Dot,
    exp.Placeholder, exp.Parameter, exp.SessionParameter, exp.Subquery, exp.Query, exp.AggFunc, exp.Window, exp.UDTF,
    exp.Distinct, exp.Alias, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTimestampLTZ, exp.CurrentDatetime,
    exp.Localtimestamp, exp.Systimestamp, exp.CurrentTime, exp.JSONPath,
)  # fmt: skip
# Functions here are tables, or parts of a definition.
_NO_EXPRESSIONS: Final = (exp.From, exp.Join, exp.Lateral, exp.Table, exp.DataType, exp.Schema)
_UNITS: Final = frozenset({"YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"})
_JOINS: Final = frozenset({"", "INNER", "OUTER", "CROSS", "SEMI", "ANTI", "NATURAL"})


def to_spark_meaning(tree: exp.Expr, dialect: str, names: frozenset[str], words: frozenset[str]) -> exp.Expr:
    """Return the tree of another dialect's text with expressions that mean to Spark what they mean to the dialect.

    Args:
        tree: as the dialect's parser reads it; it is changed.
        dialect: sqlglot's name.
        names: the functions that Spark's parser knows; other names are those of user-defined functions.
        words: the tokens of the text, in upper case.

    Raises:
        StatementError: a part that is no expression has another meaning.
    """
    for select in list(tree.find_all(exp.Select)):
        _merge_prewhere(select)
        _refuse_clauses(select, dialect)
    translator = _Translator(dialect, names, words)
    pending = [tree]
    while pending:
        pending += translator.translate(pending.pop())
    return tree


def _merge_prewhere(select: exp.Select) -> None:
    """Move the condition of ClickHouse's PREWHERE, which is applied first, to WHERE."""
    clause = select.args.get("prewhere")
    if clause is not None:
        select.set("prewhere", None)
        select.where(clause.this, copy=False)


def _refuse_clauses(select: exp.Select, dialect: str) -> None:
    for join in select.args.get("joins") or ():
        words = {str(join.args.get(key) or "").upper() for key in ("method", "kind")}
        if words - _JOINS:
            raise StatementError("unsupported", f"{' '.join(filter(None, words))} joins are not supported")
        if dialect == "clickhouse" and join.args.get("side"):
            raise StatementError("unsupported", "outer joins of ClickHouse fill rows with 0 and '', not with NULL")
    where = select.args.get("where")
    if dialect == "clickhouse" and where is not None:
        used = {column.name for column in where.find_all(exp.Column)}
        for projection in select.expressions:
            if (
                isinstance(projection, exp.Alias)
                and projection.alias in used
                and projection.this.name != projection.alias
            ):
                raise StatementError("unsupported", f"{projection.alias!r} in WHERE may be the column or its alias")


class _Translator:
    """A translator of one statement's expressions."""

    def __init__(self, dialect: str, names: frozenset[str], words: frozenset[str]) -> None:
        self._dialect = dialect
        self._names = names
        self._words = words
        self._traits = TRAITS.get(dialect, Traits())

    def translate(self, node: exp.Expr) -> list[exp.Expr]:
        """Translate a node in its place; return the nodes below it that remain."""
        if isinstance(node, _COMPARING):
            return self._translate_comparison(node)
        if isinstance(node, exp.Escape | exp.Like | exp.ILike):
            return self._translate_like(node)
        if isinstance(node, exp.RegexpLike | exp.RegexpILike | exp.RegexpFullMatch):
            return self._translate_regexp(node)
        if isinstance(node, exp.Case | exp.Nullif):  # CASE x WHEN compares
            return [*self._mark_compared([node.this] if node.this else []), *_children(node, "this")]
        if isinstance(node, exp.AtTimeZone | exp.Interval):
            return self._refuse(node)
        if isinstance(node, exp.Literal) and node.is_string and not node.name and self._traits.empty_is_null:
            node.replace(exp.Null())
            return []
        if not isinstance(node, exp.Condition) or isinstance(node, _PLAIN):
            return _children(node)
        if isinstance(node.parent, _NO_EXPRESSIONS) or node.find(exp.Query) is not None:
            return _children(node)
        return self._translate_expression(node)

    def _translate_expression(self, node: exp.Expr) -> list[exp.Expr]:
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            return self._translate_literal_cast(node)
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            return []
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            return self._translate_shift(node)
        if isinstance(node, exp.Timestamp) and _is_text(node.this):
            zone = node.args.get("zone")
            instant = find_instant(node.name, zone.name if _is_text(zone) else "UTC")
            if instant is not None and self._traits.utc:
                node.replace(_instant(instant))
                return []
        for pattern, meaning in _meanings(self._dialect).get(_key(node), ()):
            operands: dict[str, exp.Expr] = {}
            if _match(pattern, node, operands):
                return self._replace(node, meaning, operands)
        if isinstance(node, exp.Anonymous) and node.name.upper() not in self._names | _READ:
            return _children(node)  # a user-defined function
        return self._refuse(node)

    def _refuse(self, node: exp.Expr) -> list[exp.Expr]:
        """Replace an expression by a call that no filter can use, with its columns, which the statement reads."""
        text = f"{node.sql(self._dialect)[:80]} of {self._dialect}"
        columns = [column.copy() for column in node.find_all(exp.Column)]
        node.replace(_call(UNPROVED, exp.Literal.string(text), *columns))
        return []

    def _replace(self, node: exp.Expr, meaning: exp.Expr, operands: Mapping[str, exp.Expr]) -> list[exp.Expr]:
        """Replace a node by its meaning, with its operands checked; return the operands, which remain."""
        holder = exp.Paren(this=meaning.copy())
        calls = [self._typed(column, operands[column.name]) for column in list(holder.find_all(exp.Column))]
        is_compound = isinstance(holder.this, exp.Binary | exp.Neg)
        node.replace(holder if is_compound else holder.this)
        return [call.expressions[1] for call in calls]

    def _typed(self, place: exp.Expr, operand: exp.Expr, kinds: str = "") -> exp.Anonymous:
        """Put a checked operand into a place; without kinds those of the place's name."""
        kinds = kinds or OPERANDS[place.name.rstrip("0123456789")]
        if self._traits.utc and "timestamp" in kinds.split():
            kinds += " UTC"
        if kinds == "whole" and _is_text(operand):  # INTERVAL 3 DAY
            operand = exp.Literal.number(operand.name)
        call = _call(TYPED, exp.Literal.string(kinds), operand.copy())
        place.replace(call)
        return call

    def _mark_compared(self, operands: Sequence[exp.Expr], dialect: str = "") -> list[exp.Expr]:
        """Mark operands that are no constants as compared by the dialect's rules; return what remains below."""
        remaining: list[exp.Expr] = []
        for operand in operands:
            inner = operand.unnest()
            if isinstance(inner, exp.Tuple):
                remaining += self._mark_compared(inner.expressions, dialect)
            elif isinstance(operand, exp.Query | exp.Subquery | exp.Any | exp.All) or operand.find(exp.Column) is None:
                remaining.append(operand)
            elif isinstance(inner, exp.Collate) and _is_binary(inner):
                text = inner.this.copy()
                operand.replace(text)
                remaining += self._mark_compared([text], "binary")
            elif self._is_json_text(inner):
                operand.replace(_call(COMPARED, exp.Literal.string("json"), operand.copy()))
            else:
                call = _call(COMPARED, exp.Literal.string(dialect or self._dialect), operand.copy())
                operand.replace(call)
                remaining.append(call.expressions[1])
        return remaining

    def _is_json_text(self, node: exp.Expr) -> bool:
        """Return whether a node takes a text out of a column of JSON."""
        is_cast = isinstance(node, exp.Cast) and node.to.this in exp.DataType.TEXT_TYPES and not node.to.expressions
        taken = node.this if is_cast and self._dialect == "snowflake" else node
        is_json = taken is not node or self._dialect == "mysql"  # MySQL compares JSON by bytes
        kind = exp.JSONExtract if is_json else exp.JSONExtractScalar
        return (
            self._dialect in _JSON
            and type(taken) is kind
            and len(list(taken.find_all(exp.Func))) == len(list(taken.find_all(exp.JSONExtract, exp.JSONExtractScalar)))
        )

    def _translate_comparison(self, node: exp.Expr) -> list[exp.Expr]:
        if isinstance(node, exp.In) and node.args.get("unnest") and not node.args["unnest"].find(exp.Array):
            return self._translate_contains(node, node.this, node.args["unnest"].expressions)
        if isinstance(node, _COMPARISONS) and isinstance(node.expression, exp.Any | exp.All):
            return self._translate_quantified(node)
        operands = [operand for operand in _operands(node) if isinstance(operand, exp.Expr)]
        texts = [operand for operand in operands[1:] if _is_text(operand)]
        mapped = _MAPPED.get(type(operands[0].unnest())) if operands else None
        if (
            mapped
            and texts
            and len(texts) == len(operands) - 1
            and not isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ)
        ):
            condition = mapped(node, operands[0].unnest(), texts, self._dialect)
            if condition is not None:
                node.replace(condition)
                calls = [call for call in condition.find_all(exp.Anonymous) if call.name == TYPED]
                return [call.expressions[1] for call in calls]
        elif isinstance(node, _COMPARISONS) and _is_text(node.this) and type(node.expression.unnest()) in _MAPPED:
            mirrored = _MIRRORED[type(node)](this=node.expression.copy(), expression=node.this.copy())
            node.replace(mirrored)  # '2024-02' = to_char(d, 'YYYY-MM')
            return self._translate_comparison(mirrored)
        rest = [value for key, value in node.args.items() if key in ("query", "unnest", "field")]
        return [*self._mark_compared(operands), *(value for value in rest if isinstance(value, exp.Expr))]

    def _translate_quantified(self, node: exp.Expr) -> list[exp.Expr]:
        """Translate ``x = ANY(ARRAY[1, 2])`` and ``'k' = ANY(xs)``."""
        values = node.expression.this.unnest()
        is_any = isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any)
        if isinstance(values, exp.Query):
            return _children(node)
        if isinstance(values, exp.Array) and is_any:
            listed = exp.In(this=node.this.copy(), expressions=[value.copy() for value in values.expressions])
            node.replace(listed)
            return [listed]
        return self._translate_contains(node, node.this, [values]) if is_any else self._refuse(node)

    def _translate_contains(self, node: exp.Expr, element: exp.Expr, arrays: Sequence[exp.Expr]) -> list[exp.Expr]:
        """Translate ``'k' IN UNNEST(xs)``, which is FALSE for no array, and ``'k' = ANY(xs)``, which is not."""
        meaning = "array_contains(_array, _word)"
        if isinstance(node, exp.In):
            meaning = f"_array IS NOT NULL AND {meaning}"
        if len(arrays) != 1 or not isinstance(element, exp.Literal) or not self._traits.equal_texts:
            return self._refuse(node)
        operands = {"_array": arrays[0], "_word": element}
        return self._replace(node, _parse_spark(meaning), operands)

    def _translate_literal_cast(self, node: exp.Expr) -> list[exp.Expr]:
        literal, kind = node.this, node.args["to"]
        if not literal.is_string:
            is_exact = literal.is_int and kind.this in (*exp.DataType.INTEGER_TYPES, exp.DType.DECIMAL)
            return [] if is_exact else self._refuse(node)
        if kind.this in (exp.DType.DATE, exp.DType.DATE32):
            shape = "isodate"
        elif kind.this in exp.DataType.TEMPORAL_TYPES:
            shape = "isoinstant" if self._traits.utc else "isotime"
        elif kind.this == exp.DType.DOUBLE:
            shape = "number"
        elif kind.this in exp.DataType.TEXT_TYPES and not kind.expressions:
            return []
        else:
            return self._refuse(node)
        literal.replace(_call(TYPED, exp.Literal.string(shape), literal.copy()))
        return []

    def _translate_shift(self, node: exp.Expr) -> list[exp.Expr]:
        """Translate a day or time plus or minus an interval of one unit."""
        interval = node.expression
        amount, unit = interval.this, interval.text("unit").upper().removesuffix("S")
        is_count = isinstance(amount, exp.Literal) and amount.name.isdecimal()
        if not is_count or unit not in _UNITS or self._dialect not in _SHIFTING:
            return self._refuse(node)
        return [self._typed(node.this, node.this, OPERANDS["_day"]).expressions[1]]

    def _translate_like(self, node: exp.Expr) -> list[exp.Expr]:
        like = node.this if isinstance(node, exp.Escape) else node
        escape = node.expression if isinstance(node, exp.Escape) else None
        dialect, text = self._dialect, like.this
        if isinstance(text.unnest(), exp.Collate) and _is_binary(text.unnest()) and self._traits.escape == "[":
            dialect, text = "binary", text.unnest().this
        default = TRAITS.get(dialect, Traits()).escape
        is_list = isinstance(like.expression, exp.Any | exp.All)
        patterns = like.expression.this.unnest().expressions if is_list else [like.expression]
        can_escape = escape is None or (_is_text(escape) and len(escape.name) <= 1)
        if (
            not isinstance(like, exp.Like | exp.ILike)
            or default is None
            or not can_escape
            or not all(map(_is_text, patterns))
        ):
            return self._refuse(node)
        for pattern in patterns:
            arguments = [exp.Literal.string(dialect), exp.Literal.string(pattern.name)]
            if escape is not None:
                arguments.append(exp.Literal.string(escape.name))
            pattern.replace(_call(PATTERN, *arguments))
        typed = self._typed(like.this, text, "string")
        if node is not like:
            node.replace(like)
        return [typed.expressions[1]]

    def _translate_regexp(self, node: exp.Expr) -> list[exp.Expr]:
        """Translate a match of a regular expression: of the whole text, or of a part of it."""
        pattern, flags, is_clear = node.expression, node.args.get("flag") or node.args.get("options"), True
        is_whole = bool(node.args.get("full_match")) or isinstance(node, exp.RegexpFullMatch)
        if self._dialect == "duckdb" and self._words & {"~", "!~", "RLIKE", "REGEXP"}:
            # The operator matches whole texts in DuckDB 1, and parts in DuckDB 2; the parser takes both for a function.
            text = pattern.name
            is_clear = text.startswith("^") and text.endswith("$") and "|" not in text
        names = ["i"] if isinstance(node, exp.RegexpILike) else list(flags.name) if _is_text(flags) else []
        if isinstance(pattern, exp.RawString):
            pattern = exp.Literal.string(pattern.name)
        is_known = (
            self._traits.regexp
            and _is_text(pattern)
            and (flags is None or _is_text(flags))
            and set(names) <= {"i", "c"}
        )
        if not is_known or not is_clear:
            return self._refuse(node)
        typed = self._typed(node.this, node.this, "string")
        texts = ["whole" if is_whole else "part", "i" if names[-1:] == ["i"] else ""]
        dialect = exp.Literal.string(self._dialect)
        node.replace(_call(REGEXP, dialect, typed, pattern.copy(), *map(exp.Literal.string, texts)))
        return [typed.expressions[1]]


# Names that the reader of filters gives a meaning, without a class of sqlglot.
_READ: Final = frozenset({"MAP_VALUES", "TRY_VARIANT_GET", "ISNULL", "ISNOTNULL", *map(str.upper, CHECKS)})
_JSON: Final = frozenset({"mysql", "postgres", "redshift", "duckdb", "snowflake", "trino", "athena", "presto"})
_SHIFTING: Final = frozenset({"postgres", "redshift", "duckdb", "snowflake", "bigquery", "trino", "athena", "presto"})
_MIRRORED: Final[Mapping[type[exp.Expr], type[exp.Expr]]] = MappingProxyType(
    {exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE}
)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    keys = ("this", "expression", "expressions", "low", "high")
    values = [node.args.get(key) for key in keys]
    return [part for value in values if value is not None for part in (value if isinstance(value, list) else [value])]


def _is_text(node: object) -> TypeGuard[exp.Literal]:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _is_binary(node: exp.Collate) -> bool:
    """Return whether a collation compares bytes, by its name."""
    return bool(re.search(r"_BIN2?$", node.expression.name, re.IGNORECASE))


def _children(node: exp.Expr, *but: str) -> list[exp.Expr]:
    values = [value for key, value in node.args.items() if key not in but]
    parts = chain.from_iterable(value if isinstance(value, list) else [value] for value in values)
    return [part for part in parts if isinstance(part, exp.Expr)]


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


@cache
def _parse_spark(text: str) -> exp.Expr:
    condition: exp.Expr = sqlglot.parse_one(f"SELECT {text}", read="spark").expressions[0]
    return condition


@cache
def _meanings(dialect: str) -> Mapping[object, Sequence[tuple[exp.Expr, exp.Expr]]]:
    entries: dict[object, list[tuple[exp.Expr, exp.Expr]]] = {}
    for source, meaning in list_meanings(dialect):
        tree = sqlglot.parse_one(f"SELECT {source}", read=dialect).expressions[0]
        entries.setdefault(_key(tree), []).append((tree, _parse_spark(meaning)))
    return entries


def list_meanings(dialect: str) -> Iterator[tuple[str, str]]:
    """Yield the expressions of a dialect that are proved, each with its translation."""
    text = re.sub(r"\n *(?=\(dayofyear)", " ", MEANINGS.get(_SAME.get(dialect, dialect), ""))
    for line in filter(None, map(str.strip, text.splitlines())):
        source, _, meaning = line.partition("=>")
        yield source.strip(), meaning.strip()


def _key(node: exp.Expr) -> object:
    return type(node), node.name.upper() if isinstance(node, exp.Anonymous) else ""


def _match(pattern: object, node: object, operands: dict[str, exp.Expr]) -> bool:
    """Return whether a node has the form of an entry; record the operands."""
    if isinstance(pattern, exp.Column):
        operand = operands.setdefault(pattern.name, node) if isinstance(node, exp.Expr) else None
        return operand is not None and operand == node
    if isinstance(pattern, list) and isinstance(node, list):
        return len(pattern) == len(node) and all(_match(a, b, operands) for a, b in zip(pattern, node, strict=True))
    if not isinstance(pattern, exp.Expr) or not isinstance(node, exp.Expr):
        return str(pattern).upper() == str(node).upper()
    if isinstance(pattern, exp.Var | exp.Literal) and isinstance(node, exp.Var | exp.Literal):
        return pattern.name.upper() == node.name.upper()
    if isinstance(node, exp.Paren) and not isinstance(pattern, exp.Paren):
        return _match(pattern, node.unnest(), operands)
    if type(pattern) is not type(node):
        return False
    keys = {key for part in (pattern, node) for key, value in part.args.items() if value} - {"nested", "nullable"}
    return all(_match(pattern.args.get(key), node.args.get(key), operands) for key in sorted(keys))


# --- conditions whose meaning depends on what a function's value is compared with

_ZONED_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")


def find_instant(text: str, zone: str) -> dt.datetime | None:
    """Return the instant of a local time, in UTC; None if it is no time, or a change of the clock is near.

    >>> find_instant("2024-03-01", "America/New_York")
    datetime.datetime(2024, 3, 1, 5, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        if not _ZONED_TIME.fullmatch(text):
            return None
        local = dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))
        instant = local.astimezone(dt.UTC)
        margin = dt.timedelta(hours=3)
        offsets = {(instant + step).astimezone(ZoneInfo(zone)).utcoffset() for step in (-margin, margin)}
    except (ValueError, OverflowError, OSError, LookupError):
        return None
    return instant if offsets == {local.utcoffset()} else None


def _instant(value: dt.datetime) -> exp.Expr:
    return exp.cast(exp.Literal.string(f"{value.replace(tzinfo=None).isoformat(' ')}Z"), "timestamp")


def _map_local_day(node: exp.Expr, call: exp.Expr, texts: Sequence[exp.Expr], dialect: str) -> exp.Expr | None:
    """Return ``DATE(ts, 'America/New_York') = '2024-03-01'`` as a range of instants."""
    zone = call.args.get("zone")
    if not _is_text(zone) or dialect != "bigquery":
        return None
    days = [
        (find_instant(text.name, zone.name), _next_day(text.name))
        for text in texts
        if len(text.name) == len("2024-03-01")
    ]
    ranges = [(start, find_instant(end, zone.name)) for start, end in days if end]
    if len(ranges) < len(texts) or any(None in bounds for bounds in ranges):
        return None
    time = _call(TYPED, exp.Literal.string("timestamp"), call.this.copy())

    def at_least(bound: dt.datetime | None) -> exp.Expr:
        assert bound is not None
        return exp.GTE(this=time.copy(), expression=_instant(bound))

    def before(bound: dt.datetime | None) -> exp.Expr:
        assert bound is not None
        return exp.LT(this=time.copy(), expression=_instant(bound))

    start, end = ranges[0]
    if isinstance(node, exp.Between):
        return exp.paren(exp.and_(at_least(start), before(ranges[1][1])))
    if isinstance(node, exp.EQ | exp.NEQ | exp.In):
        equal = exp.paren(exp.or_(*(exp.and_(at_least(first), before(last)) for first, last in ranges)))
        return exp.Not(this=equal) if isinstance(node, exp.NEQ) else equal
    bounds: dict[type[exp.Expr], exp.Expr] = {
        exp.LT: before(start),
        exp.GTE: at_least(start),
        exp.LTE: before(end),
        exp.GT: at_least(end),
    }
    return exp.paren(bounds[type(node)])


def _next_day(text: str) -> str:
    try:
        return (dt.date.fromisoformat(text) + dt.timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return ""


# Formats of days as texts, in the order of the days -> the first day's text, from the value, and the day's translation.
_DAY_FORMATS: Final = (
    (("%Y-%m-%d", "YYYY-MM-DD"), r"\d{4}-\d\d-\d\d", "", "CAST(_day AS DATE)"),
    (("%Y-%m", "YYYY-MM"), r"\d{4}-\d\d", "-01", "trunc(CAST(_day AS DATE), 'MONTH')"),
    (("%Y", "YYYY"), r"\d{4}", "-01-01", "trunc(CAST(_day AS DATE), 'YEAR')"),
)
_FORMATTING: Final = frozenset({"postgres", "redshift", "duckdb", "snowflake", "bigquery", "clickhouse"})


def _map_formatted_day(node: exp.Expr, call: exp.Expr, texts: Sequence[exp.Expr], dialect: str) -> exp.Expr | None:
    """Return ``to_char(d, 'YYYY-MM') = '2024-02'`` as a comparison of the first days of months."""
    time, name = call.this, call.text("format")
    if isinstance(time, exp.TsOrDsToDate | exp.TsOrDsToTimestamp):
        time = time.this
    for names, shape, rest, meaning in _DAY_FORMATS:
        if dialect in _FORMATTING and name in names:
            days = [text.name + rest for text in texts]
            if not all(re.fullmatch(shape, text.name) for text in texts) or not all(map(_next_day, days)):
                return None
            compared = node.copy()
            places = _operands(compared)
            kinds = OPERANDS["_day"] + " UTC" * TRAITS[dialect].utc
            holder = exp.Paren(this=_parse_spark(meaning).copy())
            next(holder.find_all(exp.Column)).replace(_call(TYPED, exp.Literal.string(kinds), time.copy()))
            for place, day in zip(places[1:], days, strict=True):
                place.replace(exp.cast(exp.Literal.string(day), "date"))
            places[0].replace(_call(COMPARED, exp.Literal.string("binary"), holder.this))
            return exp.paren(compared)
    return None


_Mapping: TypeAlias = Callable[[exp.Expr, exp.Expr, Sequence[exp.Expr], str], exp.Expr | None]
_MAPPED: Final[Mapping[type[exp.Expr], _Mapping]] = MappingProxyType(
    {exp.Date: _map_local_day, exp.TimeToStr: _map_formatted_day, exp.ToChar: _map_formatted_day}
)
