"""No file that a scan leaves out has a row which any reader takes for matching."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.rest.scan_planning import PlanCompleted, PlanTableScanRequest

from layoutopt.catalog.commit import APPEND
from layoutopt.catalog.table import Catalog
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.predicates import Col
from layoutopt.publish.contents import View, find_views
from layoutopt.publish.iceberg_metadata import iceberg_schema
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.serve.filters import to_condition, to_residual
from layoutopt.serve.planning import Planned, Planner
from layoutopt.serve.protocol import parse_scan_request
from tests.effort import examples
from tests.publish.typed import NESTED, POOLS, SCHEMA, typed_rows
from tests.scan.builder import build, building
from tests.serve.expressions import Readers, expressions, ice

CONDITIONS = (
    "x > 1", "x <> 1.5", "f < 0.5", "f >= 0", "s IN ('a', 'b')", "s LIKE 'z%'", "s <> 'b'", "id < 20", "big > 0",
    "tiny <= 0", "day > DATE '2000-01-01'", "price < 0", "price >= 12.34", "wide > 0", "flag", "tiny = 7 AND x < 0",
    "s IS NULL",
)  # fmt: skip
INDEXES = (
    IndexSpec(Col("s", "string"), "value-list"),
    IndexSpec(Col("x", "double"), "bloom"),
    IndexSpec(Col("big", "bigint"), "hybrid"),
    IndexSpec(Col("price", "decimal(9,2)"), "gap-list"),
    IndexSpec(Col("raw", "binary"), "bloom"),
    IndexSpec(Col("f", "float"), "value-list"),
)


# Values beside those of the pools: what literals are rounded to.
_BESIDE: dict[str, list[Any]] = {
    "f": [0.699999988079071, 0.10000000149011612, 16777216.0, 0.0, math.nan],
    "x": [0.0, -0.0, 0.30000000000000004, math.nan, 1.0],
    "price": [Decimal("0.00"), Decimal("0.01"), Decimal("1.10"), Decimal("1.11"), Decimal("12.00")],
    "wide": [Decimal("0.100"), Decimal("0.101"), Decimal("5.000"), None, Decimal("-0.001")],
    "tiny": [-128, 127, 0, 1, None],
}


def beside() -> pa.Table:
    """Five rows with these values."""
    pools = {name: pa.array(_BESIDE.get(name, [None] * 5), type) for name, (_, type, _) in POOLS.items()}
    return pa.table({**pools, **{name: pa.nulls(5, type) for name, (_, type) in NESTED.items()}})


@dataclass(frozen=True)
class Known:
    """A table, its rows by several readers, and the file that each row is in."""

    planner: Planner
    readers: Readers
    file_of: list[str]

    def plan(self, expression: Any) -> Planned:
        body = PlanTableScanRequest(filter=expression).model_dump_json(by_alias=True, exclude_none=True).encode()
        wanted = parse_scan_request(body).filter
        return self.planner.plan(to_condition(wanted, self.planner.target), to_residual(wanted))


def known(root: Path, connection: duckdb.DuckDBPyConnection) -> list[Known]:
    """The views of a table: one, or one a layout."""
    catalog = Catalog.open(str(root))
    return [known_view(root, catalog, view, connection) for view in find_views(catalog)]


def known_view(root: Path, catalog: Catalog, view: View, connection: duckdb.DuckDBPyConnection) -> Known:
    planner = Planner(OpenedTable(catalog), view)
    paths = planner.plan(to_condition(None, planner.target)).paths
    rows = [pq.read_table(root / path, columns=list(view.columns.names), partitioning=None) for path in paths]
    file_of = [path for path, part in zip(paths, rows, strict=True) for _ in range(part.num_rows)]
    return Known(planner, Readers(iceberg_schema(view.columns), pa.concat_tables(rows), connection), file_of)


OF_GROUP = ("id", "x", "s", "big")
GROUPS = (
    Layout(OF_GROUP, (0, 4, 8), OF_GROUP, ByVectors()),
    Layout(OTHERS := tuple(name for name in SCHEMA.names if name not in OF_GROUP), (2, 14), OTHERS, ByVectors()),
)
"""Two groups of columns, each with local features."""
WITH_COPY = (
    Layout(SCHEMA.names, (7,), SCHEMA.names, ByVectors()),
    Layout(("x", "f", "price"), (0, 2), ("price",), ByVectors()),
)
"""A layout of everything, and a copy of three columns of which one is whole."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Known]]:
    """Tables with features and indexes, by partitions (without NULL and NaN, and with rows appended), of layouts."""
    root = tmp_path_factory.mktemp("served")
    # A row a file: whatever is left out wrongly is seen.
    single = building(SCHEMA, CONDITIONS, segment_rows=1, indexes=INDEXES)
    build(root / "a", pa.concat_tables([typed_rows(45, 1), beside()]), single)
    some = typed_rows(500, 2)
    full = [all(value is not None and value == value for value in row.values()) for row in some.to_pylist()]
    whole = some.filter(pa.array(full)).sort_by("s")
    apart = building(SCHEMA, CONDITIONS[::2], segment_rows=3, partition_by="flag")
    build(root / "b", whole, apart)
    shutil.copytree(root / "b", root / "c")
    build(root / "c", typed_rows(12, 3), apart, "load-2", APPEND)
    for name, layouts in (("d", GROUPS), ("e", WITH_COPY)):
        build(root / name, typed_rows(36, 4), building(SCHEMA, CONDITIONS, segment_rows=4, layouts=layouts))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        yield [view for name in "abcde" for view in known(root / name, connection)]


