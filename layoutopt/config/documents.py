"""The documents that settings name: plans, features files and calibrations, told apart where they were swapped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, TypeVar

from layoutopt.errors import PlanError
from layoutopt.model.documents import Document
from layoutopt.model.engine_costs import Calibration
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan

Found = TypeVar("Found", bound=Document)

DEFAULT_PLAN: Final = Path("plan.json")

_KINDS: Final[dict[type[Document], tuple[str, str]]] = {
    FeaturesDocument: ("a features file", "layoutopt analyze"),
    Plan: ("a plan", "layoutopt plan"),
    Calibration: ("a calibration", "layoutopt calibrate"),
}


def read_features(path: Path) -> FeaturesDocument:
    """The features document in a file.

    Raises:
        PlanError: the file can't be read, or holds something else; the message names it.
    """
    return _read(path, FeaturesDocument)


def read_plan(path: Path) -> Plan:
    """The plan in a file.

    Raises:
        PlanError: the file can't be read, or holds something else; the message names it.
    """
    return _read(path, Plan)


def read_calibration(path: Path) -> Calibration:
    """The calibration in a file.

    Raises:
        PlanError: the file can't be read, or holds something else; the message names it.
    """
    return _read(path, Calibration)


def _read(path: Path, wanted: type[Found]) -> Found:
    kind, maker = _KINDS[wanted]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{str(path)!r} can't be read ({error.strerror}); make it with `{maker}`") from error
    try:
        return wanted.loads(data)
    except PlanError as error:
        found = _kind_of(data)
        if found is wanted:
            raise PlanError(f"{str(path)!r} can't be used: {error}") from error
        other = f"no {kind.split(' ', 1)[1]}" if found is None else f"{_KINDS[found][0]}, not {kind}"
        raise PlanError(f"{str(path)!r} is {other}; give a file that `{maker}` wrote") from error


def _kind_of(data: bytes) -> type[Document] | None:
    """What a document says it is; None where it says nothing."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    named = value.get("format") if isinstance(value, dict) else None
    return next((kind for kind in _KINDS if kind.form.constants["format"] == named), None)
