"""An experiment: a source, its query logs, the tables that variants make of it, and what queries read of these."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from jobs.bench.processes import peak_bytes
from jobs.bench.steps import Json, Step, key_of
from layoutopt.errors import LayoutoptError
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Layout, Plan
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.query import group_queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.events import Progress
    from layoutopt.methods.interface import PlanRequest
    from layoutopt.model.query import Query
    from layoutopt.model.schema import Schema
    from layoutopt.planning.rows import SourceRows
    from layoutopt.scan.table import Table

Session = Callable[[], "SparkSession"]

# What evaluations say of tables, by label.
Evaluated = Mapping[str, Mapping[str, Any]]
TRAIN, TEST = ROLES = ("train", "test")
SEED: Final = 0

# Twice the thesis's 1,315 vectors: Ward's time grows with the square, and a load runs it 80 times.
MAX_VECTORS: Final = 3_000

# The row order of variants whose rows within blocks stay as the blocking leaves them.
UNORDERED: Final = ("none",)

# Of variants whose rows or cells are counted, and not their bytes: planning need not look for a row order.
UNSORTED: Final[Mapping[str, Any]] = {"row_order": UNORDERED}

# Rounds in which the tables' own reader is timed.
READING_ROUNDS: Final = 3

# More vectors than any partition has: all are counted.
_ALL_VECTORS: Final = 10_000_000


class WrongAnswerError(LayoutoptError):
    """A query's answer from the optimised table is not that from plain Parquet."""


class LoggedQuery(NamedTuple):
    """A query of a log, and the template or family that it belongs to; an empty text where it has none."""

    template: str
    sql: str


@dataclass(frozen=True)
class Source:
    """Rows in the Parquet files of a folder.

    Attributes:
        table: the name that queries call the rows by.
        path, folder: the folder of the files, and that of products.
        made: the step that writes the files.
    """

    table: str
    path: Path
    folder: Path
    made: Step


def generated_source(table: str, rows: int, folder: Path, write: Callable[[int, Path], None]) -> Source:
    """Return a source of so many rows, which a function writes as Parquet into a folder, the same rows each time."""
    path = folder / "source"

    def make() -> Json:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        write(rows, path)
        return {"rows": rows, "bytes": size_of(path)}

    return Source(table, path, folder, Step(f"{table}: drawing {rows:,} rows", folder / "source.json", make))


@dataclass(frozen=True)
class Variant:
    """A method with its parameters: one way to lay out the rows.

    Attributes:
        label: its name in tables.
        method: as `--method` takes it.
        partition_by: the partition column; None leaves the source's order in one partition.
        block_rows: the mean rows of a block.
        by: the columns of methods that order rows.
        max_vectors: the most distinct feature vectors of a segment; the plan drops features beyond that.
        features: False plans without features, so that partitions, minima and maxima alone skip.
        written: False measures every block that a load would make but writes no table: rows, cells and tids are the
            same, bytes are estimated from an encoded sample.
        budget: the storage budget of methods with copies.
        num_features: the table has only so many of the log's features, the heaviest; None is all.
        row_order: as `--row-order` takes it; None is the method's own.
    """

    label: str
    method: str
    partition_by: str | None
    block_rows: int
    by: tuple[str, ...] = ()
    max_vectors: int = MAX_VECTORS
    features: bool = True
    written: bool = True
    budget: float | None = None
    num_features: int | None = None
    row_order: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Tables:
    """The steps that evaluate variants, and what reads the evaluations by label once they have run."""

    steps: Sequence[Step]
    read: Callable[[], Evaluated]