@pytest.mark.unshadowed("compares what is skipped with the rows itself")
@settings(max_examples=examples(150))
@example(which=0, expression=ice.Not(ice.GreaterThan("x", 1.0)))  # NaN
@example(which=0, expression=ice.GreaterThan("f", 0.1))  # 0.1 of 32 bits is more
@example(which=0, expression=ice.LessThan("price", 0.005))  # 0.01 to some
@example(which=0, expression=ice.GreaterThan("x", -0.0))
@example(which=0, expression=ice.NotIn("f", [0.1, 0.10000000149011612]))
@given(which=st.sampled_from([0, 0, 1, 2, 5]), expression=expressions(SCHEMA.names))
def test_no_file_that_is_left_out_has_a_matching_row(tables: list[Known], which: int, expression: Any) -> None:
    check(tables[which], expression)


@pytest.mark.unshadowed("compares what is skipped with the rows itself")
@settings(max_examples=examples(40))
@given(expressions(OF_GROUP), expressions(OTHERS))
def test_no_file_of_a_group_of_columns_either(tables: list[Known], of_first: Any, of_second: Any) -> None:
    check(tables[3], of_first)
    check(tables[4], of_second)


def check(table: Known, expression: Any) -> None:
    """Plans a scan, and compares it with what readers make of all rows."""
    planned = table.plan(expression)
    for reader, matched in table.readers.matching(expression).items():
        needed = {table.file_of[row] for row in np.flatnonzero(matched).tolist()}
        assert needed <= set(planned.paths), reader
    answer = PlanCompleted.model_validate_json(planned.body)
    assert {task.data_file.file_path for task in answer.file_scan_tasks} == {
        table.planner.table.catalog.files.full_path(path) for path in planned.paths
    }
    assert planned.rows_planned == sum(task.data_file.record_count for task in answer.file_scan_tasks)


@pytest.mark.unshadowed("counts")
def test_much_is_left_out(tables: list[Known]) -> None:
    """What the test above compares would else be nothing."""
    first, whole = tables[:2]
    few = [
        ice.EqualTo("s", "é"),
        ice.GreaterThan("x", 1),
        ice.In("s", ["a", "b"]),
        ice.LessThan("price", 0),
        ice.EqualTo("big", 7),
        ice.And(ice.EqualTo("tiny", 7), ice.LessThan("x", 0)),
        ice.IsNull("s"),
        ice.Not(ice.GreaterThan("id", 7)),
    ]
    for expression in few:
        assert len(first.plan(expression).paths) < len(set(first.file_of)), expression
    # Of columns without NULL and NaN, what is negated skips as other engines' own filters would.
    for expression in (ice.NotEqualTo("s", "b"), ice.Not(ice.EqualTo("s", "b")), ice.Not(ice.LessThan("x", 1))):
        assert len(whole.plan(expression).paths) < len(set(whole.file_of)), expression
