"""A source and two logs: what each method, planned by the first log, reads of the second, on tables really written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.steps import Json, Step, key_of, run
from layoutopt.bench.tpch.experiment import load_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.model.query import Query
    from layoutopt.scan.table import Table

METHODS: Final = (
    "auto", "sop", "gsop", "qdtree", "predicate-sort", "range", "sort", "zorder", "hilbert", "input-order",
)  # fmt: skip
BLOCK_ROWS: Final = 10_000
BOUND: Final = "lower bound"


@dataclass(frozen=True)
class Workload:
    """What methods are compared on.

    Attributes:
        name: of the workload, and of its table in the log.
        source: the rows, as `plan` takes them.
        partition_by: a column, or None.
        block_rows: the rows of a block.
        folder: where its products go.
        features: the step whose product is what `analyze` writes for the log to plan by.
        unseen: gives the queries that plans did not see.
        spark: gives the session.
    """

    name: str
    source: str
    partition_by: str | None
    block_rows: int
    folder: Path
    features: Step
    unseen: Callable[[Table], Sequence[Query]]
    spark: Callable[[], SparkSession]

    def table(self, method: str) -> Path:
        """The folder of a method's products."""
        return self.folder / key_of(method, {"method": method, "block_rows": self.block_rows})


def compare(
    of: Workload, methods: Sequence[str] = METHODS, say: Callable[[str], None] = print
) -> dict[str, dict[str, Any]]:
    """Lay the source out by each method, and replay the unseen queries.

    Args:
        of: the workload; steps that an earlier run finished are not run again.
        methods: as the command line takes them.
        say: told each step that is run.

    Returns:
        By method: ``method``, what `auto` chose; over all queries ``rows`` and ``bytes`` read and ``footer_bytes``;
        ``storage_bytes``, ``planning_seconds`` and ``loading_seconds``. The method :data:`BOUND` has the ``rows`` that
        match, and the ``bytes`` of their cells at the fewest bytes a row that any of the tables takes for a column.
    """
    return summary_of({method: run(table_step(of, method), say) for method in methods})


def plan_step(of: Workload, method: str) -> Step:
    """Plan by one method, no other flag set."""
    folder = of.table(method)

    def make() -> Json:
        from layoutopt.config.documents import read_features
        from layoutopt.config.settings import PlanSettings
        from layoutopt.spark.planning.automatic import plan_best

        settings = PlanSettings(
            source=of.source,
            features=of.features.product,
            method=method,
            partition_by=of.partition_by,
            block_rows=of.block_rows,
        )
        started = time.perf_counter()
        plan = plan_best(of.spark(), settings, read_features(of.features.product))
        seconds = time.perf_counter() - started
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_bytes(plan.dumps())
        return {"seconds": seconds, "method": plan.method, "predicted": dict(plan.predicted)}

    return Step(f"{of.name}: planning by {method}", folder / "planned.json", make, (of.features,))


def load_step(of: Workload, method: str) -> Step:
    """Plan, and load: the folder ``table`` of :meth:`Workload.table`."""
    folder = of.table(method)
    return Step(
        f"{of.name}: loading {method}",
        folder / "loaded.json",
        lambda: load_table(of.spark(), of.source, folder),
        (plan_step(of, method),),
    )


def table_step(of: Workload, method: str) -> Step:
    """Plan, load, and replay the unseen queries; the product has sums over them."""
    folder = of.table(method)
    make = partial(_evaluate, of, folder)
    return Step(f"{of.name}: evaluating {method}", folder / "evaluated.json", make, (load_step(of, method),))


def _evaluate(of: Workload, folder: Path) -> Json:
    from layoutopt.inspect.evaluate import evaluate
    from layoutopt.scan.table import open_table

    table = open_table(str(folder / "table"))
    evaluation = evaluate(table, of.unseen(table), actual=True)
    planned, loaded = (json.loads((folder / name).read_text()) for name in ("planned.json", "loaded.json"))
    return {
        "method": planned["method"],
        "totals": evaluation["totals"],
        "matching": [[query["rows_matching"], query["columns"]] for query in evaluation["queries"]],
        "bytes_a_row": bytes_a_row(table),
        "planning_seconds": planned["seconds"],
        "loading_seconds": loaded["seconds"],
        "storage_bytes": loaded["bytes"],
    }


def bytes_a_row(table: Table) -> dict[str, float]:
    """The compressed bytes of each column for a row of the table, all its layouts counted."""
    found = {}
    for column in table.schema.names:
        held = sum(int(source.blocks.column_bytes(column).sum()) for source in table.sources)
        found[column] = held / max(1, table.rows)
    return found


def summary_of(evaluated: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is said of a workload, from the products of its methods' steps."""
    found: dict[str, dict[str, Any]] = {
        method: {
            "method": of["method"],
            "rows": of["totals"]["rows_scanned"],
            "bytes": of["totals"]["bytes_scanned"],
            "footer_bytes": of["totals"]["footer_bytes"],
            "storage_bytes": of["storage_bytes"],
            "planning_seconds": of["planning_seconds"],
            "loading_seconds": of["loading_seconds"],
        }
        for method, of in evaluated.items()
    }
    if evaluated:
        found[BOUND] = _bound(list(evaluated.values()))
    return found


def _bound(evaluated: Sequence[dict[str, Any]]) -> dict[str, Any]:
    matching = evaluated[0]["matching"]
    least = {column: min(of["bytes_a_row"][column] for of in evaluated) for column in evaluated[0]["bytes_a_row"]}
    return {
        "rows": sum(rows or 0 for rows, _ in matching),
        "bytes": round(sum((rows or 0) * sum(least[column] for column in columns) for rows, columns in matching)),
    }
