"""`layoutopt bench brushing`: what each method reads of unseen users' range filters, on tables really written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.brushing.logs import ROLES, texts_of
from layoutopt.bench.brushing.rows import SOURCES, write_source
from layoutopt.bench.compared.workload import BLOCK_ROWS, METHODS, Workload, compare
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step
from layoutopt.bench.tpch.experiment import size_of
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.model.query import Query
    from layoutopt.scan.table import Table

DEFAULT_ROOT: Final = Path("build/tpch/brushing")
ROWS: Final = 2_000_000


def workload(name: str, rows: int, root: Path, spark: Callable[[], SparkSession]) -> Workload:
    """One of :data:`SOURCES` at one size, below the folder of all workloads."""
    folder = root / f"{name}-{rows}"
    source = folder / "source"

    def log(role: str) -> Path:
        return folder / f"{role}.sql"

    def make_source() -> Json:
        shutil.rmtree(source, ignore_errors=True)
        write_source(name, rows, source)
        for role in ROLES:
            log(role).write_text("".join(f"{text};\n" for text in texts_of(name, role)), encoding="utf-8")
        return {"rows": rows, "bytes": size_of(source)}

    def make_features() -> Json:
        from layoutopt.config.settings import AnalyzeSettings
        from layoutopt.features.analysis import analyze_log

        settings = AnalyzeSettings(log=str(log("train")), schema_source=str(source), table=name)
        document: Json = analyze_log(settings).document.to_json()
        return document

    def unseen(table: Table) -> Sequence[Query]:
        from layoutopt.workload.analyze import analyze
        from layoutopt.workload.log import read_log

        return analyze(read_log(log("test")), table.schema, table.name).queries

    made = Step(f"{name}: making {rows:,} rows", folder / "source.json", make_source)
    features = Step(f"{name}: analysing the log", folder / "features.json", make_features, (made,))
    by = SOURCES[name].partition_by
    return Workload(name, str(source), by, BLOCK_ROWS, folder, features, unseen, spark)


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
        By workload what :func:`~layoutopt.bench.compared.workload.compare` found.

    Raises:
        SettingError: a workload that is not known.
    """
    unknown = [name for name in names if name not in SOURCES]
    if unknown:
        raise SettingError(f"there is no brushing workload {unknown[0]!r}; give one of {', '.join(SOURCES)}")
    with spark_when_needed("layoutopt-brushing") as spark:
        return {name: compare(workload(name, rows, root, spark), methods, say) for name in names or SOURCES}
