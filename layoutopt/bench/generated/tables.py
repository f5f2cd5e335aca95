"""Steps of a table by chance: its rows, a log's features, and tables that are planned, written, replayed and read."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.processes import peak_bytes
from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.bench.thesis.measuring import distinct_vectors
from layoutopt.bench.thesis.memory import peaks_of
from layoutopt.bench.timing import WrongAnswerError
from layoutopt.bench.tpch.experiment import Variant, load_table, make_plan_file, size_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.model.query import Query
    from layoutopt.model.schema import Schema

TRAIN: Final = "train"
TEST: Final = "test"
ROUNDS: Final = 3


@dataclass(frozen=True)
class Rows:
    """A table of rows by chance.

    Attributes:
        name: of the table in logs.
        size: how many rows.
        folder: of all products.
        write: writes so many rows as Parquet into a folder; always the same ones.
    """

    name: str
    size: int
    folder: Path
    write: Callable[[int, Path], None]

    @property
    def source(self) -> Path:
        """The Parquet files."""
        return self.folder / "source"


@dataclass(frozen=True)
class Workload:
    """Rows, and two logs that ask for them.

    Attributes:
        rows: the table.
        name: of the logs, in words.
        texts: the statements for :data:`TRAIN` or :data:`TEST`, with the rows there.
        spark: gives the session.
    """

    rows: Rows
    name: str
    texts: Callable[[str], Sequence[str]]
    spark: Callable[[], SparkSession]

    @property
    def folder(self) -> Path:
        """The products of these logs."""
        return self.rows.folder / key_of(self.name, {"logs": self.name})

    def log(self, role: str) -> Path:
        """A log's file."""
        return self.folder / f"{role}.sql"

    def table(self, variant: Variant) -> Path:
        """The products of a variant."""
        return self.folder / key_of(variant.label, asdict(variant))


def rows_step(rows: Rows) -> Step:
    """Write the rows."""

    def make() -> Json:
        shutil.rmtree(rows.source, ignore_errors=True)
        rows.source.mkdir(parents=True)
        rows.write(rows.size, rows.source)
        return {"rows": rows.size, "bytes": size_of(rows.source)}

    return Step(f"{rows.name}: drawing {rows.size:,} rows", rows.folder / "source.json", make)


def features_step(of: Workload) -> Step:
    """Draw both logs, and analyse the one to train by; the product is its features.json."""

    def make() -> Json:
        from layoutopt.config.settings import AnalyzeSettings
        from layoutopt.features.analysis import analyze_log

        of.folder.mkdir(parents=True, exist_ok=True)
        for role in (TRAIN, TEST):
            of.log(role).write_text("".join(f"{text};\n" for text in of.texts(role)), encoding="utf-8")
        settings = AnalyzeSettings(log=str(of.log(TRAIN)), schema_source=str(of.rows.source), table=of.rows.name)
        document: Json = analyze_log(settings).document.to_json()
        return document

    name = f"{of.rows.name}, {of.name}: analysing the log"
    return Step(name, of.folder / "features.json", make, (rows_step(of.rows),))


def unseen(of: Workload) -> tuple[Query, ...]:
    """The queries of the log that no plan sees, which must have been drawn."""
    from layoutopt.sql.schema import schema_from
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    return analyze(read_log(of.log(TEST)), schema_from(str(of.rows.source)), of.rows.name).queries


def table_step(of: Workload, variant: Variant) -> Step:
    """Plan, load and evaluate one variant.

    The product is as of TPC-H's tables: ``evaluation`` and ``full_scan`` with totals, ``planning_seconds``,
    ``loading_seconds``, ``storage_bytes``; and ``layouts``, how many some test query reads, ``matching``, the rows that
    the test queries match, ``features``, how many the plan has, and ``peak_bytes``, of the process that planned, so
    far.
    """
    folder, features = of.table(variant), features_step(of)

    def plan() -> Json:
        made = make_plan_file(of.spark, of.rows.source, variant, features.product, folder)
        return {**made, "peak_bytes": peak_bytes()}

    def say(what: str) -> str:
        return f"{of.rows.name}, {of.name}: {what} {variant.label}"

    planned = Step(say("planning"), folder / "planned.json", plan, (features,))
    loaded = Step(
        say("loading"), folder / "loaded.json", lambda: load_table(of.spark(), of.rows.source, folder), (planned,)
    )
    return Step(say("evaluating"), folder / "evaluated.json", partial(_evaluate, of, folder), (loaded,))


