"""What a table holds, and whether its plan still fits: from the catalog alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from layoutopt.catalog.commit import restore
from layoutopt.catalog.history import history
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import PlanError, StalePlanError
from layoutopt.inspect.drift import check_drift, measure_drift, skipped_share
from layoutopt.inspect.evaluate import evaluate
from layoutopt.inspect.status import current_plan, status
from layoutopt.model.query import Query
from layoutopt.scan.table import Table
from layoutopt.sql.scans import find_scans
from tests.scan.builder import Building, build, building
from tests.scan.tables import SCHEMA, some_rows

ROWS = some_rows()


def of_year(year: int) -> pa.Table:
    return ROWS.filter(pc.equal(ROWS["year"], year))


def queries(*conditions: str) -> tuple[Query, ...]:
    scans = [find_scans(f"SELECT id FROM t WHERE {text}", {"t": SCHEMA})[0] for text in conditions]
    return tuple(Query(i, "t", scan.columns, scan.filter, 1.0 + i) for i, scan in enumerate(scans))


def built(seed: int, *conditions: str) -> Building:
    made = building(SCHEMA, ["kind = 'air'"], partition_by="year")
    return replace(made, plan=replace(made.plan, seed=seed, queries=queries(*conditions)))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """1994 by an old plan, 1995 and 1996 by a new one, then 1994's twin 1994 again by the old."""
    root = tmp_path_factory.mktemp("status")
    old, new = built(1, "kind = 'air'"), built(2, "kind = 'air'", "kind = 'air' AND id < 9")
    build(root, pa.concat_tables([of_year(1994), of_year(1995)]), old, "20260101t000000z-a")
    build(root, of_year(1996), new, "20260102t000000z-a")
    return build(root, of_year(1994), old, "20260103t000000z-a")


def test_a_status_adds_up(table: Table) -> None:
    found = status(table.catalog)
    assert (found.table, found.snapshot, found.rows) == ("t", 2, 300)
    assert [(p.key, p.rows) for p in found.partitions] == [("1994", 100), ("1995", 100), ("1996", 100)]
    assert found.blocks == sum(p.blocks for p in found.partitions) == sum(s.blocks.n for s in table.sources)
    assert found.bytes == sum(int(s.blocks.bytes.sum()) for s in table.sources)
    by_plan = {plan.digest: plan for plan in found.plans}
    assert sorted(plan.partitions for plan in found.plans) == [1, 2]
    # Loading a partition again by the older plan does not bring that plan back.
    assert by_plan[current_plan(table.catalog).digest].current
    assert current_plan(table.catalog).seed == 2
    assert [(load.number, load.operation, load.changed, load.changed_rows) for load in found.loads] == [
        (2, "reload", ("1994",), 100),
        (1, "load", ("1996",), 100),
        (0, "load", ("1994", "1995"), 200),
    ]


def test_an_older_plan_never_comes_back(tmp_path: Path) -> None:
    old, new = built(1, "kind = 'air'"), built(2, "kind = 'sea'")
    table = build(tmp_path, of_year(1994), old, "20260101t000000z-a")
    for day, (year, made) in enumerate([(1995, new), (1994, old), (1994, new), (1994, old)], 2):
        table = build(tmp_path, of_year(year), made, f"2026010{day}t000000z-a")
        assert current_plan(table.catalog).seed == 2
    assert current_plan(build(tmp_path, of_year(1995), old, "20260106t000000z-a").catalog).seed == 1  # no other is left
    assert current_plan(build(tmp_path, of_year(1995), new, "20260107t000000z-a").catalog).seed == 2
    restore(table.catalog.files, 0)
    assert current_plan(build(tmp_path, of_year(1995), old, "20260108t000000z-a").catalog).seed == 1


def test_clocks_of_loaders_tell_nothing(tmp_path: Path) -> None:
    build(tmp_path, of_year(1994), built(1, "kind = 'air'"), "20260102t000000z-a")
    table = build(tmp_path, of_year(1995), built(2, "kind = 'sea'"), "20260101t000000z-a")
    assert current_plan(table.catalog).seed == 2


def test_a_restore_changes_only_what_has_other_rows(tmp_path: Path) -> None:
    made = built(1, "kind = 'air'")
    for number, rows in enumerate([ROWS, of_year(1994), of_year(1995).slice(10)]):
        table = build(tmp_path, rows, made, f"2026010{number}t000000z-a")
    restore(table.catalog.files, 0)
    assert [(entry.operation, entry.changed, entry.changed_rows) for entry in history(table.catalog.files)] == [
        ("load", ("1994", "1995", "1996"), 300),
        ("reload", ("1994",), 100),
        ("reload", ("1995",), 90),
        ("restore", ("1995",), 100),
    ]


def test_a_status_is_printed_and_json(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    root = table.catalog.files.root
    assert main(["status", root, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(status(table.catalog).to_json()))
    assert main(["status", root]) == DONE
    said = capsys.readouterr().out
    for text in ("300 rows", "1995", "current", "20260103t000000z-a"):
        assert text in said
    assert main(["status", root + "/nowhere"]) == BAD_USAGE


def test_a_share_is_what_evaluate_says_by_weight(table: Table) -> None:
    asked = queries("kind = 'air'", "price > 50", "kind = 'air'")
    results = evaluate(table, asked).queries
    scanned = sum(query.weight * result.rows_scanned for query, result in zip(asked, results, strict=True))
    assert skipped_share(table, asked) == pytest.approx(1 - scanned / (300 * sum(query.weight for query in asked)))


def test_a_log_that_skips_much_less_is_refused(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = measure_drift(table, queries("kind = 'air'"))
    assert (same.queries_then, same.queries_now) == (2, 1)
    check_drift(same, 0.1)
    other = measure_drift(table, queries("price > 1"))
    assert other.skipped_then > 0.5 > other.skipped_now + 0.4
    with pytest.raises(StalePlanError, match="analyse the log and plan again"):
        check_drift(other, 0.1)
    check_drift(other, 1.0)
    (tmp_path / "log.sql").write_text("SELECT id FROM t WHERE price > 1;")
    words = ["drift", table.catalog.files.root, str(tmp_path / "log.sql")]
    assert main([*words, "--json"]) == StalePlanError.exit_code == 5
    said = capsys.readouterr()
    assert json.loads(said.out)["fallen"] == pytest.approx(other.fallen)
    assert said.err.count("\n") == 1
    assert main([*words, "--most", "1"]) == DONE
    assert "The plan still fits: " in capsys.readouterr().out
    assert main([*words, "--most", "1", "--json"]) == DONE
    said = json.loads(capsys.readouterr().out)
    assert (said["most"], said["fits"]) == (1.0, True)


def test_a_plan_without_queries_can_not_drift(tmp_path: Path) -> None:
    table = build(tmp_path, of_year(1994), built(1))
    with pytest.raises(PlanError, match="has no training queries"):
        measure_drift(table, queries("price > 1"))
