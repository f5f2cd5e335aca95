"""`layoutopt mine`: plans see the older queries, and are judged by the newest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.bench.brushing import texts_of, write_source
from layoutopt.cli.app import main
from layoutopt.config.documents import read_features
from layoutopt.config.measuring import MineSettings
from layoutopt.errors import LogError
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.query import Query
from layoutopt.spark.planning.method_comparison import BOUND, compare_methods, comparison_on_log, hold_out_newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def query(id: int, timestamp: str | None) -> Query:
    return Query(id, "t", ("a",), Filter.of(TRUE), timestamp=timestamp)


def test_the_newest_statements_are_held_back_whole() -> None:
    days = [f"2026-01-{day:02}T00:00:00" for day in (9, 3, 1, 2, 8, 7, 6, 5)]
    seen, unseen = hold_out_newest([query(i, day) for i, day in enumerate(days) for _ in range(2)])
    assert [one.id for one in unseen] == [4, 4, 0, 0]
    assert {one.id for one in seen} == {1, 2, 3, 5, 6, 7}
    _, last = hold_out_newest([query(i, None if i == 3 else day) for i, day in enumerate(days)])
    assert [one.id for one in last] == [6, 7]  # without all times the log's order counts


def test_what_it_needs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LogError, match="7 usable statements, too few to hold some out; give one of 8"):
        hold_out_newest([query(i, None) for i in range(7)])
    (tmp_path / "source.parquet").touch()
    assert main(["mine", str(tmp_path / "source.parquet"), str(tmp_path / "no.sql")]) == 2
    assert "no.sql' can't be read" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_methods_are_compared_on_the_newest_queries(spark: SparkSession, tmp_path: Path) -> None:
    source, log = tmp_path / "source", tmp_path / "log.jsonl"
    write_source("trips", 4_000, source)
    texts = texts_of("trips", "train")[:24]
    lines = [{"sql": text, "timestamp": f"2026-01-01T00:{59 - i:02}:00"} for i, text in enumerate(texts)]
    log.write_text("\n".join(map(json.dumps, lines)))
    settings = MineSettings(source=str(source), log=str(log), partition_by="Week", folder=tmp_path / "mine")
    of = comparison_on_log(settings, lambda sentence: None)
    found = compare_methods(of, ("sort", "input-order"), spark, lambda sentence: None)
    assert 0 < found[BOUND]["bytes"] <= found["sort"]["bytes"] < found["input-order"]["bytes"]
    held = of.unseen()
    assert {one.id for one in held} == set(range(6))  # the log's first are its newest
    assert {one.id for one in read_features(of.features).queries}.isdisjoint(range(6))
