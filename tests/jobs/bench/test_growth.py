"""`python -m jobs.bench growth`: exponents, resumed measures, and in small the work that stages do, counted."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from jobs.bench import growth
from jobs.bench.brushing import make_rows, simulate_users
from jobs.bench.growth import Curve, fit_exponent, growth_report, plot_growth, run_growth
from layoutopt.errors import SettingError
from layoutopt.external.external_tables import read_schema
from layoutopt.features.selection import mine_all
from layoutopt.model.schema import Schema
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry

NO_WORDS: Callable[[str], None] = lambda sentence: None  # noqa: E731


def a_curve(stage: str, by: str, exponent: float, most: float) -> Curve:
    sizes = (100, 316, 1_000, 3_162, 10_000)
    seconds = tuple(1.0 + (size / 100) ** exponent for size in sizes)
    return Curve(stage, by, most, sizes, seconds, seconds, (2**20,) * 5, (10**6,) * 5, start=1.0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_an_exponent_is_that_of_the_work_after_the_start(exponent: float) -> None:
    assert a_curve("load", "rows", exponent, 1.0).exponent == pytest.approx(exponent, abs=1e-6)


def test_what_does_not_grow_at_small_sizes_is_not_fitted() -> None:
    assert fit_exponent([1, 10, 100, 1_000, 10_000], [7, 7, 7, 7, 70]) == pytest.approx(1.0)


def test_a_report_has_a_line_a_curve_and_a_plot_a_panel_for_what_grows(tmp_path: Path) -> None:
    drawn = {("load", "rows"): (1.0, 1.02), ("plan", "rows"): (0.4, 0.2), ("append", "blocks"): (0.0, 0.1)}
    curves = [a_curve(*named, *exponents) for named, exponents in drawn.items()]
    said = io.StringIO()
    Console(file=said, width=160).print(growth_report(curves))
    lines = [line.replace("│", " ").split() for line in said.getvalue().splitlines()]
    result = {(line[0], line[1]): line[-2:] for line in lines if line[1:2] and line[1] in ("rows", "blocks")}
    assert result == {named: [f"{exponent:.2f}", f"{most:g}"] for named, (exponent, most) in drawn.items()}
    plot_growth(curves, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000
    assert json.loads(json.dumps(curves[1].to_json()))["exponent"] == 0.4


@pytest.mark.long
def test_stages_are_measured_once_and_small_ones_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [replace(stage, sizes=(100, 1_000)) for stage in growth._STAGES if stage.by == growth.STATEMENTS]
    monkeypatch.setattr(growth, "_STAGES", stages)
    monkeypatch.setattr(growth, "_ROWS", 2_000)
    curves = run_growth(tmp_path, ["analyze"], NO_WORDS)
    assert [(curve.stage, curve.by, curve.sizes) for curve in curves] == [("analyze", "statements", (100, 1_000))]
    assert all(amount > 0 for curve in curves for amount in (*curve.seconds, *curve.processor, *curve.peaks))
    assert curves[0].bytes[1] > curves[0].bytes[0] > 0
    monkeypatch.setattr(growth, "run_layoutopt", lambda *words: pytest.fail(f"{words} was run before"))
    assert run_growth(tmp_path, ["analyze"], NO_WORDS) == curves


@pytest.mark.long
@pytest.mark.parametrize("stage", growth._STAGES, ids=lambda stage: stage.name)
def test_each_stage_has_what_it_needs(stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def command(*words: str) -> dict[str, int]:
        ran.append(words[0])
        if "-o" in words:
            Path(words[-1]).write_text("{}")
        if words[0] == "load":
            Path(words[2]).mkdir()
        return {"driver": 1}

    monkeypatch.setattr(growth, "run_layoutopt", command)
    monkeypatch.setattr(growth, "_ROWS", 2_000)
    monkeypatch.setattr(growth, "_STATEMENTS", 50)
    monkeypatch.setattr(growth, "_STAGES", [replace(other, sizes=(20, 200)) for other in growth._STAGES])
    run_growth(tmp_path, [stage.stage], NO_WORDS)
    assert stage.stage in ran
    made = {path.stem.rpartition("-")[0] for path in tmp_path.glob("*.json")} - {""}
    needed = {f"{name}-{stage.by}" for name in stage.needs}
    assert {stage.name, *needed} <= made


def test_an_unknown_stage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="unknown stage 'lod': expected analyze, evaluate, plan, load"):
        run_growth(tmp_path, ["lod"])


def count_calls(work: Callable[[], Any]) -> int:
    """Count the functions, also those of C, that some work calls."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.long
def test_the_work_of_an_analysis_grows_no_faster_than_its_statements(tmp_path: Path) -> None:
    pq.write_table(make_rows("trips", 100), tmp_path / "trips.parquet")
    schema = read_schema(str(tmp_path / "trips.parquet"))
    sizes, calls = (250, 500, 1_000), []
    for size in sizes:
        entries = [LogEntry(number, text) for number, text in enumerate(simulate_users("train", size // 20, size))]
        calls.append(count_calls(partial(_find_features, entries, schema)))
    assert fit_exponent(sizes, calls) < 1.05


def _find_features(entries: list[LogEntry], schema: Schema) -> None:
    mine_all(analyze(entries, schema, sample=250).queries, schema)
