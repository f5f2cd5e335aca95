"""Loads, vacuums and restores of real files in processes that are killed with -9 at any step they take on disk.

A step is anything that Python's audit events tell of a path in the table: a file opened, linked, removed, a folder made
or removed. The killed process dies just before the step, so killing at each in turn stops everywhere between two.
Processes are forked from a server that has the modules loaded and never ran Arrow or Spark itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog import manifest_writing
from layoutopt.catalog.commit import Basis, CommitHook, commit_load, ensure_table_root, partition_entries, restore
from layoutopt.catalog.commit import Load as NewLoad
from layoutopt.catalog.paths import data_path
from layoutopt.catalog.snapshot import Snapshot, read_snapshot
from layoutopt.catalog.statistics import block_statistics
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import FooterKeeper, footer_digest
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.evaluation.checksum import block_sums
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import open_table
from tests.catalog.loads import blocks_of, plan_of

SCHEMA = Schema((Column("year", "int"), Column("id", "int"), Column("load", "string")))
PLAN = plan_of(SCHEMA)
ROWS, BLOCK_ROWS = 6, 2

# The bound on what a snapshot's own file has, lowered so that each has manifests.
MANIFESTS_ALWAYS = -1

Content = Mapping[int, str]
"""Which load each partition holds."""


@dataclass(frozen=True)
class Load:
    """A load of all of some partitions' rows; ``base`` is the snapshot that it is planned on, None for a new table."""

    load_id: str
    years: tuple[int, ...]
    base: int | None

    def __call__(self, root: str) -> None:
        files = TableFiles(root)
        ensure_table_root(files)
        base = None if self.base is None else read_snapshot(files, self.base)
        commit(files, base, self.load_id, self.years)


@dataclass(frozen=True)
class Vacuum:
    """A vacuum that keeps some snapshots, and of the rest nothing however young."""

    retain: int

    def __call__(self, root: str) -> None:
        vacuum(TableFiles(root), self.retain, timedelta(0))


@dataclass(frozen=True)
class WithManifests:
    """Another step, of a program whose every snapshot has manifests."""

    step: Step

    def __call__(self, root: str) -> None:
        with patch.object(manifest_writing, "MOST_BOUNDS", MANIFESTS_ALWAYS):
            self.step(root)


@dataclass(frozen=True)
class Restore:
    """A restore of a snapshot."""

    snapshot: int

    def __call__(self, root: str) -> None:
        restore(TableFiles(root), self.snapshot)


Step = Callable[[str], None]


def commit(
    files: TableFiles,
    base: Snapshot | None,
    load_id: str,
    years: Iterable[int],
    plan: Plan = PLAN,
    at: CommitHook = lambda point: None,
) -> Snapshot:
    """Write data files under names that no other attempt has, as a load's tasks do, and commit them."""
    attempt = os.urandom(4).hex()
    blocks = [_write(files, load_id, year, attempt, 10 * place) for place, year in enumerate(years)]
    table = pa.concat_tables(blocks)
    entries = partition_entries(table, plan, load_id, {str(year): year for year in years})
    return commit_load(files, NewLoad(Basis(snapshot=base), plan, load_id, entries, table), at)


