"""Constants as texts: Spark SQL of exactly the constant's type, and what people read."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from layoutopt.model.types import type_sql
from layoutopt.model.values.keys import Key, from_key, key_kind

_SUFFIXES: Final = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\'$]")


def constant_sql(key: Key | None, type: str) -> str:
    r"""A constant of a type as Spark SQL, independent of the session's settings.

    >>> constant_sql(150, "decimal(15,2)"), constant_sql("it's", "string"), constant_sql(0, "date")
    ("CAST('1.50' AS DECIMAL(15,2))", "'it\\u0027s'", "DATE'1970-01-01'")
    """
    if key is None:
        return f"CAST(NULL AS {type_sql(type).upper()})"
    if isinstance(key, bytes):
        return f"X'{key.hex().upper()}'"
    if isinstance(key, str):
        return text_sql(key)
    if type in _SUFFIXES:
        return f"{key}{_SUFFIXES[type]}"
    if type == "boolean":
        return str(bool(key)).upper()
    if type in ("date", "timestamp", "timestamp_ntz"):
        return _time_sql(key, type)
    return f"CAST('{from_key(key, type)}' AS {type.upper()})"


def text_sql(text: str) -> str:
    """A string constant. Quotes, controls and ``$`` (Spark replaces ``${...}`` anywhere) are written by code."""
    escaped = _UNSAFE.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}", text)
    return f"'{escaped}'"


def _time_sql(key: int, type: str) -> str:
    if type == "timestamp":
        return f"timestamp_micros({key}L)"  # a literal's text would depend on the session's time zone
    value = time_of(key, type)
    if type == "date":
        return f"DATE'{value}'" if value else f"date_from_unix_date({key})"
    if value:
        return f"TIMESTAMP_NTZ'{value.isoformat().replace('T', ' ')}'"
    return f"timestampadd(MICROSECOND, {key}L, TIMESTAMP_NTZ'1970-01-01 00:00:00')"


def time_of(key: int, type: str) -> dt.date | None:
    """The date or datetime of a key; None beyond the years that Python knows."""
    try:
        value = from_key(key, type)
    except ValueError:
        return None
    return value if isinstance(value, dt.date) else None


def short_constant(key: Key | None, type: str) -> str:
    """A constant as people write it.

    >>> short_constant("it's", "string"), short_constant(0, "timestamp")
    ("'it''s'", '1970-01-01 00:00:00+00:00')
    """
    if key is None:
        return "NULL"
    if isinstance(key, bytes):
        return f"X'{key.hex().upper()}'"
    if isinstance(key, str):
        return "'" + key.replace("'", "''") + "'"
    if type in ("date", "timestamp", "timestamp_ntz"):
        return str(time_of(key, type) or f"{type}({key})")
    return str(from_key(key, type)) if key_kind(type) == "int" else str(key)
