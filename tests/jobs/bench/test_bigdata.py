"""The Big Data Benchmark's table and scans: selectivity, skew and SELECT lists are what the parameters say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest

from jobs.bench import bigdata
from jobs.bench.bigdata import (
    COLUMNS,
    FIGURES,
    QUERIES,
    TABLE,
    TOLERANCE,
    BigData,
    Mix,
    bigdata_suite,
    filters_of,
    mixes,
    texts_of,
    write_visits,
)
from jobs.bench.experiment import Variant, full_scan, mean_seconds, scanned
from jobs.bench.results import gather
from jobs.bench.steps import run
from layoutopt.errors import SettingError
from tests.jobs.bench.without_spark import no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("visits")
    write_visits(ROWS, folder)
    return folder


def matching(visits: Path, filters: Sequence[str]) -> Sequence[int]:
    """The rows that each filter selects, by DuckDB."""
    counts = ", ".join(f"count(*) FILTER ({text})" for text in filters)
    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT {counts} FROM read_parquet('{visits}/*.parquet')").fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize("s", [0.05, 0.2, 0.4])
def test_filters_select_what_they_should(visits: Path, s: float) -> None:
    filters = filters_of(s, ROWS)
    assert len(filters) > 20
    assert {text.split()[1] for text in filters} >= {"<", ">"}
    assert all(abs(count / ROWS - s) <= TOLERANCE for count in matching(visits, filters))


def test_some_filters_ask_for_one_value() -> None:
    assert any(text.startswith("duration = ") for text in filters_of(0.1, ROWS))


def test_the_same_rows_are_drawn_again_and_have_eleven_columns(visits: Path, tmp_path: Path) -> None:
    write_visits(ROWS, tmp_path)
    again, before = pq.read_table(tmp_path), pq.read_table(visits)
    assert again.equals(before)
    assert (before.num_columns, before.num_rows) == (len(COLUMNS), ROWS) == (11, ROWS)


@pytest.mark.parametrize(("k", "t", "lists"), [(2, 6, 6), (11, 6, 1), (1, 45, 11)])
def test_queries_have_k_columns_from_t_lists(k: int, t: int, lists: int) -> None:
    logs = [texts_of(Mix(k=k, t=t), ROWS, role) for role in ("train", "test")]
    assert logs[0] != logs[1]
    assert logs[0] == texts_of(Mix(k=k, t=t), ROWS, "train")
    selected = [Counter(text.removeprefix("SELECT ").split(f" FROM {TABLE} ")[0] for text in log) for log in logs]
    assert set(selected[0]) == set(selected[1]), "both logs know the same lists"
    assert len(selected[0]) == lists
    assert all(len(text.split(", ")) == k for text in selected[0])
    assert all(count.total() == QUERIES for count in selected)


def test_skew_makes_some_filters_frequent() -> None:
    def most(z: float) -> int:
        ((_, count),) = Counter(text.split(" WHERE ")[1] for text in texts_of(Mix(z=z), ROWS, "train")).most_common(1)
        return count

    assert most(0.0) < most(1.1) < most(3.0)


def test_each_figure_varies_one_parameter() -> None:
    assert sorted(FIGURES.values()) == ["4.7a", "4.7b", "4.7c", "4.7d"]
    assert [mix.k for mix in mixes("k").values()] == [1, 2, 4, 6, 8, 11]
    assert {(mix.s, mix.z, mix.t) for mix in mixes("k").values()} == {(0.2, 1.1, 6)}
    with pytest.raises(SettingError, match="--rows 500"):
        BigData(500, Path(), no_spark)


@pytest.mark.parametrize("parameter", FIGURES)
@pytest.mark.parametrize("suffix", ["", "-seconds"])
def test_a_figure_is_read_off_the_products_of_its_steps(parameter: str, suffix: str, tmp_path: Path) -> None:
    suite = bigdata_suite(ROWS, tmp_path, no_spark)
    figure, measure = suite.figures[f"{FIGURES[parameter]}{suffix}"], suite.measures()[f"{FIGURES[parameter]}{suffix}"]
    reads = {"SOP": 40, "GSOP-single": 30, "GSOP": 20}

    def table(label: str) -> dict[str, Any]:
        counts = {f"{unit}_scanned": reads[label] for unit in ("rows", "cells", "bytes")} | {"tids_scanned": 5}
        return {
            "evaluation": {"totals": counts},
            "full_scan": dict.fromkeys(counts, 100),
            "planning_seconds": 1.0,
            "layouts": 3,
            "queries": 5,
        }

    read = {label: {"seconds": [[0.001 * each]] * 3, "mean": 2e6} for label, each in reads.items()}
    for step in measure.steps:
        labels = [label for label in reads if f" {label} on" in step.name]
        step.product.parent.mkdir(parents=True, exist_ok=True)
        step.product.write_text(json.dumps(read if figure.timed else table(labels[0])))
    measured = measure.read()
    x = measured.points[0].x
    assert measured.at("GSOP", x) == pytest.approx(20 if figure.timed else 25 / 5e6)
    verdicts = {claim.verdict(claim.measured_value(measured)) for claim in figure.claims if claim.better}
    assert verdicts == {"ahead"}


def test_results_say_what_they_are_of(tmp_path: Path) -> None:
    document = gather(bigdata_suite(ROWS, tmp_path, no_spark), {})
    assert (document["suite"], document["scale"]) == ("bigdata", ROWS)
    assert "synthetic" in document["about"]
    command = "python -m jobs.bench bigdata --rows 10000 --figures 4.7a"
    assert (document["figures"]["4.7a"]["command"], document["figures"]["4.7a"]["state"]) == (command, "not run")


@pytest.mark.long
@pytest.mark.spark
def test_a_table_is_planned_written_replayed_and_read(
    spark: SparkSession, visits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigdata, "QUERIES", 8)
    mix = Mix(k=1, z=3)
    of = BigData(ROWS, tmp_path, lambda: spark).experiment(mix)
    said: list[str] = []
    variant = Variant("SOP", "sop", None, 500, row_order=("none",))
    product = run(of.evaluation(variant), said.append)
    steps = ["drawing 10,000 rows", "analysing the training log", "planning SOP", "loading SOP"]
    assert [text.split(": ")[1] for text in said] == [*steps, "evaluating SOP on the test log"]
    texts = [query.sql for query in of.queries("test")]
    assert product["matching"] == sum(matching(visits, [text.split(" WHERE ")[1] for text in texts]))
    assert product["matching"] <= scanned(product, "rows") < full_scan(product, "rows")
    assert (product["layouts"], product["queries"]) == (1, 8)
    read = run(of.reading([variant]), said.append)["SOP"]
    assert read["rows"] == product["matching"]
    assert mean_seconds(read["seconds"]) > 0
    assert read["most"] >= read["mean"] > 0
