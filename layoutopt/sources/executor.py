"""Run tasks in processes of this machine: reading its files needs no Spark, which takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from layoutopt.errors import TableError, WorkerLostError
from layoutopt.events import report_step
from layoutopt.sources.shuffle import CutJob, ShuffledRows, Splits, write_shuffle_batches

# So many groups that a slow one delays little.
_GROUPS_A_CORE: Final = 8

Item = TypeVar("Item")
Value = TypeVar("Value")
Batches = Iterable[pa.RecordBatch]
# Returns batches of results for the batches of a segment or of a part of the rows.
Task = Callable[[Batches], Iterator[pa.RecordBatch]]


# Returns a value for a segment's number and its rows.
RowsFunction = Callable[[int, Batches], Value]
# Returns values in a form in which many take less memory.
Pack = Callable[[Sequence[Value]], Sequence[Value]]


class Executor(Protocol):
    """An executor of parallel tasks.

    Attributes:
        shuffles_openly: whether shuffled rows lie in files that others may read.
    """

    shuffles_openly: bool

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def begin(self, function: Callable[[int], object]) -> None:
        """Run a function once in each process that tasks will use, ignoring its errors, if they have yet to start."""

    def map(self, items: Sequence[Item], function: Callable[[Item], Value]) -> list[Value]:
        """Return a function's value for each item, from a task that gets the function and this item, pickled.

        Raises:
            LayoutoptError: the function raised it in a task.
        """
        ...

    def shuffle(
        self, job: CutJob, tasks: Sequence[Splits], function: RowsFunction[Value], pack: Pack[Value] = list
    ) -> Sequence[Value | None]:
        """Cut the rows of tasks' splits into segments, and return a function's value of each; None without rows.

        Raises:
            LayoutoptError: the function raised it in a task.
        """
        ...

    def wait(self) -> None:
        """Wait until tasks of a failed call write no more files."""


class Processes:
    """Processes of this machine, one a core, that are reused until this process ends.

    ``cores`` defaults to those that this process may use; with one core, tasks run in this process.
    """

    shuffles_openly = True

    def __init__(self, cores: int | None = None) -> None:
        self._cores = cores
        self._beginning: Thread | None = None

    @property
    def cores(self) -> int:
        """How many run at once."""
        if self._cores is not None:
            return self._cores
        from joblib import cpu_count

        return int(cpu_count())

    def begin(self, function: Callable[[int], object]) -> None:
        """Run a task in each process in the background, ignoring its result and errors; :meth:`map` waits for it."""
        if self.cores > 1 and self._beginning is None:
            self._beginning = Thread(
                target=ignore_errors, args=(partial(self._map, range(self.cores), function),), daemon=True
            )
            self._beginning.start()

    def map(self, items: Sequence[Item], function: Callable[[Item], Value]) -> list[Value]:
        """Map as :class:`Executor` does; a single task runs in this process.

        Raises:
            WorkerLostError: a process was killed.
        """
        if len(items) <= 1 or self.cores == 1:
            return list(_reporting(map(function, items), len(items)))
        if self._beginning is not None:
            self._beginning.join()
            self._beginning = None
        return self._map(items, function)

    def shuffle(
        self, job: CutJob, tasks: Sequence[Splits], function: RowsFunction[Value], pack: Pack[Value] = list
    ) -> Sequence[Value | None]:
        """Shuffle by the files of a temporary folder.

        Raises:
            TableError: the temporary folder is full.
        """
        try:
            with TemporaryDirectory(prefix="layoutopt-") as folder:
                written = self.map(list(enumerate(tasks)), partial(write_shuffle_batches, job, None, folder))
                run = partial(_call_with_rows, ShuffledRows.of(folder, written), function)
                return map_in_groups(self, range(len(job.ranges.values)), run, pack=pack)
        except OSError as error:
            raise TableError(
                f"rows can't be stored in the temporary folder {gettempdir()!r} ({error.strerror or error}); nothing "
                "was committed; make room there, or name another by TMPDIR"
            ) from error

    def wait(self) -> None:
        """Do nothing: all tasks have ended."""

    def _map(self, items: Sequence[Item], function: Callable[[Item], Value]) -> list[Value]:
        # Imported here: neither reading a table nor Spark's workers need it.
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        run = Parallel(
            n_jobs=min(len(items), self.cores), backend="loky", batch_size=1, max_nbytes=None, return_as="generator"
        )
        try:
            values = list(_reporting(run(delayed(_call)(function, item) for item in items), len(items)))
        except TerminatedWorkerError as error:
            raise WorkerLostError(
                f"one of {self.cores} processes was killed, as happens where memory is short; free some, or let fewer "
                "run: LOKY_MAX_CPU_COUNT=1"
            ) from error
        return values


def _reporting(values: Iterable[Value], count: int) -> Iterator[Value]:
    """Yield values, and report how many of ``count`` there are."""
    for done, value in enumerate(values, 1):
        report_step(done, count)
        yield value


def map_in_groups(
    tasks: Executor,
    items: Sequence[Item],
    function: Callable[[Item], Value],
    groups_a_core: int = _GROUPS_A_CORE,
    pack: Pack[Value] = list,
) -> list[Value]:
    """Map as :class:`Executor` does, by a few tasks a core, since the function travels with each task.

    ``pack`` returns the values of a task in a form in which many take less memory.
    """
    count = min(len(items), groups_a_core * tasks.cores)
    groups = [items[group::count] for group in range(count)]
    results = tasks.map(groups, partial(_map_group, function, pack))
    return [results[number % count][number // count] for number in range(len(items))]


def _map_group(function: Callable[[Item], Value], pack: Pack[Value], group: Sequence[Item]) -> Sequence[Value]:
    return pack([function(item) for item in group])


def _call_with_rows(rows: ShuffledRows, function: RowsFunction[Value], segment: int) -> Value:
    return function(segment, rows.read(segment, segment))


def _call(function: Callable[[Item], Value], item: Item) -> Value:
    # Arrow's own pool returns pages to the system and requests them again, a tenth of planning's processor time.
    pa.set_memory_pool(pa.system_memory_pool())
    return function(item)


def ignore_errors(run: Callable[[], object]) -> None:
    """Run something in the background that later work repeats if it fails."""
    with suppress(Exception):  # the next tasks raise it too if the processes are broken
        run()
