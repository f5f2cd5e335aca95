"""The worst queries of a log, and the page that shows what a log reads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.errors import SettingError
from layoutopt.inspect.evaluate import WorstQuery, evaluate, worst_queries
from layoutopt.report.pages import evaluation_page, plot_regained
from layoutopt.scan.table import Table
from tests.inspect.logs import logged
from tests.report.html import check_page
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

LOG = [
    "SELECT id FROM t WHERE kind = 'air' AND price > 60",
    "SELECT id FROM t WHERE score > 0.5 AND '<b>' <> kind",
    "SELECT count(*) FROM t",
    "SELECT id FROM t WHERE kind = 'no such kind'",
    "SELECT id FROM t WHERE kind = 'air' AND price > 60",
    "SELECT id FROM t WHERE id > -5 AND rand() < 0.5",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return build(tmp_path_factory.mktemp("sop"), some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))


def worst(table: Table, actual: bool) -> list[WorstQuery]:
    queries = logged(LOG)
    return worst_queries(table, queries, evaluate(table, queries, actual).queries)


def test_the_worst_come_first_with_their_reasons(table: Table) -> None:
    found = worst(table, actual=True)
    assert ids(found) == [5, 3, 0, 1]  # every row matches query 2; queries 0 and 4 are one
    first = found[0]
    assert (first.runs, first.rows_wasted, first.evaluation.rows_scanned) == (1.0, None, 300)  # which match is random
    assert [(one.reason, one.text) for one in first.conjuncts] == [
        ("no-feature", "id >= -4"),
        ("unusable", "RAND() < 0.5"),
    ]
    assert found[1].rows_wasted is not None
    assert found[2].runs == 2.0
    for one in found:
        assert json.loads(json.dumps(one.to_json())) == one.to_json()


def test_without_matching_rows_what_is_read_counts(table: Table) -> None:
    found = worst(table, actual=False)
    assert ids(found)[:2] == [2, 5]
    assert {one.rows_wasted for one in found} == {None}
    assert len(worst_queries(table, logged(LOG), evaluate(table, logged(LOG)).queries, most=2)) == 2


def ids(queries: list[WorstQuery]) -> list[int]:
    return [query.evaluation.id for query in queries]


@pytest.mark.parametrize("actual", [True, False])
def test_the_page_of_an_evaluation_stands_alone(table: Table, actual: bool) -> None:
    result, skipped = evaluate(table, logged(LOG), actual), {"parse-error": 1}
    page = evaluation_page(result, worst(table, actual), skipped)
    check_page(page)
    assert not re.search(r"@import|url\((?!#)", page)
    assert page.count("<svg") == (3 if actual else 2)
    assert "&lt;b&gt;" in page
    assert "'<b>'" not in page
    for text in ("no-feature", "parse-error", "metadata factor", "skipped by features", "query 5"):
        assert text in page
    assert page == evaluation_page(result, worst(table, actual), skipped)


def test_an_empty_table_has_a_page(tmp_path: Path) -> None:
    table = build(tmp_path, pa.table(some_rows()).slice(0, 0), building(SCHEMA, CONDITIONS))
    check_page(evaluation_page(evaluate(table, logged(LOG), actual=True), [], {}))


def test_the_command_line_writes_it(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, page = tmp_path / "log.sql", tmp_path / "report.html"
    log.write_text(";\n".join(LOG) + ";\n", encoding="utf-8")
    root = table.catalog.files.root
    assert main(["evaluate", root, str(log), "--actual", "--html", str(page), "--json"]) == DONE
    data = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in data["worst"]] == [5, 3, 0, 1]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["evaluate", root, str(log)]) == DONE
    printed = capsys.readouterr().out
    assert "scanning factor" in printed
    assert "no-feature" in printed


def test_the_suffix_of_a_plot_says_which_kind_of_image(tmp_path: Path) -> None:
    curve = [(0.0, 0.0), (0.2, 0.7), (1.0, 1.0)]
    plot_regained(curve, tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    with pytest.raises(SettingError, match=r"curve\.txt"):
        plot_regained(curve, tmp_path / "curve.txt")
