"""The audit of a log: honest tables pass, and whatever is wrong in the catalog is found by the rows that it loses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.catalog.statistics import block_statistics
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE, FAILED
from layoutopt.inspect.audit import AuditReport, audit
from layoutopt.model.layout import Layout
from layoutopt.model.vectors import pack
from layoutopt.scan.table import Table
from tests.inspect.logs import LOG, logged
from tests.scan import builder
from tests.scan.builder import build, building
from tests.scan.corruptions import shrunk
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


def audited(table: Table, texts: list[str] = LOG) -> AuditReport:
    return audit(table, logged(texts))


@pytest.mark.parametrize("partition_by", [None, "year"])
@pytest.mark.parametrize("layouts", [None, GROUPS, OVERLAPPING], ids=["sop", "gsop", "gsop-r"])
def test_an_honest_table_passes(
    tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None, partition_by: str | None
) -> None:
    plan = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by=partition_by, segment_rows=70)
    report = audited(build(tmp_path, rows, plan))
    assert report.ok, report.losses
    assert report.rows == rows.num_rows
    assert [number for number, _ in report.unaudited] == [7]
    assert (report.queries, report.by_text, report.by_filter) == (12, 9, 2)
    assert report.proved["features"] > 0
    assert report.proved["statistics"] > 0
    assert (report.proved["partition"] > 0) == (partition_by is not None)


def test_proofs_are_counted(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    texts = [LOG[1], LOG[1], LOG[3]]
    amounts = table.scan(LOG[1]).explain().reads[0].skipped_by
    proved = audited(table, texts).proved
    assert proved == {name: 2 * amount.blocks for name, amount in amounts.items()}


@pytest.mark.parametrize("layouts", [None, GROUPS, OVERLAPPING], ids=["sop", "gsop", "gsop-r"])
def test_a_lost_bit_is_found(
    tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None, monkeypatch: pytest.MonkeyPatch
) -> None:

    def without_feature_0(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        changed = bits.copy()
        changed[:, 0] = False
        return pack(changed)

    monkeypatch.setattr(builder, "pack", without_feature_0)
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=layouts))
    report = audited(table)
    # An OR that a feature and a statistic skip together counts as skipped by statistics.
    assert "features" in {loss.mechanism for loss in report.losses} <= {"features", "statistics", "layout"}
    lost = {number for loss in report.losses for number in loss.queries}
    assert len(lost) > 0
    assert lost <= {0, 1, 2, 6, 8, 9}  # the queries on kind = 'air', which feature 0 subsumes


def test_a_wrong_maximum_is_found(tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        builder, "block_statistics", lambda *args: shrunk(block_statistics(*args), SCHEMA.names.index("id"))
    )
    table = build(tmp_path, rows, building(SCHEMA, blocking=builder.by_position(100)))
    high = max(rows["id"].to_pylist()[:100])
    (loss,) = audited(table, [f"SELECT id FROM t WHERE id = {high}", "SELECT id FROM t WHERE id < 0"]).losses
    assert (loss.mechanism, loss.queries) == ("statistics", (0,))
    assert loss.block == table.sources[0].blocks.block_id[0]
    assert loss.file == table.sources[0].blocks.files[0]


def test_a_wrong_partition_range_is_found(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, partition_by="year"))
    statistics = table.partition_statistics
    bounds = statistics.bounds["year"]
    wrong = replace(
        statistics, bounds={**statistics.bounds, "year": replace(bounds, low=bounds.low + 5, high=bounds.high + 5)}
    )
    table.__dict__["partition_statistics"] = wrong
    losses = audited(table, ["SELECT id FROM t WHERE year = 1995"]).losses
    assert {loss.mechanism for loss in losses} == {"partition"}
    assert {loss.file.split("/")[1] for loss in losses} == {"1995"}


def test_a_row_that_a_layout_lacks_is_found(tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = builder._pieces
    # Rows of feature 0 are left out of the layout that serves the queries about it.
    monkeypatch.setattr(
        builder,
        "_pieces",
        lambda plan, bits: [
            replace(piece, chosen=piece.chosen[1:]) if piece.layout == 1 and piece.part == 0 else piece
            for piece in pieces(plan, bits)
        ],
    )
    table = build_unchecked(tmp_path, rows, monkeypatch)
    losses = audited(table, ["SELECT id, kind FROM t WHERE kind IN ('air', 'rail')"]).losses
    assert {loss.mechanism for loss in losses} == {"layout"}
    assert losses[0].queries == (0,)


def build_unchecked(root: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> Table:
    replicas = [
        Layout(SCHEMA.names, (1,), SCHEMA.names, GROUPS[0].blocking),
        Layout(("id", "kind"), (0,), (), GROUPS[0].blocking),
    ]
    return build(root, rows, building(SCHEMA, CONDITIONS, layouts=replicas))


def test_the_command_line_names_the_block(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.sql"
    log.write_text(";\n".join(LOG[:6]) + ";\n", encoding="utf-8")
    honest, wrong = tmp_path / "honest", tmp_path / "wrong"
    build(honest, rows, building(SCHEMA, CONDITIONS))
    assert main(["verify", str(honest), "--queries", str(log), "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert main(["verify", str(honest), "--queries", str(log), "--sample", "0.5", "--json"]) == DONE
    sampled = json.loads(capsys.readouterr().out)
    assert (sampled["queries"], sampled["log_queries"]) == (3, 6)
    assert main(["verify", str(honest), "--queries", str(log), "--sample", "0.5"]) == DONE
    assert "not checked: 3 of the log's 6 queries" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr(builder, "pack", lambda bits: np.zeros((len(bits), 1), dtype=np.uint64))
    build(wrong, rows, building(SCHEMA, CONDITIONS))
    assert main(["verify", str(wrong), "--queries", str(log)]) == FAILED
    printed = capsys.readouterr()
    assert "features: block " in " ".join(printed.out.split())
    assert printed.err.count("\n") == 1
    assert "block" in printed.err
    assert main(["verify", str(honest), "--queries", str(tmp_path / "none.sql")]) == BAD_USAGE


def test_where_no_query_can_be_audited_nothing_is_proved(
    tmp_path: Path, rows: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "SELECT id FROM t WHERE cast(score AS string) = '0.5';\n"
    (tmp_path / "log.sql").write_text(text, encoding="utf-8")
    build(tmp_path / "t", rows, building(SCHEMA, CONDITIONS))
    assert main(["verify", str(tmp_path / "t"), "--queries", str(tmp_path / "log.sql")]) != DONE
    said = capsys.readouterr()
    assert "nothing is proved: no query could be audited" in " ".join(said.out.split())
    assert "could be audited, so nothing is proved" in said.err


def test_rows_are_judged_by_the_text_not_by_the_analysis(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, blocking=lambda part, _: part["id"].to_numpy() // 30))
    (query,) = logged(["SELECT id FROM t WHERE id >= 100"])
    (wrong,) = logged(["SELECT id FROM t WHERE id >= 250 AND id <= 251"])
    mistaken = replace(query, filter=wrong.filter)  # as if the analyser had misread the text
    assert not audit(table, [mistaken]).ok
    assert audit(table, [query]).ok
