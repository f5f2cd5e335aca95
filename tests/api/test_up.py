"""One call from a source and its log to a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import layoutopt

ROWS = pa.table({"id": range(600), "country": ["FR", "DE", "PL"] * 200, "amount": [i * 7 % 100 for i in range(600)]})


def test_rows_are_laid_out_for_their_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutopt.planning.automatic.CANDIDATES", ("input-order", "cuts"))  # all take minutes
    log = tmp_path / "log.sql"
    log.write_text("SELECT id FROM t WHERE country = 'FR';\n" * 8)
    report = layoutopt.up(ROWS.to_pandas(), log, tmp_path / "out", partition_by="country")
    assert (report.table, report.load.partitions) == (str(tmp_path / "out" / "table"), ("DE", "FR", "PL"))
    assert repr(report).startswith(f"UpReport(table={report.table!r}, queries=8, ")
    assert report.evaluation.totals.rows_scanned == 8 * 200
    assert layoutopt.load(ROWS, report.table, tmp_path / "out" / "plan.json").already == ("DE", "FR", "PL")
    assert layoutopt.open_table(report.table).rows == 600