def _evaluate(of: Workload, folder: Path) -> Json:
    from layoutopt.inspect.evaluate import evaluate
    from layoutopt.model.layout import Plan
    from layoutopt.model.predicates import TRUE, Filter
    from layoutopt.scan.table import open_table

    table, queries = open_table(str(folder / "table")), unseen(of)
    plan = Plan.loads((folder / "plan.json").read_bytes())
    read = {column for query in queries for column in query.columns}
    planned, loaded = (json.loads((folder / name).read_text()) for name in ("planned.json", "loaded.json"))
    without = [replace(query, filter=Filter.of(TRUE)) for query in queries]
    totals = evaluate(table, queries, actual=True)["totals"]
    return {
        "evaluation": {"totals": totals},
        "full_scan": evaluate(table, without)["totals"],
        "matching": totals["rows_matching"],
        "queries": len(queries),
        "layouts": sum(bool(read & set(layout.columns)) for layout in plan.scheme.layouts),
        "features": len(plan.features.features),
        "planning_seconds": planned["seconds"],
        "loading_seconds": loaded["seconds"],
        "storage_bytes": loaded["bytes"],
        "peak_bytes": planned["peak_bytes"],
    }


def vectors_step(of: Workload, numbers: Sequence[int], partition_by: str) -> Step:
    """Count the distinct vectors of a partition by so many features; the product has mean and most of each number."""

    def rows(schema: Schema) -> DataFrame:
        from layoutopt.spark.core.source import conformed, open_source

        return conformed(open_source(of.spark(), str(of.rows.source)), schema, "the features")

    def make() -> Json:
        return {str(count): distinct_vectors(rows, features.product, count, partition_by) for count in numbers}

    features, key = features_step(of), key_of("vectors", {"numbers": list(numbers)})
    return Step(f"{of.rows.name}, {of.name}: counting feature vectors", of.folder / f"{key}.json", make, (features,))


def reading_step(of: Workload, variants: Sequence[Variant]) -> Step:
    """Read the test queries' rows from each variant's table by layoutopt's own reader, in turns.

    The product has by label ``seconds``, of a round and query, and what
    :func:`~layoutopt.bench.thesis.memory.peaks_of` says of all queries.

    Raises:
        WrongAnswerError: tables gave different numbers of rows.
    """
    folders = {variant.label: of.table(variant) for variant in variants}
    key = key_of("read", {"tables": [folder.name for folder in folders.values()], "rounds": ROUNDS})

    def make() -> Json:
        from layoutopt.scan.table import open_table

        texts = list(of.texts(TEST))
        tables = {label: open_table(str(folder / "table")) for label, folder in folders.items()}
        found: dict[str, dict[str, Any]] = {
            label: {**peaks_of(table, texts), "seconds": []} for label, table in tables.items()
        }
        if len({each["rows"] for each in found.values()}) > 1:
            raise WrongAnswerError(f"{of.name}: tables have {[each['rows'] for each in found.values()]} rows")
        for _ in range(ROUNDS):
            for label, table in tables.items():
                found[label]["seconds"].append([_seconds(partial(table.scan, text)) for text in texts])
        return found

    name = f"{of.rows.name}, {of.name}: reading what the test log asks for of {', '.join(folders)}"
    return Step(name, of.folder / f"{key}.json", make, tuple(table_step(of, variant) for variant in variants))


def _seconds(scan: Callable[[], Any]) -> float:
    started = time.perf_counter()
    scan().to_arrow()
    return time.perf_counter() - started


def mean_seconds(read: Mapping[str, Any]) -> float:
    """An average query: the mean of the rounds, as the thesis has it (4.7.3)."""
    return float(mean(mean(round_) for round_ in read["seconds"]))
