"""Tables of TPC-H streams, and the source's answers to their unseen queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.bench.experiment import SEED, LoggedQuery, write_log
from jobs.bench.tpch_queries import TABLE, TEMPLATES, TEST_QUERIES, Stream, draw_stream
from layoutopt.features.analysis import analyze_log
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.requests import AnalyzeRequest
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.loading.load import load
from layoutopt.sql.schema import schema_from
from tests.effort import examples
from tests.spark.plans import make_plan
from tests.spark.settings import UNCOMPILED, under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TRAINING: Final = 20  # queries a template

QUERIES: Final = examples(TEST_QUERIES)  # unseen ones, a template

BLOCK_ROWS: Final = 300  # so that a year of 9,000 rows has some thirty blocks

# Read by no query: the group that nothing asks for has to be somewhere, too.
UNREAD: Final = ("l_linenumber", "l_comment", "s_suppkey")


@dataclass(frozen=True)
class Making:
    """How a table is made: by which method, for how many training queries of which templates."""

    method: str
    templates: tuple[str, ...]
    budget: float = 1.2
    training: int = TRAINING


@dataclass(frozen=True, eq=False)
class Case:
    """A loaded table, the stream to ask it, and the source's answers in the stream's order."""

    table: Table
    folder: Path
    queries: tuple[LoggedQuery, ...]
    answers: tuple[pa.Table, ...]

    def of(self, template: str) -> list[tuple[LoggedQuery, pa.Table]]:
        """The template's queries with their answers."""
        pairs = zip(self.queries, self.answers, strict=True)
        return [(query, answer) for query, answer in pairs if query.template == template]


def selected(query: LoggedQuery) -> list[str]:
    return [name.strip() for name in TEMPLATES[query.template].select.split(",")]


def source_answers(spark: SparkSession, source: str, queries: tuple[LoggedQuery, ...]) -> tuple[pa.Table, ...]:
    """Every query's rows, by one pass that notes for each row which queries want it."""
    columns = list(dict.fromkeys(name for query in queries for name in selected(query)))
    wanted = [f"if({query.sql.partition(' WHERE ')[2]}, {place}, NULL)" for place, query in enumerate(queries)]
    with under(spark, UNCOMPILED):  # more conditions than Java has room for in a method
        noted = spark.read.parquet(source).selectExpr(*columns, f"array_compact(array({', '.join(wanted)})) AS by")
        rows = noted.where("size(by) > 0").toArrow().combine_chunks()
    row, query_of = pc.list_parent_indices(rows["by"]), pc.list_flatten(rows["by"])
    return tuple(
        rows.select(selected(query)).take(row.filter(pc.equal(query_of, place))) for place, query in enumerate(queries)
    )


def multiset(rows: pa.Table) -> pa.Table:
    """The distinct rows in order, each with how often it occurs."""
    names = rows.column_names
    plain = pa.table({name: rows[name] for name in names})  # an engine's word on what may be NULL is left out
    counted = plain.group_by(names).aggregate([([], "count_all")])
    return counted.sort_by([(name, "ascending") for name in names])


def check(case: Case, template: str, answer: Callable[[str], pa.Table]) -> None:
    """Compare an engine's answers to a template's queries with the source's."""
    for query, expected in case.of(template):
        found = multiset(answer(query.sql))
        wanted = multiset(expected)
        assert found.schema.names == wanted.schema.names
        assert found.schema.types == wanted.schema.types
        assert found.equals(wanted), f"{query.sql}: {found.num_rows} distinct rows, not {wanted.num_rows}"


def write_source(
    spark: SparkSession, denormalised: str, queries: Iterable[LoggedQuery], path: str, where: str = "true"
) -> str:
    """Write rows of the denormalised table, less most of the columns that none of these queries reads."""
    texts = [query.sql for query in queries]
    every = schema_from(denormalised)
    read = {name for name in every.names if any(name in sql for sql in texts)}
    names = [name for name in every.names if name in read or name in (*UNREAD, "o_year")]
    spark.read.parquet(denormalised).where(where).select(names).write.parquet(path)
    return path


def asked(templates: Iterable[str]) -> tuple[LoggedQuery, ...]:
    """The unseen queries of some templates: half as many of each in `make test`."""
    return draw_stream(Stream(tuple(templates)), "test", QUERIES, SEED)


def make_case(
    spark: SparkSession, making: Making, source: str, folder: Path, others: tuple[LoggedQuery, ...] = ()
) -> Case:
    """Plan and load by training queries; what is asked are unseen ones, and others."""
    write_log(draw_stream(Stream(making.templates), "train", making.training, SEED), folder / "train.jsonl")
    request = AnalyzeRequest(log=str(folder / "train.jsonl"), table=TABLE)
    document = analyze_log(request, schema_from(source)).document
    plan = make_plan(
        spark,
        source,
        document,
        PlanRequest(
            method=making.method,
            partition_by="o_year",
            block_rows=BLOCK_ROWS,
            max_vectors=500,
            storage_budget=(making.budget,),
        ),
    )
    load(spark, source, folder / "table", plan)
    queries = (*asked(making.templates), *others)
    answers = source_answers(spark, source, queries)
    return Case(open_table(str(folder / "table")), folder, queries, answers)
