"""What a Spark application asked of a table, by its event log, which has the filters of scans and hardly ever SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_SQL = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_SCAN = re.compile(r"Scan \w+ (?:[\w.`-]*\.)?`?(\w+)`?\s*$")
_FIELD = re.compile(r"(`[^`]+`|\w+):")
_CALL = re.compile(r"(\w+)\((.*)\)$", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMPARED = {
    "EqualTo": "=", "EqualNullSafe": "<=>", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<",
    "LessThanOrEqual": "<=",
}  # fmt: skip
_PATTERNS = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}


def text_of_execution(record: Mapping[str, Any]) -> str | None:
    """The statement of a ``SparkListenerSQLExecutionStart``: its own text, or one that its first table scan amounts to.

    None where there is neither.
    """
    description = record.get("description")
    if isinstance(description, str) and _SQL.match(description):
        return description
    plan = record.get("sparkplaninfo")
    return next(_scans(plan), None) if isinstance(plan, Mapping) else None


def _scans(plan: Mapping[str, Any]) -> Iterator[str]:
    """A statement for each scan of a table that a plan names."""
    named, metadata = _SCAN.match(str(plan.get("nodeName", ""))), plan.get("metadata") or {}
    if named and isinstance(metadata, Mapping) and "PushedFilters" in metadata:
        columns = _FIELD.findall(str(metadata.get("ReadSchema", "")))
        filters = [*_parts(metadata.get("PartitionFilters", "[]")), *_parts(metadata["PushedFilters"])]
        conditions = [text for text in map(_condition, filters) if text is not None]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        yield f"SELECT {', '.join(columns) or 'count(*)'} FROM {named[1]}{where}"
    for child in plan.get("children") or ():
        if isinstance(child, Mapping):
            yield from _scans(child)


def _parts(text: Any) -> list[str]:
    """What stands in a list as Spark writes it."""
    return _arguments(str(text).strip().removeprefix("[").removesuffix("]"))


def _condition(text: str) -> str | None:
    """A filter of Spark's data sources as a condition in SQL; None for one that can't be told.

    Values are written without quotes and types, so one that looks like a number is taken for one.

    >>> _condition("In(kind, [air,rail])"), _condition("Not(EqualTo(n,5))"), _condition("StringStartsWith(s,a_)")
    ("kind IN ('air', 'rail')", 'NOT (n = 5)', "s LIKE 'a\\\\\\\\_%'")
    """
    call = _CALL.match(text.strip())
    if call is None:
        return None
    name, inside = call.groups()
    if name in ("And", "Or", "Not"):
        parts = [_condition(part) for part in _arguments(inside)]
        if not parts or None in parts:
            return None
        return f"NOT ({parts[0]})" if name == "Not" else f"({f' {name.upper()} '.join(map(str, parts))})"
    column, _, value = inside.partition(",")
    if name in ("IsNotNull", "IsNull"):
        return f"{column} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    if name in _COMPARED:
        return f"{column} {_COMPARED[name]} {_literal(value)}"
    if name == "In":
        values = value.strip().removeprefix("[").removesuffix("]").split(",")
        return f"{column} IN ({', '.join(map(_literal, values))})"
    if name in _PATTERNS:
        escaped = re.sub(r"([%_\\])", r"\\\1", value)
        return f"{column} LIKE {_quoted(_PATTERNS[name].format(escaped))}"
    return None


def _arguments(inside: str) -> list[str]:
    """The filters in another one or in a list, which may have commas of their own: cut where all brackets are closed.

    >>> _arguments("EqualTo(a,1),In(b, [1,2]), EqualTo(c,x, y)")
    ['EqualTo(a,1)', 'In(b, [1,2])', 'EqualTo(c,x, y)']
    """
    found, depth = [""], 0
    for letter in inside:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found if part.strip()]


def _literal(value: str) -> str:
    value = value.strip()
    return value if _NUMBER.fullmatch(value) or value in ("true", "false") else _quoted(value)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