def _write(files: TableFiles, load_id: str, year: int, attempt: str, first: int) -> pa.Table:
    rows = pa.table(
        {
            "year": pa.array([year] * ROWS, pa.int32()),
            "id": pa.array(range(ROWS), pa.int32()),
            "load": pa.array([load_id] * ROWS),
        }
    )
    offsets = np.arange(0, ROWS + 1, BLOCK_ROWS)
    n = len(offsets) - 1
    ids = first + np.arange(n)
    path = data_path(str(year), load_id, 0, 0, attempt)
    with fsspec.open(files.full_path(path), "wb", auto_mkdir=True) as file:
        content = rows.append_column("_block", pa.array(np.repeat(ids, BLOCK_ROWS)))
        keeper = FooterKeeper(file)
        with pq.ParquetWriter(keeper, content.schema, write_page_checksum=True) as writer:
            writer.write_table(content, row_group_size=BLOCK_ROWS)
            keeper.keep()
    sums = {column.name: block_sums(rows[column.name], offsets, column.type) for column in SCHEMA.columns}
    stats = block_statistics(rows, offsets, SCHEMA, dict.fromkeys(SCHEMA.names, np.ones(n, dtype=np.int64)), sums)
    footer = [footer_digest(keeper.footer)] * n
    known = {"file": [path] * n, "block": ids, "bytes": [1] * n, "words": [[0]] * n, "start": [None] * n}
    return blocks_of(rows, offsets.tolist(), PLAN, str(year), load_id, footer=footer, stats=stats, **known)


def read(root: str, snapshot: int | None = None) -> Content:
    """Which load each partition holds, every row of it read exactly once; anything else fails."""
    table = open_table(root, snapshot=snapshot)
    (only,) = table.scan(columns=["year", "id", "load"]).reads  # without an engine, which takes longer to start
    rows = pa.Table.from_batches(only.batches()).to_pylist()
    content: dict[int, str] = {}
    for year in {row["year"] for row in rows}:
        mine = [row for row in rows if row["year"] == year]
        (content[year],) = {row["load"] for row in mine}
        assert sorted(row["id"] for row in mine) == list(range(ROWS)), (root, year, mine)
    assert {entry.key: entry.load_id for entry in table.catalog.partitions} == {str(y): n for y, n in content.items()}
    return content


def check_contents(root: str, snapshot: int | None = None) -> None:
    """Every content checksum, statistic and file of a snapshot is what the catalog says."""
    report = verify(open_table(root, snapshot=snapshot))
    assert report.ok, report.problems


def check_nothing_is_left(root: str) -> None:
    """A vacuum of everything old leaves the newest snapshot, its files, and nothing else."""
    files = TableFiles(root)
    newest = vacuum(files, 1, timedelta(0)).snapshot
    catalog = Catalog.open(root)
    named = {path for _, blocks in catalog.block_tables() for path in blocks.files} | set(catalog.snapshot.files)
    there = {file.path for file in files.walk("") if "/plans/" not in file.path}
    snapshots = {path for path in there if "/snapshots/" in path}
    assert f"_layoutopt/snapshots/{newest}.json" in snapshots
    assert there - snapshots - {"_layoutopt/table.json"} == {path for path in named if "/plans/" not in path}


EVENTS = frozenset(["open", "os.link", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.scandir", "os.listdir"])


def _run(step: Step, root: str, die_at: int, report: Any) -> None:
    """In the child: take the step, killed just before its ``die_at``-th event on the table; 0 is never."""
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in EVENTS and arguments and str(arguments[0]).startswith(root):
            seen += 1
            if seen == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    try:
        step(root)
        report.send((seen, None))
    except Exception as error:
        report.send((seen, f"{type(error).__name__}: {error}"))


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.catalog.crash"])
    return context


@dataclass(frozen=True)
class Running:
    """A process that takes a step."""

    process: Any
    answer: Any

    def wait(self) -> tuple[int, str | None] | None:
        """How many events it saw and the error it ended with; None where it was killed."""
        self.process.join(120)
        assert self.process.exitcode in (0, -signal.SIGKILL), self.process.exitcode
        return self.answer.recv() if self.process.exitcode == 0 else None


def start(step: Step, root: str, die_at: int = 0) -> Running:
    """Take a step in a process of its own, killed before its ``die_at``-th event."""
    context = _context()
    answer, report = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(step, root, die_at, report))
    process.start()
    report.close()
    return Running(process, answer)


def events_of(step: Step, root: str) -> int:
    """How many events a step has on a table; it is taken."""
    done = start(step, root).wait()
    assert done is not None
    assert done[1] is None, done
    return done[0]
