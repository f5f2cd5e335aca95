"""Where the rows that are read come from: layout or metadata."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.inspect.evaluate import INDICATORS, IndicatorMeans, Indicators, evaluate, geometric_means
from tests.inspect.logs import logged
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, expected, some_rows

counts = st.lists(st.integers(1, 1000), min_size=4, max_size=4).map(sorted)


@given(st.lists(counts, min_size=1, max_size=5))
def test_the_law_of_the_product_holds_for_queries_and_for_means(each: list[list[int]]) -> None:
    found = [Indicators.from_rows(total, scanned, matching, relevant) for matching, relevant, scanned, total in each]
    for one in [*found, geometric_means(found).means]:
        selectivity, layout, metadata, scanning = (getattr(one, name) or math.nan for name in INDICATORS)
        assert scanning == pytest.approx(selectivity / (layout * metadata))
        assert max(layout, metadata, scanning) <= 1 + 1e-12
    assert geometric_means(found).queries == len(found)


def test_queries_without_a_matching_row_are_left_out() -> None:
    nothing, some = Indicators.from_rows(100, 40, 0, 0), Indicators.from_rows(100, 40, 5, 10)
    assert nothing == Indicators(0.0, None, 0.0, 0.4)
    assert geometric_means([nothing, some]).to_json() == pytest.approx({"queries": 1, **asdict(some)})
    assert geometric_means([]) == IndicatorMeans(0, Indicators(None, None, None, None))


def test_without_matching_rows_only_the_scanning_factor_is_known() -> None:
    found = geometric_means([Indicators.from_rows(100, 50, None, None), Indicators.from_rows(100, 8, None, None)])
    unknown = dict.fromkeys(INDICATORS[:3])
    assert found.to_json() == {"queries": 2, **unknown, "scanning_factor": pytest.approx(0.2)}


def test_relevant_rows_are_those_of_blocks_with_a_match(tmp_path: Path) -> None:
    rows = some_rows()
    sql = "SELECT id FROM t WHERE kind = 'air' AND price > 90"
    table = build(tmp_path, rows, building(SCHEMA, CONDITIONS, blocking=by_position(25)))
    (one,) = evaluate(table, logged([sql]), actual=True).queries
    matching = {row["id"] for row in expected(sql, rows)}
    blocks = [set(rows["id"].to_pylist()[start : start + 25]) for start in range(0, 300, 25)]
    relevant = 25 * sum(bool(block & matching) for block in blocks)
    assert one.rows_matching == len(matching)
    assert one.indicators == Indicators.from_rows(300, one.rows_scanned, len(matching), relevant)
    assert relevant < one.rows_scanned


def test_several_layouts_have_factors_up_to_one(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS, layouts=GROUPS, segment_rows=70))
    texts = ["SELECT id, price FROM t WHERE kind = 'air' AND price > 60", "SELECT score FROM t WHERE score < 0.5"]
    for one in evaluate(table, logged(texts), actual=True).queries:
        assert 0 < (one.indicators.layout_factor or 0) <= 1
        assert 0 < (one.indicators.metadata_factor or 0) <= 1


def test_an_empty_table_has_none(tmp_path: Path) -> None:
    table = build(tmp_path, pa.table(some_rows()).slice(0, 0), building(SCHEMA, CONDITIONS))
    found = evaluate(table, logged(["SELECT id FROM t WHERE kind = 'air'"]), actual=True)
    nothing = Indicators(None, None, None, None)
    assert (found.queries[0].indicators, found.totals.indicators) == (nothing, IndicatorMeans(0, nothing))
