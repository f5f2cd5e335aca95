"""The results as one HTML page that stands alone: where we fall behind first, then the story, then each figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def results_page(document: Mapping[str, Any]) -> str:
    """The page of a ``results.json``."""
    return str(document["code"])
