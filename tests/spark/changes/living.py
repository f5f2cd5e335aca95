"""A table that lives, beside a model of it: every change is made to both, and they are compared after each."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.api.execution import use_session
from layoutopt.catalog.commit import CommitHook, restore
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.changes.commit import ChangeReport
from layoutopt.errors import NeedsSparkError
from layoutopt.events import Stages, silent
from layoutopt.loading.append import AppendReport, append_few_rows
from layoutopt.loading.load import run_load as run_local_load
from layoutopt.loading.local_source import open_door
from layoutopt.loading.rewrite import PartialRewrite, can_rewrite_partially, rewrite_layouts
from layoutopt.maintenance.partial_rewrite import mix_plans
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicates import Filter
from layoutopt.model.requests import (
    AppendRequest,
    DeleteRequest,
    LoadRequest,
    MergeRequest,
    OptimizeRequest,
    UpdateRequest,
)
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import Table, open_own_table, open_table
from layoutopt.spark.changes.append import compact_small_entries
from layoutopt.spark.changes.optimize import OptimizeReport, optimize_table
from layoutopt.spark.changes.spark_change import change_by_spark, open_segments_door
from layoutopt.spark.loading import load as spark_load
from layoutopt.spark.loading.load import run_load
from layoutopt.writer.task_result import LoadReport
from tests.effort import examples
from tests.spark.tables import document, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[int, int | None, int | None, float | None, str | None]
"""id, day, kind, price, text."""
COLUMNS = "id int, day int, kind int, price double, text string"
NAMES = ("id", "day", "kind", "price", "text")
_TYPES = {"int": pa.int32(), "double": pa.float64(), "string": pa.string()}
SCHEMES = {
    "sop": None,
    "gsop": Scheme(
        (
            Layout(("id", "day", "kind"), (0, 1), ("id", "day", "kind"), ByVectors()),
            Layout(("price", "text"), (2,), ("price", "text"), ByVectors()),
        )
    ),
    "gsop-r": Scheme(
        (
            Layout(NAMES, (0, 1), ("id", "day", "kind", "price"), ByVectors()),
            Layout(("id", "kind", "text"), (2, 3), ("text",), ByVectors()),
        )
    ),
}
SHARES = (0.0, 1.0, 1.0, 1.0)
"""Above these shares partitions are written anew: always, or never."""
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "kind = 2": lambda row: row[2] == 2,
    "price > 2.5": lambda row: row[3] is not None and (row[3] != row[3] or row[3] > 2.5),
    "id BETWEEN 10 AND 30": lambda row: 10 <= row[0] <= 30,
    "text IS NULL OR day = 1": lambda row: row[4] is None or row[1] == 1,
    "kind IN (0, 4) AND day IS NOT NULL": lambda row: row[2] in (0, 4) and row[1] is not None,
    "kind = 99": lambda row: False,
}


def made(number: int, generation: int = 0) -> Row:
    """The row of an id; those of another generation differ in all else."""
    at = number + 11 * generation
    prices = (None, float("nan"), -0.0, 1.5, 2.5, 3.5)
    return (
        number,
        (1, 2, None)[at % 3],
        None if at % 6 == 5 else at % 5,
        prices[at % 6],
        None if at % 4 == 3 else f"t{at}",
    )


def typed(columns: str) -> list[tuple[str, str]]:
    """The name and the type of each column of a list of SQL."""
    return [(name, type) for name, type in (column.split() for column in columns.split(", "))]


def comparable(rows: list[Row]) -> list[tuple[object, ...]]:
    """The rows in an order, with NaN equal to itself and -0.0 to 0.0, as Spark has them."""
    return sorted(tuple("nan" if value != value else value for value in row) for row in rows)


_BEGUN = TemporaryDirectory()
_KINDS: dict[tuple[Scheme | None, int, int, str | None], int] = {}


def _refuse(*_: object, **__: object) -> None:
    raise NeedsSparkError("a test lets Spark read everything")


@dataclass
class Living:
    """A table, its model (rows by id), and what both were at each snapshot."""

    spark: SparkSession
    root: Path
    model: dict[int, Row] = field(default_factory=dict)
    past: dict[int, dict[int, Row]] = field(default_factory=dict)
    written: int = 0
    next_id: int = 0
    checked: int = 0
    encrypt: str | None = None

    @property
    def path(self) -> str:
        return str(self.root / "table")

    def source(self, rows: Sequence[tuple[object, ...]], columns: str = COLUMNS) -> str:
        """A folder with the rows in one file, or in two."""
        named = typed(columns)
        values = list(zip(*rows, strict=True)) or [()] * len(named)
        arrays = {name: pa.array(of, _TYPES[type]) for of, (name, type) in zip(values, named, strict=True)}
        self.written += 1
        path = self.root / f"source-{self.written}"
        path.mkdir()
        table, cut = pa.table(arrays), len(rows) // 3 if self.written % 2 else 0
        pq.write_table(table.slice(cut), path / "part-0.parquet")
        if cut:
            pq.write_table(table.slice(0, cut), path / "part-1.parquet")
        return str(path)

    def new_rows(self, count: int) -> list[Row]:
        self.next_id += count
        return [made(number) for number in range(self.next_id - count, self.next_id)]

    def begin(self, scheme: Scheme | None, rows: int = 60, block_rows: int = 6) -> None:
        """The first load: of tables that begin in the same way one is loaded, and the others are copies of it."""
        kind = (scheme, rows, block_rows, self.encrypt)
        known = Path(_BEGUN.name) / f"{os.getpid()}-{_KINDS.setdefault(kind, len(_KINDS))}"
        if not known.exists():
            self.begin_anew(scheme, rows, block_rows)
            shutil.copytree(self.root, known)
            return
        shutil.copytree(known, self.root, dirs_exist_ok=True)
        self.model = {row[0]: row for row in self.new_rows(rows)}
        self.written = 1

    def begin_anew(
        self, scheme: Scheme | None, rows: int = 60, block_rows: int = 6, partition_by: str | None = "day"
    ) -> None:
        """The same, of files that were loaded from where they are."""
        first = self.new_rows(rows)
        schema = Schema(tuple(Column(name, type) for name, type in typed(COLUMNS)))
        of = document(schema, [is_value(schema, "kind", "=", kind) for kind in range(4)])
        plan = plan_of(of, partition_by=partition_by, scheme=scheme, block_rows=block_rows)
        (self.root / "plan.json").write_bytes(plan.dumps())
        self.load(first)

    def load(self, rows: list[Row], replace: bool = False) -> None:
        source = self.source(rows)
        plan = self.root / "plan.json"
        settings = LoadRequest(source=source, table_path=self.path, plan=plan, replace=replace, encrypt=self.encrypt)
        if self.encrypt is None and self.written % 3 == 0:
            run_local_load(open_door, settings)
        else:
            with pytest.MonkeyPatch.context() as patch:
                if self.written % 3 == 2:  # what Arrow can't read is spooled
                    patch.setattr(spark_load, "open_in_tasks", _refuse)
                run_load(self.spark, settings)
        days = {row[1] for row in rows}
        self.model = {key: row for key, row in self.model.items() if row[1] not in days}
        self.model |= {row[0]: row for row in rows}

    # The verbs on the table alone; what is given replaces the settings' defaults.

    def appended(self, source: str, **given: Any) -> AppendReport:
        return use_session(self.spark).append(AppendRequest(table_path=self.path, source=source, **given))

    def deleted(self, where: str, **given: Any) -> ChangeReport:
        return change_by_spark(self.spark, DeleteRequest(table_path=self.path, where=where, **given))

    def updated(self, where: str, *texts: str, **given: Any) -> ChangeReport:
        settings = UpdateRequest(table_path=self.path, assignments=texts or ("kind = 7",), where=where, **given)
        return change_by_spark(self.spark, settings)

    def merged(self, source: str, **given: Any) -> ChangeReport:
        return change_by_spark(self.spark, MergeRequest(table_path=self.path, source=source, on=("id",), **given))

    def optimized(self, **given: Any) -> OptimizeReport:
        return optimize_table(self.spark, OptimizeRequest(table_path=self.path, **given))

    # Changes of the table and the model.

    def append(self, count: int) -> str:
        rows = self.new_rows(count)
        source = self.source(rows)
        settings = AppendRequest(table_path=self.path, source=source)
        few = self.encrypt is None and self.written % 2 == 0
        for direct in (few, not few and self.encrypt is None):  # a retry does nothing, with Spark or without
            if direct:
                append_few_rows(settings, partial(compact_small_entries, self.spark))
            else:
                use_session(self.spark).append(settings)
        self.model |= {row[0]: row for row in rows}
        return source

    def delete(self, where: str, rewrite_share: float = 1.0) -> int:
        report = self.deleted(where, rewrite_share=rewrite_share)
        assert (report.marked is not None) == (report.deleted > 0 and rewrite_share == 1.0)
        before = len(self.model)
        self.model = {key: row for key, row in self.model.items() if not CONDITIONS[where](row)}
        assert report.deleted == before - len(self.model)
        return report.deleted

    def update(self, where: str, rewrite_share: float = 1.0) -> int:
        texts = ("kind = id % 3", "text = concat(coalesce(text, ''), ',', kind)")
        report = self.updated(where, *texts, rewrite_share=rewrite_share)
        assert (report.marked is not None) == (report.updated > 0 and rewrite_share == 1.0)
        chosen = [row for row in self.model.values() if CONDITIONS[where](row)]
        for row in chosen:
            text = None if row[2] is None else f"{row[4] or ''},{row[2]}"
            self.model[row[0]] = (row[0], row[1], row[0] % 3, row[3], text)
        assert report.updated == len(chosen)
        return report.updated

    def merge(self, ids: list[int], new: int, rewrite_share: float = 1.0) -> None:
        """The first third of the ids is deleted, the others change (also their partitions), and new ones come."""
        gone, changed = ids[: len(ids) // 3], ids[len(ids) // 3 :]
        rows = [made(number, generation=1) for number in changed] + self.new_rows(new)
        feed = [(*row, "U") for row in rows] + [(*made(number), "D") for number in gone]
        source = self.source(feed, f"{COLUMNS}, op string")
        there = set(self.model)
        report = self.merged(source, delete_when="op = 'D'", rewrite_share=rewrite_share)
        assert report.deleted == len(there & set(gone))
        assert (report.marked is not None) == (rewrite_share == 1.0 and bool(there & set(ids)))
        assert (report.updated, report.inserted) == (len(there & set(changed)), len(rows) - len(there & set(changed)))
        self.model = {key: row for key, row in self.model.items() if key not in gone} | {row[0]: row for row in rows}

    def optimize(self) -> int:
        return len(self.optimized().loads)

    def write_layouts(self, choice: random.Random) -> str | None:
        """A layout of some columns, by features of its own, written alone of a partition of which that can be done."""
        table = open_own_table(self.path)
        plans = table.catalog.plans
        able = [
            of[0]
            for of in table.catalog.snapshot.by_key.values()
            if len(of) == 1 and plans[of[0].plan].scheme.has_tids and can_rewrite_partially(table, of[0])
        ]
        if not able:
            return None
        entry = choice.choice(able)
        old = plans[entry.plan]
        plan, kept = drawn(old, choice)
        rewrite_by_spark(self.spark, table, PartialRewrite(entry, plan, kept))
        return entry.key

    def restore(self, number: int) -> None:
        restore(TableFiles(self.path), number)
        self.model = dict(self.past[number])

    def check(self) -> None:
        """The table is its model, for all rows and for queries; so it is at an older snapshot.

        The long run makes a query of each kind, the usual one half of them, and the other half at the next check.
        """
        table = open_table(self.path)
        self.past[table.catalog.snapshot.number] = dict(self.model)
        assert answer(table, None) == comparable(list(self.model.values()))
        turns = 10 // examples(10)
        self.checked += 1
        for where in list(CONDITIONS)[self.checked % turns :: turns]:
            expected = comparable([row for row in self.model.values() if CONDITIONS[where](row)])
            assert answer(table, where) == expected, where

    def check_past(self) -> None:
        for number, model in self.past.items():
            assert self.answer(number, None) == comparable(list(model.values()))

    def answer(self, snapshot: int, where: str | None) -> list[tuple[object, ...]]:
        return answer(open_table(self.path, snapshot=snapshot), where)

    def step(self, choice: random.Random) -> str:
        """One change, drawn at random."""
        kinds = ("append", "append", "delete", "delete", "update", "merge", "optimize", "reload", "restore", "alone")
        kind = choice.choice(kinds)
        if kind == "append":
            self.append(choice.randint(1, 12))
        elif kind == "delete":
            self.delete(choice.choice(list(CONDITIONS)), choice.choice(SHARES))
        elif kind == "update":
            self.update(choice.choice(list(CONDITIONS)), choice.choice(SHARES))
        elif kind == "merge":
            ids = choice.sample(range(self.next_id), min(self.next_id, choice.randint(1, 9)))
            self.merge(ids, choice.randint(0, 3), choice.choice(SHARES))
        elif kind == "optimize":
            self.optimize()
        elif kind == "alone":
            self.write_layouts(choice)
        elif kind == "reload":
            self.load([row for row in self.new_rows(30) if row[1] == 2], replace=True)
        else:
            self.restore(choice.choice(list(self.past)))
        return kind


def rewrite_by_spark(
    spark: SparkSession, table: Table, work: PartialRewrite, at: CommitHook = lambda point: None
) -> LoadReport:
    """Write some layouts of a partition by Spark's tasks."""
    door = open_segments_door(spark, table.catalog.files.root)
    return door.read(lambda open_rows: rewrite_layouts(table, work, open_rows, Stages(silent), at))


