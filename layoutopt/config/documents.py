"""Read the documents that settings name: plans and features files; errors tell them apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, TypeVar

from layoutopt.errors import PlanError
from layoutopt.model.documents import Document
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan

AnyDocument = TypeVar("AnyDocument", bound=Document)

DEFAULT_PLAN: Final = Path("plan.json")

_KINDS: Final[dict[type[Document], tuple[str, str]]] = {
    FeaturesDocument: ("a features file", "layoutopt analyze"),
    Plan: ("a plan", "layoutopt plan"),
}


def read_features(path: Path) -> FeaturesDocument:
    """Read a features file.

    Raises:
        PlanError: the file can't be read, or is another kind of file.
    """
    return _read(path, FeaturesDocument)


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        PlanError: the file can't be read, or is another kind of file.
    """
    return _read(path, Plan)


def _read(path: Path, wanted: type[AnyDocument]) -> AnyDocument:
    kind, maker = _KINDS[wanted]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{str(path)!r} can't be read ({error.strerror}); make it with `{maker}`") from error
    try:
        return wanted.loads(data)
    except PlanError as error:
        actual = _detect_kind(data)
        if actual is wanted:
            raise PlanError(f"{str(path)!r} can't be used: {error}") from error
        nature = f"not {kind}" if actual is None else f"{_KINDS[actual][0]}, not {kind}"
        raise PlanError(f"{str(path)!r} is {nature}; give a file that `{maker}` wrote") from error


def _detect_kind(data: bytes) -> type[Document] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    named = value.get("format") if isinstance(value, dict) else None
    return next((kind for kind in _KINDS if kind.form.constants["format"] == named), None)
