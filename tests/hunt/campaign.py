"""A hunt: worlds, their tables, texts, ways of reading; what is wrong is made small and told."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from layoutopt.errors import LayoutoptError
from layoutopt.sql.scans import find_scans
from tests.hunt.conditions import Conditions, refs_of
from tests.hunt.pieces import Kind, piece
from tests.hunt.queries import Ask, Queries
from tests.hunt.shrink import Failure, shrunk
from tests.hunt.switches import Switches
from tests.hunt.tables import METHODS, Bits, Laid, World, lay_out, make_world
from tests.hunt.ways import WAYS, Asking, Refused, Sessions, refusal, truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE_TABLES = 5
"""Beyond one for each method, partitioned in another way."""
FEATURES = 8
_WITHOUT_SPARK = ("embedded", "explain --predicate of plain files", "dataset")
_IN_SPARK = {"enable": 6, "explain --predicate": 15, "engine spark": 6, "data source": 1}
"""How many texts of a batch a table is asked in which of Spark's ways."""
_TABLES_OF_SPARK = 3
MOST_FAILURES = 8
"""How many texts with a wrong answer end a hunt."""


@dataclass
class Tally:
    """What a hunt has done so far."""

    cases: Counter[tuple[str, str]] = field(default_factory=Counter)  # by way and method
    skipping: int = 0
    wrong: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by way
    no_answer: Counter[str] = field(default_factory=Counter)  # of Spark on the source, by what it said
    texts: int = 0
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """How many answers were compared."""
        return self.cases.total()

    def __str__(self) -> str:
        by_way: Counter[str] = Counter()
        by_method: Counter[str] = Counter()
        for (way, method), count in self.cases.items():
            by_way[way] += count
            by_method[method] += count
        return "\n".join(
            [
                f"{self.total:,} cases of {self.texts:,} texts in {self.seconds:,.0f} s, "
                f"{self.skipping / max(self.total, 1):.1%} skipping, {self.wrong} wrong",
                f"by way: {dict(by_way)}",
                f"by method: {dict(by_method)}",
                f"refused by a way: {dict(self.refused)}",
                f"without an answer of Spark's: {self.no_answer.total()} {dict(self.no_answer.most_common(8))}",
            ]
        )


def features_of(sessions: Sessions, rng: random.Random) -> tuple[list[str], Bits]:
    """Conditions that are understood as a whole, and for which rows Spark says they are TRUE."""
    world = sessions.world
    conditions = Conditions(refs_of(world, "t", rng, False), rng)
    chosen: list[str] = []
    while len(chosen) < 2 * FEATURES:
        text = str(conditions.draw(1))
        if "t." not in text and _is_exact(world, text):
            chosen.append(text)
    asks = [
        Ask(number, piece(f"SELECT id FROM t WHERE {text}", kind=Kind.QUERY, types=("int",)))
        for number, text in enumerate(chosen)
    ]
    found = truth(sessions, asks)
    usable = [number for number in found if not isinstance(found[number], Refused)][:FEATURES]
    bits = np.zeros((world.rows.num_rows, len(usable)), dtype=bool)
    for place, number in enumerate(usable):
        answer = found[number]
        assert isinstance(answer, Counter)
        bits[[int(row[0]) for row in answer], place] = True
    return [chosen[number] for number in usable], bits


def _is_exact(world: World, text: str) -> bool:
    try:
        (scan,) = find_scans(f"SELECT * FROM t WHERE {text}", {"t": world.schema})
    except LayoutoptError:
        return False
    return scan.exact and bool(scan.filter.predicates)


Loading = Callable[[Sessions, Path, Sequence[str]], Iterator[Laid]]
"""Makes tables of a world by loads, with features for some conditions."""


@dataclass(frozen=True)
class Hunt:
    """What to hunt with.

    Attributes:
        spark: where sessions come from.
        switches: which constructs there are.
        texts: how many one query of Spark's asks.
        batches: how many of these a world has.
        loading: makes the tables; where left out they are written without Spark, by every method.
    """

    spark: SparkSession
    switches: Switches = field(default_factory=Switches)
    texts: int = 40
    batches: int = 5
    loading: Loading | None = None


def run(hunt: Hunt, seeds: Iterable[int], cases: int, say: Callable[[str], None] = lambda text: None) -> Tally:
    """Asks texts of tables until so many answers were compared, or the seeds are used up.

    Args:
        hunt: how.
        seeds: of the worlds.
        cases: how many answers to compare.
        say: told now and then how far it is.
    """
    tally, started = Tally(), time.monotonic()
    for seed in seeds:
        if tally.total >= cases or len(tally.failures) >= MOST_FAILURES:
            break
        with tempfile.TemporaryDirectory() as folder:
            _hunt_world(hunt, make_world(seed, hunt.switches), Path(folder), tally)
        tally.seconds = time.monotonic() - started
        say("\n\n".join([f"after seed {seed}: {tally}", *map(str, tally.failures)]))
    return tally


def _hunt_world(hunt: Hunt, world: World, root: Path, tally: Tally) -> None:
    rng = random.Random(f"hunt {world.seed}")
    sessions = Sessions(hunt.spark, world)
    known, bits = features_of(sessions, rng)
    if hunt.loading is None:
        methods = [*METHODS, *rng.sample(list(METHODS), MORE_TABLES)]
        tables = [lay_out(world, root / str(k), method, known, bits, k) for k, method in enumerate(methods)]
    else:
        tables = list(hunt.loading(sessions, root, known))
    rng.shuffle(tables)
    queries = Queries(world, known, rng)
    for batch in range(hunt.batches):
        asks = [queries.ask(batch * hunt.texts + k) for k in range(hunt.texts)]
        _ask_all(sessions, tables, asks, batch, tally)
        if len(tally.failures) >= MOST_FAILURES:
            return


def _ask_all(sessions: Sessions, tables: Sequence[Laid], asks: Sequence[Ask], batch: int, tally: Tally) -> None:
    found = truth(sessions, asks)
    tally.texts += len(asks)
    for outcome in found.values():
        if isinstance(outcome, Refused):
            tally.no_answer[str(outcome)[:60]] += 1
    for place, laid in enumerate(tables):
        asking = Asking.of(sessions, laid, asks, found)
        for name in _WITHOUT_SPARK:
            _judge(asking, name, tally)
        # What Spark has to plan takes longest: a third of the tables is asked some texts in one of Spark's ways.
        if (place + batch) % _TABLES_OF_SPARK:
            continue
        name = list(_IN_SPARK)[(place // _TABLES_OF_SPARK + batch) % len(_IN_SPARK)]
        _judge(asking.some(_IN_SPARK[name], batch), name, tally)


def _judge(asking: Asking, name: str, tally: Tally) -> None:
    found = WAYS[name](asking)
    by_number = {ask.number: ask for ask in asking.asks}
    for number, outcome in found.outcomes.items():
        if refusal(outcome):
            tally.refused[name] += 1
            continue
        tally.cases[name, asking.laid.method] += 1
        tally.skipping += found.skipped.get(number, 0) > 0
        if outcome == asking.known[number]:
            continue
        tally.wrong += 1
        known = [failure.original for failure in tally.failures]
        if by_number[number].sql not in known and len(known) < MOST_FAILURES:  # one for each text
            tally.failures.append(shrunk(asking, by_number[number], name, outcome))
