"""What optimize rewrites: what pays most, what older plans left, and what a recent log asks for."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.catalog.table import Catalog
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import CommitConflictError, PlanError, SchemaError, SettingError
from layoutopt.inspect.status import status
from layoutopt.inspect.verify import verify
from layoutopt.maintenance.candidates import Candidate
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.requests import OptimizeRequest
from layoutopt.report.changes import print_optimize
from layoutopt.scan.table import open_table
from layoutopt.spark.changes import optimize
from layoutopt.spark.changes.optimize import OptimizeReport, optimize_table
from layoutopt.spark.changes.replan import request_like
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from tests.report.printing import printed
from tests.scan.builder import building
from tests.scan.tables import CONDITIONS, SCHEMA
from tests.spark.changes.living import Begin, before_next_call
from tests.spark.tables import document, is_value, kinds_and_shops, plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS, DAYS = 8_000, 4


class Changed:
    """A table that was planned for queries by kind, and logs of queries by shop."""

    def __init__(self, spark: SparkSession, root: Path, loaded: str | None = None) -> None:
        self.spark, self.root, self.table = spark, root, str(root / "table")
        rows = kinds_and_shops(spark, ROWS, DAYS)
        schema = schema_of(rows)
        of = document(schema, [is_value(schema, "kind", "=", kind) for kind in range(4)])
        self.plan = plan_of(of, partition_by="day", block_rows=100, segment_rows=10_000)
        if loaded is None:
            load(spark, rows, self.table, self.plan)
        else:
            shutil.copytree(loaded, self.table)

    def log(self, name: str, days: Sequence[dt.date], shops: int = 10, only: str = "TRUE") -> str:
        """The text of each shop, on each of some days, of some rows only."""
        lines = [
            {"sql": f"SELECT text FROM t WHERE shop = {shop} AND {only}", "timestamp": f"{day}T12:00:00Z"}
            for day in days
            for shop in range(shops)
        ]
        path = self.root / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    def optimize(self, **given: Any) -> OptimizeReport:
        return optimize_table(self.spark, OptimizeRequest(table_path=self.table, **given))


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return Changed(spark, tmp_path_factory.mktemp("changed")).table


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path, loaded: str) -> Changed:
    return Changed(spark, tmp_path, loaded)


def coming(days: int) -> list[dt.date]:
    """Days that begin after the table was loaded."""
    return [dt.datetime.now(dt.UTC).date() + dt.timedelta(days=day) for day in range(1, days + 1)]


def test_a_fresh_plan_is_asked_for_what_the_old_one_was() -> None:
    plan = building(SCHEMA, CONDITIONS).plan
    (layout,) = plan.scheme.layouts
    asked = request_like(replace(plan, predicted={"storage_cells": 1.47}, codec="snappy"))
    assert (asked.budgets, asked.codec, asked.block_rows) == ((1.47,), "snappy", plan.block_rows)
    assert asked.row_order == ("none",)
    ordered = replace(plan, scheme=Scheme((replace(layout, row_order=("kind",)),)))
    assert request_like(ordered).row_order is None
    assert request_like(ordered).budgets == (1.2,)


def test_what_is_lost_is_regained_within_budgets_and_then_there_is_nothing_to_do(
    changed: Changed, capsys: pytest.CaptureFixture[str]
) -> None:
    log = changed.log("new", coming(3))
    ask = ["drift", changed.table, log, "--regret", "--most", "1", "--json"]
    assert main(ask) == DONE
    told = json.loads(capsys.readouterr().out)
    assert [one["change"] for one in told["families"]["families"]] == ["gone", "new"]
    assert told["families"]["unknown"] == 1.0
    assert told["regret"]["share"] > 0.9  # nothing is skipped for shops, and a fresh plan skips most
    dry = changed.optimize(log=log, dry_run=True)
    assert dry.curve[-1] == (1.0, 1.0)
    assert (dry.loads, len(dry.chosen)) == ((), DAYS)
    assert dry.reasons == dict.fromkeys(dry.chosen, optimize.GAINS)
    plans, keys = set(), []
    for share in (0.3, 0.3, 1.0):
        report = changed.optimize(log=log, budget_share=share, parallel=2)
        plans.add(report.plan)
        keys.append([key for one in report.loads for key in one.partitions])
        assert len(report.candidates) == DAYS - sum(map(len, keys[:-1]))
    # Each night goes on where the one before stopped, by the plan that it made.
    assert len(plans) == 1
    assert [len(some) for some in keys] == [1, 1, 2]
    assert len({key for some in keys for key in some}) == DAYS
    assert changed.optimize(log=log).candidates == ()
    assert main(ask) == DONE
    assert abs(json.loads(capsys.readouterr().out)["regret"]["share"]) < 0.01
    assert verify(open_table(changed.table)).ok
    assert open_table(changed.table).sql("SELECT count(DISTINCT text) AS n FROM t").to_pylist() == [{"n": ROWS}]


@pytest.mark.long
def test_partitions_that_nobody_asks_for_are_left(changed: Changed) -> None:
    dry = changed.optimize(log=changed.log("late", coming(2), only="day >= 3"), dry_run=True)
    assert dry.chosen == ("3",)
    assert [one.gain > 0 for one in dry.candidates] == [True, False, False, False]
    assert dry.curve[-1][0] < 0.3


@pytest.mark.long
def test_auto_waits_until_as_much_was_lost_as_writing_costs(
    changed: Changed, capsys: pytest.CaptureFixture[str]
) -> None:
    before = changed.log("before", [dt.date(2020, 1, day) for day in (1, 2, 3)])
    nothing = changed.optimize(log=before, auto=True)
    assert len(nothing.candidates) == DAYS
    assert all(one.gain > 0 for one in nothing.candidates)
    assert nothing.chosen == ()  # nobody has asked since the table was written
    assert {one.loss.total for one in nothing.prospects.values()} == {0.0}
    log = changed.log("new", coming(3))
    assert changed.optimize(log=log, auto=True, write_cost=1000.0, dry_run=True).chosen == ()
    words = ["optimize", changed.table, "--log", log, "--auto", "--budget-share", "0.3", "--plot", f"{log}.png"]
    assert main(words) == DONE
    said = " ".join(capsys.readouterr().out.split())
    assert "lost so far" in said
    assert Path(f"{log}.png").exists()
    assert said.count("written") >= 2
    assert len(Catalog.open(changed.table).plans) == 2


def test_a_rewrite_without_gain_has_another_reason() -> None:
    kept = Candidate("a", 1, True, 100, gain=-5.0, read=100.0)
    assert optimize.find_reason(kept) is None
    assert optimize.find_reason(replace(kept, gain=6.0)) == optimize.GAINS
    assert optimize.find_reason(replace(kept, older_plan=False, gain=6.0)) is None
    assert optimize.find_reason(replace(kept, entries=3)) == "compacts 3 loads"
    assert optimize.find_reason(replace(kept, deleted=0.1)) == "removes 10.0% deleted rows"
    assert optimize.find_reason(replace(kept, deleted=0.1), 0.2) is None


def test_whoever_changed_a_partition_meanwhile_wins(changed: Changed, monkeypatch: pytest.MonkeyPatch) -> None:
    def first() -> None:
        raise CommitConflictError("somebody was first")

    before_next_call(monkeypatch, optimize, "load", first)
    report = changed.optimize(log=changed.log("new", coming(2)), budget_share=0.6)
    assert report.overtaken == report.chosen[:1]
    assert len(report.loads) == len(report.chosen) - 1 == 1


def test_what_is_of_no_use_is_said_in_a_sentence(changed: Changed) -> None:
    other = replace(changed.plan, partition_by="kind")
    (changed.root / "other.json").write_bytes(other.dumps())
    once = changed.log("once", coming(1), shops=1)
    for given, kind, said in (
        ({"auto": True}, SettingError, "--auto needs a recent log"),
        ({"half_life": "3d"}, SettingError, "--half-life needs a recent log"),
        ({"plan": changed.root / "other.json"}, SchemaError, "other columns or partitions"),
        ({"log": once}, PlanError, "recurs"),
    ):
        with pytest.raises(kind, match=said):
            changed.optimize(**given)
    assert main(["optimize", changed.table, "--horizon", "0d"]) == BAD_USAGE
    # A plan that is given is what partitions are laid out by, whatever it predicts.
    mine = replace(changed.plan, seed=9, predicted={"bytes_fraction": 1.0})
    (changed.root / "mine.json").write_bytes(mine.dumps())
    report = changed.optimize(plan=changed.root / "mine.json", partition=("1",))
    assert [one.partitions for one in report.loads] == [("1",)]
    assert report.reasons == {"1": "named by --partition"}
    assert "written: named by --partition" in printed(print_optimize, report)
    assert {entry.plan for entry in Catalog.open(changed.table).partitions if entry.key == "1"} == {
        Plan.loads(mine.dumps()).digest
    }


@pytest.mark.long
def test_what_pays_most_for_each_byte_comes_first_and_nothing_twice(begin: Begin) -> None:
    living = begin("gsop-r")
    assert status(Catalog.open(living.path)).advice is None
    living.append(12)
    living.append(2)
    told = status(Catalog.open(living.path))
    assert told.advice == f"3 partitions have rows of several loads; `layoutopt optimize {living.path}` compacts them"
    assert [one.entries for one in told.partitions] == [3, 3, 2]
    dry = living.optimized(dry_run=True)
    assert len(dry.candidates) == len(dry.chosen) == 3
    assert set(dry.reasons.values()) == {"compacts 3 loads", "compacts 2 loads"}
    gains = [one.gain / one.bytes for one in dry.candidates]
    assert gains == sorted(gains, reverse=True)
    budget = dry.candidates[0].bytes
    assert living.optimized(budget_bytes=budget, dry_run=True).chosen == dry.chosen[:1]
    assert [one.partitions for one in living.optimized(budget_bytes=budget).loads] == [dry.chosen[:1]]
    assert len(living.optimized().loads) == 2
    done = living.optimized()
    assert (done.candidates, done.chosen, done.loads) == ((), (), ())
    living.check()


@pytest.mark.long
def test_partitions_of_older_plans_are_written_by_the_newest(begin: Begin) -> None:
    living = begin("gsop-r")
    plan = Plan.loads((living.root / "plan.json").read_bytes())
    (living.root / "plan.json").write_bytes(replace(plan, seed=7).dumps())
    living.load([row for row in living.new_rows(30) if row[1] == 2], replace=True)
    assert "2 partitions have older plans" in str(status(Catalog.open(living.path)).advice)
    report = living.optimized(partition=("1", "__null__"))
    assert all(one.older_plan for one in report.candidates)
    assert len(report.loads) == 2
    assert len(Catalog.open(living.path).plans) == 1
    living.check()
