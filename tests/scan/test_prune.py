"""What skips a block, and how it is counted: partition first, then features, then statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.model.feature import SessionSettings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Layout
from layoutopt.model.predicates import Col, Node
from layoutopt.scan import check_switch as switch
from layoutopt.scan import prune
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.table import Table
from layoutopt.skipping.cannot_match import cannot_match_all
from layoutopt.sql.scans import find_scans
from tests.scan.builder import build, building, by_position, holds
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA

pytestmark = pytest.mark.checks_texts


def pruned(table: Table, condition: str, settings: SessionSettings | None = None) -> PrunedPlan:
    (scan,) = find_scans(f"SELECT id FROM t WHERE {condition}", {"t": SCHEMA})
    (plan,) = table.prune(scan.filter.root, scan.columns, settings)
    return plan


def blocks_with(plan: PrunedPlan, outcome: PruneOutcome) -> int:
    return int((plan.outcome == outcome).sum())


def test_a_partition_is_skipped_by_its_bounds(by_year: Table) -> None:
    plan = pruned(by_year, "day >= date '1995-01-01' AND year = 1995")
    assert plan.size(plan.outcome == PruneOutcome.PARTITION).rows == 200
    assert plan.size(~plan.excluded).rows == 100


def test_other_partitions_are_not_read(by_year: Table) -> None:
    for place, entry in enumerate(by_year.catalog.partitions):
        (plan,), (whole,) = by_year.all_rows_of([entry], ["id"]), by_year.sources
        assert plan.read.all()
        assert plan.source.blocks.block_id.tolist() == whole.blocks.block_id[whole.entry_of == place].tolist()


def test_features_skip_what_statistics_can_not(by_year: Table) -> None:
    plan = pruned(by_year, "kind LIKE '%p'")
    without = pruned(by_year, "kind LIKE '%l'")
    assert blocks_with(plan, PruneOutcome.FEATURES) > 0
    assert blocks_with(plan, PruneOutcome.STATISTICS) == 0
    assert blocks_with(without, PruneOutcome.FEATURES) == 0
    assert plan.needed_without_features[~are_single(plan, "kind")].all()
    assert not plan.read[~are_single(plan, "kind")].all()


def are_single(plan: PrunedPlan, name: str) -> np.ndarray[Any, Any]:
    """The blocks with one value of a column."""
    bounds = plan.source.block_statistics.bounds[name]
    return np.asarray(bounds.known & np.equal(bounds.low, bounds.high), dtype=np.bool_)


def test_a_stricter_condition_uses_the_feature_that_follows(by_year: Table) -> None:
    assert blocks_with(pruned(by_year, "kind = 'air'"), PruneOutcome.FEATURES) > 0
    assert blocks_with(pruned(by_year, "price > 99.5"), PruneOutcome.FEATURES) > 0
    assert blocks_with(pruned(by_year, "price > 49"), PruneOutcome.FEATURES) == 0


def test_statistics_skip_what_no_feature_does(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows.sort_by("id"), building(SCHEMA, CONDITIONS, blocking=by_position(30)))
    plan = pruned(table, "id = 200")
    assert (blocks_with(plan, PruneOutcome.STATISTICS), blocks_with(plan, PruneOutcome.READ)) == (9, 1)


def test_a_feature_and_a_statistic_skip_an_or_together(tmp_path: Path, rows: pa.Table) -> None:
    table = build(tmp_path, rows.sort_by("id"), building(SCHEMA, ["kind = 'air'"], blocking=by_position(3)))
    plan = pruned(table, "kind = 'air' OR id > 150")
    bits = holds(rows.sort_by("id").slice(0, 150), ["kind = 'air'"])[:, 0].reshape(50, 3).any(axis=1)
    assert blocks_with(plan, PruneOutcome.STATISTICS) == int((~bits).sum()) > 0


def test_fates_cover_every_block_once(by_year: Table) -> None:
    for condition in ("kind = 'air' AND year > 1994", "id BETWEEN 12 AND 18", "price IS NULL", "id < 0"):
        plan = pruned(by_year, condition)
        amounts = [plan.size(plan.outcome == outcome) for outcome in PruneOutcome]
        assert sum(amount.blocks for amount in amounts) == plan.source.blocks.n
        assert sum(amount.rows for amount in amounts) == by_year.rows
        assert plan.size(np.ones(plan.source.blocks.n, dtype=np.bool_)).bytes == sum(amount.bytes for amount in amounts)


ALTERNATIVES = (
    "kind = 'air' OR id > 150",
    "kind IN ('air', 'mail') AND price > 50",
    "kind LIKE '%p' OR (id < 5 AND year = 1995)",
)


@pytest.mark.parametrize("layouts", [None, GROUPS, OVERLAPPING], ids=["sop", "gsop", "gsop-r"])
@pytest.mark.parametrize("indexes", [(), (IndexSpec(Col("id", "int"), "gap-list"),)], ids=["", "indexed"])
def test_every_skipped_block_is_credited(
    tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None, indexes: tuple[IndexSpec, ...]
) -> None:
    plan = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", segment_rows=40, indexes=indexes)
    table, credits = build(tmp_path, rows, plan), Counter[int]()
    for condition in (*CONDITIONS, *ALTERNATIVES, "id = 150", "year = 1995 AND price > 99", "price IS NULL", "id < 0"):
        decided = pruned(table, condition)
        assert (decided.outcome == PruneOutcome.READ).tolist() == decided.read.tolist()
        assert (decided.outcome != PruneOutcome.OTHER_LAYOUT).tolist() == decided.on_path.tolist()
        credits.update(decided.outcome.tolist())
    assert {*PruneOutcome} - credits.keys() <= {PruneOutcome.OTHER_LAYOUT, PruneOutcome.INDEX}
    assert (PruneOutcome.INDEX in credits) == bool(indexes)


def test_a_query_is_decided_by_one_evaluation(by_year: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[Node] = []

    def counted(nodes: Sequence[Node], *args: Any, **kwargs: Any) -> Any:
        evaluated.extend(nodes)
        return cannot_match_all(nodes, *args, **kwargs)

    monkeypatch.setattr(prune, "cannot_match_all", counted)
    for condition in ("id = 3", *ALTERNATIVES):
        sql = f"SELECT id FROM t WHERE {condition}"
        monkeypatch.setenv(switch.SWITCH, "0")
        evaluated.clear()
        scan = by_year.scan(sql)
        scan.to_arrow()
        assert len(evaluated) == 1
        scan.explain()  # credits the mechanisms
        assert len(evaluated) > 1


def test_no_skipped_block_has_a_matching_row(by_year: Table, rows: pa.Table) -> None:
    for condition in (*CONDITIONS, "kind = 'air' AND price > 70", "score IS NULL OR id < 5"):
        plan = pruned(by_year, condition)
        matching = rows.filter(pa.array(holds(rows, [condition])[:, 0]))["id"].to_pylist()
        read = np.concatenate([np.zeros(0, int), *(batch["id"].to_numpy() for batch in _batches(by_year, condition))])
        assert set(matching) <= set(read.tolist())
        assert plan.size(plan.read).rows == len(read)


def _batches(table: Table, condition: str) -> list[pa.RecordBatch]:
    (read,) = table.scan(f"SELECT id FROM t WHERE {condition}").reads
    return list(read.batches())


def test_features_of_other_settings_are_not_used(by_year: Table) -> None:
    other = pruned(by_year, "kind LIKE '%p'", SessionSettings(time_zone="Europe/Berlin"))
    assert blocks_with(other, PruneOutcome.FEATURES) == 0
    assert other.read[~are_single(other, "kind")].all()


def test_bytes_are_those_of_the_columns_read(by_year: Table) -> None:
    (scan,) = find_scans("SELECT id, price FROM t", {"t": SCHEMA})
    (plan,) = by_year.prune(scan.filter.root, scan.columns)
    blocks = plan.source.blocks
    assert plan.size(plan.read).bytes == int((blocks.column_bytes("id") + blocks.column_bytes("price")).sum())


def test_two_plans_are_pruned_each_by_its_own_features(tmp_path: Path, rows: pa.Table) -> None:
    years = [rows.filter(pa.array([y == year for y in rows["year"].to_pylist()])) for year in (1994, 1995)]
    build(tmp_path, years[0], building(SCHEMA, ["kind = 'air'"], partition_by="year"))
    table = build(tmp_path, years[1], building(SCHEMA, ["kind = 'rail'"], partition_by="year"), load_id="load-2")
    (scan,) = find_scans("SELECT id FROM t WHERE kind = 'rail'", {"t": SCHEMA})
    skipping = [blocks_with(plan, PruneOutcome.FEATURES) for plan in table.prune(scan.filter.root, scan.columns)]
    assert sorted(skipping) == [0, 1]
    assert table.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 200}]
