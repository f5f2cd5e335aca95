"""Answers as multisets of rows of texts, whoever gave them."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

Row = tuple[Any, ...]
Answer = Counter[Row]


def rows_of(answer: pa.Table, zone: str) -> Answer:
    """The rows of an answer, with values as Spark would write them; NaN equals itself, and -0.0 is not 0.0."""
    columns = [
        [_text(value, field.type, zone) for value in answer[place].to_pylist()]
        for place, field in enumerate(answer.schema)
    ]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): answer.num_rows})


def same_values(answer: pa.Table, expected: Answer, zone: str) -> bool:
    """Whether an answer has the rows that are expected, written by Spark; numbers by their values."""
    types = [field.type for field in answer.schema]
    known: Answer = Counter()
    for row, count in expected.items():
        if len(row) != len(types):
            return False
        known[tuple(_read(cell, type) for cell, type in zip(row, types, strict=True))] += count
    return rows_of(answer, zone) == known


def _text(value: Any, type: pa.DataType, zone: str) -> str | None:
    if value is None:
        return None
    if pa.types.is_floating(type):
        return repr(float(value))
    if pa.types.is_boolean(type):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        local = value if type.tz is None else value.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        text = local.isoformat(sep=" ")
        return text.rstrip("0") if "." in text else text
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ", ".join("null" if field is None else str(field) for field in value.values()) + "}"
    if pa.types.is_map(type):
        return "{" + ", ".join(f"{key} -> {'null' if field is None else field}" for key, field in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join("null" if item is None else str(item) for item in value) + "]"
    return str(value)


def _read(cell: str | None, type: pa.DataType) -> str | None:
    if cell is None or not pa.types.is_floating(type):
        return cell
    return repr(float(np.float32(cell))) if pa.types.is_float32(type) else repr(float(cell))
