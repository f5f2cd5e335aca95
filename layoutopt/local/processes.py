"""Tasks in processes of this machine: what is read from its files needs no Spark, which takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Protocol, TypeVar

import pyarrow as pa

from layoutopt.errors import WorkerLostError

Value = TypeVar("Value")


class Tasks(Protocol):
    """Where work is done side by side."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def each(self, count: int, function: Callable[[int], Value]) -> list[Value]:
        """What a function gives for 0 .. ``count`` - 1, each in a task of its own; it and the values travel pickled.

        Raises:
            LayoutoptError: the function raised it in a task.
        """
        ...


class Processes:
    """Processes of this machine, one a core, which stay for what is asked next; they end with this one."""

    def __init__(self, cores: int | None = None) -> None:
        """So many of them; as many as this process may use cores when None. Where it is one, tasks are done here."""
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
        """Give each process a task while this one goes on; what becomes of it nobody hears.

        The next call of :meth:`each` waits for it.
        """
        if self.cores > 1 and self._beginning is None:
            self._beginning = Thread(target=_quietly, args=(partial(self._each, self.cores, function),), daemon=True)
            self._beginning.start()

    def each(self, count: int, function: Callable[[int], Value]) -> list[Value]:
        """As :meth:`Tasks.each` says; of a single task the work is done here.

        Raises:
            WorkerLostError: a process was killed.
        """
        if count <= 1 or self.cores == 1:
            return [function(number) for number in range(count)]
        if self._beginning is not None:
            self._beginning.join()
            self._beginning = None
        return self._each(count, function)

    def _each(self, count: int, function: Callable[[int], Value]) -> list[Value]:
        # Imported here: reading a table needs none of it, nor do Spark's workers.
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        side_by_side = Parallel(n_jobs=min(count, self.cores), backend="loky", batch_size=1, max_nbytes=None)
        try:
            found: list[Value] = side_by_side(delayed(_done)(function, number) for number in range(count))
        except TerminatedWorkerError as error:
            raise WorkerLostError(
                f"one of {self.cores} processes was killed, as happens where memory is short; free some, or let fewer "
                "run: LOKY_MAX_CPU_COUNT=1"
            ) from error
        return found


def _done(function: Callable[[int], Value], number: int) -> Value:
    """What a function gives, in a process of ours.

    It holds its Arrow data in the system's memory: Arrow's own pool gives pages back to the system and gets them anew,
    which took a tenth of planning's processor time.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    return function(number)


def _quietly(run: Callable[[], object]) -> None:
    with suppress(Exception):  # which the next tasks meet, too, if it is of the processes
        run()