def answer(table: Table, where: str | None) -> list[tuple[object, ...]]:
    """The rows of a table that a condition holds for."""
    condition = "" if where is None else f" WHERE {where}"
    found = table.sql(f"SELECT {', '.join(NAMES)} FROM t{condition}")
    return comparable([tuple(row.values()) for row in found.to_pylist()])


def drawn(old: Plan, choice: random.Random) -> tuple[Plan, tuple[int, ...]]:
    """A plan with a new layout of some columns, beside those of an older plan that are still needed; and these."""
    chosen = choice.sample(NAMES, choice.randint(1, 5))
    columns = tuple(name for name in NAMES if name in chosen)
    # Where some columns are copies, the layout holds them only for rows that have one of its features.
    master = columns if choice.random() < 0.7 else columns[: len(columns) // 2]
    kinds = choice.sample(range(5), 2)
    features = tuple(Feature(Filter.of(is_value(old.schema, "kind", "=", kind)).predicates) for kind in kinds)
    rest = tuple(name for name in NAMES if name not in master)
    layouts = (Layout(columns, (0, 1), master, ByVectors()), *([Layout(rest, (), rest)] if rest else []))
    fresh = replace(old, features=FeatureSet(features, old.settings), scheme=Scheme(layouts), queries=(), reads=())
    unneeded = [i for i, one in enumerate(old.scheme.layouts) if set(one.columns) <= set(master)]
    kept = tuple(i for i in range(len(old.scheme.layouts)) if i not in unneeded) or (0,)
    return mix_plans(old, fresh, kept, (0,)), kept


Begin = Callable[..., Living]


def begun(spark: SparkSession, root: Path, scheme: str, rows: int = 60, block_rows: int = 6) -> Living:
    """A table of some layouts in an empty folder."""
    living = Living(spark, root)
    living.begin(SCHEMES[scheme], rows, block_rows)
    return living


def before_next_call(patch: pytest.MonkeyPatch, module: ModuleType, name: str, change: Callable[[], object]) -> None:
    """Make a change just before a module next calls a function, as if by another process; then all is as it was."""
    called = getattr(module, name)

    def late(*arguments: object, **named: object) -> object:
        patch.undo()
        change()
        return called(*arguments, **named)

    patch.setattr(module, name, late)
