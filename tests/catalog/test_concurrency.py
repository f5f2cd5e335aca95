"""Loaders, readers and vacuums in processes of their own, all at once on one table."""

from __future__ import annotations

import multiprocessing
import queue
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from layoutopt.catalog import manifest_writing
from layoutopt.catalog.commit import ensure_table_root
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot, read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import CatalogError, CommitConflictError
from tests.catalog.crash import MANIFESTS_ALWAYS, check_contents, commit, read

LOADERS, READERS = 8, 2

pytestmark = pytest.mark.usefixtures("has_manifests")
YEARS = (1994, 1995, 1996, 1997)


@dataclass(frozen=True)
class Outcome:
    """What became of a load: the number of its snapshot, None where it was refused."""

    load_id: str
    round: int
    years: tuple[int, ...]
    snapshot: int | None


def _load(root: str, loader: int, rounds: int, barrier: Any, results: Any) -> None:
    files = TableFiles(root)
    choose = random.Random(loader)
    outcomes = []
    for number in range(rounds):
        years = tuple(choose.sample(YEARS, choose.choice([1, 1, 2])))
        barrier.wait()
        base = latest_snapshot(files)  # the same for all: nobody commits until all have it
        barrier.wait()
        load_id = f"r{number}-l{loader}"
        try:
            made: int | None = commit(files, base, load_id, years).number
        except CommitConflictError:
            made = None
        outcomes.append(Outcome(load_id, number, years, made))
    results.put(outcomes)


def _read(root: str, stop: Any, results: Any) -> None:
    """Read until told to stop; ``crash.read`` fails where rows of two loads mix or one is missing or double."""
    files, reads, last = TableFiles(root), 0, -1
    while not stop.is_set():
        newest = latest_snapshot(files)
        assert newest is not None
        assert newest.number >= last
        last = newest.number
        assert set(read(root)) == set(YEARS)
        reads += 1
    results.put(reads)


def _vacuum(root: str, stop: Any, results: Any) -> None:
    removed = 0
    while not stop.is_set():
        removed += len(vacuum(TableFiles(root), 3, timedelta(0)).files)
    results.put(removed)


def _work(work: Any, root: str, *arguments: Any) -> None:
    """Work in a process, with manifests where the table has some."""
    newest = latest_snapshot(TableFiles(root))
    if newest is not None and newest.manifests:
        vars(manifest_writing)["MOST_BOUNDS"] = MANIFESTS_ALWAYS
    work(root, *arguments)


class Crowd:
    """Processes that work on a table until the loaders are done."""

    def __init__(self, root: str, rounds: int, load: Any) -> None:
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.catalog.test_concurrency"])
        self.context, self.root = context, root
        self.outcomes, self.counts, self.stop = context.Queue(), context.Queue(), context.Event()
        self.barrier = context.Barrier(LOADERS)  # kept: without an owner the system forgets it
        self.loaders = [
            context.Process(target=_work, args=(load, root, loader, rounds, self.barrier, self.outcomes))
            for loader in range(LOADERS)
        ]
        self.others: list[Any] = []

    def add(self, work: Any) -> None:
        """Let another process work all the while."""
        self.others.append(self.context.Process(target=_work, args=(work, self.root, self.stop, self.counts)))

    def run(self) -> tuple[list[Outcome], list[int]]:
        """What became of every load, and what the others counted."""
        processes = [*self.others, *self.loaders]
        for process in processes:
            process.start()
        try:
            outcomes = [outcome for _ in self.loaders for outcome in self._next(self.outcomes)]
            self.stop.set()
            counts = [self._next(self.counts) for _ in self.others]
            for process in processes:
                process.join(60)
                assert process.exitcode == 0
        finally:
            for process in processes:
                process.kill()
        return outcomes, counts

    def _next(self, answers: Any) -> Any:
        """The next answer, unless a process failed: then the others may wait for it for ever."""
        while True:
            assert not any(process.exitcode for process in [*self.others, *self.loaders])
            try:
                return answers.get(timeout=1)
            except queue.Empty:
                continue


def new_table(tmp_path: Path) -> TableFiles:
    files = TableFiles(str(tmp_path / "table"))
    commit(files, ensure_table_root(files), "first", YEARS)
    return files


