"""A dry run is evaluated exactly as the loaded table is, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from layoutopt.inspect.evaluate import Evaluation, evaluate
from layoutopt.loading.load import run_load
from layoutopt.loading.local_source import open_door, open_local
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import CUT_BY, ByOrder, ByVectors, Layout, Plan
from layoutopt.model.query import Query
from layoutopt.model.requests import LoadRequest
from layoutopt.planning.dry_run import dry_run_loads
from layoutopt.scan.table import open_table
from layoutopt.writer.dry_run import needed_columns
from tests.inspect.replayed import query
from tests.scan.builder import building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

ESTIMATED = ("bytes_scanned", "skipped_by", "indicators")
ABSENT = ("layouts", "footer_bytes")  # which name the plan, and know of files
READ = ("id", "kind", "price")
UNREAD = ("day", "score", "seen")


def queries() -> tuple[Query, ...]:
    return tuple(query(i, f"SELECT id, kind, price FROM t WHERE {text}") for i, text in enumerate(CONDITIONS[:3]))


def plan_of(layouts: Sequence[Layout] | None = None, segment_rows: int = 1000) -> Plan:
    made = building(SCHEMA, CONDITIONS[:3], layouts=layouts, partition_by="year").plan
    return replace(made, queries=queries(), segment_rows=segment_rows)


def plans() -> list[Plan]:
    """Of one layout, of three, and of rows in an order with nothing to skip by but their bounds."""
    by_kind = Layout(SCHEMA.names, (), SCHEMA.names, ByOrder("sort", ("kind",)))
    groups = [
        Layout(names := ("id", "year"), (0,), names, ByVectors("ward")),
        Layout(names := ("kind", "price"), (0, 1), names, ByVectors("ward")),
        Layout(UNREAD, (), UNREAD, ByOrder("input")),
    ]
    no_features = FeatureSet((), plan_of().settings)
    return [plan_of(), plan_of(groups), replace(plan_of([by_kind]), features=no_features)]


def scanned(evaluation: Evaluation) -> list[dict[str, object]]:
    """What each query reads, and of the figures that a dry run estimates only whether there is anything."""
    return [
        {
            name: value if name not in ESTIMATED else bool(value)
            for name, value in one.to_json().items()
            if name not in ABSENT
        }
        for one in evaluation.queries
    ]


@pytest.mark.parametrize("segment_rows", [1000, 60], ids=["a segment a partition", "segments cut"])
def test_a_dry_run_scans_what_the_loaded_table_scans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_rows: int
) -> None:
    source = str(tmp_path / "rows.parquet")
    pq.write_table(some_rows(400), source)
    tried = [replace(plan, segment_rows=segment_rows) for plan in plans()]
    (empty := tmp_path / "empty").mkdir()
    monkeypatch.chdir(empty)
    together = dry_run_loads(open_local(source, tried[0]), tried, columns=READ)
    assert not list(empty.iterdir())
    assert set(together[0].schema.names) == {*READ, "year"}
    for number, (plan, narrow) in enumerate(zip(tried, together, strict=True)):
        (whole,) = dry_run_loads(open_local(source, plan), [plan])
        assert whole.rows == narrow.rows == 400
        assert scanned(evaluate(narrow, queries())) == scanned(evaluate(whole, queries()))
        path = str(tmp_path / f"t{number}")
        run_load(open_door, LoadRequest(source=source, table_path=path, plan=plan))
        loaded = evaluate(open_table(path), queries())
        assert any(one.blocks_scanned < one.blocks_total for one in loaded.queries)
        assert scanned(evaluate(whole, queries())) == scanned(loaded)


def test_plans_of_other_segments_are_not_tried_in_one_pass() -> None:
    nothing: Any = SimpleNamespace()
    with pytest.raises(ValueError, match="run each alone"):
        dry_run_loads(nothing, [plan_of(), plan_of(segment_rows=17)])


def test_what_cuts_a_layout_is_needed_though_no_query_reads_it() -> None:
    whole = Layout(SCHEMA.names, (), SCHEMA.names, ByVectors("ward"))
    cut = replace(whole, blocking=ByVectors("ward", ((CUT_BY, "id"),)))
    needed = []
    for layout in (whole, cut):
        plan = replace(plan_of([layout]), queries=(), features=FeatureSet((), plan_of().settings))
        needed.append(needed_columns([plan], ["kind"]))
    assert needed == [("kind", "year"), ("id", "kind", "year")]
