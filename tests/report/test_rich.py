"""Values hold what is to be said; only the report, the command line and the experiments draw it."""

from __future__ import annotations

import re
from pathlib import Path

import layoutopt

PACKAGE = Path(layoutopt.__file__).parent


def test_only_these_rooms_draw() -> None:
    importers = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) rich\b|__rich__", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importers <= {"report", "cli", "bench"}
