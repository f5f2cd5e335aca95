"""The steps of one experiment: a stream's features, and a table of it planned, loaded and evaluated."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from layoutopt.bench.rewrite import rewritten_bytes, spark_rewrite_seconds
from layoutopt.bench.steps import Json, Step, key_of, run
from layoutopt.bench.tpch.data import TpchData
from layoutopt.bench.tpch.queries import (
    STREAMS,
    TABLE,
    TEST_QUERIES,
    TRAINING_QUERIES,
    StreamQuery,
    draw_stream,
    write_log,
)
from layoutopt.model.documents import FeaturesDocument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.features.selection import Selection
    from layoutopt.model.query import Query
    from layoutopt.model.schema import Schema
    from layoutopt.scan.table import Table

SEED: Final = 0
MAX_VECTORS: Final = 3_000  # twice the thesis's 1,315: Ward's time grows with the square, and a load runs it 80 times
NUM_FEATURES: int | None = None
"""The most features; None for as many as `analyze` finds by itself. Tests set fewer."""
UNORDERED: Final = ("none",)
"""The row order of variants whose rows within blocks stay as the blocking leaves them."""
MONTH_BLOCK_ROWS: Final = 700  # about 100 blocks a month at scale factor 1, as in 3.7.3


@dataclass(frozen=True)
class Variant:
    """A method with its parameters: one way to lay out the table.

    Attributes:
        label: its name in tables.
        method: as `--method` takes it.
        partition_by: the date partition's column; None leaves the source's order in one partition.
        block_rows: the mean rows of a block.
        by: the columns of the methods that order rows.
        max_vectors: the most distinct feature vectors of a segment; the plan gives up features beyond that.
        features: False plans without features, so that all skipping is by partitions, minima and maxima.
        written: False measures every block that a load would make, but writes no table: rows, cells and tids are the
            same, bytes are estimated from an encoded sample.
        budget: the storage budget of methods with copies.
        num_features: the table has only so many of the stream's features, the heaviest; None is all.
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


SOP_BY_MONTH: Final = Variant("SOP", "sop", "o_month", MONTH_BLOCK_ROWS)


@dataclass(frozen=True)
class Bench:
    """What the steps share: the data, where products go, and a Spark session made when first asked for."""

    data: TpchData
    spark: Callable[[], SparkSession]

    @property
    def folder(self) -> Path:
        """The products of this scale factor."""
        return self.data.folder / "experiments"

    def log(self, stream: str, role: str) -> Path:
        """The query log of a stream: `train` or `test`."""
        return self.data.root / "streams" / f"{stream}-{role}.jsonl"


def stream_for_testing(stream: str) -> tuple[StreamQuery, ...]:
    """Draw a stream's test queries: in a log, and in an evaluation, a query's id is its place here."""
    return draw_stream(STREAMS[stream], "test", TEST_QUERIES, SEED)


def write_stream(bench: Bench, stream: str, role: str) -> Path:
    """Write a stream's log, `train` or `test`; returns its path."""
    path = bench.log(stream, role)
    training = draw_stream(STREAMS[stream], "train", TRAINING_QUERIES, SEED)
    write_log(training if role == "train" else stream_for_testing(stream), path)
    return path


def read_test_queries(bench: Bench, stream: str) -> tuple[Query, ...]:
    """Write a stream's test log, and analyse it against the denormalised table's schema."""
    from layoutopt.sql.schema import schema_from
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    log = write_stream(bench, stream, "test")
    return analyze(read_log(log), schema_from(str(bench.data.denormalised)), TABLE).queries


def data_step(bench: Bench) -> Step:
    """Generate and denormalise the data."""
    from layoutopt.bench.tpch.data import prepare

    def make() -> Json:
        prepare(bench.spark(), bench.data, lambda _: None)
        return {"scale": bench.data.scale, "bytes": size_of(bench.data.denormalised)}

    name = f"generating TPC-H at scale factor {bench.data.scale:g} and denormalising it"
    return Step(name, bench.folder / "data.json", make)


