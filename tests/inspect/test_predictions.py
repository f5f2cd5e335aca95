"""What plans predicted, beside what a table really stores and reads."""

from __future__ import annotations

import io
from dataclasses import astuple, replace
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from layoutopt.inspect.evaluate import compare, evaluate
from layoutopt.report.inspections import print_evaluation
from tests.inspect.replayed import LOG
from tests.scan.builder import build, building
from tests.scan.layouts import OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


def test_the_predicted_figures_are_measured(tmp_path: Path, rows: pa.Table) -> None:
    made = building(SCHEMA, CONDITIONS, layouts=OVERLAPPING, segment_rows=40)
    predicted = {"storage_cells": 1.2, "storage_cells@1.5": 1.4, "cells_and_tids_fraction": 0.4}
    table = build(tmp_path, rows, replace(made, plan=replace(made.plan, predicted=predicted)))
    result = evaluate(table, LOG)
    found = compare(table, LOG, result)
    totals, everything = result.totals, len(SCHEMA.names) * rows.num_rows
    # id and kind are stored once more for the rows of feature 0: those of kind air or rail.
    copied = 2 * sum(kind in ("air", "rail") for kind in rows["kind"].to_pylist())
    assert found.storage.cells == everything + copied
    assert found.measured["storage_cells"] == pytest.approx(1 + copied / everything, abs=1e-6)
    cells = sum(len(query.columns) for query in LOG) * rows.num_rows
    read = totals.cells_scanned + totals.tids_scanned
    assert found.measured["cells_and_tids_fraction"] == pytest.approx(read / cells, abs=1e-6)
    assert 0 < found.measured["bytes_fraction"] < 1
    (plan,) = found.plans
    assert plan.predicted == {"storage_cells": 1.2, "cells_and_tids_fraction": 0.4}
    said = io.StringIO()
    print_evaluation(Console(file=said, width=120), result, 0, predictions=found)
    assert "predicted for the training queries" in said.getvalue()
    assert "storage cells" in said.getvalue()
    assert found.foreseen.queries == 0


def test_what_each_query_was_predicted_to_read(tmp_path: Path, rows: pa.Table) -> None:
    made = building(SCHEMA, CONDITIONS, segment_rows=40)
    foreseen = LOG[:3]
    plan = replace(made.plan, queries=tuple(foreseen), reads=(0.5, 0.0, 0.25))
    table = build(tmp_path, rows, replace(made, plan=plan))
    result = evaluate(table, LOG)
    found = compare(table, LOG, result)
    full = {
        query.id: sum(source.blocks.column_bytes(name).sum() for source in table.sources for name in query.columns)
        for query in LOG
    }
    assert found.bytes_predicted == (round(0.5 * full[0]), 0, round(0.25 * full[4]), None)
    read = [query.bytes_scanned for query in result.queries[:3]]
    sizes = [size for size in found.bytes_predicted if size is not None]
    close = sum(abs(a - b) <= 0.25 * b for a, b in zip(sizes, read, strict=True)) / 3
    assert astuple(found.foreseen) == pytest.approx((3, sum(sizes), sum(read), close), abs=1e-6)
    said = io.StringIO()
    print_evaluation(Console(file=said, width=140), result, 0, predictions=found, every=True)
    assert "for the 3 queries that it was made for" in said.getvalue()
    assert "predicted" in said.getvalue().splitlines()[2]