@dataclass(frozen=True)
class Experiment:
    """What is measured on one source with one pair of logs.

    Attributes:
        name: of the query stream.
        source: the rows.
        queries: draws the queries of a log by its role, :data:`TRAIN` or :data:`TEST`; the same each time.
        spark: gives the session.
        num_features: the most features of the analysis; None for as many as `analyze` finds by itself.
        counts_rows: whether evaluations of written tables count the rows that queries match, which reads them.
        shares_tables: whether tables without features are shared with other streams on the source.
    """

    name: str
    source: Source
    queries: Callable[[str], Sequence[LoggedQuery]]
    spark: Session
    num_features: int | None = None
    counts_rows: bool = False
    shares_tables: bool = False

    def log(self, role: str) -> Path:
        """Write the query log of a role, if it is not there, and return its path."""
        path = self.source.folder / "logs" / f"{key_of(self.name, {})}-{role}.jsonl"
        if not path.exists():
            write_log(self.queries(role), path)
        return path

    def test_queries(self) -> tuple[Query, ...]:
        """Return the analysed test queries; the id of each is its place in the log."""
        from layoutopt.sql.schema import schema_from
        from layoutopt.workload.analyze import analyze
        from layoutopt.workload.log import read_log

        return analyze(read_log(self.log(TEST)), schema_from(str(self.source.path)), self.source.table).queries

    def rows(self, schema: Schema) -> DataFrame:
        """Return the source in Spark, with the columns of a features document."""
        from layoutopt.spark.core.source import conform_columns, open_source

        return conform_columns(open_source(self.spark(), str(self.source.path)), schema, "the features")

    def open_rows(self, document: FeaturesDocument, request: PlanRequest, say: Progress) -> SourceRows:
        """Open the source for planning."""
        from layoutopt.spark.planning.source_rows import open_source_rows

        return open_source_rows(self.spark(), str(self.source.path), document, request, say)

    def source_rows(self, schema: Schema, partition_by: str) -> SourceRows:
        """Return the source as planning reads it by Spark."""
        from layoutopt.sources.door import Door
        from layoutopt.spark.planning.frame_rows import FrameRows

        return Door(lambda _: FrameRows(self.rows(schema), partition_by))

    def folder(self, variant: Variant) -> Path:
        """Return the folder of a variant's products: different for different parameters."""
        stream = "any stream" if self.shares_tables and not variant.features else self.name
        return self.source.folder / key_of(f"{variant.label} {stream}", {**asdict(variant), "stream": stream})

    def plan_of(self, variant: Variant) -> Plan:
        """Return the plan of a variant, which must have been made."""
        return Plan.loads((self.folder(variant) / "plan.json").read_bytes())

    def layouts_read(self, variant: Variant) -> tuple[Layout, ...]:
        """Return the layouts of a variant's plan with a column that some training query reads."""
        plan = self.plan_of(variant)
        used = {column for query in plan.queries for column in query.columns}
        return tuple(layout for layout in plan.scheme.layouts if used & set(layout.columns))

    def step(self, name: str, product: str, make: Callable[[], Json], *needs: Step) -> Step:
        """Return a step of this experiment, which needs the source; the product is named within its folder."""
        return Step(f"{self.name}: {name}", self.source.folder / product, make, (self.source.made, *needs))

    def features(self) -> Step:
        """Analyse the training log as `layoutopt analyze` does; the product is its features.json."""

        def make() -> Json:
            from layoutopt.features.analysis import analyze_log
            from layoutopt.model.requests import AnalyzeRequest
            from layoutopt.sql.schema import schema_from

            request = AnalyzeRequest(log=str(self.log(TRAIN)), table=self.source.table, num_features=self.num_features)
            content: Json = analyze_log(request, schema_from(str(self.source.path))).document.to_json()
            return content

        return self.step("analysing the training log", f"{key_of(self.name, {})}-features.json", make)

    def document(self) -> FeaturesDocument:
        """Return what :meth:`features` made."""
        return FeaturesDocument.loads(self.features().product.read_bytes())

    def plan(self, variant: Variant) -> Step:
        """Plan one variant; the product has the seconds and the peak memory of this process so far."""

        def make() -> Json:
            folder, started = self.folder(variant), time.perf_counter()
            plan = self._make_plan(variant)
            seconds = time.perf_counter() - started
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "plan.json").write_bytes(plan.dumps())
            predicted = dict(plan.predicted)
            return {"seconds": seconds, "peak_bytes": peak_bytes(), "digest": plan.digest, "predicted": predicted}

        name = f"{self.folder(variant).name}/planned.json"
        return self.step(f"planning {variant.label}", name, make, self.features())

    def _make_plan(self, variant: Variant) -> Plan:
        from layoutopt.methods.interface import PlanRequest
        from layoutopt.model.feature import FeatureSet
        from layoutopt.model.methods import FILE_BYTES
        from layoutopt.planning.plan import make_plan, propose_plan
        from layoutopt.planning.source_profile import select_heaviest

        document = self.document()
        if not variant.features:
            document = replace(document, features=FeatureSet((), document.features.settings))
        if variant.num_features is not None:
            document = replace(document, features=select_heaviest(document.features, variant.num_features))
        request = PlanRequest(
            method=variant.method,
            partition_by=variant.partition_by,
            block_rows=variant.block_rows,
            by=variant.by,
            max_vectors=variant.max_vectors,
            seed=SEED,
            storage_budget=(variant.budget or 1.0,),
            row_order=variant.row_order,
        )
        # Where rows and cells are counted, and not bytes, the plan's blocks need not be measured.
        planner = propose_plan if variant.row_order == UNORDERED else make_plan
        return replace(planner(self.open_rows, document, request), file_bytes=FILE_BYTES)

    def load(self, variant: Variant) -> Step:
        """Load one variant into the folder ``table`` beside the product, which has the seconds and the bytes."""

        def make() -> Json:
            from layoutopt.spark.loading.load import load

            table = self.folder(variant) / "table"
            shutil.rmtree(table, ignore_errors=True)
            plan, started = self.plan_of(variant), time.perf_counter()
            load(self.spark(), str(self.source.path), str(table), plan)
            return {"seconds": time.perf_counter() - started, "bytes": size_of(table / "data")}

        name = f"{self.folder(variant).name}/loaded.json"
        return self.step(f"loading {variant.label}", name, make, self.plan(variant))

    def evaluation(self, variant: Variant) -> Step:
        """Plan, load and evaluate one variant on the test log.

        The product has ``evaluation``, what `evaluate` says of each query and of all, the totals of a ``full_scan``,
        the ``source_bytes`` and the ``storage_bytes``, ``planning_seconds``, ``loading_seconds`` and the planner's
        ``peak_bytes``; how many ``queries`` there are, how many ``layouts`` some query reads, how many ``features``
        the plan has, and the rows that are ``matching``, where they are counted.
        """

        def make() -> Json:
            from layoutopt.scan.table import open_table

            loaded = self.load(variant).read()
            table = open_table(str(self.folder(variant) / "table"))
            return {
                **self._evaluate(variant, table, counts_rows=self.counts_rows),
                "loading_seconds": loaded["seconds"],
                "storage_bytes": loaded["bytes"],
            }

        name = f"{self.folder(variant).name}/evaluated-{key_of(self.name, {})}.json"
        return self.step(f"evaluating {variant.label} on the test log", name, make, self.load(variant))

    def _evaluate(self, variant: Variant, table: Table, *, counts_rows: bool) -> dict[str, object]:
        from layoutopt.inspect.evaluate import evaluate

        queries, plan, planned = self.test_queries(), self.plan_of(variant), self.plan(variant).read()
        read = {column for query in queries for column in query.columns}
        evaluation = evaluate(table, queries, actual=counts_rows)
        full_scans = [replace(query, filter=Filter.of(TRUE)) for query in queries]
        return {
            "evaluation": evaluation.to_json(),
            "full_scan": evaluate(table, full_scans).totals.to_json(),
            "source_bytes": size_of(self.source.path),
            "queries": len(queries),
            "layouts": sum(bool(read & set(layout.columns)) for layout in plan.scheme.layouts),
            "features": len(plan.features.features),
            "matching": evaluation.totals.rows_matching,
            "planning_seconds": planned["seconds"],
            "peak_bytes": planned["peak_bytes"],
        }

    def dry_run(self, plans: Sequence[Plan]) -> list[Table]:
        """Return the tables that loads by plans would make, of the columns that test queries read, in one pass."""
        from layoutopt.planning.dry_run import dry_run_loads
        from layoutopt.spark.loading.load import open_in_tasks

        read = {name for query in self.test_queries() for name in query.columns}
        return dry_run_loads(open_in_tasks(self.spark(), str(self.source.path), plans[0]), plans, read)

    def _rehearsal(self, variants: Sequence[Variant]) -> Step:
        """Plan variants with the same partitions and measure the blocks that loads would make, in one pass.

        The product has under ``tables``, by the names of the variants' folders, what :meth:`evaluation` says of each.
        """
        names, column = [self.folder(variant).name for variant in variants], variants[0].partition_by

        def make() -> Json:
            plans = [self.plan_of(variant) for variant in variants]
            tables = self.dry_run(plans)
            nothing = {"loading_seconds": None, "storage_bytes": None}
            return {
                "tables": {
                    name: {**self._evaluate(variant, table, counts_rows=False), **nothing}
                    for name, variant, table in zip(names, variants, tables, strict=True)
                }
            }

        count = "1 table" if len(variants) == 1 else f"{len(variants)} tables"
        partitions = "without partitions" if column is None else f"by {column}"
        labels = ", ".join(variant.label for variant in variants)
        key = key_of(f"rehearsed {self.name} {column or 'whole'}", {"tables": sorted(names)})
        return self.step(f"rehearsing {count} {partitions}: {labels}", f"{key}.json", make, *map(self.plan, variants))

    def tables(self, variants: Sequence[Variant]) -> Tables:
        """Return the evaluations of variants, written or rehearsed as each says; rehearsals share a step."""
        counted = [variant for variant in variants if not variant.written]
        columns = dict.fromkeys(variant.partition_by for variant in counted)
        rehearsals = [self._rehearsal([one for one in counted if one.partition_by == column]) for column in columns]
        written = {variant.label: self.evaluation(variant) for variant in variants if variant.written}

        def read() -> Evaluated:
            rehearsed = {name: table for step in rehearsals for name, table in step.read()["tables"].items()}
            return {
                variant.label: written[variant.label].read()
                if variant.written
                else rehearsed[self.folder(variant).name]
                for variant in variants
            }

        return Tables([*rehearsals, *written.values()], read)

    def matching(self, column: str) -> Step:
        """Count the rows that each test query matches in each partition of a column, by Spark without skipping."""

        def make() -> Json:
            view, filters = "layoutopt_counted", [query.sql.partition(" WHERE ")[2] for query in self.queries(TEST)]
            counts = ", ".join(f"count_if({condition}) AS m{i}" for i, condition in enumerate(filters))
            self.spark().read.parquet(str(self.source.path)).createOrReplaceTempView(view)
            rows = self.spark().sql(f"SELECT {counts} FROM {view} GROUP BY {column}").collect()
            self.spark().catalog.dropTempView(view)
            return {"rows": [list(row) for row in rows]}

        product = f"{key_of(self.name, {})}-matching-{column}.json"
        return self.step(f"counting the rows that match by {column}", product, make)

    def vectors(self, numbers: Sequence[int], column: str) -> Step:
        """Count the distinct feature vectors of partitions by so many features, the heaviest, that guide SOP.

        The product has for each number the ``mean`` over the partitions, the ``most``, and how many are ``guiding``.
        """

        def make() -> Json:
            from layoutopt.planning.plan import guiding_features
            from layoutopt.planning.source_profile import CountRequest, count_histograms, select_heaviest

            product = {}
            for number in numbers:
                document = self.document()
                document = replace(document, features=select_heaviest(document.features, number))
                queries, rows = tuple(group_queries(document.queries)), self.source_rows(document.schema, column)
                counting = CountRequest(rows, queries, document.schema, _ALL_VECTORS, print)
                kept, partitions = count_histograms(counting, guiding_features(document, "sop", None))
                counts = [len(partition.vectors) for partition in partitions]
                product[str(number)] = {"mean": mean(counts), "most": max(counts), "guiding": len(kept)}
            return product

        key = key_of(f"vectors {self.name}", {"numbers": list(numbers), "partition_by": column})
        return self.step(f"counting feature vectors of {column}", f"{key}.json", make, self.features())

    def reading(self, variants: Sequence[Variant]) -> Step:
        """Read the test queries' rows from each variant's table by layoutopt's own reader, in turns.

        The product has by label ``seconds``, by round and query, and what :func:`memory_of` says.

        Raises:
            WrongAnswerError: tables gave different numbers of rows.
        """

        def make() -> Json:
            from layoutopt.scan.table import open_table

            texts = [query.sql for query in self.queries(TEST)]
            tables = {variant.label: open_table(str(self.folder(variant) / "table")) for variant in variants}
            product: dict[str, dict[str, Any]] = {
                label: {**memory_of(table, texts), "seconds": []} for label, table in tables.items()
            }
            if len({read["rows"] for read in product.values()}) > 1:
                raise WrongAnswerError(f"{self.name}: tables have {[read['rows'] for read in product.values()]} rows")
            for _ in range(READING_ROUNDS):
                for label, table in tables.items():
                    product[label]["seconds"].append([seconds_of(table.scan(text).to_arrow) for text in texts])
            return product

        labels = [variant.label for variant in variants]
        names = [self.folder(variant).name for variant in variants]
        key = key_of(f"read {self.name}", {"tables": names, "rounds": READING_ROUNDS})
        name = f"reading the rows of the test log from {', '.join(labels)}"
        return self.step(name, f"{key}.json", make, *map(self.load, variants))

    def rewrite(self, block_rows: int) -> Step:
        """Rewrite the source as it is: what a table's loading time and storage are compared with."""

        def make() -> Json:
            scratch = self.source.folder / "scratch"
            seconds = spark_rewrite_seconds(self.spark(), self.source.path, scratch)
            return {"seconds": seconds, "bytes": rewritten_bytes(self.source.path, scratch, block_rows)}

        name = f"rewriting the source as it is, in row groups of {block_rows} rows"
        return Step(name, self.source.folder / f"rewritten-{block_rows}.json", make, (self.source.made,))


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def memory_of(table: Table, texts: Sequence[str]) -> dict[str, Any]:
    """Return the peak bytes of Arrow's memory of each query: ``peaks``, their ``mean`` and the ``most``.

    ``rows`` are those of all answers, ``assembled`` the number of queries that read several layouts.
    """
    table.sql(texts[0])  # what is read once for all queries belongs to none
    peaks, assembled, rows = [], 0, 0
    default = pa.default_memory_pool()
    for text in texts:
        scan = table.scan(text)
        paths = [path for read in scan.explain().reads for path in read.layouts]
        assembled += any(len(path["columns"]) > 1 for path in paths)
        pool = pa.proxy_memory_pool(default)
        pa.set_memory_pool(pool)
        try:
            rows += scan.to_arrow().num_rows
            peaks.append(pool.max_memory() or 0)
        finally:
            pa.set_memory_pool(default)
    return {"peaks": peaks, "mean": mean(peaks), "most": max(peaks), "assembled": assembled, "rows": rows}


