"""The simulation: its books balance, the best in hindsight is the best, and our policy is close to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layoutopt.bench.drift import (
    DAYS,
    OLD_PARTITIONS,
    POLICIES,
    STREAMS,
    Run,
    World,
    cheapest,
    drift_report,
    mixes,
    plot_drift,
    run_drift,
    simulate,
    total_ratios,
)


@pytest.fixture(scope="module")
def world() -> World:
    made = World.drawn(0)
    for mix in mixes():
        made.layouts.plan(mix)
    return made


@pytest.mark.parametrize("policy", ["never", "threshold", "ours"])
def test_nothing_beats_the_best_in_hindsight(world: World, policy: str) -> None:
    run = simulate(world, lambda run: STREAMS["abrupt"][run.day], POLICIES[policy], 1.0)
    assert run.read + run.written >= cheapest(run, 1.0)
    assert len(run.loads) == DAYS


def test_who_may_write_for_nothing_joins_late_rows_each_night(world: World) -> None:
    run = simulate(world, lambda run: STREAMS["abrupt"][0], POLICIES["never"], 1.0)
    assert run.written == 0
    assert cheapest(run, 0.0) < cheapest(run, 1e9) <= run.read


def test_a_layout_is_best_for_what_it_was_planned_for(world: World) -> None:
    types = mixes()[:, world.families.of_type] * world.families.shares
    reads = types @ world.layouts.matrix[:4].T
    assert (reads.argmin(axis=1) == np.arange(4)).all()
    assert (world.layouts.matrix >= world.layouts.matching - 1e-12).all()


def test_a_partition_comes_each_day_and_ages(world: World) -> None:
    run = Run.begin(world)
    for day in range(3):
        ages = run.ages
        assert int((ages >= 0).sum()) == OLD_PARTITIONS + day
        run.pass_day(mixes()[0])
        assert not run.loads[day][ages < 0].any()
        assert (run.loads[day][ages >= 0].sum(axis=1) > 0).all()


@pytest.mark.long
def test_one_seed_gives_one_result_and_a_picture(tmp_path: Path) -> None:
    once, again = (run_drift(3, prices=(10.0,), streams=["seasonal"]) for _ in range(2))
    assert once == again
    assert {one.policy for one in once} == set(POLICIES)
    assert drift_report(once).row_count == 2
    plot_drift(once, tmp_path / "drift.png")
    assert (tmp_path / "drift.png").stat().st_size > 1000


@pytest.mark.long
def test_our_policy_is_close_to_the_best_in_hindsight() -> None:
    figures = run_drift(0)
    ours = [one for one in figures if one.policy == "ours"]
    assert max(one.ratio for one in ours if one.stream != "adversarial") <= 1.2
    assert max(one.ratio for one in ours if one.stream == "adversarial") <= 2.4
    totals = total_ratios(figures)
    assert totals["ours"] == min(totals.values())
