"""What queries read of a table with some of its layouts; no Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layoutopt.inspect.cost import measure_entry_bytes
from layoutopt.maintenance.candidates import plan_steps
from layoutopt.model.layout import Layout
from layoutopt.model.predicates import Filter
from layoutopt.model.query import Query
from layoutopt.scan.table import Table
from layoutopt.spark.changes.partial_rewrite import LayoutReads, restrict_to_layouts, with_features
from layoutopt.sql.scans import find_scans
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

OLD = 2
KIND, REST = ("id", "kind", "price"), ("day", "score", "seen", "year")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Two older layouts, by the first condition, and two of the same columns, by the second and third."""
    layouts = [
        Layout(KIND, (0,), KIND),
        Layout(REST, (), REST),
        Layout(KIND, (1, 2), KIND),
        Layout(REST, (1,), REST),
    ]
    made = building(SCHEMA, CONDITIONS, layouts=layouts)
    return build(tmp_path_factory.mktemp("layouts") / "t", some_rows(2_000), made)


def query(number: int, condition: str, columns: tuple[str, ...], weight: float = 1.0) -> Query:
    (scan,) = find_scans(f"SELECT * FROM t WHERE {condition}", {"t": SCHEMA})
    return Query(number, "t", columns, Filter.of(scan.filter.root), weight=weight)


OLDER = query(0, CONDITIONS[0], ("kind", "id"))
NEWER = query(1, CONDITIONS[2], ("kind", "price", "id"), weight=3.0)


def read(table: Table, *queries: Query) -> float:
    of = measure_entry_bytes(table, queries)
    return float((of.weights @ of.read).sum())


def test_what_is_read_with_some_layouts_is_what_a_table_of_these_reads(table: Table) -> None:
    reads = LayoutReads(table, OLD, [OLDER, NEWER])
    assert reads.sets() == [{2}, {3}]
    for taken in (frozenset[int](), frozenset({2}), frozenset({2, 3})):
        assert reads.read(taken) == pytest.approx(
            read(restrict_to_layouts(table, [0, 1, *sorted(taken)]), OLDER, NEWER)
        )
    assert reads.read(frozenset({2})) < 0.8 * reads.read(frozenset())
    found = plan_steps(reads.sets(), {2: reads.bytes_of(2), 3: reads.bytes_of(3)}, reads.read)
    assert [step.layouts for step in found] == [frozenset(), {2}]


def test_an_older_layout_goes_only_where_nobody_reads_more_without_it(table: Table) -> None:
    assert LayoutReads(table, OLD, [NEWER]).find_unread(frozenset({2}), [0]) == [0]
    assert LayoutReads(table, OLD, [OLDER, NEWER]).find_unread(frozenset({2}), [0]) == []
    assert LayoutReads(table, OLD, [NEWER]).find_unread(frozenset({2, 3}), [0, 1]) == [0, 1]


def test_features_that_were_not_measured_skip_nothing(table: Table) -> None:
    older = restrict_to_layouts(table, [0, 1])
    (source,) = older.sources
    first = with_features(older, replace(source.plan.features, features=source.plan.features.features[:1]))
    assert read(first, OLDER) == read(older, OLDER)
    assert read(older, NEWER) <= read(first, NEWER)
    assert first.sources[0].blocks.words.max() == 1
