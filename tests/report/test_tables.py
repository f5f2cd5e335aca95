"""What the verbs print."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import layoutopt
from layoutopt.catalog.history import HistoryEntry
from layoutopt.report.tables import history_report, print_history, print_load
from layoutopt.report.texts import format_bytes
from tests.report.printing import printed


def test_a_load_says_what_it_wrote_and_its_notes() -> None:
    class Report:
        snapshot, rows, blocks, files, bytes = 2, 1564, 16, 7, 435743
        partitions = tuple(f"p{i}" for i in range(30))
        notes = ("rare vectors were joined",)

    said = printed(print_load, cast("Any", Report()))
    assert all(text in said for text in ("Snapshot 2", "1,564 rows", "435.7 KB", "30 partition(s): p0, p1"))
    assert "p20" not in said
    assert "rare vectors were joined" in said


def test_history_has_a_line_a_snapshot() -> None:
    few = HistoryEntry(4, "2026-01-01T00:00:00+00:00", "load", "a", 1234, 2, ("dt1", "[red]"), 7, 3)
    many = replace(few, changed=tuple(f"dt{i}" for i in range(9)))
    said = printed(print_history, [few, many])
    assert all(text in said for text in ("2026-01-01", "1,234", "dt1, [red]", "dt3 and 5 more"))
    assert "dt4" not in said
    assert "unknown: vacuum" in printed(print_history, [replace(few, changed=None, changed_rows=None)])
    assert json.loads(json.dumps(history_report([few]))) == [
        {
            "snapshot": 4, "parent": 3, "created_at": few.created_at, "operation": "load", "partitions": 2,
            "rows": 1234, "changed": ["dt1", "[red]"], "changed_rows": 7, "load_id": "a",
        }
    ]  # fmt: skip


def test_bytes_are_readable() -> None:
    assert [format_bytes(count) for count in (0, 999, 1000, 5e15)] == ["0 B", "999 B", "1.0 KB", "5000.0 TB"]


def test_only_these_rooms_draw() -> None:
    package = Path(layoutopt.__file__).parent
    importers = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if re.search(r"^\s*(from|import) rich\b|__rich__", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importers <= {"report", "cli"}
