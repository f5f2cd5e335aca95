"""`layoutopt bench brushing`: what each method reads of unseen users' range filters, on tables really written."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.brushing.logs import ROLES, texts_of
from layoutopt.bench.brushing.rows import SOURCES, write_source
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, key_of, run
from layoutopt.bench.tpch.experiment import load_table, size_of
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.scan.table import Table

DEFAULT_ROOT: Final = Path("build/tpch/brushing")
ROWS: Final = 2_000_000
BLOCK_ROWS: Final = 10_000
METHODS: Final = (
    "auto", "sop", "gsop", "qdtree", "predicate-sort", "range", "sort", "zorder", "hilbert", "input-order",
)  # fmt: skip
BOUND: Final = "lower bound"


@dataclass(frozen=True)
class Brushing:
    """One workload at one size, and where its products are.

    Attributes:
        name: of :data:`SOURCES`.
        rows: of the table.
        root: the folder of all workloads.
        spark: gives the session.
    """

    name: str
    rows: int
    root: Path
    spark: Callable[[], SparkSession]

    @property
    def folder(self) -> Path:
        """The products of this workload at this size."""
        return self.root / f"{self.name}-{self.rows}"

    @property
    def source(self) -> Path:
        """The rows as they arrived."""
        return self.folder / "source"

    def log(self, role: str) -> Path:
        """The log of the users of a role."""
        return self.folder / f"{role}.sql"

    def table(self, method: str) -> Path:
        """The folder of a method's products."""
        return self.folder / key_of(method, {"method": method, "block_rows": BLOCK_ROWS})


def source_step(of: Brushing) -> Step:
    """Write the rows and the logs."""

    def make() -> Json:
        shutil.rmtree(of.source, ignore_errors=True)
        write_source(of.name, of.rows, of.source)
        for role in ROLES:
            of.log(role).write_text("".join(f"{text};\n" for text in texts_of(of.name, role)), encoding="utf-8")
        return {"rows": of.rows, "bytes": size_of(of.source)}

    return Step(f"{of.name}: making {of.rows:,} rows", of.folder / "source.json", make)


def features_step(of: Brushing) -> Step:
    """Analyse the log for training as `layoutopt analyze` does; the product is its features.json."""

    def make() -> Json:
        from layoutopt.config.settings import AnalyzeSettings
        from layoutopt.features.analysis import analyze_log

        settings = AnalyzeSettings(log=str(of.log("train")), schema_source=str(of.source), table=of.name)
        document: Json = analyze_log(settings).document.to_json()
        return document

    return Step(f"{of.name}: analysing the log", of.folder / "features.json", make, (source_step(of),))


def plan_step(of: Brushing, method: str) -> Step:
    """Plan by one method, no other flag set."""
    folder, features = of.table(method), features_step(of)

    def make() -> Json:
        from layoutopt.config.documents import read_features
        from layoutopt.config.settings import PlanSettings
        from layoutopt.spark.planning.automatic import plan_best

        settings = PlanSettings(
            source=str(of.source),
            features=features.product,
            method=method,
            partition_by=SOURCES[of.name].partition_by,
            block_rows=BLOCK_ROWS,
        )
        started = time.perf_counter()
        plan = plan_best(of.spark(), settings, read_features(features.product))
        seconds = time.perf_counter() - started
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_bytes(plan.dumps())
        return {"seconds": seconds, "method": plan.method, "predicted": dict(plan.predicted)}

    return Step(f"{of.name}: planning by {method}", folder / "planned.json", make, (features,))


def table_step(of: Brushing, method: str) -> Step:
    """Plan, load, and replay the log for testing; the product has sums over its queries."""
    folder, plan = of.table(method), plan_step(of, method)
    load = Step(
        f"{of.name}: loading {method}",
        folder / "loaded.json",
        lambda: load_table(of.spark(), of.source, folder),
        (plan,),
    )
    return Step(f"{of.name}: evaluating {method}", folder / "evaluated.json", partial(_evaluate, of, folder), (load,))


def _evaluate(of: Brushing, folder: Path) -> Json:
    from layoutopt.inspect.evaluate import evaluate
    from layoutopt.scan.table import open_table
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    table = open_table(str(folder / "table"))
    queries = analyze(read_log(of.log("test")), table.schema, table.name).queries
    evaluation = evaluate(table, queries, actual=True)
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


def run_brushing(
    *,
    rows: int = ROWS,
    root: Path = DEFAULT_ROOT,
    names: Sequence[str] = (),
    methods: Sequence[str] = METHODS,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Lay out each workload by each method, and replay the unseen users' queries.

    Args:
        rows: of each table.
        root: the folder of all workloads; what an earlier run left there is used again.
        names: of :data:`SOURCES`; all when empty.
        methods: as the command line takes them.
        say: told each step that is run.

    Returns:
        By workload and method: ``method``, what `auto` chose; over all queries ``rows`` and ``bytes`` read and
        ``footer_bytes``; ``storage_bytes``, ``planning_seconds`` and ``loading_seconds``. The method
        :data:`BOUND` has the ``rows`` that match, and the ``bytes`` of their cells at the fewest bytes a row that any
        of the tables takes for a column.

    Raises:
        SettingError: a workload that is not known.
    """
    unknown = [name for name in names if name not in SOURCES]
    if unknown:
        raise SettingError(f"there is no brushing workload {unknown[0]!r}; give one of {', '.join(SOURCES)}")
    with spark_when_needed("layoutopt-brushing") as spark:
        return {
            name: summary_of(
                {method: run(table_step(Brushing(name, rows, root, spark), method), say) for method in methods}
            )
            for name in names or SOURCES
        }


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
