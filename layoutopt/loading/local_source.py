"""Open Parquet files of this machine for tasks that read them by Arrow, also those of Delta and Iceberg tables.

They are opened only where Arrow surely reads them as Spark does (:mod:`layoutopt.sources.parquet_files`); others raise
NeedsSparkError before anything is written. DuckDB's own reader of Parquet is the second one, which proves a load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.partition_names import PlainValue, parse_plain_value
from layoutopt.catalog.storage.filesystem import absolute, is_url
from layoutopt.catalog.storage.footers import ENCRYPTED
from layoutopt.errors import LayoutoptError, NeedsSparkError, SettingError, SourceError
from layoutopt.evaluation.expressions import select_for_spark
from layoutopt.external.formats import parse_source_name
from layoutopt.external.source_check import is_elsewhere
from layoutopt.loading.load import LoadSource
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import Plan
from layoutopt.sources.door import Door, refuse_spark
from layoutopt.sources.executor import Executor, Processes
from layoutopt.sources.listing import estimate_rows, list_source_files
from layoutopt.sources.parquet_files import check_columns, list_visible
from layoutopt.sources.shuffle import LEAST_ROWS
from layoutopt.sources.source import IsNeeded, Source, list_versions, need_all, open_files, set_aside
from layoutopt.sources.vectors import check_features_by_arrow
from layoutopt.sql.schema import folder_values, list_files

# Counting more takes as long as Spark takes to start.
_MOST_FILES: Final = 1_000
_MOST_ROWS: Final = 10_000_000
_NONE: Final[Mapping[PlainValue, LayoutoptError]] = MappingProxyType({})


def open_door(source: str, plan: Plan, is_needed: IsNeeded = need_all) -> Door[LoadSource]:
    """Return the door of a load by processes of this machine: what only Spark reads is refused."""
    return Door(lambda _: open_local(source, plan, is_needed=is_needed), partial(refuse_spark, source))


def open_local(
    source: str,
    plan: Plan,
    executor: Executor | None = None,
    *,
    most_rows: int | None = None,
    counts_here: bool = False,
    is_needed: IsNeeded = need_all,
) -> Source:
    """Open a source of Parquet files. Partitions in folders with a damaged file don't stop the others.

    Args:
        source: a path, or the name of a table.
        plan: the layout to load by.
        executor: reads the files; None for processes of this machine, as many as the rows are worth.
        most_rows: more are refused; None for no bound.
        counts_here: whether processes of this machine count few rows, so that Spark starts later.
        is_needed: whether a partition's rows are counted, where partitions are folders or a table's metadata has them.

    Raises:
        NeedsSparkError: Spark might read the files otherwise, the plan needs Spark, or there are more than
            ``most_rows`` rows.
        SourceError: a file is damaged.
    """
    check_plan(plan)
    if executor is None:
        check_settings(plan)
    root = _find_root(source)
    if root is not None and not root.exists() and not is_elsewhere(source):
        raise SourceError(f"the source {source!r} does not exist; name a file or a folder of Parquet")
    open_some = partial(_open, source, plan, executor, most_rows, counts_here, is_needed)
    try:
        return open_some()
    except LayoutoptError as error:
        problems, readable = _find_damaged(source, plan)
        if not problems or not readable:
            raise
        try:
            return open_some(problems, readable)
        except LayoutoptError:
            raise error from None


def _find_root(source: str) -> Path | None:
    """Return the absolute path of a source; None for tables of other formats and for URLs."""
    return Path(absolute(source)) if parse_source_name(source) is None and not is_url(source) else None


def _open(
    source: str,
    plan: Plan,
    executor: Executor | None,
    most_rows: int | None,
    counts_here: bool,
    is_needed: IsNeeded,
    problems: Mapping[PlainValue, LayoutoptError] = _NONE,
    only: Collection[str] = (),
) -> Source:
    files = list_source_files(source, plan.schema, plan.partition_by)
    if problems:
        files = tuple(file for file in files if file.path in only)
    needed, others = set_aside(list_versions(source, files), plan.schema, plan.partition_by, is_needed)
    rows = estimate_rows([listed.file for listed in needed])
    if most_rows is not None and rows > most_rows:
        raise NeedsSparkError(f"there are more than {most_rows} rows")
    are_few = counts_here and len(needed) <= _MOST_FILES and rows <= _MOST_ROWS
    counting = _choose_processes(rows) if executor is None or are_few else executor
    opened = open_files(source, needed, plan.schema, plan.partition_by, counting, files if others else ())
    if most_rows is not None and sum(opened.partition_rows.values()) > most_rows:
        raise NeedsSparkError(f"there are more than {most_rows} rows")
    for split, _ in opened.splits[:1]:
        check_features_by_arrow(opened.cut_job(opened.schema.names), split, plan.features)
    opened.problems, opened.uncounted = problems, others
    opened.executor = executor or counting  # from now on: what counts cores starts Spark
    return opened


def _find_damaged(source: str, plan: Plan) -> tuple[dict[PlainValue, LayoutoptError], list[str]]:
    """Return the errors of partitions with files that are no Parquet, and the paths of the others' files."""
    by, root = plan.partition_by, Path(source)
    if by is None or parse_source_name(source) is not None or not root.is_dir():
        return {}, []
    type = plan.schema.find(by).type
    damaged: dict[PlainValue, LayoutoptError] = {}
    paths: list[str] = []
    for folder in list_visible(root.resolve()):
        texts = {name.lower(): text for name, text in folder_values(f"{folder}/").items()}
        if not folder.is_dir() or by.lower() not in texts:
            return {}, []
        files = [str(path) for path in list_visible(folder)]
        problem = next(filter(None, map(_find_problem, files)), None)
        if problem is None:
            paths += files
            continue
        try:
            text = texts[by.lower()]
            damaged[None if text is None else parse_plain_value(text, type, "")] = problem
        except SettingError:
            return {}, []
    return damaged, paths


def find_damaged_file(source: str, plan: Plan) -> LayoutoptError | None:
    """Return the error of a file that is no Parquet, and belongs to no day alone; None if there is none, or many files.

    Raises:
        SourceError: the source is the folder of a table of another format.
    """
    root = _find_root(source)
    if root is None or not root.exists() or _find_damaged(source, plan)[1]:
        return None
    files = list_files(root) if root.is_dir() else [root]
    if len(files) > _MOST_FILES:
        return None
    return next(filter(None, (_find_problem(str(file)) for file in files)), None)


def _find_problem(path: str) -> LayoutoptError | None:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        if Path(path).read_bytes()[-len(ENCRYPTED) :] == ENCRYPTED:  # which Spark may have the key of
            return None
        return SourceError(f"the source's file {path!r} can't be read as Parquet ({error}); write it again")
    return None


def _choose_processes(rows: int) -> Executor:
    return Processes(1) if rows < LEAST_ROWS else Processes()  # which take a second to start


def check_settings(plan: Plan) -> None:
    """Raise NeedsSparkError for a plan of a session with other settings than the defaults."""
    if plan.settings != SessionSettings():
        raise NeedsSparkError(f"the table is for sessions with {plan.settings}")


def check_plan(plan: Plan) -> None:
    """Raise NeedsSparkError for a plan whose indexes or columns need Spark."""
    if select_for_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("the table has an index of an expression that only Spark computes")
    check_columns(plan.schema, plan.partition_by)
