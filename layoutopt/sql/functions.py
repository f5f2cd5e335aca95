"""The functions of columns that may stand in a filter: deterministic, and failing on no row.

Each entry says how Spark spells the function, what types it takes and what it gives. A function that can fail is here
only in a form that can't (``try_add``, ``try_cast``), so that evaluating it on all rows never breaks a load.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class Function:
    """How Spark knows a function.

    Attributes:
        name: lower-case Spark name.
        takes: the type of each argument as Spark coerces it.
        gives: the result's type.
    """

    name: str
    takes: tuple[str, ...]
    gives: str


DATE_PARTS: dict[type[exp.Expr], Function] = {
    exp.Year: Function("year", ("date",), "int"),
    exp.Quarter: Function("quarter", ("date",), "int"),
    exp.Month: Function("month", ("date",), "int"),
    exp.WeekOfYear: Function("weekofyear", ("date",), "int"),
    exp.Day: Function("day", ("date",), "int"),
    exp.DayOfMonth: Function("day", ("date",), "int"),
    exp.DayOfYear: Function("dayofyear", ("date",), "int"),
    exp.DayOfWeek: Function("dayofweek", ("date",), "int"),
    exp.LastDay: Function("last_day", ("date",), "date"),
    exp.Hour: Function("hour", ("timestamp",), "int"),
    exp.Minute: Function("minute", ("timestamp",), "int"),
    exp.Second: Function("second", ("timestamp",), "int"),
}
"""Parts of a date or time, by sqlglot's class."""

EXTRACT_UNITS: dict[str, Function] = {
    "YEAR": DATE_PARTS[exp.Year],
    "QUARTER": DATE_PARTS[exp.Quarter],
    "MONTH": DATE_PARTS[exp.Month],
    "WEEK": DATE_PARTS[exp.WeekOfYear],
    "DAY": DATE_PARTS[exp.Day],
    "DOY": DATE_PARTS[exp.DayOfYear],
    "DOW": DATE_PARTS[exp.DayOfWeek],
    "DAYOFWEEK": DATE_PARTS[exp.DayOfWeek],
    "HOUR": DATE_PARTS[exp.Hour],
    "MINUTE": DATE_PARTS[exp.Minute],
}
"""``extract(unit FROM x)``, by unit."""

STRING_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Lower: Function("lower", ("string",), "string"),
    exp.Upper: Function("upper", ("string",), "string"),
    exp.Reverse: Function("reverse", ("string",), "string"),
    exp.Length: Function("length", ("string",), "int"),
}
"""Functions of one string, by sqlglot's class."""

TRY_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
    exp.Div: "try_divide",
    exp.Mod: "try_mod",
}
"""Arithmetic in the form that gives NULL instead of failing. A condition that would fail is so never TRUE."""

TRUNC_UNITS = frozenset({"YEAR", "YYYY", "YY", "QUARTER", "MONTH", "MM", "MON", "WEEK"})
"""Units that ``trunc`` takes; with others it gives NULL."""
DATE_TRUNC_UNITS = TRUNC_UNITS | {"DAY", "DD", "HOUR", "MINUTE", "SECOND"}
"""Units that ``date_trunc`` takes."""

NON_DETERMINISTIC = (
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.CurrentDatetime,
)
NON_DETERMINISTIC_NAMES = frozenset(
    {
        "rand", "randn", "random", "uuid", "now", "curdate", "current_date", "current_timestamp", "localtimestamp",
        "current_timezone", "current_user", "user", "session_user", "current_database", "current_catalog",
        "monotonically_increasing_id", "spark_partition_id", "input_file_name", "input_file_block_start",
        "input_file_block_length", "shuffle", "randstr", "uniform", "unix_timestamp", "version",
    }
)  # fmt: skip
"""Functions whose value may differ from run to run or row to row, as sqlglot leaves them by name."""


def is_non_deterministic(node: exp.Expr) -> bool:
    """Whether the value of this one call may differ from run to run or row to row."""
    if isinstance(node, exp.Anonymous):
        return node.name.casefold() in NON_DETERMINISTIC_NAMES
    return isinstance(node, NON_DETERMINISTIC)
