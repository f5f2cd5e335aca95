"""The indexes of a plan: those that ``plan --index`` names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layoutopt.errors import SettingError
from layoutopt.indexes.registry import check_index
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.sql.expression import parse_expression


def indexes_asked(texts: Sequence[str], document: FeaturesDocument) -> tuple[IndexSpec, ...]:
    """The indexes that texts like ``user:bloom``, ``lower(email):ngrams`` or ``user:bloom:0.05`` ask for.

    Raises:
        SettingError: a text is of another form, or no load could build its index.
    """
    found = [_parsed(text, document) for text in texts]
    for spec in found:
        check_index(spec)
    return tuple(dict.fromkeys(found))


def with_indexes(plan: Plan, specs: Sequence[IndexSpec]) -> Plan:
    """The plan with these indexes too."""
    return replace(plan, indexes=tuple(dict.fromkeys((*plan.indexes, *specs))))


def _parsed(text: str, document: FeaturesDocument) -> IndexSpec:
    subject, _, kind = text.rpartition(":")
    parameter = _number(kind)
    if parameter is not None:
        subject, _, kind = subject.rpartition(":")
    if not subject:
        raise SettingError(f"--index {text!r} names no type; write COLUMN:TYPE, as in user:bloom")
    expression = parse_expression(subject, document.schema, document.features.settings)
    try:
        return IndexSpec(expression, kind, parameter)
    except ValueError as error:
        raise SettingError(f"--index {text!r}: {error}") from error


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
