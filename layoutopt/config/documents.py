"""The documents that settings name: plans and features files, told apart where they were swapped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from layoutopt.errors import PlanError
from layoutopt.model.document import FEATURES_FORMAT, FeaturesDocument
from layoutopt.model.layout import PLAN_FORMAT, Plan

Document = TypeVar("Document")

DEFAULT_PLAN: Final = Path("plan.json")

_KINDS: Final = {
    FEATURES_FORMAT: ("a features file", "layoutopt analyze"),
    PLAN_FORMAT: ("a plan", "layoutopt plan"),
}


def read_features(path: Path) -> FeaturesDocument:
    """The features document in a file.

    Raises:
        PlanError: the file can't be read, or holds something else; the message names it.
    """
    return _read(path, FEATURES_FORMAT, FeaturesDocument.loads)


def read_plan(path: Path) -> Plan:
    """The plan in a file.

    Raises:
        PlanError: the file can't be read, or holds something else; the message names it.
    """
    return _read(path, PLAN_FORMAT, Plan.loads)


def _read(path: Path, wanted: str, loads: Callable[[bytes], Document]) -> Document:
    kind, maker = _KINDS[wanted]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{str(path)!r} can't be read ({error.strerror}); make it with `{maker}`") from error
    try:
        return loads(data)
    except PlanError as error:
        found = _format_of(data)
        if found == wanted:
            raise PlanError(f"{str(path)!r} can't be used: {error}") from error
        other = f"{_KINDS[found][0]}, not {kind}" if found in _KINDS else f"no {kind.split(' ', 1)[1]}"
        raise PlanError(f"{str(path)!r} is {other}; give a file that `{maker}` wrote") from error


def _format_of(data: bytes) -> str:
    """What a document says it is; empty where it says nothing."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    return str(value.get("format", "")) if isinstance(value, dict) else ""
