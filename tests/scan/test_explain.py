"""explain says by number and by stable code what each part of a filter did."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from layoutopt.model.feature import SessionSettings
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.explain import Conjunct, Explanation, Reason, reason_of_problem
from layoutopt.scan.table import Table
from layoutopt.sql.problems import CONDITION_REASONS
from tests.scan.builder import build, building, by_position
from tests.scan.tables import SCHEMA


def conjuncts(table: Table, condition: str) -> dict[str, Conjunct]:
    (read,) = table.explain(f"SELECT id FROM t WHERE {condition}").reads
    return {conjunct.text: conjunct for conjunct in read.conjuncts}


def test_each_part_has_its_reason(by_year: Table) -> None:
    found = conjuncts(by_year, "kind = 'air' AND year = 1995 AND id > -5 AND rand() < 0.5")
    reasons = sorted(conjunct.reason for conjunct in found.values())
    assert reasons == sorted([Reason.SKIPS, Reason.SKIPS, Reason.NO_FEATURE, Reason.UNUSABLE])
    by_kind = next(conjunct for text, conjunct in found.items() if "kind" in text)
    assert by_kind.alone["features"] > 0
    assert len(by_kind.features) == 1
    unusable = next(conjunct for conjunct in found.values() if conjunct.reason is Reason.UNUSABLE)
    assert "non-deterministic" in unusable.detail


def test_a_feature_that_every_block_has_is_named(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> None:
    table = build(
        tmp_path_factory.mktemp("wide"), rows, building(SCHEMA, ["kind <> 'zeppelin'"], blocking=by_position(100))
    )
    found = conjuncts(table, "kind LIKE 'a%r%' AND kind <> 'zeppelin'")
    assert {conjunct.reason for conjunct in found.values()} == {Reason.FEATURE_EVERYWHERE}
    assert all(conjunct.features for conjunct in found.values())


def test_numbers_are_those_of_pruning(by_year: Table) -> None:
    (read,) = by_year.explain("SELECT id FROM t WHERE kind = 'air' AND year = 1995").reads
    assert read.total.rows == 300
    assert read.skipped_by["partition"].rows == 200
    assert read.total.rows == read.read.rows + sum(amount.rows for amount in read.skipped_by.values())
    assert read.columns == ("id", "kind", "year")


def test_json_and_text_say_it(by_year: Table) -> None:
    explanation: Explanation = by_year.explain("SELECT id FROM t WHERE kind = 'air' AND upper(kind) = 'AIR'")
    data = json.loads(json.dumps(explanation.to_json()))
    assert {conjunct["reason"] for conjunct in data["reads"][0]["conjuncts"]} <= {reason.value for reason in Reason}
    lines = str(explanation).splitlines()
    assert lines[:2] == ["t, snapshot 0", "reads id, kind"]
    (by_features,) = (line.split() for line in lines if "skipped by features" in line)
    assert by_features[-3:-1] == [str(n) for n in data["reads"][0]["skipped_by"]["features"].values()][:2]
    assert "  kind = 'air'" in lines
    assert not any(line.endswith(" ") for line in lines)


def test_a_text_without_filter_reads_everything(by_year: Table) -> None:
    (read,) = by_year.explain("SELECT id FROM t").reads
    assert read.conjuncts == ()
    assert read.read == read.total


def test_every_reason_has_a_sentence() -> None:
    assert all(reason.sentence for reason in Reason)


PAIR = "(kind = 'air' AND price > 50)"
DOCUMENT = Path(__file__).parents[2] / "layoutopt" / "scan" / "REASONS.md"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    conditions = ["kind IN ('air', 'rail')", "kind <> 'zeppelin'", "id BETWEEN 10 AND 20"]
    return build(tmp_path_factory.mktemp("sop"), rows, building(SCHEMA, conditions, partition_by="year"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    plan = building(SCHEMA, ["kind <> 'zeppelin'"], blocking=by_position(100))
    return build(tmp_path_factory.mktemp("mixed"), rows, plan)


def only(table: Table, condition: str) -> Conjunct:
    (read,) = table.scan(where=condition).explain().reads
    (conjunct,) = read.conjuncts
    return conjunct


@pytest.mark.parametrize(
    ("condition", "reason", "detail"),
    [
        ("kind = 'air'", Reason.SKIPS, ""),
        ("kind = 'air' OR id = 12", Reason.SKIPS, ""),
        ("id > (SELECT 3)", Reason.UNUSABLE, "subquery: "),
        ("rand() < 0.5", Reason.UNUSABLE, "non-deterministic: "),
        ("month(day) = 13", Reason.SKIPS, ""),
        ("reverse(cast(year AS string)) LIKE '4_91'", Reason.SKIPS, ""),
        ("cast(year AS string) LIKE '199%'", Reason.NO_FEATURE, "No feature uses year"),
        ("kind RLIKE rtrim(kind)", Reason.UNUSABLE, "unsupported-expression: "),
        ("id = 15 OR dayofweek(day) < 8", Reason.OR_TOO_WIDE, r"dayofweek\(day\).* may match in"),
        ("kind IS NULL OR kind IN ('air', 'rail', 'ship', 'truck', 'mail', '')", Reason.OR_TOO_WIDE, "may match in"),
        ("id > -5", Reason.NO_FEATURE, "The nearest feature is id BETWEEN 10 AND 20"),
    ],
)
def test_the_code_and_its_detail(plain: Table, condition: str, reason: Reason, detail: str) -> None:
    found = only(plain, condition)
    assert found.reason is reason, found
    assert re.search(detail, found.detail), found.detail
    assert (found.detail == "") == (detail == "")


@pytest.mark.parametrize(
    ("condition", "reason", "detail"),
    [
        ("kind LIKE 'a%r%' OR kind = 'ship'", Reason.FEATURE_EVERYWHERE, "^$"),
        ("score > 0.5", Reason.NO_FEATURE, "No feature uses score"),
        ("length(cast(id AS string)) = 30", Reason.FUNCTION, r"length\(id\)"),
        ("cast(id AS string) = '5'", Reason.TYPE_MISMATCH, "id is compared as string"),
    ],
)
def test_where_every_block_has_everything(mixed: Table, condition: str, reason: Reason, detail: str) -> None:
    found = only(mixed, condition)
    assert found.reason is reason, found
    assert re.search(detail, found.detail), found.detail


def test_a_mixed_or_skips_though_neither_mechanism_does_alone(tmp_path: Path) -> None:
    rows = pa.table({"k": ["a", "c"] * 3 + ["a", "b", "c"] * 2, "n": [1, 2, 3, 4, 5, 6] + [9] * 6})
    schema = Schema((Column("k", "string"), Column("n", "bigint")))
    table = build(tmp_path, rows, building(schema, ["k = 'b'"], blocking=by_position(6)))
    found = only(table, "k = 'b' OR n > 8")
    assert found.reason is Reason.SKIPS
    assert set(found.alone.values()) == {0}


def test_the_nearest_feature_says_what_it_also_asks_for(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, [PAIR, "kind = 'rail'"], blocking=by_position(100)))
    found = only(table, "kind = 'air'")
    assert found.reason is Reason.NO_FEATURE
    assert found.nearest == "kind = 'air' AND price >= 50.01"
    assert "which also requires price >= 50.01" in found.detail


def test_columns_without_statistics_are_named(tmp_path: Path) -> None:
    rows = pa.table({"s": pa.array([b"\xff", b"\xfe"] * 10).view(pa.string()), "n": range(20)})
    schema = Schema((Column("s", "string"), Column("n", "bigint")))
    table = build(tmp_path, rows, building(schema, blocking=by_position(10)))
    found = only(table, "s = 'a'")
    assert found.reason is Reason.NO_STATISTICS
    assert "min/max of s" in found.detail
    assert only(table, "n > -1").reason is Reason.STATISTICS_OVERLAP


def test_features_of_other_settings_are_not_used(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows, building(SCHEMA, ["kind = 'air'"], blocking=by_position(100)))
    table.__dict__["settings"] = SessionSettings(time_zone="Asia/Tokyo")
    found = only(table, "kind LIKE 'a%r%'")
    assert found.reason is Reason.OTHER_SETTINGS


def test_an_empty_table_has_nothing_left(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows.slice(0, 0), building(SCHEMA, ["kind = 'air'"]))
    assert only(table, "kind LIKE 'a%r%'").reason is Reason.NOTHING_LEFT


def test_every_code_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \|", text, re.MULTILINE)
    assert sorted(code for code, _ in rows) == sorted([*Reason, *CONDITION_REASONS])
    for code, meaning in CONDITION_REASONS.items():
        assert (code, meaning) in rows
        assert reason_of_problem(code) in Reason
    for reason in Reason:
        start = re.split(r"[;:,(]", reason.sentence)[0].strip()
        assert start in dict(rows)[reason], reason


def test_json_has_the_nearest_feature(plain: Table) -> None:
    data = plain.scan(where="id > -5").explain().to_json()
    assert data["reads"][0]["conjuncts"][0]["nearest_feature"] == "id BETWEEN 10 AND 20"
    assert data["reads"][0]["conjuncts"][0]["reason"] == "no-feature"
