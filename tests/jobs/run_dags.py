"""Runs the DAGs in Airflow's own test mode: started by ``test_airflow`` with Airflow's Python, which has no layoutopt.

Arguments: the file of the DAGs, then dates to load, at least one. Prints one JSON object: of each date, and of the
other DAGs, the state of the run, the most tries of a task and the tasks' states.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from datetime import UTC, datetime
from typing import Any


def dags_of(path: str) -> Any:
    """The module that a file of DAGs is."""
    spec = importlib.util.spec_from_file_location("airflow_dag", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(run: Any) -> dict[str, object]:
    """State of a run; of each of its tasks the states, and the most tries."""
    instances = run.get_task_instances()
    states: dict[str, list[str]] = {}
    for instance in instances:
        states.setdefault(instance.task_id, []).append(str(instance.state))
    tries = max(instance.try_number for instance in instances)
    return {"state": str(run.state), "tries": tries, "tasks": {name: sorted(found) for name, found in states.items()}}


if __name__ == "__main__":
    file, *dates = sys.argv[1:]
    dags = dags_of(file)
    found = {}
    for date in dates:
        day = datetime.fromisoformat(date).replace(tzinfo=UTC)
        found[date] = outcome(dags.nightly.test(logical_date=day))
    found["check"] = outcome(dags.plan_check.test())
    found["follow"] = outcome(dags.follow_log.test())
    sys.stdout.write("\nOUTCOME " + json.dumps(found) + "\n")
