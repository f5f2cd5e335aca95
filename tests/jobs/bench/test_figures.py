"""The frame: figures of made-up steps are run, compared with the thesis, written and shown; nothing needs Spark."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.bench.__main__ import main
from jobs.bench.chapter5 import tpch_suite
from jobs.bench.experiment import Session
from jobs.bench.figure import ALL, Claim, Figure, Measure, Measured, Point, Suite, choose_figures, read_figures
from jobs.bench.results import keep_earlier, run_figures
from jobs.bench.results_report import pivot, read_results, results_page, with_tables
from jobs.bench.steps import Step, code_version
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import LayoutoptError, SettingError
from tests.jobs.bench.without_spark import no_spark

FIGURES = read_figures("tpch")
CLAIMS = (
    Claim("read by SOP", 4, "3.7", ("cells", "SOP"), unit="%", better="less"),
    Claim("all over SOP", 20, "3.7", (ALL, "all"), (ALL, "SOP"), better="more"),
    Claim("of nobody", 1, "3.7", ("cells", "nobody"), better="more"),
)


def made_up(name: str, shape: Any = "stacked") -> Figure:
    claims = () if shape == "lines" else CLAIMS
    title = f"What {name} <shows>"
    return Figure(name, title, "figure 3.9", "%", "method", shape, claims, note="A note.")


def measure(figure: Figure, folder: Path, fails: Exception | None = None) -> Measure:
    def make() -> dict[str, object]:
        if fails is not None:
            raise fails
        return {"cells": 2, "tids": 3}

    step = Step(f"measuring {figure.name}", folder / f"{figure.name}.json", make)

    def read() -> Measured:
        product = step.read()
        points = [Point("cells", "all", 100.0), *(Point(unit, "SOP", product[unit]) for unit in ("cells", "tids"))]
        if figure.shape == "lines":
            points = [Point("ours", 1.0, 2.0), Point("ours", 10.0, 3.0)]
        return Measured(points, {"rows": 1000}, [{"method": "SOP <b>", "bytes, MB": 1.5}])

    return Measure([step], read)


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run_some(tmp_path: Path) -> Run:
    """Runs those of some figures that are named; one may fail."""
    figures = {"3.1": made_up("3.1"), "4.1": made_up("4.1", "bars"), "5.1": made_up("5.1", "lines")}

    def run(*names: str, said: list[str] | None = None, fails: Exception | None = None) -> dict[str, Any]:
        def suite(spark: Session) -> Suite:
            def measures() -> dict[str, Measure]:
                return {
                    name: measure(figure, tmp_path, fails if name == "4.1" else None)
                    for name, figure in figures.items()
                }

            return replace(tpch_suite(0.1, tmp_path, spark), figures=figures, measures=measures)

        heard = [] if said is None else said
        folder, document = run_figures(suite, names=names, results=tmp_path / "results", say=heard.append)
        assert read_results(folder / "results.json") == document
        return dict(document)

    return run


def test_ours_are_read_off_points_and_judged() -> None:
    measured = Measured((Point("cells", "all", 100.0), Point("cells", "SOP", 2.0), Point("tids", "SOP", 3.0)))
    values = [claim.measured_value(measured) for claim in CLAIMS]
    assert values == [2.0, 20.0, None]
    verdicts = [claim.verdict(value) for claim, value in zip(CLAIMS, values, strict=True)]
    assert verdicts == ["ahead", "ahead", ""]
    worse = Measured((Point("cells", "all", 100.0), Point("cells", "SOP", 6.0)))
    assert [claim.verdict(claim.measured_value(worse)) for claim in CLAIMS] == ["behind", "behind", ""]


def test_one_figure_is_run_alone_and_the_others_are_said_not_to_be_there(run_some: Run, tmp_path: Path) -> None:
    said: list[str] = []
    document = run_some("3.1", said=said)
    assert said == ["3.1: measuring 3.1"]
    assert {name: of["state"] for name, of in document["figures"].items()} == {
        "3.1": "measured",
        "4.1": "not run",
        "5.1": "not run",
    }
    entry = document["figures"]["3.1"]
    assert entry["code"] == [code_version()]
    assert entry["command"] == "python -m jobs.bench tpch --sf 0.1 --figures 3.1"
    with (tmp_path / "results" / "csv" / "3.1.csv").open() as stream:
        assert list(csv.reader(stream))[1] == ["cells", "all", "100.0", "%"]


def test_a_run_takes_up_where_it_stopped(run_some: Run) -> None:
    run_some("3.1")
    said: list[str] = []
    document = run_some(said=said)
    assert said == ["4.1: measuring 4.1", "5.1: measuring 5.1"]
    assert {of["state"] for of in document["figures"].values()} == {"measured"}


def test_figures_of_earlier_results_are_kept_until_they_are_measured_again(run_some: Run, tmp_path: Path) -> None:
    before = run_some("3.1", "4.1")
    (tmp_path / "3.1.json").unlink()
    for _ in range(2):
        document = run_some("4.1")
        assert document["figures"]["3.1"] == before["figures"]["3.1"]
        assert document["figures"]["5.1"]["state"] == "not run"
        assert document["seconds"] == pytest.approx(sum(before["figures"][name]["seconds"] for name in ("3.1", "4.1")))
    elsewhere = {**before, "machine": "another one", "figures": {}}
    assert keep_earlier(elsewhere, before) == elsewhere


@pytest.mark.parametrize("error", [LayoutoptError("the disk is full"), OSError("the disk is full\nat last")])
def test_a_figure_that_fails_is_told_and_the_others_are_run(run_some: Run, tmp_path: Path, error: Exception) -> None:
    told = "the disk is full" if isinstance(error, LayoutoptError) else "OSError: the disk is full"
    with pytest.raises(LayoutoptError, match=f"4.1: {told}$"):
        run_some(fails=error)
    found = read_results(tmp_path / "results" / "results.json")["figures"]
    assert (found["4.1"]["state"], found["4.1"]["reason"]) == ("failed", told)
    assert found["5.1"]["state"] == "measured"
    assert "the disk is full" in (tmp_path / "results" / "index.html").read_text()


@pytest.mark.long
def test_products_of_other_code_are_marked(run_some: Run, tmp_path: Path) -> None:
    run_some()
    record = tmp_path / ".4.1.json.made"
    record.write_text(json.dumps({"seconds": 90.0, "code": "0.0.1 at 1234567"}))
    document = run_some()
    assert document["figures"]["4.1"]["code"] == ["0.0.1 at 1234567"]
    assert document["seconds"] >= 90
    assert document["figures"]["4.1"]["load"] is None
    assert document["figures"]["3.1"]["load"] >= 0
    page = results_page(document)
    assert page.count("Made by other code than this page") == 1


def test_the_page_stands_alone_and_says_first_where_we_fall_behind(run_some: Run) -> None:
    document = run_some()
    page = results_page(document)
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings[:2] == ["Where we fall behind the thesis", "At a glance"]
    assert page.count("<svg") == 4
    assert "<shows>" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    for state in ("fall behind", "SOP &lt;b&gt;", "not measured"):
        assert state in page


def test_tables_between_markers_are_the_results(run_some: Run) -> None:
    document = run_some()
    end = "<!-- results end -->"
    text = f"before\n<!-- results: 5.1 -->\nwhat stood here\n{end}\n<!-- results: claims -->\n{end}\nafter"
    written = with_tables(text, document)
    assert "stood" not in written
    assert "| SOP <b> | 1.5 |" in written
    assert "all over SOP" in written
    assert (written[:7], written[-5:]) == ("before\n", "after")
    assert with_tables(written, document) == written
    document["figures"]["5.1"]["details"][0]["bytes, MB"] = 1.6
    assert with_tables(written, document) != written
    with pytest.raises(SettingError, match=r"'9\.9', which was not measured"):
        with_tables("<!-- results: 9.9 -->\n<!-- results end -->", document)


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(SettingError, match="no layoutopt-thesis-results of version 1"):
        read_results(tmp_path / "results.json")
    with pytest.raises(SettingError, match=r"bench tpch"):
        read_results(tmp_path / "none.json")


def test_figures_are_chosen_by_name_number_and_chapter() -> None:
    assert [figure.name for figure in choose_figures(FIGURES, ["3.5"])] == ["3.5a", "3.5b", "3.5c"]
    assert {figure.chapter for figure in choose_figures(FIGURES, ["5"])} == {"5"}
    assert len(choose_figures(FIGURES, [])) == len(FIGURES)
    with pytest.raises(SettingError, match=r"'9\.9', which is not a figure: did you mean '5\.9'"):
        choose_figures(FIGURES, ["9.9"])


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
def test_every_figure_says_where_the_thesis_has_it_and_names_its_steps(figure: Figure, tmp_path: Path) -> None:
    steps = tpch_suite(0.1, tmp_path, no_spark).measures()[figure.name].steps
    assert steps
    assert re.search(r"\d\.\d", figure.place)
    assert all(claim.thesis > 0 and claim.place for claim in figure.claims)
    assert not any(step.product.exists() for step in steps)


def test_points_become_a_table() -> None:
    points = [{"series": "a", "x": 1.0, "value": 2.0}, {"series": "b", "x": 5000.0, "value": 1234.5}]
    assert pivot({"points": points, "axis": "rows"}) == (["rows", "a", "b"], [["1", "2", ""], ["5,000", "", "1,234"]])


def test_the_command_line_lists_figures_refuses_others_and_writes_a_readme(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tpch", "--figures", "list", "--json"]) == DONE
    assert list(json.loads(capsys.readouterr().out)) == list(FIGURES)
    assert main(["tpch", "--figures", "9.9", "--folder", str(tmp_path)]) == BAD_USAGE
    assert "'9.9', which is not a figure" in capsys.readouterr().err
    readme = tmp_path / "README.md"
    readme.write_text("nothing is marked here")
    results = str(Path(__file__).parents[3] / "docs" / "results")
    assert main(["tpch", "--readme", str(readme), "--results", results]) == DONE
    assert "are up to date" in capsys.readouterr().out
    assert main(["tpch", "--readme", str(tmp_path / "none.md"), "--results", results]) == BAD_USAGE


def test_query_times_beside_the_results_become_a_table(tmp_path: Path) -> None:
    results, readme = tmp_path / "results", tmp_path / "README.md"
    results.mkdir()
    shutil.copy(Path(__file__).parents[3] / "docs" / "results" / "results.json", results)
    summary = {"queries": 80, "rounds": 5, "ratio": 3.284, "slowed": 1}
    ways = {"plain Parquet": {"seconds": 19.7}, "optimised table": {"seconds": 6.0}}
    (results / "query.json").write_text(json.dumps({"chapter3": {"spark": {**summary, **ways}}}), encoding="utf-8")
    readme.write_text("<!-- results: query -->\n<!-- results end -->\n", encoding="utf-8")
    assert main(["tpch", "--readme", str(readme), "--results", str(results)]) == DONE
    assert "| chapter3 | 80 | spark | 19.70 | 6.00 | 3.28 | 1 |" in readme.read_text(encoding="utf-8")
