"""The brushing workloads: the same rows and texts every time, and texts that layoutopt can use."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.bench import brushing
from jobs.bench.brushing import SOURCES, make_rows, texts_of, workload, write_source
from jobs.bench.comparison import compare, comparison_of, comparison_report, run_brushing
from jobs.bench.experiment import ROLES
from jobs.bench.method_comparison import BOUND
from layoutopt.errors import SettingError
from layoutopt.sql.schema import schema_from
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import read_log

TEXTS = {"weather": (1_500, 301), "movies": (1_503, 299), "trips": (1_500, 300)}


@pytest.mark.parametrize("name", SOURCES)
def test_sources_have_all_the_rows_once_in_a_file_for_each_partition(name: str, tmp_path: Path) -> None:
    write_source(name, 5_000, tmp_path / "source")
    again = make_rows(name, 5_000)
    files = sorted((tmp_path / "source").iterdir())
    assert sum(pq.read_metadata(file).num_rows for file in files) == 5_000 == again.num_rows
    for file in files:
        values = pc.unique(pq.read_table(file, columns=[SOURCES[name].partition_by]).column(0))
        assert len(values) == 1
    assert len(files) == len(pc.unique(again[SOURCES[name].partition_by])) > 1


@pytest.mark.parametrize("name", SOURCES)
def test_all_texts_are_queries_with_filters_of_the_table(name: str, tmp_path: Path) -> None:
    write_source(name, 2_000, tmp_path / "source")
    schema = schema_from(str(tmp_path / "source"))
    training, testing = (texts_of(name, role) for role in ROLES)
    assert (len(training), len(testing)) == TEXTS[name]
    assert texts_of(name, "test") == testing
    log = tmp_path / "log.sql"
    log.write_text(";\n".join(testing))
    found = analyze(read_log(log), schema, name)
    assert len(found.queries) == len(testing)
    assert all(query.filter.root.columns for query in found.queries)


def test_hardly_a_state_of_unseen_people_was_seen() -> None:
    training = set(texts_of("trips", "train"))
    assert sum(text in training for text in texts_of("trips", "test")) < 10


@pytest.mark.spark
@pytest.mark.long  # `mine` compares in the same way, and is tested always
def test_methods_are_compared_on_written_tables_and_with_a_lower_bound(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brushing, "texts_of", lambda name, role: texts_of(name, role)[::60])
    of = workload("trips", 20_000, tmp_path, lambda: spark)
    said: list[str] = []
    found = compare(of, comparison_of(of, "Week"), ("sort", "input-order"), said.append)
    assert (found["sort"]["method"], found["input-order"]["storage_bytes"] > 0) == ("sort", True)
    for method in ("sort", "input-order"):
        assert 0 < found[BOUND]["rows"] <= found[method]["rows"]
        assert 0 < found[BOUND]["bytes"] <= found[method]["bytes"]
    assert said.count("trips: drawing 20,000 rows") == 1
    compare(of, comparison_of(of, "Week"), ("sort",), pytest.fail)
    printed = io.StringIO()
    Console(width=140, file=printed).print(comparison_report({"trips": found}))
    assert "trips: unseen queries" in printed.getvalue()
    assert printed.getvalue().index(BOUND) < printed.getvalue().index("input-order")


def test_unknown_workloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="unknown brushing workload 'cars': expected one of weather, movies, trips"):
        run_brushing(rows=1, root=tmp_path, names=["cars"])
