"""`bench scaling`: stages run once each, in order, and runs of several scale factors are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from layoutopt.bench import scaling
from layoutopt.bench.experiment import Experiment, Source
from layoutopt.bench.query_times import OPTIMISED, PLAIN
from layoutopt.bench.scaling import STAGES, VARIANTS, plot_scaling, read_runs, scaling_report, scaling_steps
from layoutopt.bench.steps import run
from layoutopt.bench.tpch import Tpch, TpchData


def stream(root: Path, name: str) -> Experiment:
    return Tpch(TpchData(0.1, root), lambda: pytest.fail("no step here needs Spark")).stream(name)


def test_a_run_is_taken_up_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def command(verb: str, *words: str) -> dict[str, int]:
        ran.append(verb)
        assert verb != "plan" or Path(words[-1]).parent.is_dir()
        if ran.count("verify") == 1 and verb == "verify":
            raise KeyboardInterrupt
        return {"jvm": 1}

    monkeypatch.setattr(scaling, "run_layoutopt", command)
    monkeypatch.setattr(scaling, "_query", lambda of, table: {"seconds": 1.0, "peaks": {}})
    for name in VARIANTS:
        product = stream(tmp_path, name).features().product
        product.parent.mkdir(parents=True, exist_ok=True)
        product.write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        run(scaling_steps(stream(tmp_path, "chapter4"))["querying"], lambda sentence: None)
    run(scaling_steps(stream(tmp_path, "chapter4"))["querying"], lambda sentence: None)
    assert ran == ["plan", "load", "verify", "verify"]


def test_copies_are_planned_for_within_their_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def command(*words: str) -> dict[str, int]:
        asked.append(words)
        return {}

    monkeypatch.setattr(scaling, "run_layoutopt", command)
    for name in VARIANTS:
        scaling_steps(stream(tmp_path, name))["planning"].make()
    assert ["--storage-budget" in words for words in asked] == [False, False, True]


def a_run(root: Path, scale: str, rows: int) -> None:
    folder = root / f"sf{scale}" / "experiments" / "scaling" / "chapter3"
    folder.mkdir(parents=True)
    for stage in STAGES:
        content: dict[str, Any] = {"seconds": rows / 1e5, "peaks": {"jvm": 2**30, "worker": 2**20}}
        (folder / f"{stage}.json").write_text(json.dumps(content))
    (folder / "rows.json").write_text(json.dumps({"rows": rows}))


def test_scale_factors_are_compared(tmp_path: Path) -> None:
    a_run(tmp_path, "1", 6_000_000)
    a_run(tmp_path, "0.1", 600_000)
    found = read_runs(tmp_path)
    assert list(found) == ["chapter3"]
    assert list(found["chapter3"]) == ["0.1", "1"]
    assert [of["times_faster"] for of in found["chapter3"].values()] == [{}, {}]
    assert scaling_report(found).row_count == 2
    plot_scaling(found, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


def test_queries_are_timed_beside_plain_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path, "0.1", 600_000)
    timings = {PLAIN: [[3.0, 5.0], [4.0, 4.0], [90.0, 1.0]], OPTIMISED: [[1.0, 1.0], [2.0, 2.0], [1.0, 0.0]]}

    def timed(
        session: object, before: Source, table: Path, texts: Sequence[str], engine: str, rounds: int
    ) -> dict[str, Any]:
        assert table == stream(tmp_path, "chapter3").source.folder / "scaling" / "chapter3" / "table"
        assert (engine, len(texts)) == ("spark", scaling.QUERIES)
        return {"timings": {way: {"planning": [], "total": seconds} for way, seconds in timings.items()}}

    monkeypatch.setattr(scaling, "time_table", timed)
    run(scaling.timing_step(stream(tmp_path, "chapter3"), "spark"), lambda sentence: None)
    found = read_runs(tmp_path)
    assert found["chapter3"]["0.1"]["times_faster"] == {"spark": 4.0}
    assert list(scaling_report(found).columns[-2].cells) == ["4.00x"]
