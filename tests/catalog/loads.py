"""Small loads for the catalog's tests: rows in, plan, entries and blocks out, without Spark or data files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import block_schema
from layoutopt.catalog.commit import Basis, CommitHook, Load, commit_load, partition_entries
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.paths import data_path, partition_key
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.statistics import block_statistics
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import PackedIndexes
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.layout import ByOrder, Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import words_for

SCHEMA = Schema((Column("year", "int"), Column("x", "double"), Column("s", "string")))
ROWS = pa.table(
    {
        "year": pa.array([1994, 1994, 1994, None], pa.int32()),
        "x": pa.array([1.5, None, 2.5, -1.0]),
        "s": pa.array(["b", "a", None, "c"]),
    }
)


def plan_of(schema: Schema = SCHEMA, partition_by: str | None = "year", seed: int = 0) -> Plan:
    """A plan without features and with one layout."""
    settings = SessionSettings()
    return Plan(
        table="t",
        schema=schema,
        partition_by=partition_by,
        method="input-order",
        features=FeatureSet((), settings),
        queries=(),
        scheme=Scheme((Layout(schema.names, (), schema.names, ByOrder("input")),)),
        block_rows=2,
        segment_rows=1000,
        max_vectors=1000,
        seed=seed,
        codec="zstd",
        settings=settings,
        predicted={},
    )


PLAN = plan_of()
NEW = Basis(snapshot=None)
FOOTER = "f00" * 10  # nobody reads these loads' files


def blocks_of(
    table: pa.Table,
    offsets: Sequence[int],
    plan: Plan,
    partition: str = "1994",
    load_id: str = "l1",
    **known: Any,
) -> pa.Table:
    """One row for each block of one file, with all statistics and arbitrary checksums but for ``known`` columns."""
    cuts = np.array(offsets, dtype=np.int64)
    n = len(cuts) - 1
    numbers = {name: np.arange(n) + 10 for name in plan.schema.names}
    words = words_for(len(plan.features))
    schema = block_schema(plan.schema, words)
    columns: dict[str, Any] = {
        "file": [data_path(partition, load_id, 0, 0, "a")] * n,
        "row_group": range(n),
        "block": range(n),
        "partition": [partition] * n,
        "segment": [0] * n,
        "layout": [0] * n,
        "part": [0] * n,
        "rows": np.diff(cuts),
        "bytes": [100] * n,
        "tid_bytes": [0] * n,
        "words": [[5] * words] * n,
        "footer": [FOOTER] * n,
        "start": [4] * n,
        "stats": block_statistics(table, cuts, plan.schema, column_bytes=numbers, sums=numbers),
    }
    columns |= known
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def run_threads(work: Callable[..., object], arguments: Iterable[tuple[Any, ...]]) -> None:
    """Do some work in a thread for each tuple of arguments, all at once."""
    threads = [threading.Thread(target=work, args=args) for args in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write_at_once(files: TableFiles) -> list[bytes]:
    """Let eight threads create one file ``f`` with contents of their own; return those that were told they did."""
    won: list[bytes] = []

    def write(content: bytes) -> None:
        with suppress(FileExistsError):
            files.write_new("f", content)
            won.append(content)

    run_threads(write, [(bytes([65 + i]) * 100_000,) for i in range(8)])
    return won


class Killed(BaseException):
    """What a crash is to the code: nothing may catch it."""


def kill_at(wanted: str) -> CommitHook:
    """A hook of a commit that crashes at a point."""

    def at(point: str) -> None:
        if point == wanted:
            raise Killed(point)

    return at


@dataclass(frozen=True)
class SmallLoad:
    """A load of the same four rows as two blocks into each of some partitions."""

    load_id: str = "l1"
    years: tuple[int | None, ...] = (1994,)
    plan: Plan = PLAN

    @property
    def blocks(self) -> pa.Table:
        """The blocks of all partitions; their ids differ."""
        parts = []
        for i, year in enumerate(self.years):
            key, ids = partition_key(year), [2 * i, 2 * i + 1]
            parts.append(blocks_of(ROWS, [0, 2, 4], self.plan, key, self.load_id, block=ids))
        return pa.concat_tables(parts)

    @property
    def entries(self) -> tuple[PartitionEntry, ...]:
        """The partitions' entries."""
        return partition_entries(self.blocks, self.plan, self.load_id, {partition_key(y): y for y in self.years})

    def commit(
        self,
        files: TableFiles,
        base: Snapshot | None,
        at: CommitHook = lambda point: None,
        indexes: Sequence[PackedIndexes] = (),
        **options: Any,
    ) -> Snapshot:
        """Commit the load, with options of :class:`Basis`."""
        basis = Basis(snapshot=base, **options)
        return commit_load(files, Load(basis, self.plan, self.load_id, self.entries, self.blocks, indexes), at)

    def with_seed(self, seed: int) -> SmallLoad:
        """The same load under another plan."""
        return replace(self, plan=replace(self.plan, seed=seed))