def features_step(bench: Bench, stream: str, selection: Selection = "coverage") -> Step:
    """Analyse a training stream as `layoutopt analyze --selection` does; the product is its features.json."""
    product = bench.folder / f"{stream}-features{'' if selection == 'coverage' else f'-{selection}'}.json"

    def make() -> Json:
        return analysed(bench, write_stream(bench, stream, "train"), selection)

    return Step(f"{stream}: analysing the training stream", product, make, (data_step(bench),))


def analysed(bench: Bench, log: Path, selection: Selection = "coverage") -> Json:
    """The features.json of a log of the denormalised table."""
    from layoutopt.config.settings import AnalyzeSettings
    from layoutopt.features.analysis import analyze_log

    settings = AnalyzeSettings(
        log=str(log),
        schema_source=str(bench.data.denormalised),
        table=TABLE,
        num_features=NUM_FEATURES,
        selection=selection,
    )
    document: Json = analyze_log(settings).document.to_json()
    return document


def read_features(bench: Bench, stream: str, say: Callable[[str], None]) -> FeaturesDocument:
    """A training stream's features document, made where it is not there."""
    step = features_step(bench, stream)
    run(step, say)
    return FeaturesDocument.loads(step.product.read_bytes())


def source_rows(bench: Bench, schema: Schema) -> DataFrame:
    """The denormalised table in Spark, as a features document has its columns."""
    from layoutopt.spark.core.source import conformed, open_source

    return conformed(open_source(bench.spark(), str(bench.data.denormalised)), schema, "the features")


def _planned_for(stream: str, variant: Variant) -> str:
    """Name the stream whose features a table is planned with; without features all streams share one table."""
    return stream if variant.features else next(iter(STREAMS))


def table_folder(bench: Bench, stream: str, variant: Variant) -> Path:
    """Name the folder of a variant's products: different for different parameters."""
    stream = _planned_for(stream, variant)
    since = [name for name in ("num_features", "row_order") if getattr(variant, name) is None]
    # Folders are called as they were before there were such parameters.
    parameters = {name: value for name, value in asdict(variant).items() if name not in since} | {"stream": stream}
    return bench.folder / key_of(f"{variant.label} {stream}", parameters)


def plan_step(bench: Bench, stream: str, variant: Variant) -> Step:
    """Plan one variant with the features of a stream."""
    planned_for = _planned_for(stream, variant)
    folder = table_folder(bench, stream, variant)
    features = features_step(bench, planned_for)
    return Step(
        f"{planned_for}: planning {variant.label}",
        folder / "planned.json",
        partial(make_plan_file, bench.spark, bench.data.denormalised, variant, features.product, folder),
        (data_step(bench), features),
    )


def table_step(bench: Bench, stream: str, variant: Variant) -> Step:
    """Plan, load and evaluate one variant on one stream; the last product is the evaluation on the test stream."""
    folder = table_folder(bench, stream, variant)
    load = Step(
        f"{_planned_for(stream, variant)}: loading {variant.label}",
        folder / "loaded.json",
        lambda: load_table(bench.spark(), bench.data.denormalised, folder),
        (plan_step(bench, stream, variant),),
    )
    return Step(
        f"{stream}: evaluating {variant.label} on the test stream",
        folder / f"evaluated-{stream}.json",
        partial(evaluate_table, bench, stream, folder),
        (load,),
    )


