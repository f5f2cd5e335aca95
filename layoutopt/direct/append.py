"""Append few rows without Spark, which takes longer to start, and to plan a job, than they take to be written."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import partial

from layoutopt.catalog.commit import APPEND
from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.config.changing import AppendSettings
from layoutopt.direct.few_rows import read_few_rows
from layoutopt.direct.joining import join_few
from layoutopt.direct.plain_parquet import check_columns
from layoutopt.direct.writing import FewToWrite, check_plan_needs_no_spark, write_few
from layoutopt.errors import AlreadyLoadedError, NeedsSparkError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.inspect.status import current_plan
from layoutopt.publish.publishing import published_after
from layoutopt.scan.table import open_own_table
from layoutopt.sources.partitions import batch_of
from layoutopt.writer.load_report import LoadReport

Join = Callable[[str, Collection[str], Stages], LoadReport | None]
"""Joins small entries of some partitions of a table, as :func:`~layoutopt.direct.joining.join_few`."""


@dataclass(frozen=True)
class AppendReport:
    """What an append did.

    Attributes:
        table: its path.
        batch: what was appended.
        load: the commit; None where the batch was there already.
        joined: the commit in which small entries of the partitions concerned were joined; None where none was.
        not_joined: why they could not be, though the batch is in the table; None where they could.
    """

    table: str
    batch: str
    load: LoadReport | None
    joined: LoadReport | None = None
    not_joined: str | None = None

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def append_few(
    settings: AppendSettings, join_many: Join, say: Progress = silent, log: EventLog = NO_EVENTS
) -> AppendReport:
    """Add a source's rows to a table as :func:`layoutopt.spark.changing.append.append_by` does, if they are few.

    Args:
        settings: of the verb.
        join_many: joins what are too many rows for this process.
        say: called with a short sentence as each stage begins.
        log: gets an event for each stage.

    Raises:
        NeedsSparkError: they are many, or table or source have something that only Spark knows; nothing was written.
        NotATableError: there is no table to append to.
        LayoutoptError: as :func:`~layoutopt.direct.writing.write_few`, and of publishing.
    """
    with published_after(settings.table_path, settings.publish, say, log):
        return _append(settings, join_many, Stages(say, log))


def _append(settings: AppendSettings, join_many: Join, watch: Stages) -> AppendReport:
    with watch.stage("all", "looking at the source"):
        catalog = open_own_table(settings.table_path).catalog
        if not catalog.partitions or not catalog.files.is_plain:
            raise NeedsSparkError("the table is empty, or encrypted")
        plan = current_plan(catalog)
        check_plan_needs_no_spark(plan)
        check_columns(plan.schema, plan.partition_by)
        found = read_few_rows(settings.source, plan.schema, plan.partition_by)
        names = PartitionNames.of(plan.schema, plan.partition_by, catalog.snapshot)
        batch = settings.batch_id or batch_of(found.partitions)
        few = FewToWrite(
            repr(settings.source),
            found.rows,
            found.counted,
            found.places,
            APPEND,
            {names.key(partition.value): partition.fingerprint for partition in found.partitions},
            batch=batch,
        )
    if batch in catalog.snapshot.batches:
        return AppendReport(settings.table_path, batch, None)
    try:
        report = write_few(catalog, plan, few, watch)
    except AlreadyLoadedError:  # by another process meanwhile, that was taken for dead
        return AppendReport(settings.table_path, batch, None)
    done = AppendReport(settings.table_path, batch, report)
    return done if settings.keep_apart else joined_after(done, partial(_join, join_many), watch)


def _join(join_many: Join, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Join small entries here if they are few rows."""
    try:
        return join_few(path, keys, watch)
    except NeedsSparkError:
        return join_many(path, keys, Stages(watch.say, watch.log))


def joined_after(done: AppendReport, join: Join, watch: Stages) -> AppendReport:
    """What an append did, and what was joined of the partitions concerned after it.

    Args:
        done: the append, which made a commit.
        join: joins.
        watch: what watched the append; the joining has stages of its own.
    """
    assert done.load is not None, "an append that did nothing joins nothing"
    try:
        joined = join(done.table, done.load.partitions, Stages(watch.say, watch.log))
    except Exception as error:  # the rows are there: whoever took this for their failure might append them again
        return replace(done, not_joined=str(error) or type(error).__name__)
    return replace(done, joined=joined)
