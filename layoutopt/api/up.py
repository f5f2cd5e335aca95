"""Lay out a source for its query log in one call: analyse, plan, load and evaluate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from layoutopt.api.execution import AUTO
from layoutopt.errors import SettingError
from layoutopt.events import Progress
from layoutopt.model.summary import Summarised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.api.held_rows import AnySource
    from layoutopt.external.listing import Listing
    from layoutopt.features.analysis import Features
    from layoutopt.inspect.evaluate import Evaluation
    from layoutopt.loading.load import LoadsReport
    from layoutopt.model.layout import Plan

# The method of a plan that takes seconds.
QUICK: Final = "gsop"
# A date column partitions the table if it has at most so many days, with at least so many rows each.
_MOST_DAYS: Final = 400
_LEAST_ROWS_A_DAY: Final = 5_000


@dataclass(frozen=True, repr=False)
class UpReport(Summarised):
    """The result of :func:`up`.

    Attributes:
        table: the table's path.
        features, plan, load, evaluation: what each step returned.
    """

    table: str
    features: Features
    plan: Plan
    load: LoadsReport
    evaluation: Evaluation

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        chosen = {"method": self.plan.method, "partition_by": self.plan.partition_by}
        return {**self.evaluation.summarise(), "table": self.table, **chosen}


def up(
    source: AnySource,
    log: str | Path,
    into: str | Path,
    *,
    table: str | None = None,
    partition_by: str | None = None,
    quick: bool = False,
    dialect: str = "spark",
    column: str | None = None,
    executor: str | SparkSession = AUTO,
    progress: Progress | None = None,
) -> UpReport:
    """Analyse a log, plan and load a source for it, and evaluate the log on the table.

    Args:
        source: the rows.
        log: the file of statements.
        into: the folder of ``features.json``, ``plan.json`` and the ``table``, whose partitions are replaced.
        table: the table's name in the log; any by default.
        partition_by: the column whose values are the partitions; by default that of folders' names, or a date column of
            at most 400 days with thousands of rows each.
        quick: plan by column groups alone, which takes seconds; by default all methods are tried.
        dialect: the log's SQL dialect.
        column: the column or key that holds the SQL.
        executor: ``auto``, ``local``, ``spark``, or a SparkSession.
        progress: gets a sentence as each stage begins.

    Raises:
        LayoutoptError: as the functions of the single steps.
    """
    from layoutopt.api.functions import analyze, evaluate, load, plan
    from layoutopt.api.held_rows import source_name

    folder = Path(into)
    with source_name(source) as name:
        features = analyze(log, name, table=table, dialect=dialect, column=column)
        by = partition_by or guess_partition_column(name, list_row_groups(name))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"the folder {str(folder)!r} can't be made ({error.strerror}); give another") from error
        features.save(folder / "features.json")
        method = QUICK if quick else AUTO
        layout = plan(name, features, partition_by=by, method=method, executor=executor, progress=progress)
        layout.save(folder / "plan.json")
        report = load(name, folder / "table", layout, replace=True, executor=executor, progress=progress)
    evaluation = evaluate(folder / "table", log, dialect=dialect, column=column)
    return UpReport(str(folder / "table"), features, layout, report, evaluation)


def list_row_groups(source: str) -> Listing | None:
    """List the files of a source of Parquet; None for tables and other formats."""
    from layoutopt.external.formats import parse_path, parse_table_name
    from layoutopt.external.listing import canonical_name, list_source

    if parse_table_name(source) is not None or not parse_path(source).format.has_row_groups:
        return None
    return list_source(canonical_name(source))


def guess_partition_column(source: str, listing: Listing | None) -> str | None:
    """Return the column to partition by: that of folders' names, or a date with many rows each of few days.

    ``listing`` is that of :func:`list_row_groups`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from layoutopt.external.external_tables import open_snapshot
    from layoutopt.external.footers import SAMPLED_FOOTERS
    from layoutopt.external.formats import parse_table_name

    table = parse_table_name(source)
    if table is not None:
        return next((name for file in open_snapshot(table).files for name in file.constants), None)
    if listing is None:
        return None
    files = listing.files
    for name in (name for listed in files for name in listed.file.constants):
        return name
    sampled = files[:: -(-len(files) // SAMPLED_FOOTERS) or 1]
    try:
        footers = [pq.read_metadata(listed.file.path) for listed in sampled]
        schema = footers[0].schema.to_arrow_schema()
    except (OSError, pa.ArrowException, IndexError):
        return None
    rows = sum(footer.num_rows for footer in footers) * len(files) // len(sampled)
    for place, leaf in enumerate(footers[0].schema.column(i) for i in range(footers[0].num_columns)):
        if leaf.path in schema.names and schema.field(leaf.path).type == pa.date32():
            chunks = [footer.row_group(g).column(place) for footer in footers for g in range(footer.num_row_groups)]
            bounds = [chunk.statistics for chunk in chunks if chunk.statistics and chunk.statistics.has_min_max]
            if bounds:
                days = (max(bound.max for bound in bounds) - min(bound.min for bound in bounds)).days + 1
                if days <= min(_MOST_DAYS, rows // _LEAST_ROWS_A_DAY):
                    return str(leaf.path)
    return None