def check_outcomes(outcomes: Sequence[Outcome], history: Sequence[Snapshot], rounds: int) -> None:
    """Every success is in the history once, nothing else is, and every refusal had a reason."""
    made = {outcome.load_id: outcome for outcome in outcomes if outcome.snapshot is not None}
    assert [snapshot.load_id for snapshot in history] == ["first", *sorted(made, key=lambda i: made[i].snapshot or 0)]
    holds = dict.fromkeys(map(str, YEARS), "first")
    for snapshot in history[1:]:
        assert snapshot.number == made[snapshot.load_id].snapshot
        holds |= dict.fromkeys(map(str, made[snapshot.load_id].years), snapshot.load_id)
        assert {entry.key: entry.load_id for entry in snapshot.partitions} == holds
    for number in range(rounds):
        taken = [year for outcome in made.values() if outcome.round == number for year in outcome.years]
        assert len(set(taken)) == len(taken), "two loads planned on one snapshot replaced the same partition"
        for outcome in outcomes:
            if outcome.round == number and outcome.snapshot is None:
                assert set(outcome.years) & set(taken), "it was refused without a conflict"


def crowd_with_readers(tmp_path: Path, rounds: int) -> None:
    files = new_table(tmp_path)
    crowd = Crowd(files.root, rounds, _load)
    for _ in range(READERS):
        crowd.add(_read)
    outcomes, reads = crowd.run()
    assert len(outcomes) == LOADERS * rounds
    assert min(reads) >= 1
    refused = sum(outcome.snapshot is None for outcome in outcomes)
    assert refused >= rounds  # eight loads of four partitions can't all succeed
    history = [read_snapshot(files, number) for number in snapshot_numbers(files)]
    check_outcomes(outcomes, history, rounds)
    assert {str(year): load for year, load in read(files.root).items()} == {
        entry.key: entry.load_id for entry in history[-1].partitions
    }
    check_contents(files.root)
    print(f"{len(outcomes) - refused} loads succeeded, {refused} were refused, {sum(reads)} reads")  # noqa: T201


@pytest.mark.slow
def test_loaders_and_readers_at_once(tmp_path: Path) -> None:
    crowd_with_readers(tmp_path, rounds=4)


@pytest.mark.long
def test_loaders_and_readers_at_once_for_long(tmp_path: Path) -> None:
    crowd_with_readers(tmp_path, rounds=100)


def _load_always(root: str, loader: int, rounds: int, barrier: Any, results: Any) -> None:
    """Loads of its own partition, one after the other; what a vacuum without patience gives up is loaded again."""
    files, outcomes, year = TableFiles(root), [], YEARS[0] + loader
    barrier.wait()
    for number in range(rounds):
        for attempt in range(1000):
            load_id = f"r{number}-l{loader}-a{attempt}"
            try:
                made = commit(files, latest_snapshot(files), load_id, (year,))
            except (CommitConflictError, CatalogError, FileNotFoundError):
                # Given up while it wrote, or the snapshot that it would read first is gone by now.
                continue
            outcomes.append(Outcome(load_id, number, (year,), made.number))
            break
    results.put(outcomes)


def crowd_with_vacuum(tmp_path: Path, rounds: int) -> None:
    """A vacuum that keeps nothing for its youth: no load that succeeded may miss a file, however slow it was."""
    files = new_table(tmp_path)
    crowd = Crowd(files.root, rounds, _load_always)
    crowd.add(_vacuum)
    outcomes, (removed,) = crowd.run()
    assert removed > 0
    assert len(outcomes) == LOADERS * rounds
    last = {outcome.years[0]: outcome.load_id for outcome in outcomes if outcome.round == rounds - 1}
    assert read(files.root) == {**dict.fromkeys(YEARS, "first"), **last}
    check_contents(files.root)
    print(f"{len(outcomes)} loads succeeded while {removed} files were removed")  # noqa: T201


def test_loaders_and_an_impatient_vacuum_at_once(tmp_path: Path) -> None:
    crowd_with_vacuum(tmp_path, 2)


@pytest.mark.long
def test_loaders_and_an_impatient_vacuum_for_long(tmp_path: Path) -> None:
    crowd_with_vacuum(tmp_path, 25)
