"""Functions of columns that a filter may contain: deterministic, and failing on no row.

A function that can fail is listed in a form that can't (``try_add``, ``try_cast``), so that a load can evaluate it on
all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True)
class Function:
    """The signature of a Spark function.

    Attributes:
        name: lower-case Spark name.
        takes: the type of each argument as Spark coerces it; the last ones may be left out.
        gives: the result's type.
        arguments: sqlglot's keys of the arguments.
        refused: sqlglot's keys of arguments that change the meaning.
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    arguments: tuple[str, ...] = ("this",)
    refused: tuple[str, ...] = ()


_DATE_PARTS: dict[type[exp.Expr], Function] = {
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

# ``extract(unit FROM x)``, by unit.
EXTRACT_UNITS: dict[str, Function] = {
    "YEAR": _DATE_PARTS[exp.Year],
    "QUARTER": _DATE_PARTS[exp.Quarter],
    "MONTH": _DATE_PARTS[exp.Month],
    "WEEK": _DATE_PARTS[exp.WeekOfYear],
    "DAY": _DATE_PARTS[exp.Day],
    "DOY": _DATE_PARTS[exp.DayOfYear],
    "DOW": _DATE_PARTS[exp.DayOfWeek],
    "DAYOFWEEK": _DATE_PARTS[exp.DayOfWeek],
    "HOUR": _DATE_PARTS[exp.Hour],
    "MINUTE": _DATE_PARTS[exp.Minute],
}

_BOTH = ("this", "expression")
# Functions by sqlglot's class.
FUNCTIONS: dict[type[exp.Expr], Function] = _DATE_PARTS | {
    exp.Lower: Function("lower", ("string",), "string"),
    exp.Upper: Function("upper", ("string",), "string"),
    exp.Reverse: Function("reverse", ("string",), "string"),
    exp.Length: Function("length", ("string",), "int"),
    exp.Substring: Function("substring", ("string", "int", "int"), "string", ("this", "start", "length")),
    exp.DPipe: Function("concat", ("string", "string"), "string", _BOTH),
    exp.StrPosition: Function("instr", ("string", "string"), "int", ("this", "substr"), ("position", "occurrence")),
    exp.Levenshtein: Function(
        "levenshtein", ("string", "string"), "int", _BOTH, ("ins_cost", "del_cost", "sub_cost", "max_dist")
    ),
    exp.Sqrt: Function("sqrt", ("double",), "double"),
    exp.DateDiff: Function("datediff", ("date", "date"), "int", _BOTH, ("unit",)),
}

# Arithmetic in the form that gives NULL instead of failing; a condition that would fail is never TRUE.
TRY_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
    exp.Div: "try_divide",
    exp.Mod: "try_mod",
}

# Units of ``trunc``; others give NULL.
TRUNC_UNITS = frozenset({"YEAR", "YYYY", "YY", "QUARTER", "MONTH", "MM", "MON", "WEEK"})
DATE_TRUNC_UNITS = TRUNC_UNITS | {"DAY", "DD", "HOUR", "MINUTE", "SECOND"}

# Functions whose value may differ from run to run or row to row: sqlglot's classes, and names it has no class for.
_NON_DETERMINISTIC = (
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.CurrentDatetime,
)
_NON_DETERMINISTIC_NAMES = frozenset(
    {
        "rand", "randn", "random", "uuid", "now", "curdate", "current_date", "current_timestamp", "localtimestamp",
        "current_timezone", "current_user", "user", "session_user", "current_database", "current_catalog",
        "monotonically_increasing_id", "spark_partition_id", "input_file_name", "input_file_block_start",
        "input_file_block_length", "shuffle", "randstr", "uniform", "unix_timestamp", "version",
    }
)  # fmt: skip


def is_non_deterministic(node: exp.Expr) -> bool:
    """Return whether the value of this call may differ from run to run or row to row."""
    if isinstance(node, exp.Anonymous):
        return node.name.casefold() in _NON_DETERMINISTIC_NAMES
    return isinstance(node, _NON_DETERMINISTIC)
