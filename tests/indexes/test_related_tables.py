"""Tables with indexes of points and of distances: queries skip by them, and `verify` measures them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.errors import SettingError
from layoutopt.indexes.choosing import find_candidates, parse_indexes
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import udf
from layoutopt.scan.explain import Reason
from layoutopt.scan.table import Table, open_table
from layoutopt.sql.scans import find_scans
from tests.scan.builder import build, building, by_position
from tests.scan.tables import SCHEMA, expected, same, some_rows

TEXTS = ("struct(price, score):geo-box:32", "struct( id , day ):geo-box", "kind:metric-distance")
NEAR = "price BETWEEN 40 AND 42 AND score BETWEEN 0.2 AND 0.4"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    indexes = parse_indexes(TEXTS, SCHEMA)
    built = building(SCHEMA, ["price > 50"], blocking=by_position(20), indexes=indexes)
    return build(tmp_path / "t", some_rows(), built)


def skipped(table: Table, condition: str) -> int:
    (read,) = table.scan(f"SELECT id FROM t WHERE {condition}").explain().to_json()["reads"]
    blocks: int = read["skipped_by"]["index"]["blocks"]
    return blocks


def test_points_and_distances_skip_and_answers_are_the_same(table: Table) -> None:
    for condition in (NEAR, "(price IS NULL OR price = 99) AND score BETWEEN 0.2 AND 0.4", f"{NEAR} OR score IS NULL"):
        sql = f"SELECT id FROM t WHERE {condition}"
        assert same(table.sql(sql).to_pylist(), expected(sql, some_rows()))
    assert skipped(table, NEAR) > 3
    assert skipped(table, f"({NEAR} AND id >= 0) OR id < 0") > 3
    assert skipped(table, "price BETWEEN 40 AND 42") == 0
    assert skipped(table, "levenshtein(kind, 'carriage') < 2") > 3
    assert skipped(table, "levenshtein(kind, 'trucks') < 4") == 0
    assert skipped(table, "levenshtein(kind, 'carriage') < 9") == 0


def test_each_part_has_the_credit_of_what_it_skips_beside_others(table: Table) -> None:
    (read,) = table.scan(f"SELECT id FROM t WHERE {NEAR} AND id >= 0").explain().reads
    price, score, other = sorted(read.conjuncts, key=lambda each: ["price", "score", "id"].index(each.text.split()[0]))
    for each, beside in ((price, "score BETWEEN 0.2 AND 0.4"), (score, "price BETWEEN 40.00 AND 42.00")):
        assert each.reason is Reason.SKIPS
        assert each.alone["index"] > 3
        assert f"blocks by index, together with {beside}" in each.detail
    assert other.alone["index"] == 0


def test_verify_measures_them_again(table: Table) -> None:
    report = verify(table)
    assert report.problems == ()
    assert not any("index" in text for text in report.unchecked)
    plan = table.sources[0].plan
    assert Plan.loads(plan.dumps()) == plan
    assert [str(spec) for spec in plan.indexes] == [
        "struct(price, score):geo-box:32", "struct(id, day):geo-box", "kind:metric-distance",
    ]  # fmt: skip


def test_what_a_function_implies_is_asked_of_boxes(table: Table) -> None:
    @udf("double", version="1", implies={"<": ":a BETWEEN :x - :value AND :x + :value AND :b BETWEEN 0.2 AND 0.4"})
    def apart(a: float, b: float, x: float) -> float:
        return abs(a - x) + abs(b)

    opened = open_table(table.catalog.files.root, udfs=[apart])
    assert skipped(opened, "apart(price, score, 41) < 1") > 3


def test_a_log_asks_for_them() -> None:
    places = Schema((Column("lat", "double"), Column("lon", "double"), Column("n", "int"), Column("s", "string")))

    def asked(condition: str) -> set[str]:
        (scan,) = find_scans(f"SELECT n FROM t WHERE {condition}", {"t": places})
        return {str(spec) for spec in find_candidates([scan.filter.root])}

    box = {"struct(lat, lon):geo-box", "struct(lat, lon):geo-box:32"}
    assert asked("lat BETWEEN 1 AND 2 AND lon BETWEEN 3 AND 4") >= box
    assert asked("n = 3 OR (lat > 1 AND lon > 3)") >= box
    for other in ("lat > 1", "lat = 1D AND lon = 3D", "lat > 1 AND n > 2", "lat > 1 OR lon > 3"):
        assert not asked(other) & box
    assert "s:metric-distance" in asked("levenshtein(s, 'word') < 3") & asked("s = 'word'")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("struct(kind, score):geo-box", "geo-box has no use"),
        ("score:geo-box", "geo-box has no use"),
        ("struct(id + 1, score):geo-box", r"id.* is no column"),
        ("struct(price, score):bloom", "bloom has no use"),
        ("price:metric-distance", "metric-distance has no use"),
        ("kind:formatted", "of kind, for which formatted has no use"),
    ],
)
def test_what_no_load_could_build_is_refused(text: str, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        parse_indexes([text], SCHEMA)