def size_of(folder: Path) -> int:
    """Return the bytes of all files under a folder but hidden ones (Spark's checksum files)."""
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))
    )


def without_templates(texts: Callable[[str], Sequence[str]], role: str) -> list[LoggedQuery]:
    """Return the texts of a role as queries that belong to no template."""
    return [LoggedQuery("", text) for text in texts(role)]


def write_log(queries: Sequence[LoggedQuery], path: Path) -> None:
    """Write a query log of JSON lines with `sql` and `user`, the template's name where there is one."""
    users = [{"user": query.template} if query.template else {} for query in queries]
    lines = [json.dumps({"sql": query.sql, **user}) for query, user in zip(queries, users, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def spark_rewrite_seconds(spark: SparkSession, source: Path, scratch: Path) -> float:
    """Return the seconds in which Spark reads a Parquet folder and writes it again; the copy is deleted."""
    rewrite = spark.read.parquet(str(source)).write.mode("overwrite").option("compression", "zstd")
    seconds = seconds_of(partial(rewrite.parquet, str(scratch)))
    shutil.rmtree(scratch)
    return seconds


def rewritten_bytes(source: Path, scratch: Path, group_rows: int) -> int:
    """Return the bytes of a Parquet folder rewritten by pyarrow in its own order, in row groups of so many rows.

    The scratch file is deleted afterwards.
    """
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    dataset = ds.dataset(source, format="parquet")
    scratch.parent.mkdir(parents=True, exist_ok=True)
    waiting: pa.Table = dataset.schema.empty_table()
    with pq.ParquetWriter(scratch, dataset.schema, compression="zstd") as writer:
        for batch in dataset.to_batches(batch_size=max(group_rows, 64_000)):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            whole = waiting.num_rows // group_rows * group_rows
            writer.write_table(waiting.slice(0, whole), row_group_size=group_rows)
            waiting = waiting.slice(whole)
        writer.write_table(waiting, row_group_size=group_rows)
    size = scratch.stat().st_size
    scratch.unlink()
    return size


def scanned(table: Mapping[str, Any], unit: str) -> int:
    """Return what the test queries read of an evaluated table: ``rows``, ``cells``, ``tids`` or ``bytes``."""
    return int(table["evaluation"]["totals"][f"{unit}_scanned"])


def full_scan(table: Mapping[str, Any], unit: str) -> int:
    """Return what the test queries would read of an evaluated table without skipping."""
    return int(table["full_scan"][f"{unit}_scanned"])


def table_details(tables: Evaluated) -> tuple[dict[str, object], ...]:
    """Return a line for each evaluated table: shares of a full scan's rows and cells, and bytes."""

    def percent(part: float, whole: float) -> float:
        return round(100 * part / whole, 4)

    return tuple(
        {
            "method": label,
            "rows, % of a full scan": percent(scanned(table, "rows"), full_scan(table, "rows")),
            "cells, %": percent(scanned(table, "cells"), full_scan(table, "cells")),
            "tids, % of the cells": percent(scanned(table, "tids"), full_scan(table, "cells")),
            "bytes read, MB": round(scanned(table, "bytes") / 1e6, 3),
            "bytes of a full scan of it, MB": round(full_scan(table, "bytes") / 1e6, 3),
            "planning, s": round(table["planning_seconds"], 1),
        }
        for label, table in tables.items()
    )


def mean_seconds(rounds: Sequence[Sequence[float]]) -> float:
    """Return the seconds of an average query: the mean over the rounds, as the thesis has it (4.7.3)."""
    return float(mean(mean(queries) for queries in rounds))
