"""Analyse a log, plan, load and change tables from Python, as the command line does.

Each function takes the attributes of a request as keyword arguments, and returns what the verb prints.

A source is a path, the name of a table of another format, a DataFrame of Spark, pandas or Polars, or a table of Arrow.

An ``executor`` is ``auto``, ``local``, ``spark``, or a SparkSession. ``auto`` takes processes of this machine for plain
sources of up to 10 million rows, and Spark for the others. ``progress`` gets a sentence as each stage begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layoutopt.api.execution import AUTO, SPARK, open_execution
from layoutopt.api.held_rows import AnySource, is_of_spark, is_on_this_machine, read_source_schema, source_name
from layoutopt.api.options import make_request, takes_options
from layoutopt.events import Progress, silent
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.requests import (
    AnalyzeRequest,
    AppendRequest,
    DeleteRequest,
    LoadRequest,
    MergeRequest,
    OptimizeRequest,
    UpdateRequest,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.changes.commit import ChangeReport
    from layoutopt.features.analysis import Features
    from layoutopt.inspect.evaluate import Evaluation
    from layoutopt.loading.append import AppendReport
    from layoutopt.loading.load import LoadsReport
    from layoutopt.model.layout import Plan
    from layoutopt.model.query import Query
    from layoutopt.model.udf import Udf
    from layoutopt.scan.table import Table
    from layoutopt.spark.changes.optimize import OptimizeReport
    from layoutopt.workload.analyze import Analysis


@takes_options(AnalyzeRequest, "log")
def analyze(log: str | Path, schema: AnySource, *, udfs: Sequence[Udf] = (), **options: Any) -> Features:
    """Find the features of a query log.

    Args:
        log: the file of statements.
        schema: the table's columns: a source, a file of DDL, or DDL.
        udfs: user-defined functions that statements call, declared by :func:`layoutopt.udf`.

    Raises:
        LogError: the log is unreadable or empty, no statement is usable, or no filter helps enough queries.
        SchemaError, SourceError: the schema can't be read.
        SettingError: an option is wrong.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder, "log.sql")
    ...     _ = log.write_text("SELECT a FROM t WHERE b = 1;" * 4)
    ...     analyze(log, "CREATE TABLE t (a INT, b INT)")
    Features(table='t', statements_used=4, statements_skipped=0, features=1)
    """
    from layoutopt.features.analysis import analyze_log

    request = make_request(AnalyzeRequest, options, log=str(log))
    return analyze_log(request, read_source_schema(schema, request.table), udfs)


@takes_options(PlanRequest)
def plan(
    source: AnySource,
    features: Features | FeaturesDocument | str | Path,
    *,
    executor: str | SparkSession = AUTO,
    progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Choose a layout for a table.

    Args:
        source: the rows.
        features: what :func:`analyze` found, or a file of it.
        executor: ``auto``, ``local``, ``spark``, or a SparkSession.
        progress: gets a sentence as each stage begins.

    Raises:
        SettingError, PlanError, SchemaError, SourceError: as :func:`layoutopt.planning.plan.make_plan`.
    """
    request, document = make_request(PlanRequest, options), _find_document(features)
    execution = open_execution(executor, source)
    if is_of_spark(source) and (execution.executor == SPARK or not is_on_this_machine(source)):
        return execution.plan(source, document, request, progress or silent)
    with source_name(source) as name:
        return execution.plan(name, document, request, progress or silent)


def _find_document(features: Features | FeaturesDocument | str | Path) -> FeaturesDocument:
    if isinstance(features, str | Path):
        from layoutopt.config.documents import read_features

        return read_features(Path(features))
    return features if isinstance(features, FeaturesDocument) else features.document


@takes_options(LoadRequest, "source", "table_path", "plan")
def load(
    source: AnySource,
    table: str | Path,
    plan: Plan | str | Path | None = None,
    *,
    executor: str | SparkSession = AUTO,
    progress: Progress | None = None,
    **options: Any,
) -> LoadsReport:
    """Load a source's partitions into a table, each once however often it is called.

    Args:
        source: the rows. A DataFrame of a cluster has to be written first.
        table: the table's folder or URL, created where missing.
        plan: the layout, or a file of it; by default the table's newest one.
        executor: ``auto``, ``local``, ``spark``, or a SparkSession.
        progress: gets a sentence as each stage begins.

    Raises:
        AlreadyLoadedError: a partition has other rows, and ``replace`` is not set.
        LayoutoptError: as :func:`layoutopt.loading.load.run_load`.
    """
    plan = Path(plan) if isinstance(plan, str) else plan
    with source_name(source) as name:
        request = make_request(LoadRequest, options, source=name, table_path=str(table), plan=plan)
        return _name_rows(open_execution(executor, source).load(request, progress or silent), source)


