"""A load of which every other task fails the first time, after their files were written: submitted by ``test_jobs``.

Arguments: the job's file, a folder for marks, and what the job is given.
"""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path

from pyspark import TaskContext

from layoutopt.loading import load as loading


def fail_once(marks: str, point: str) -> None:
    """Fail the first attempt of every other task: each takes a worker with it, which takes seconds to start."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a task")
    mark = Path(marks) / f"{context.partitionId()}"
    if context.partitionId() % 2 and not mark.exists():
        mark.write_text(point)
        raise RuntimeError("this attempt was made to fail")


if __name__ == "__main__":
    job, marks = sys.argv[1:3]
    sys.argv[:] = [job, *sys.argv[3:]]
    vars(loading)["load"] = partial(loading.load, in_task=partial(fail_once, marks))
    runpy.run_path(job, run_name="__main__")
