"""Indexes as users ask for them: ``COLUMN:TYPE`` or ``COLUMN:TYPE:NUMBER``."""

from __future__ import annotations

from collections.abc import Sequence

from layoutopt.errors import SettingError
from layoutopt.indexes.registry import check_index
from layoutopt.model.feature import Settings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.schema import Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.expression import parse_expression


def indexes_asked(
    texts: Sequence[str], schema: Schema, settings: Settings | None = None, udfs: Udfs = NO_UDFS
) -> tuple[IndexSpec, ...]:
    """The indexes that texts like ``user:bloom``, ``lower(email):ngrams`` or ``user:bloom:0.05`` ask for.

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
    expression = parse_expression(subject, schema, settings, udfs)
    try:
        return IndexSpec(expression, kind, parameter)
    except ValueError as error:
        raise SettingError(f"--index {text!r}: {error}") from error


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
