"""Plans from somebody else, given to what a load's tasks run: refused with one sentence, or obeyed, without Spark."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.errors import LayoutoptError
from layoutopt.features.weights import feature_shares
from layoutopt.model.documents import canonical_bytes
from layoutopt.model.layout import ByVectors, Plan
from layoutopt.model.vectors import words_for
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from layoutopt.writer.task import WriteJob, gather_and_write
from tests.scan.builder import building
from tests.scan.corruptions import with_hostile_value
from tests.scan.layouts import OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

ROWS = some_rows(60)


def plan_with_everything() -> Plan:
    """Two layouts that share columns, parameters for each, training queries."""
    plan = building(SCHEMA, CONDITIONS, layouts=OVERLAPPING).plan
    entries = [LogEntry(i, f"SELECT id FROM t WHERE {condition}") for i, condition in enumerate(CONDITIONS)]
    blockings = ByVectors("ward", (("cut_by", "day"), ("min_rows", 5))), ByVectors("portfolio-low")
    layouts = zip(plan.scheme.layouts, blockings, strict=True)
    scheme = replace(plan.scheme, layouts=tuple(replace(layout, blocking=blocking) for layout, blocking in layouts))
    return replace(plan, queries=tuple(analyze(entries, SCHEMA, "t").queries), scheme=scheme, block_rows=10)


def batches(plan: Plan, seed: int) -> list[pa.RecordBatch]:
    """The rows as a task gets them, with some feature vectors."""
    rng = np.random.default_rng(seed)
    added = {"_pos": pa.array(range(60)), "_segment": pa.array([0] * 60, pa.int32())}
    added |= {f"_w{i}": pa.array(rng.integers(0, 16, 60)) for i in range(words_for(len(plan.features)))}
    table = ROWS
    for name, values in added.items():
        table = table.append_column(name, values)
    return list(table.to_batches())


def outcome(data: bytes, root: Path, seed: int) -> str:
    """What becomes of a plan's document; what is no error of ours and no written segment fails, or is "unclear"."""
    try:
        plan = Plan.loads(data)
    except LayoutoptError:
        return "refused"
    if plan.schema != SCHEMA:
        return "another schema"  # which the load compares with the source's
    try:
        shares = feature_shares(plan.features, plan.queries)
        job = WriteJob(plan, shares, str(root), "load-1", 0, ("all",), (0,))
        written = gather_and_write(job, batches(plan, seed))
    except LayoutoptError as error:
        return "refused by the task" if len(str(error)) < 1000 else f"unclear: {error}"
    assert written is not None
    assert written.rows == 60
    return "written"


@pytest.mark.parametrize(("times", "seed"), [(40, 0), pytest.param(1500, 1, marks=pytest.mark.long)])
def test_tasks_refuse_hostile_plans_or_obey_them(times: int, seed: int, tmp_path: Path) -> None:
    document = json.loads(plan_with_everything().dumps())
    found: Counter[str] = Counter()
    for number in range(times):
        rng = random.Random(f"{seed} {number}")
        try:
            data = canonical_bytes(with_hostile_value(document, rng))
        except ValueError:  # JSON has no word for it
            continue
        found[outcome(data, tmp_path / str(number), number)] += 1
    print(dict(found))  # noqa: T201 - what the long run reports
    assert found["refused"] > 0 < found["written"]
    assert not any(what.startswith("unclear") for what in found)


@pytest.mark.parametrize(
    "params", [{"min_rows": 0}, {"min_rows": "x"}, {"min_rows": -1.5}, {"cut_by": "../x"}, {"cut_by": 5}]
)
def test_parameters_of_a_blocking_that_make_no_sense(params: dict[str, object], tmp_path: Path) -> None:
    document = json.loads(plan_with_everything().dumps())
    document["scheme"][0]["blocking"]["params"] = params
    assert outcome(canonical_bytes(document), tmp_path, 0).startswith("refused")


def test_blockings_and_orders_that_there_are_none_of(tmp_path: Path) -> None:
    document = json.loads(plan_with_everything().dumps())
    for number, blocking in enumerate(
        (
            {"by": "vectors", "algorithm": "os.system", "params": {}},
            {"by": "order", "kind": "sort", "columns": ["nope"], "params": {}},
            {"by": "order", "kind": "../x", "columns": ["id"], "params": {}},
            {"by": "vectors", "algorithm": "ward", "params": {"min_rows": float("1e308") * 10}},
        )
    ):
        document["scheme"][0]["blocking"] = blocking
        assert outcome(json.dumps(document).encode(), tmp_path / str(number), 0).startswith("refused")
