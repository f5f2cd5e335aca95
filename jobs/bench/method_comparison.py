"""Methods compared on tables really written: each plans by one log and is judged by queries that it has not seen."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.table import Table as TextTable

from layoutopt.config.documents import read_features
from layoutopt.events import Progress
from layoutopt.inspect.evaluate import evaluate
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.layout import Plan
from layoutopt.model.methods import DEFAULT_BLOCK_ROWS
from layoutopt.model.query import Query
from layoutopt.planning.automatic import plan_best
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.sessions import AnySession, start_session
from layoutopt.spark.loading.load import load
from layoutopt.spark.planning.source_rows import open_source_rows

# The name under which a comparison gives what no method can beat.
BOUND: Final = "lower bound"

Product = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What methods are compared on.

    Attributes:
        name: of the workload, in messages.
        source: the rows, as `plan` takes them.
        folder: where plans, tables and results go; what is there is not made again.
        features: what `analyze` wrote for the log to plan by.
        unseen: gives the queries to judge by, once the features are there.
        partition_by: a column, or None.
        block_rows: the mean rows of a block.
    """

    name: str
    source: str
    folder: Path
    features: Path
    unseen: Callable[[], Sequence[Query]]
    partition_by: str | None = None
    block_rows: int = DEFAULT_BLOCK_ROWS

    def table_of(self, method: str) -> Path:
        """Return the folder of a method's table."""
        return self._folder(method) / "table"

    def write_table(self, method: str, spark: AnySession, say: Progress) -> Path:
        """Plan by a method, no other flag set, and load; return the folder of the table."""
        folder = self._folder(method)

        def plan() -> Product:
            say(f"{self.name}: planning by {method}")
            request = PlanRequest(method, self.partition_by, block_rows=self.block_rows)
            started_at = time.perf_counter()
            made = plan_best(partial(open_source_rows, spark, self.source), read_features(self.features), request)
            seconds = time.perf_counter() - started_at
            (folder / "plan.json").write_bytes(made.dumps())
            return {"seconds": seconds, "method": made.method}

        def write() -> Product:
            say(f"{self.name}: loading {method}")
            started_at = time.perf_counter()
            made = Plan.loads((folder / "plan.json").read_bytes())
            load(start_session(spark), self.source, folder / "table", made)
            data = (path for path in (folder / "table" / "data").rglob("*") if path.is_file())
            size = sum(path.stat().st_size for path in data if not path.name.startswith((".", "_")))
            return {"seconds": time.perf_counter() - started_at, "bytes": size}

        _make_once(folder / "planned.json", plan)
        _make_once(folder / "loaded.json", write)
        return folder / "table"

    def evaluate(self, method: str, spark: AnySession, say: Progress) -> Product:
        """Plan, load, and replay the unseen queries; return sums over them."""
        folder = self._folder(method)

        def replay() -> Product:
            table = open_table(str(self.write_table(method, spark, say)))
            say(f"{self.name}: evaluating {method}")
            evaluation = evaluate(table, self.unseen(), actual=True)
            planned, loaded = (json.loads((folder / name).read_text()) for name in ("planned.json", "loaded.json"))
            return {
                "method": planned["method"],
                "totals": evaluation.totals.to_json(),
                "matching": [[query.rows_matching, list(query.columns)] for query in evaluation.queries],
                "bytes_a_row": bytes_a_row(table),
                "planning_seconds": planned["seconds"],
                "loading_seconds": loaded["seconds"],
                "storage_bytes": loaded["bytes"],
            }

        return _make_once(folder / "evaluated.json", replay)

    def _folder(self, method: str) -> Path:
        return self.folder / f"{method}-{self.block_rows}"


def compare_methods(
    comparison: Comparison, methods: Sequence[str], spark: AnySession, say: Progress
) -> dict[str, Product]:
    """Lay a source out by each method, and replay the unseen queries on each table.

    Returns:
        By method: ``method``, what `auto` chose; over all queries ``rows`` and ``bytes`` read and ``footer_bytes``;
        ``storage_bytes``, ``planning_seconds`` and ``loading_seconds``. The method :data:`BOUND` has the ``rows`` that
        match, and the ``bytes`` of their cells at the fewest bytes a row that any of the tables takes for a column.
    """
    return summarize({method: comparison.evaluate(method, spark, say) for method in methods})


def summarize(evaluated: Mapping[str, Product]) -> dict[str, Product]:
    """Return what :func:`compare_methods` does, from what :meth:`Comparison.evaluate` gave for each method."""
    kept = ("method", "storage_bytes", "planning_seconds", "loading_seconds")
    totals = {"rows": "rows_scanned", "bytes": "bytes_scanned", "footer_bytes": "footer_bytes"}
    summary: dict[str, Product] = {
        method: {
            **{name: product[name] for name in kept},
            **{name: product["totals"][total] for name, total in totals.items()},
        }
        for method, product in evaluated.items()
    }
    if evaluated:
        matching = next(iter(evaluated.values()))["matching"]
        sizes = [product["bytes_a_row"] for product in evaluated.values()]
        least = {column: min(size[column] for size in sizes) for column in sizes[0]}
        summary[BOUND] = {
            "rows": sum(rows or 0 for rows, _ in matching),
            "bytes": round(sum((rows or 0) * sum(least[column] for column in columns) for rows, columns in matching)),
        }
    return summary


def bytes_a_row(table: Table) -> dict[str, float]:
    """Return the compressed bytes of each column for a row of the table, summed over its layouts."""
    return {
        column: sum(int(source.blocks.column_bytes(column).sum()) for source in table.sources) / max(1, table.rows)
        for column in table.schema.names
    }


def methods_table(title: str, methods: Mapping[str, Mapping[str, Any]]) -> TextTable:
    """Return the result of :func:`compare_methods` as a table."""
    table = TextTable(title=title, title_justify="left")
    for heading in ("method", "rows", "bytes", "of the best", "footers", "on disk", "planning", "loading"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    least = min((totals["bytes"] for method, totals in methods.items() if method != BOUND), default=0)
    for method, totals in sorted(methods.items(), key=lambda item: item[1]["bytes"]):
        chosen = totals.get("method", method)
        table.add_row(
            method if chosen == method else f"{method}: {chosen}",
            f"{totals['rows'] / 1e6:,.1f} M",
            _format_megabytes(totals["bytes"]),
            f"{totals['bytes'] / max(1, least):.2f}x",
            _format_megabytes(totals.get("footer_bytes")),
            _format_megabytes(totals.get("storage_bytes")),
            *(f"{totals[key]:.0f} s" if key in totals else "" for key in ("planning_seconds", "loading_seconds")),
        )
    return table


def _format_megabytes(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:,.1f} MB"


def _make_once(path: Path, make: Callable[[], Product]) -> Product:
    """Return the JSON of a file, which is made where it is not there and appears only when complete."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
        unfinished.write_text(json.dumps(make()), encoding="utf-8")
        unfinished.rename(path)
    product: Product = json.loads(path.read_text(encoding="utf-8"))
    return product
