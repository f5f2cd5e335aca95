"""Changes that meet: nine writers of mixed kinds at once, and changes that die at any point of their commits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pytest

from layoutopt.catalog.commit import CRASH_POINTS, commit_load
from layoutopt.catalog.deletion_vectors import commit_deletes
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CommitConflictError
from layoutopt.inspect.verify import verify
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.loading.load import run_load
from tests.spark.changes.living import SCHEMES, Begin, Living, Row, made

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
    first = 900 * (number + 2)
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
        return Change("append", partial(living.appended, living.source(fresh(kind))), put(fresh(kind)))

    def updated(ids: list[int], kind: int) -> Change:
        def model(rows: dict[int, Row]) -> None:
            for key in set(ids) & set(rows):
                rows[key] = (*rows[key][:2], kind, *rows[key][3:])

        change = partial(living.updated, where(ids), f"kind = {kind}", rewrite_share=beside)
        return Change("update", change, model)

    def deleted(ids: list[int]) -> Change:
        def model(rows: dict[int, Row]) -> None:
            for key in ids:
                rows.pop(key, None)

        return Change("delete", partial(living.deleted, where(ids), rewrite_share=number % 2), model)

    feed = [made(key, generation=1) for key in old(6)] + fresh(3)
    own: list[Row] = [(first + 500 + i, first, 1, 0.5, "of a day of its own") for i in range(9)]
    load = LoadRequest(source=living.source(own), table_path=living.path, replace=True)
    return [
        appended(1),
        appended(2),
        deleted(old(0)),
        updated(old(1), 77),
        updated(old(2), 88),
        Change("merge", partial(living.merged, living.source(feed), rewrite_share=beside), put(feed)),
        Change("optimize", living.optimized, lambda rows: None),
        Change("load", partial(run_load, living.spark, load), put(own)),
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


def write_together(living: Living, rounds: int) -> int:
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


@pytest.mark.long
def test_of_nine_writers_at_once_every_change_is_there_once(begin: Begin) -> None:
    write_together(begin("sop"), rounds=1)


@pytest.mark.long
def test_many_rounds_of_nine_writers(begin: Begin) -> None:
    assert write_together(begin("gsop-r"), rounds=8) > 0


class KilledError(BaseException):
    """Stands for kill -9: nothing that tidies up after errors takes it for one."""


@contextmanager
def killed_at(point: str, number: int = 1) -> Iterator[None]:
    """Let the commit of that number die at a point; files that were written stay, as a dead process leaves them."""
    points = {point, "vectors-written"} if point == "plan-written" else {point}  # of deletes the second of four
    commits = count(1)

    def dying(commit: Callable[..., Any]) -> Callable[..., Any]:
        def commit_and_die(files: Any, load: Any, at: Any) -> Any:
            is_last = next(commits) == number

            def die(reached: str) -> None:
                if is_last and reached in points:
                    raise KilledError(point)

            return commit(files, load, die)

        return commit_and_die

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layoutopt.loading.load.commit_load", dying(commit_load))
        patch.setattr("layoutopt.changes.commit.commit_deletes", dying(commit_deletes))
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


@pytest.mark.long
def test_a_change_that_dies_while_it_commits_is_made_or_not(begin: Begin) -> None:
    kill(begin("sop"), 0, ("merge", "optimize"), ("snapshot-created", "before-snapshot"))


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_changes_that_die_at_every_point(begin: Begin, scheme: str) -> None:
    living = begin(scheme)
    for number in range(len(CRASH_POINTS)):
        turned = CRASH_POINTS[number:] + CRASH_POINTS[:number]
        kill(living, number, KINDS, turned)
    kill(living, 6, ("update", "merge"), ("vectors-written", "vectors-written"))
    living.check_past()
    assert verify(open_table(living.path)).ok


@pytest.mark.parametrize(
    ("scheme", "point"),
    [("sop", "before-snapshot"), *(pytest.param("gsop-r", point, marks=pytest.mark.long) for point in CRASH_POINTS)],
)
def test_an_append_that_dies_while_it_joins_is_there_once(begin: Begin, scheme: str, point: str) -> None:
    living = begin(scheme)
    living.append(3)
    rows = living.new_rows(9)
    source = living.source(rows)
    before = Catalog.open(living.path).snapshot.number
    with killed_at(point, 2), pytest.raises(KilledError):
        living.appended(source)
    living.model |= {row[0]: row for row in rows}
    done = point == "snapshot-created"
    assert Catalog.open(living.path).snapshot.number == before + 1 + done
    living.check()
    again = living.appended(source)
    assert (again.load, again.joined) == (None, None)
    living.check()
    living.append(3)  # joins what was left
    assert max(map(len, Catalog.open(living.path).snapshot.by_key.values())) <= 3
    living.check()
    assert verify(open_table(living.path)).ok