def make_plan_file(
    spark: Callable[[], SparkSession], source: Path, variant: Variant, features: Path, folder: Path
) -> Json:
    """Make a variant's `plan.json` for a source in `folder`; returns what it took, by stage too, and predicts.

    Plans of the same source and features share what they find; ``seconds`` are what it would have taken alone, or more.
    """
    from layoutopt.bench.tpch.sharing import known_of
    from layoutopt.config.settings import FILE_BYTES
    from layoutopt.methods.interface import PlanRequest
    from layoutopt.model.documents import FeaturesDocument
    from layoutopt.model.feature import FeatureSet
    from layoutopt.spark.planning.plan import make_plan, propose_plan
    from layoutopt.spark.planning.source_profile import heaviest

    document = FeaturesDocument.loads(features.read_bytes())
    if not variant.features:
        document = replace(document, features=FeatureSet((), document.features.settings))
    if variant.num_features is not None:
        document = replace(document, features=heaviest(document.features, variant.num_features))
    request = PlanRequest(
        method=variant.method,
        partition_by=variant.partition_by,
        block_rows=variant.block_rows,
        by=variant.by,
        max_vectors=variant.max_vectors,
        seed=SEED,
        storage_budgets=(variant.budget or 1.0,),
        copies=int(variant.budget or 2),
        row_order=variant.row_order,
    )
    known = known_of(str(source), document.dumps())
    known.method = variant.method
    said = [("starting", time.perf_counter())]
    if variant.row_order == UNORDERED:  # its rows and cells are counted, not its bytes
        planned = propose_plan(spark(), str(source), document, request, known)
    else:
        planned = make_plan(
            spark(),
            str(source),
            document,
            request,
            lambda sentence: said.append((sentence, time.perf_counter())),
            known,
        )
    plan = replace(planned, file_bytes=FILE_BYTES)
    said.append(("done", time.perf_counter()))
    stages = {name: round(end - start, 3) for (name, start), (_, end) in pairwise(said)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_bytes(plan.dumps())
    seconds = said[-1][1] - said[0][1]
    return {
        "seconds": known.charge(seconds),
        "own_seconds": seconds,
        "stages": stages,
        "digest": plan.digest,
        "predicted": dict(plan.predicted),
    }


def load_table(spark: SparkSession, source: Path | str, folder: Path) -> Json:
    """Load `folder/table` by `folder/plan.json`, afresh; returns the seconds that it took and the bytes stored."""
    from layoutopt.model.layout import Plan
    from layoutopt.spark.loading.load import load

    table = folder / "table"
    shutil.rmtree(table, ignore_errors=True)
    plan = Plan.loads((folder / "plan.json").read_bytes())
    started = time.perf_counter()
    load(spark, str(source), str(table), plan)
    return {"seconds": time.perf_counter() - started, "bytes": size_of(table / "data")}


def evaluate_table(bench: Bench, stream: str, folder: Path) -> Json:
    """Replay the test stream on a loaded table, and give what its plan and its load took."""
    from layoutopt.scan.table import open_table

    table = open_table(str(folder / "table"))
    planned, loaded = (json.loads((folder / name).read_text()) for name in ("planned.json", "loaded.json"))
    return {
        **replay(bench, stream, table),
        "planning_seconds": planned["seconds"],
        "loading_seconds": loaded["seconds"],
        "storage_bytes": loaded["bytes"],
    }


def replay(bench: Bench, stream: str, table: Table) -> dict[str, object]:
    """Replay the test stream on a table's catalog, and once more without filters, which is a full scan."""
    from layoutopt.inspect.evaluate import evaluate
    from layoutopt.model.predicates import TRUE, Filter

    queries = read_test_queries(bench, stream)
    return {
        "evaluation": evaluate(table, queries),
        "full_scan": evaluate(table, [replace(query, filter=Filter.of(TRUE)) for query in queries])["totals"],
        "source_bytes": size_of(bench.data.denormalised),
    }


def rewrite_step(bench: Bench, block_rows: int) -> Step:
    """Rewrite the source as it is: what a table's loading time and storage are compared with."""

    def make() -> Json:
        scratch = bench.folder / "scratch"
        seconds = spark_rewrite_seconds(bench.spark(), bench.data.denormalised, scratch)
        return {"seconds": seconds, "bytes": rewritten_bytes(bench.data.denormalised, scratch, block_rows)}

    name = f"rewriting the source as it is, in row groups of {block_rows} rows"
    return Step(name, bench.folder / f"rewritten-{block_rows}.json", make, (data_step(bench),))


def matching_step(bench: Bench, stream: str) -> Step:
    """Count the rows of the source that the test stream's filters match, by Spark: no skipping is trusted here."""

    def make() -> Json:
        from layoutopt.bench.tpch.denormalise import count_matching

        filters = [query.sql.partition(" WHERE ")[2] for query in stream_for_testing(stream)]
        return {
            "rows": count_matching(bench.spark(), bench.data.denormalised, filters),
            "columns": [len(query.columns) for query in read_test_queries(bench, stream)],
        }

    name = f"{stream}: counting the rows that match"
    return Step(name, bench.folder / f"{stream}-matching.json", make, (data_step(bench),))


def size_of(folder: Path) -> int:
    """Count the bytes of all files under a folder, hidden ones (Spark's checksum files) left out."""
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))
    )
