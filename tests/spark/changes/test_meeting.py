"""Changes that meet: nine writers of mixed kinds at once, and changes that die at any point of their commits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.catalog.commit import CRASH_POINTS, commit_load
from layoutopt.catalog.deletion_vectors import commit_deletes
from layoutopt.catalog.table import Catalog
from layoutopt.config.settings import (
    AppendSettings,
    DeleteSettings,
    LoadSettings,
    MergeSettings,
    OptimizeSettings,
    UpdateSettings,
)
from layoutopt.errors import CommitConflictError
from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from layoutopt.spark.changes.append import append_rows
from layoutopt.spark.changes.dml import delete_rows, merge_rows, update_rows
from layoutopt.spark.changes.optimize import optimize_table
from layoutopt.spark.loading.load import run_load
from tests.spark.changes.living import SCHEMES, Living, Row, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 60


@dataclass(frozen=True)
class Change:
    """A change of rows of its own: the order of several does not matter, nor how often each is made.

    Attributes:
        kind: the verb.
        make: makes it to the table.
        model: makes it to the model.
    """

    kind: str
    make: Callable[[], object]
    model: Callable[[dict[int, Row]], None]


def changes(living: Living, number: int) -> list[Change]:
    """Nine changes: loads and appends of new rows, the others of some of the rows that were there first."""
    spark, path, first = living.spark, living.path, 900 * (number + 2)
    beside = (number + 1) % 2  # whether updates and merges mark rows, where deletes write partitions anew

    def fresh(kind: int) -> list[Row]:
        """New rows of one day."""
        return [made(first + 100 * kind + 3 * i) for i in range(3)]

    def old(place: int) -> list[int]:
        """Some ids of one partition, those of another round."""
        return [(12 * number + place + 3 * i) % ROWS for i in range(2)]

    def where(ids: list[int]) -> str:
        return f"id IN ({', '.join(map(str, ids))})"

    def put(rows: list[Row]) -> Callable[[dict[int, Row]], None]:
        return lambda model: model.update({row[0]: row for row in rows})

    def appended(kind: int) -> Change:
        settings = AppendSettings(table_path=path, source=living.source(fresh(kind)))
        return Change("append", lambda: append_rows(spark, settings), put(fresh(kind)))

    def updated(ids: list[int], kind: int) -> Change:
        settings = UpdateSettings(
            table_path=path, assignments=(f"kind = {kind}",), where=where(ids), rewrite_share=beside
        )

        def model(rows: dict[int, Row]) -> None:
            for key in set(ids) & set(rows):
                rows[key] = (*rows[key][:2], kind, *rows[key][3:])

        return Change("update", lambda: update_rows(spark, settings), model)

    def deleted(ids: list[int]) -> Change:
        settings = DeleteSettings(table_path=path, where=where(ids), rewrite_share=number % 2)

        def model(rows: dict[int, Row]) -> None:
            for key in ids:
                rows.pop(key, None)

        return Change("delete", lambda: delete_rows(spark, settings), model)

    feed = [made(key, generation=1) for key in old(6)] + fresh(3)
    merge = MergeSettings(table_path=path, source=living.source(feed), on=("id",), rewrite_share=beside)
    own: list[Row] = [(first + 500 + i, first, 1, 0.5, "of a day of its own") for i in range(9)]
    load = LoadSettings(source=living.source(own), table_path=path, replace=True)
    joined = OptimizeSettings(table_path=path)
    return [
        appended(1),
        appended(2),
        deleted(old(0)),
        updated(old(1), 77),
        updated(old(2), 88),
        Change("merge", lambda: merge_rows(spark, merge), put(feed)),
        Change("optimize", lambda: optimize_table(spark, joined), lambda rows: None),
        Change("load", lambda: run_load(spark, load), put(own)),
        Change("alone", lambda: living.write_layouts(random.Random(number)), lambda rows: None),
    ]


def until_it_is_done(change: Callable[[], object], together: threading.Barrier, most: int = 30) -> int:
    """Make a change at the same time as others, again after each conflict; how many conflicts there were."""
    together.wait()
    for conflicts in range(most):
        try:
            change()
        except CommitConflictError:
            continue
        return conflicts
    raise AssertionError("a change never got its turn")


def write_together(spark: SparkSession, root: Path, scheme: str, rounds: int) -> int:
    living = Living(spark, root)
    living.begin(SCHEMES[scheme], ROWS)
    conflicts = 0
    for number in range(rounds):
        mine = changes(living, number)
        together = threading.Barrier(len(mine))
        with ThreadPoolExecutor(len(mine)) as writers:
            waits = [writers.submit(until_it_is_done, change.make, together) for change in mine]
            conflicts += sum(wait.result() for wait in waits)
        for change in mine:
            change.model(living.model)
        living.check()
    assert verify(open_table(living.path)).ok
    return conflicts


def test_of_nine_writers_at_once_every_change_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    write_together(spark, tmp_path, "sop", rounds=1)


@pytest.mark.long
def test_many_rounds_of_nine_writers(spark: SparkSession, tmp_path: Path) -> None:
    assert write_together(spark, tmp_path, "gsop-r", rounds=8) > 0


class KilledError(BaseException):
    """Stands for kill -9: nothing that tidies up after errors takes it for one."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """Let the commit of a change die at a point; files that were written stay, as a dead process leaves them."""

    points = {point, "vectors-written"} if point == "plan-written" else {point}  # of deletes the second of four

    def die(reached: str) -> None:
        if reached in points:
            raise KilledError(point)

    def dying(commit: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **named: commit(*arguments, **{**named, "at": die})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layoutopt.spark.loading.load.commit_load", dying(commit_load))
        patch.setattr("layoutopt.spark.changes.pipeline.commit_deletes", dying(commit_deletes))
        yield


def kill(living: Living, number: int, kinds: tuple[str, ...], points: tuple[str, ...]) -> None:
    """Let each change die at its point: the table is as before or as after it, and a retry makes it once."""
    by_kind = {change.kind: change for change in changes(living, number)}
    for kind, point in zip(kinds, points, strict=True):
        change = by_kind[kind]
        if kind == "optimize":
            living.append(3)  # something to join
        before = Catalog.open(living.path).snapshot.number
        with killed_at(point), pytest.raises(KilledError):
            change.make()
        # A change of several commits, such as optimize, dies in the first of them.
        assert Catalog.open(living.path).snapshot.number == before + (point == "snapshot-created")
        if point == "snapshot-created":
            change.model(living.model)
        living.check()
        change.make()
        change.model(living.model)
        living.check()


KINDS = ("delete", "update", "merge", "optimize", "append")


def test_a_change_that_dies_while_it_commits_is_made_or_not(spark: SparkSession, tmp_path: Path) -> None:
    living = Living(spark, tmp_path)
    living.begin(SCHEMES["sop"], ROWS)
    kill(living, 0, ("merge", "optimize"), ("snapshot-created", "before-snapshot"))


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_changes_that_die_at_every_point(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    living = Living(spark, tmp_path)
    living.begin(SCHEMES[scheme], ROWS)
    for number in range(len(CRASH_POINTS)):
        turned = CRASH_POINTS[number:] + CRASH_POINTS[:number]
        kill(living, number, KINDS, turned)
    kill(living, 6, ("update", "merge"), ("vectors-written", "vectors-written"))
    living.check_past()
    assert verify(open_table(living.path)).ok


def die_while_joining(living: Living, point: str) -> None:
    """Let an append die while it joins what it and earlier ones left: its rows are there, and are appended once."""
    living.append(3)
    rows = living.new_rows(9)
    settings = AppendSettings(table_path=living.path, source=living.source(rows))
    before = Catalog.open(living.path).snapshot.number
    joining = killed_in_commit(2, point)
    with joining, pytest.raises(KilledError):
        append_rows(living.spark, settings)
    living.model |= {row[0]: row for row in rows}
    done = point == "snapshot-created"
    assert Catalog.open(living.path).snapshot.number == before + 1 + done
    living.check()
    again = append_rows(living.spark, settings)
    assert (again.load, again.joined) == (None, None)
    living.check()
    living.append(3)  # joins what was left
    assert max(map(len, Catalog.open(living.path).snapshot.by_key.values())) <= 3
    living.check()


@contextmanager
def killed_in_commit(number: int, point: str) -> Iterator[None]:
    """Let the commit of that number, from 1, die at a point."""
    made = []

    def dying(*arguments: Any, **named: Any) -> Any:
        made.append(number)

        def die(reached: str) -> None:
            if len(made) == number and reached == point:
                raise KilledError(point)

        return commit_load(*arguments, **{**named, "at": die})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layoutopt.spark.loading.load.commit_load", dying)
        yield


def test_an_append_that_dies_while_it_joins_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    living = Living(spark, tmp_path)
    living.begin(SCHEMES["sop"], ROWS)
    die_while_joining(living, "before-snapshot")


@pytest.mark.long
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_appends_that_die_at_every_point_of_joining(spark: SparkSession, tmp_path: Path, point: str) -> None:
    living = Living(spark, tmp_path)
    living.begin(SCHEMES["gsop-r"], ROWS)
    die_while_joining(living, point)
    assert verify(open_table(living.path)).ok
