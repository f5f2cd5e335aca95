"""Older statements count less."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import LogError
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.query import Query
from layoutopt.workload.log import FORGOTTEN, decay_weights, query_times

NEWEST = dt.datetime(2026, 11, 22, 10, tzinfo=dt.UTC)


def asked(days_ago: float, weight: float = 1.0) -> Query:
    when = (NEWEST - dt.timedelta(days=days_ago)).isoformat()
    return Query(int(days_ago), "t", ("a",), Filter.of(TRUE), weight, when)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(0.5, 50))
def test_a_weight_halves_with_each_half_life(ages: list[float], half_life: float) -> None:
    queries = [asked(0.0), *(asked(age, weight=3.0) for age in ages)]
    kept = iter(decay_weights(queries, dt.timedelta(days=half_life)))
    assert next(kept).weight == 1.0
    for age in ages:
        if age < FORGOTTEN * half_life * 0.999:
            assert next(kept).weight == pytest.approx(3.0 * 0.5 ** (age / half_life), rel=1e-4)


def test_times_without_a_zone_are_of_the_sessions() -> None:
    query = Query(0, "t", ("a",), Filter.of(TRUE), timestamp="2026-07-01T12:00:00")
    assert query_times([query], "Europe/Berlin")[0] == dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(("when", "said"), [(None, "no timestamp"), ("yesterday", "'yesterday'")])
def test_statements_without_a_time_are_refused(when: str | None, said: str) -> None:
    with pytest.raises(LogError, match=f"statement 7 of the log has .*{said}"):
        decay_weights([asked(0), Query(7, "t", ("a",), Filter.of(TRUE), timestamp=when)], dt.timedelta(days=1))


def test_zones_of_which_no_clocks_are_known_are_refused() -> None:
    with pytest.raises(LogError, match="unknown time zone 'PST'"):
        query_times([], "PST")


def test_analyze_finds_the_features_of_late(tmp_path: Path) -> None:
    log, features = tmp_path / "log.jsonl", tmp_path / "features.json"
    lines = [("kind = 1", "2026-01-01")] * 300 + [("price = 2", "2026-11-20")] * 20
    log.write_text(
        "".join(json.dumps({"sql": f"SELECT a FROM t WHERE {of}", "timestamp": at}) + "\n" for of, at in lines)
    )
    words = [
        "analyze",
        str(log),
        "--schema",
        "CREATE TABLE t (a int, kind int, price int)",
        "-o",
        str(features),
        "--num-features",
        "1",
    ]
    assert main(words) == DONE
    assert "kind" in str(json.loads(features.read_text())["features"])
    assert main([*words, "--half-life", "30d"]) == DONE
    assert "price" in str(json.loads(features.read_text())["features"])
    assert main([*words, "--half-life", "0d"]) == BAD_USAGE
    log.write_text(json.dumps({"sql": "SELECT a FROM t WHERE kind = 1"}))
    assert main([*words, "--half-life", "30d"]) == BAD_USAGE
