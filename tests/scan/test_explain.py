"""explain says by number and by stable code what each part of a filter did."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from layoutopt.scan.explain import Conjunct, Explanation, Reason
from layoutopt.scan.table import Table
from tests.scan.builder import build, building, by_position
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    return build(tmp_path_factory.mktemp("sop"), rows, building(SCHEMA, CONDITIONS, partition_by="year"))


def conjuncts(table: Table, condition: str) -> dict[str, Conjunct]:
    (read,) = table.explain(f"SELECT id FROM t WHERE {condition}").reads
    return {conjunct.text: conjunct for conjunct in read.conjuncts}


def test_each_part_has_its_reason(table: Table) -> None:
    found = conjuncts(table, "kind = 'air' AND year = 1995 AND id > -5 AND rand() < 0.5")
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


def test_numbers_are_those_of_pruning(table: Table) -> None:
    (read,) = table.explain("SELECT id FROM t WHERE kind = 'air' AND year = 1995").reads
    assert read.total.rows == 300
    assert read.skipped_by["partition"].rows == 200
    assert read.total.rows == read.read.rows + sum(amount.rows for amount in read.skipped_by.values())
    assert read.columns == ("id", "kind", "year")


def test_json_and_text_say_it(table: Table) -> None:
    explanation: Explanation = table.explain("SELECT id FROM t WHERE kind = 'air' AND upper(kind) = 'AIR'")
    data = json.loads(json.dumps(explanation.to_json()))
    assert {conjunct["reason"] for conjunct in data["reads"][0]["conjuncts"]} <= {reason.value for reason in Reason}
    lines = str(explanation).splitlines()
    assert lines[:2] == ["t, snapshot 0", "reads id, kind"]
    (by_features,) = (line.split() for line in lines if "skipped by features" in line)
    assert by_features[-3:-1] == [str(n) for n in data["reads"][0]["skipped_by"]["features"].values()][:2]
    assert "  kind = 'air'" in lines
    assert not any(line.endswith(" ") for line in lines)


def test_a_text_without_filter_reads_everything(table: Table) -> None:
    (read,) = table.explain("SELECT id FROM t").reads
    assert read.conjuncts == ()
    assert read.read == read.total


def test_every_reason_has_a_sentence() -> None:
    assert all(reason.sentence for reason in Reason)
