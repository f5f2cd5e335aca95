"""Synthetic wide tables have the shapes that they say, and their figures are read off their steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from jobs.bench.results import gather
from jobs.bench.wide import (
    NUMBERS_OF_FEATURES,
    SESSIONS,
    STAR,
    Wide,
    draw_star_queries,
    session_texts,
    star_texts,
    wide_suite,
    write_sessions,
    write_star,
)
from tests.jobs.bench.without_spark import no_spark

ROWS = 800


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    for name, write in ((STAR, write_star), (SESSIONS, write_sessions)):
        (folder / name).mkdir()
        write(ROWS, folder / name)
    return folder


@pytest.fixture(scope="module")
def stars() -> tuple[list[str], list[str]]:
    """The training and the test queries of a star."""
    return star_texts("train"), star_texts("test")


def counts(written: Path, table: str, texts: Sequence[str]) -> list[int]:
    """The rows that each statement selects, by DuckDB."""
    filters = ", ".join(f"count(*) FILTER ({text.split(' WHERE ')[1]})" for text in texts)
    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT {filters} FROM read_parquet('{written / table}/*.parquet')").fetchone()
    assert row is not None
    return list(row)


@pytest.mark.long
def test_stars_have_the_stated_shape(written: Path, stars: tuple[list[str], list[str]]) -> None:
    table = pq.read_table(written / STAR)
    assert (table.num_columns, table.num_rows) == (453, ROWS)
    train, test = stars
    assert (len(train), len(test)) == (1_755, 585)
    columns = [len(text.removeprefix("SELECT ").split(" FROM ")[0].split(", ")) for text in train + test]
    assert mean(columns) == pytest.approx(13.6, rel=0.02)
    assert stdev(columns) == pytest.approx(5.13, rel=0.1)
    assert (min(columns), max(columns)) == (3, 23)
    assert any(" OR " in text for text in train)


@pytest.mark.long
def test_filters_of_stars_are_the_ranges_that_were_drawn(written: Path, stars: tuple[list[str], list[str]]) -> None:
    ranges, queries = draw_star_queries()
    table = pq.read_table(written / STAR)
    found = counts(written, STAR, stars[0][:50])
    for query, matching in zip(queries, found, strict=False):
        bits = np.ones(ROWS, dtype=np.bool_)
        for asked in query.filters:
            values = table.column(f"c{ranges.column[asked[0]]}").to_numpy()
            low, high = (np.floor(bounds[list(asked)] * 1e6) for bounds in (ranges.low, ranges.high))
            bits &= ((low <= values[:, None]) & (values[:, None] < high)).any(axis=1)
        assert matching == bits.sum()
    assert 0 < sum(found) < 0.3 * ROWS * len(found)


@pytest.mark.long
def test_the_access_log_has_the_stated_shape(written: Path) -> None:
    table = pq.read_table(written / SESSIONS)
    assert (table.num_columns, table.num_rows) == (104, ROWS)
    assert len(set(table.column("day").to_pylist())) == 7
    train, test = session_texts("train"), session_texts("test")
    assert (len(train), len(test)) == (674, 61)
    filters = [set(text.split(" WHERE ")[1].split(" AND ")) for text in train + test]
    assert all(len({each.split()[0] for each in of}) == len(of) for of in filters), "a column is asked for once"
    used = Counter(each for of in filters for each in of if not each.startswith("day"))
    frequent = {each for each, _ in used.most_common(len(used) // 10)}
    assert mean(bool(of & frequent) for of in filters) >= 0.9, "3.2.1: the most frequent 10 % are used by 90 %"
    assert sum(counts(written, SESSIONS, train)) < 0.002 * ROWS * len(train)


def test_rows_are_the_same_each_time(written: Path, tmp_path: Path) -> None:
    for name, write in ((STAR, write_star), (SESSIONS, write_sessions)):
        (tmp_path / name).mkdir()
        write(ROWS, tmp_path / name)
        assert pq.read_table(tmp_path / name).equals(pq.read_table(written / name))


def product(place: int) -> dict[str, Any]:
    """A table's product that reads less with each place."""
    scanned = {f"{unit}_scanned": 100 // (place + 1) for unit in ("rows", "cells", "tids", "bytes")}
    seconds = {"planning_seconds": 1.0, "loading_seconds": 2.0}
    more = {"storage_bytes": 10, "layouts": 2, "features": 3, "peak_bytes": 10, "queries": 4, "matching": 5}
    return {"evaluation": {"totals": scanned}, "full_scan": dict.fromkeys(scanned, 1000), **seconds, **more}


@pytest.mark.parametrize("name", wide_suite(ROWS, Path(), no_spark).figures)
def test_a_figure_is_read_off_the_products_of_its_steps(name: str, tmp_path: Path) -> None:
    suite, wide = wide_suite(ROWS, tmp_path, no_spark), Wide(ROWS, tmp_path, no_spark)
    figure, measure = suite.figures[name], suite.measures()[name]
    everything = (*wide.star_variants(), *wide.copies(), *wide.session_variants())
    read = {
        variant.label: {"seconds": [[0.1 / (place + 1)]] * 3, "mean": 2e6, "most": 3e6, "assembled": 1, "rows": 9}
        for place, variant in enumerate(everything)
    }
    vectors = {str(count): {"mean": float(count), "most": count} for count in NUMBERS_OF_FEATURES}
    for place, step in enumerate(measure.steps):
        content = read if "reading" in step.name else vectors if "vectors" in step.name else product(place)
        step.product.parent.mkdir(parents=True, exist_ok=True)
        step.product.write_text(json.dumps(content))
    measured = measure.read()
    assert measured.points
    assert all(point.value >= 0 for point in measured.points)
    assert "ynthetic" in figure.note
    if name == "4.12":
        assert measured.at("", "PAR") == pytest.approx(20.0), "cells and tids, of a thousand cells"
        ours = {claim.text: claim.measured_value(measured) for claim in figure.claims}
        assert ours["PAR over GSOP"] == pytest.approx(100 / 25)
    if name == "3.9a":
        assert measured.at("rows", "range") == pytest.approx(10.0)
        assert measured.at("rows", "matching") == pytest.approx(0.5)
    if name == "4.12-seconds":  # in the order of 4.12, not of the product's keys
        assert [point.x for point in measured.points] == [variant.label for variant in wide.star_variants()]
    if name == "3.10a":
        assert measured.at("SOP", 2.0) == pytest.approx(20.0)


def test_results_say_how_large_the_tables_are(tmp_path: Path) -> None:
    document = gather(wide_suite(ROWS, tmp_path, no_spark), {})
    assert "SDSS (800 rows) and Conviva (3,200)" in document["about"]
    assert document["figures"]["4.12"]["command"] == "python -m jobs.bench wide --rows 800 --figures 4.12"
