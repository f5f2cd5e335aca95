"""Replaying many queries together gives every figure of each query asked alone."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.inspect.cost import measure_entry_bytes
from layoutopt.inspect.drift import measure_drift, skipped_share
from layoutopt.inspect.evaluate import QueryEvaluation, evaluate
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col, Node
from layoutopt.model.query import Query
from layoutopt.scan import table as tables
from layoutopt.scan.opened_table import sum_all, sum_read, sum_skipped
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.table import Table
from layoutopt.skipping.cannot_match import FeatureIndex, Mechanisms, cannot_match, cannot_match_all
from tests.effort import examples
from tests.inspect.replayed import query
from tests.scan.builder import Building, build, building
from tests.scan.deleting import delete_ids
from tests.scan.generated import buildings, conditions
from tests.scan.tables import SCHEMA, some_rows

INDEXES = (IndexSpec(Col("id", "int"), "gap-list"), IndexSpec(Col("kind", "string"), "value-list"))
selected = st.sampled_from(["count(*)", "id", "id, price, kind", "score, seen, day", "*"])
queries = st.lists(st.tuples(selected, conditions), min_size=1, max_size=8)
loads = st.lists(st.tuples(buildings(), st.booleans()), min_size=1, max_size=2)


def built(root: Path, plans: list[tuple[Building, bool]], deleted: set[int]) -> Table:
    """A table with a load by each plan, with indexes where told, and rows deleted."""
    for number, (made, indexed) in enumerate(plans):
        plan = replace(made.plan, indexes=INDEXES if indexed else (), partition_by=plans[0][0].plan.partition_by)
        rows = some_rows(60, number)
        build(root, rows, replace(made, plan=plan), f"load-{number}", first=1000 * number, operation="append")
    return delete_ids(str(root), deleted)


def log_of(asked: list[tuple[str, str]]) -> list[Query]:
    return [query(number, f"SELECT {what} FROM t WHERE {condition}") for number, (what, condition) in enumerate(asked)]


@settings(max_examples=examples(40))
@given(loads, queries, st.sets(st.integers(0, 59), max_size=50), st.integers(1, 100))
def test_many_queries_have_the_figures_of_each(
    plans: list[tuple[Building, bool]], asked: list[tuple[str, str]], deleted: set[int], bits: int
) -> None:
    log = log_of(asked)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        table = built(Path(folder), plans, deleted)
        alone = [evaluate(table, [one]).queries[0] for one in log]
        shares = [skipped_share(table, [one]) for one in log]
        entries = [measure_entry_bytes(table, [one]) for one in log]
        for most in (bits, 1 << 20):  # small batches, and all in one
            patch.setattr(tables, "_BATCH_BITS", most)
            assert list(evaluate(table, [*log, *log]).queries) == [*alone, *alone]
            assert skipped_share(table, log) == pytest.approx(np.mean(shares))
            together = measure_entry_bytes(table, log)
            by_query = {(q.filter.root, q.columns): i for i, q in enumerate(together.queries)}
            for one, expected in zip(log, entries, strict=True):
                place = by_query[one.filter.root, one.columns]
                for name in ("read", "full", "reached"):
                    assert getattr(together, name)[place].tolist() == getattr(expected, name)[0].tolist()
        for one, found in zip(log, alone, strict=True):
            _check_figures(table, found, table.prune(one.filter.root, one.columns))


def _check_figures(table: Table, found: QueryEvaluation, pruned: tuple[PrunedPlan, ...]) -> None:
    """Compare an evaluation with sums over the blocks of single plans."""
    rows = [plan.rows_by_layout(plan.read) for plan in pruned]
    read = sum_read(pruned)
    assert (found.blocks_scanned, found.bytes_scanned) == (read.blocks, read.bytes)
    assert found.blocks_total == sum_all(pruned).blocks
    assert found.rows_scanned == sum(max(by_layout.values()) for by_layout in rows)
    assert found.tids_scanned == sum(sum(by_layout.values()) for by_layout in rows if len(by_layout) > 1)
    cells = zip(pruned, rows, strict=True)
    assert found.cells_scanned == sum(by[c.layout] * len(c.columns) for plan, by in cells for c in plan.choice)
    needed = [max(plan.rows_by_layout(plan.needed_without_features).values()) for plan in pruned]
    assert found.rows_scanned_by_statistics == sum(needed)
    assert found.skipped_by == sum_skipped(pruned)


@settings(max_examples=examples(40))
@given(buildings(), st.lists(conditions, min_size=1, max_size=6))
def test_many_filters_have_the_answers_of_each(made: Building, asked: list[str]) -> None:
    roots: list[Node] = [query(0, f"SELECT id FROM t WHERE {condition}").filter.root for condition in asked]
    with tempfile.TemporaryDirectory() as folder:
        (source,) = build(Path(folder), some_rows(60), made).sources
    statistics, features = source.block_statistics, FeatureIndex(source.plan.features)
    choices = [Mechanisms(*map(bool, (n & 1, n & 2, n & 4))) for n in range(8)]
    together = np.unpackbits(cannot_match_all(roots, statistics, features, choices), axis=-1, count=statistics.n)
    for choice, answers in zip(choices, together, strict=True):
        by = dict(zip(("by_features", "by_statistics", "by_indexes"), choice, strict=True))
        for root, answer in zip(roots, answers, strict=True):
            assert answer.tolist() == cannot_match(root, statistics, source.plan.features, **by).tolist()


def test_a_table_without_partitions_reads_nothing(tmp_path: Path) -> None:
    made = building(SCHEMA, ["kind = 'air'"], partition_by="year")
    log = log_of([("id", "id = 1"), ("id", "id = 1"), ("price", "kind = 'air'")])
    table = build(tmp_path, some_rows(0), replace(made, plan=replace(made.plan, queries=(log[0],))))
    drift = measure_drift(table, log)
    assert (drift.skipped_then, drift.skipped_now) == (0.0, 0.0)
    assert [found.rows_scanned for found in evaluate(table, log).queries] == [0, 0, 0]
    assert measure_entry_bytes(table, log).read.shape == (2, 0)
