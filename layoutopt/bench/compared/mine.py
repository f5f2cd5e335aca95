"""`layoutopt bench mine`: every method on a user's own table and log, judged by the newest queries of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.compared.workload import Workload, compare
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.config.settings import AnalyzeSettings
from layoutopt.errors import LogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.model.query import Query
    from layoutopt.scan.table import Table

HELD_BACK: Final = 0.25
"""The share of the statements, the newest ones, that plans don't see."""
LEAST: Final = 8
"""Fewer statements tell nothing of methods."""


def workload(
    log: AnalyzeSettings,
    root: Path,
    spark: Callable[[], SparkSession],
    partition_by: str | None = None,
    block_rows: int = 10_000,
) -> Workload:
    """A user's source and log, the newest quarter of which plans don't see.

    Args:
        log: the log, and as ``schema_source`` the source. Of statements with times all of them order it; else its own
            order does.
        root: the folder of all such workloads; a log that changed gets a folder of its own.
        spark: gives the session.
        partition_by: the partition column.
        block_rows: the rows of a block.
    """
    key = {"source": log.schema_source, "log": _digest(log.log), "partition_by": partition_by, "table": log.table}
    name = log.table or Path(log.schema_source).stem
    folder = root / key_of(name, key)
    held = folder / "unseen.json"

    def make() -> Json:
        from layoutopt.features.analysis import features_of, queries_of
        from layoutopt.sql.schema import schema_from

        schema = schema_from(log.schema_source)
        found = queries_of(log, schema)
        seen, unseen = newest_apart(found.queries)
        document = features_of(log, schema, replace(found, queries=seen)).document
        folder.mkdir(parents=True, exist_ok=True)
        held.write_bytes(replace(document, queries=unseen).dumps())
        made: Json = document.to_json()
        return made

    def unseen(table: Table) -> Sequence[Query]:
        from layoutopt.config.documents import read_features

        return read_features(held).queries

    features = Step(f"{name}: analysing the log", folder / "features.json", make)
    return Workload(name, log.schema_source, partition_by, block_rows, folder, features, unseen, spark)


def newest_apart(queries: Sequence[Query]) -> tuple[tuple[Query, ...], tuple[Query, ...]]:
    """The queries but for the newest quarter of the statements, and those; the scans of a statement stay together.

    Raises:
        LogError: there are too few statements.
    """
    from layoutopt.workload.log import times_of

    ordered = list(queries)
    if all(query.timestamp for query in queries):
        times = times_of(queries).tolist()
        ordered = [queries[place] for place in sorted(range(len(queries)), key=times.__getitem__)]
    statements = list(dict.fromkeys(query.id for query in ordered))
    if len(statements) < LEAST:
        raise LogError(
            f"the log has {len(statements)} usable statements, too few to hold some back; give one of {LEAST} at least"
        )
    held = set(statements[-max(1, round(HELD_BACK * len(statements))) :])
    seen = tuple(query for query in ordered if query.id not in held)
    return seen, tuple(query for query in ordered if query.id in held)


def run_mine(
    log: AnalyzeSettings,
    *,
    root: Path,
    methods: Sequence[str],
    partition_by: str | None = None,
    block_rows: int = 10_000,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, Any]]:
    """What each method reads of the log's newest queries, as :func:`~layoutopt.bench.compared.workload.compare` has it.

    Raises:
        LogError, SchemaError, SourceError, SettingError: as `analyze`, `plan` and `load` do.
    """
    with spark_when_needed("layoutopt-mine") as spark:
        return compare(workload(log, root, spark, partition_by, block_rows), methods, say)


def _digest(path: str) -> str:
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise LogError(f"the log {path!r} can't be read ({error.strerror}); check the path") from error
