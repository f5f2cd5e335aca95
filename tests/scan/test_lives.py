"""Tables that live, without Spark: after each change, made whole or killed, every answer is that of the rows in DuckDB.

The catalog, its commits and all readers are the product's; rows are put into files by the tests' own builder. That the
verbs make such changes of what users ask for is tested with Spark, in ``tests/spark/changes``.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from layoutopt.catalog.commit import APPEND, CRASH_POINTS, restore
from layoutopt.catalog.deletion_vectors import DELETE_POINTS, Marks
from layoutopt.catalog.optimistic_commit import CommitHook
from layoutopt.catalog.snapshot import snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import CatalogError
from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from tests.effort import examples
from tests.scan.builder import build, building, by_position, by_vector
from tests.scan.deleting import delete_ids, marks_of
from tests.scan.layouts import GROUPS, OVERLAPPING
from tests.scan.queries import FEW_QUERIES
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

IDS = 400
GENERATIONS = [some_rows(IDS, seed).sort_by("id") for seed in (1, 2, 3)]
"""Of each id the rows that it has had: an update gives it that of the next generation, of the same year."""
YEARS = (1994, 1995, 1996)
BUILDINGS = [
    building(
        SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", segment_rows=most, blocking=blocking, mixed=mixed
    )
    for layouts, blocking, mixed, most in (
        (None, by_vector, False, 1000),
        (GROUPS, by_position(4), True, 1000),
        (OVERLAPPING, by_vector, False, 1000),
        (OVERLAPPING, by_position(4), True, 9),
    )
]
schemes = st.integers(0, len(BUILDINGS) - 1)
seeds = st.integers(0, 10**6)
"""What chooses rows: one number is drawn and shrunk faster than many."""


class KilledError(BaseException):
    """Stands for kill -9: nothing that tidies up after errors takes it for one."""


@dataclass(frozen=True)
class Rows:
    """What a table has: of each id its generation, and the load that brought it."""

    generation: dict[int, int]
    load: dict[int, str]

    @property
    def table(self) -> pa.Table:
        ids = sorted(self.generation)
        of = [GENERATIONS[number].take(pa.array([id for id in ids if self.generation[id] == number], pa.int64()))
              for number in range(len(GENERATIONS))]  # fmt: skip
        return pa.concat_tables(of)

    def put(self, generation: dict[int, int], load_id: str) -> Rows:
        return Rows(self.generation | generation, self.load | dict.fromkeys(generation, load_id))

    def without(self, ids: Collection[int]) -> Rows:
        return self.only([id for id in self.generation if id not in ids])

    def only(self, ids: Collection[int]) -> Rows:
        return Rows({id: self.generation[id] for id in ids}, {id: self.load[id] for id in ids})


class Lives(RuleBasedStateMachine):
    """A table beside its rows, at each snapshot that there is."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.rows = Rows({}, {})
        self.past: dict[int, Rows] = {}
        self.loads = 0
        self.next_id = 0

    @initialize(scheme=schemes)
    def load(self, scheme: int) -> None:
        self.put(self.new(24), scheme)

    @rule(scheme=schemes, count=st.integers(1, 8))
    def append(self, scheme: int, count: int) -> None:
        self.put(self.new(count), scheme, APPEND)

    @rule(seed=seeds)
    def delete(self, seed: int) -> None:
        ids = self.some(seed)
        delete_ids(self.root, ids)
        self.rows = self.rows.without(ids)

    @rule(scheme=schemes, seed=seeds)
    def update(self, scheme: int, seed: int) -> None:
        """Rows are marked, and others come beside, in one commit."""
        changed = {id: (self.rows.generation[id] + 1) % len(GENERATIONS) for id in self.some(seed)}
        if changed:
            self.put(changed, scheme, "update", marks_of(Catalog.open(self.root), changed))

    @rule(scheme=schemes, seed=seeds)
    def merge(self, scheme: int, seed: int) -> None:
        """Some rows go, others change, and new ones come."""
        ids = self.some(seed)
        changed = {id: (self.rows.generation[id] + 1) % len(GENERATIONS) for id in ids[len(ids) // 2 :]} | self.new(3)
        self.put(changed, scheme, "merge", marks_of(Catalog.open(self.root), ids))
        self.rows = self.rows.without(ids[: len(ids) // 2])

    @rule(scheme=schemes, seed=seeds, year=st.sampled_from(YEARS))
    def join(self, scheme: int, seed: int, year: int) -> None:
        """What came later is put into one entry, without what is deleted of it."""
        entries = Catalog.open(self.root).snapshot.by_key.get(str(year), ())
        chosen = entries[random.Random(seed).randint(1, len(entries)) :] if entries else ()
        loads = {entry.load_id for entry in chosen}
        ids = [id for id in self.of_year(year) if self.rows.load[id] in loads]
        if ids:
            marks = Marks({}, {}, replaced=frozenset(entry.name for entry in chosen))
            self.put(self.rows.only(ids).generation, scheme, "join", marks)

    @rule(scheme=schemes, year=st.sampled_from(YEARS))
    def optimize(self, scheme: int, year: int) -> None:
        """A partition is written anew, whatever its plan."""
        self.put(self.rows.only(self.of_year(year)).generation, scheme, "optimize")

    @rule(scheme=schemes, year=st.sampled_from(YEARS), count=st.integers(1, 9))
    def reload(self, scheme: int, year: int, count: int) -> None:
        """Other rows come in the place of a partition's."""
        new = {id: 0 for id in self.new(3 * count) if GENERATIONS[0]["year"][id].as_py() == year}
        if new:  # a long life has used up the ids
            gone = self.of_year(year)
            self.put(new, scheme)
            self.rows = self.rows.without(gone)

    @rule(scheme=schemes, count=st.integers(1, 6), point=st.sampled_from(CRASH_POINTS), again=st.booleans())
    def append_killed(self, scheme: int, count: int, point: str, again: bool) -> None:
        """A load that dies while it commits is there or not; a retry under its name makes it once."""
        new, load_id, before = self.new(count), self.load_id(), self.rows
        with suppress(KilledError):
            self.put(new, scheme, APPEND, load_id=load_id, at=dying_at(point))
        if point != "snapshot-created":
            self.rows = before
        self.is_what_it_should_be()
        if again and point != "snapshot-created":
            self.put(new, scheme, APPEND, load_id=load_id)
        elif again and new:
            with pytest.raises(CatalogError, match="was used before"):
                self.put(new, scheme, APPEND, load_id=load_id)

    @rule(seed=seeds, point=st.sampled_from(DELETE_POINTS))
    def delete_killed(self, seed: int, point: str) -> None:
        ids = self.some(seed)
        done = not ids
        with suppress(KilledError):
            delete_ids(self.root, ids, at=dying_at(point))
            done = True
        if done or point == "snapshot-created":
            self.rows = self.rows.without(ids)

    @rule(seed=seeds)
    def restore(self, seed: int) -> None:
        number = random.Random(seed).choice(sorted(self.past))
        restore(TableFiles(self.root), number)
        self.rows = self.past[number]

    @precondition(lambda self: len(self.past) > 6)
    @rule(kept=st.integers(1, 4))
    def vacuum(self, kept: int) -> None:
        vacuum(TableFiles(self.root), kept, timedelta(0))
        left = snapshot_numbers(TableFiles(self.root))
        self.past = {number: rows for number, rows in self.past.items() if number in left}

    @rule(seed=seeds)
    def read_the_past(self, seed: int) -> None:
        choice = random.Random(seed)
        number, sql = choice.choice(sorted(self.past)), choice.choice(FEW_QUERIES)
        found = open_table(self.root, snapshot=number).sql(sql).to_pylist()
        assert same(found, expected(sql, self.past[number].table))

    @invariant()
    def is_what_it_should_be(self) -> None:
        if not self.loads:
            return
        table = open_table(self.root)
        number = table.catalog.snapshot.number
        self.past[number] = self.rows
        rows = self.rows.table
        assert table.rows == rows.num_rows
        # All rows after one step, a query after the next: as often as seconds allow.
        sql = FEW_QUERIES[number // 2 % len(FEW_QUERIES)] if number % 2 else "SELECT * FROM t"
        wanted = expected(sql, rows) if number % 2 else rows.to_pylist()
        assert same(table.sql(sql).to_pylist(), wanted), sql

    def teardown(self) -> None:
        try:
            assert not self.loads or verify(open_table(self.root)).ok
        finally:
            shutil.rmtree(self.root)

    def put(
        self,
        generation: dict[int, int],
        scheme: int,
        operation: str | None = None,
        marks: Marks | None = None,
        *,
        load_id: str | None = None,
        at: CommitHook = lambda point: None,
    ) -> None:
        """Write rows, in one commit, as the table and its rows are to have them."""
        if not generation:
            return
        load_id = load_id or self.load_id()
        come = Rows({}, {}).put(generation, load_id)
        self.rows = self.rows.put(generation, load_id)
        first = 10_000 * int(load_id.removeprefix("load-"))
        build(Path(self.root), come.table, BUILDINGS[scheme], load_id, operation, marks=marks, first=first, at=at)

    def load_id(self) -> str:
        self.loads += 1
        return f"load-{self.loads}"

    def new(self, count: int) -> dict[int, int]:
        """Ids that no row had yet, of the first generation; of the last ids none is new."""
        found = dict.fromkeys(range(self.next_id, min(IDS, self.next_id + count)), 0)
        self.next_id += len(found)
        return found

    def some(self, seed: int) -> list[int]:
        """Some of the ids that there are: few, many, or none."""
        choice = random.Random(seed)
        ids = sorted(self.rows.generation)
        return choice.sample(ids, choice.randint(0, min(len(ids), choice.choice((1, 4, 16)))))

    def of_year(self, year: int) -> list[int]:
        return [id for id in self.rows.generation if GENERATIONS[0]["year"][id].as_py() == year]


def dying_at(point: str) -> CommitHook:
    def die(reached: str) -> None:
        if reached == point:
            raise KilledError(point)

    return die


class ManyLives(Lives):
    """The same, for longer."""


TestLives = pytest.mark.slow(pytest.mark.unshadowed("every answer is compared with the model's")(Lives.TestCase))
TestLives.settings = settings(max_examples=examples(50), stateful_step_count=20)  # later steps of a life cost more
"""100 steps in `make test`."""

TestManyLives = pytest.mark.long(ManyLives.TestCase)
TestManyLives.settings = settings(max_examples=1000, stateful_step_count=50)
"""50,000 steps."""
