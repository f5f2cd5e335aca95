"""The functions of the registry as sqlglot parses them, and those that are not deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from layoutopt.functions.function import Function
from layoutopt.functions.registry import FUNCTIONS

# The functions by sqlglot's class.
PARSED: Final[Mapping[type[exp.Expr], Function]] = MappingProxyType(
    {getattr(exp, name): function for function in FUNCTIONS.values() for name in function.parsed}
)

# ``extract(unit FROM x)``, by unit.
EXTRACT_UNITS: Final = {unit: function for function in FUNCTIONS.values() for unit in function.units}

# Arithmetic in the form that gives NULL instead of failing; a condition that would fail is never TRUE.
TRY_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
    exp.Div: "try_divide",
    exp.Mod: "try_mod",
}

# The mark of literals such as ``7L``, which sqlglot reads as ``7::bigint``.
SUFFIXED: Final = "suffixed"

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


def list_arguments(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of a call of the registry's functions; units, which are words to sqlglot, as texts."""
    given = (node.args.get(key) for key in PARSED[type(node)].keys)
    parts = [part for value in given if value is not None for part in (value if isinstance(value, list) else [value])]
    return [exp.Literal.string(part.name) if isinstance(part, exp.Var) else part for part in parts]