def _name_rows(report: LoadsReport, source: AnySource) -> LoadsReport:
    return report if isinstance(source, str | Path) else replace(report, source=type(source).__name__)


@takes_options(AppendRequest, "source", "table_path")
def append(
    table: str | Path,
    source: AnySource,
    *,
    executor: str | SparkSession = AUTO,
    progress: Progress | None = None,
    **options: Any,
) -> AppendReport:
    """Append a batch of rows to a table, once for each ``batch_id``.

    Args:
        table: the table's folder or URL.
        source: the rows. Without a ``batch_id``, rows of a DataFrame are another batch at each call.
        executor: ``auto``, ``local``, ``spark``, or a SparkSession.
        progress: gets a sentence as each stage begins.

    Raises:
        LayoutoptError: as :func:`layoutopt.loading.append.append_rows`.
    """
    with source_name(source) as name:
        request = make_request(AppendRequest, options, source=name, table_path=str(table))
        return open_execution(executor, source).append(request, progress or silent)


@takes_options(DeleteRequest, "table_path")
def delete(
    table: str | Path, *, executor: str | SparkSession = AUTO, progress: Progress | None = None, **options: Any
) -> ChangeReport:
    """Delete the rows of a table for which a condition is TRUE.

    Raises:
        LayoutoptError: as :func:`layoutopt.changes.verbs.change_rows`.
    """
    request = make_request(DeleteRequest, options, table_path=str(table))
    return open_execution(executor).change(request, progress or silent)


@takes_options(UpdateRequest, "table_path")
def update(
    table: str | Path, *, executor: str | SparkSession = AUTO, progress: Progress | None = None, **options: Any
) -> ChangeReport:
    """Assign new values to columns of some rows of a table.

    Raises:
        LayoutoptError: as :func:`layoutopt.changes.verbs.change_rows`.
    """
    request = make_request(UpdateRequest, options, table_path=str(table))
    return open_execution(executor).change(request, progress or silent)


@takes_options(MergeRequest, "source", "table_path")
def merge(
    table: str | Path,
    source: AnySource,
    *,
    executor: str | SparkSession = AUTO,
    progress: Progress | None = None,
    **options: Any,
) -> ChangeReport:
    """Replace the rows of a table that have a key of a source, and insert the source's other rows.

    Raises:
        LayoutoptError: as :func:`layoutopt.changes.verbs.change_rows`.
    """
    with source_name(source) as name:
        request = make_request(MergeRequest, options, source=name, table_path=str(table))
        return open_execution(executor, source).change(request, progress or silent)


@takes_options(OptimizeRequest, "table_path")
def optimize(
    table: str | Path, *, executor: str | SparkSession = AUTO, progress: Progress | None = None, **options: Any
) -> OptimizeReport:
    """Rewrite the partitions of a table of which queries gain most.

    Raises:
        LayoutoptError: as :func:`layoutopt.spark.changes.optimize.optimize_table`.
    """
    from layoutopt.spark.changes.optimize import optimize_table

    request = make_request(OptimizeRequest, options, table_path=str(table))
    return optimize_table(open_execution(executor).spark, request, progress or silent)


def evaluate(
    table: Table | str | Path,
    log: str | Path | Iterable[Query],
    actual: bool = False,
    progress: Callable[[int, int], None] | None = None,
    dialect: str = "spark",
    *,
    column: str | None = None,
    half_life: str | None = None,
) -> Evaluation:
    """Return what each query of a log would read of a table.

    Args:
        table: the table, or its path.
        log: the file of statements, or analysed queries.
        actual: also count the matching rows, by reading the table once.
        progress: called with (queries done, all queries).
        dialect: the log's SQL dialect.
        column, half_life: as of :func:`analyze`.

    Raises:
        LogError: the log is unreadable or empty, or no statement is usable.
        DataFileError: a data file is missing or damaged.
    """
    from layoutopt.inspect.evaluate import evaluate as evaluate_queries
    from layoutopt.scan.table import open_own_table

    table = open_own_table(str(table)) if isinstance(table, str | Path) else table
    if isinstance(log, str | Path):
        log = analyze_table_log(table, str(log), column, dialect, half_life).queries
    return evaluate_queries(table, log, actual, progress, dialect)


def analyze_table_log(
    table: Table, log: str, column: str | None, dialect: str, half_life: str | None = None
) -> Analysis:
    """Return the analysis of a log's queries on a table; a half-life lowers the weights of older ones."""
    from layoutopt.workload.analyze import analyze as analyze_queries
    from layoutopt.workload.log import decay_weights, read_log

    entries = read_log(log, column=column, dialect=dialect)
    analysis = analyze_queries(entries, table.schema, table.name, dialect, table.settings, table.udfs)
    if half_life is None:
        return analysis
    from layoutopt.config.fields import parse_age

    return replace(analysis, queries=decay_weights(analysis.queries, parse_age(half_life), table.settings.time_zone))
