"""Indexes as users ask for them: ``COLUMN:TYPE`` or ``COLUMN:TYPE:NUMBER``; of an array they are of its elements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from layoutopt.errors import SettingError
from layoutopt.indexes.expressions import is_stored, point_of
from layoutopt.indexes.registry import check_index
from layoutopt.model.feature import Settings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Expr, describe
from layoutopt.model.predicates.elements import elements_of
from layoutopt.model.schema import Schema
from layoutopt.model.types import nested_parts, split_parts
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.expression import parse_expression

_POINT: Final = re.compile(r"struct\s*\((.+)\)", re.IGNORECASE | re.DOTALL)


def indexes_asked(
    texts: Sequence[str], schema: Schema, settings: Settings | None = None, udfs: Udfs = NO_UDFS
) -> tuple[IndexSpec, ...]:
    """The indexes that texts like ``user:bloom``, ``user:bloom:0.05`` or ``struct(lat, lon):geo-box`` ask for.

    Raises:
        SettingError: a text is of another form, or no load could build its index.
    """
    found = [_parsed(text, schema, settings, udfs) for text in texts]
    for spec in found:
        check_index(spec)
    return tuple(dict.fromkeys(found))


def _parsed(text: str, schema: Schema, settings: Settings | None, udfs: Udfs) -> IndexSpec:
    subject, _, kind = text.rpartition(":")
    parameter = _number(kind)
    if parameter is not None:
        subject, _, kind = subject.rpartition(":")
    if not subject:
        raise SettingError(f"--index {text!r} names no type; write COLUMN:TYPE, as in user:bloom")
    point = _POINT.fullmatch(subject)
    if point is None:
        expression = _of_elements(parse_expression(subject, schema, settings, udfs), text)
    else:
        parts = [parse_expression(part, schema, settings, udfs) for part in split_parts(point[1])]
        unstored = [describe(part) for part in parts if not is_stored(part)]
        if unstored:
            raise SettingError(f"--index {text!r}: {unstored[0]} is no column; name columns within struct(...)")
        expression = point_of(parts)
    try:
        return IndexSpec(expression, kind, parameter)
    except ValueError as error:
        raise SettingError(f"--index {text!r}: {error}") from error


def _of_elements(expression: Expr, text: str) -> Expr:
    """What an index of an expression is of: of an array its elements."""
    kind, parts = nested_parts(expression.type)
    if kind == "map":
        name = describe(expression)
        raise SettingError(f"--index {text!r}: {name} is a map; index map_keys({name}) or map_values({name})")
    if kind != "array":
        return expression
    elements = elements_of(expression)
    if elements is None:
        raise SettingError(
            f"--index {text!r}: the elements of {describe(expression)} are {', '.join(parts)}, which have no order "
            "here; index an array of texts, numbers or times"
        )
    return elements


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
