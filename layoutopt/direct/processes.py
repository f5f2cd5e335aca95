"""Tasks in processes of this machine: what is read from its files needs no Spark, which takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

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

    @property
    def cores(self) -> int:
        """How many run at once."""
        if self._cores is not None:
            return self._cores
        from joblib import cpu_count

        return int(cpu_count())

    def each(self, count: int, function: Callable[[int], Value]) -> list[Value]:
        """As :meth:`Tasks.each` says; of a single task the work is done here.

        Raises:
            WorkerLostError: a process was killed.
        """
        if count <= 1 or self.cores == 1:
            return [function(number) for number in range(count)]
        # Imported here: reading a table needs none of it, nor do Spark's workers.
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        side_by_side = Parallel(n_jobs=min(count, self.cores), backend="loky", batch_size=1, max_nbytes=None)
        try:
            found: list[Value] = side_by_side(delayed(function)(number) for number in range(count))
        except TerminatedWorkerError as error:
            raise WorkerLostError(
                f"one of {self.cores} processes was killed, as happens where memory is short; free some, or let fewer "
                "run: LOKY_MAX_CPU_COUNT=1"
            ) from error
        return found
