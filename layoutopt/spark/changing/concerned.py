"""What a change concerns: its rows by a user's texts, each misunderstanding in a sentence, and what the rows hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.checks import Content
from layoutopt.catalog.retention.publications import publications
from layoutopt.config.changing import DeleteSettings, MergeSettings, UpdateSettings
from layoutopt.errors import SettingError
from layoutopt.model.predicates import FALSE, Filter
from layoutopt.scan.checked import table_read
from layoutopt.scan.reads import TableRead
from layoutopt.spark.catalyst.rule import analyzed
from layoutopt.spark.changing.found import Placed, rows_with_places
from layoutopt.spark.changing.opened import Place
from layoutopt.spark.core.source import measure_content
from layoutopt.spark.session.enabling import marked_rows, planned_reads, with_functions
from layoutopt.sql.scans import TableScan

_OF_VALUES: Final = "22"  # the class of SQL's states


def matching_rows(place: Place, where: str) -> DataFrame:
    """Return the table's rows that meet a condition, read as a query reads them.

    Raises:
        SettingError: Spark can't understand it, or it is not the same each time it is asked of a row.
    """
    with understood("--where", where):
        kept = marked_rows(place.spark, with_functions(place.spark, place.table)).where(F.expr(f"({where})"))
        plan = analyzed(kept)
    if not plan.deterministic():
        raise SettingError(
            f"--where {where!r} is not the same each time it is asked of a row; name the rows by what they hold"
        )
    return kept


@contextmanager
def understood(flag: str, text: str) -> Iterator[None]:
    """Turn what Spark says of a text that it can't read, or can't compute for a row, into a sentence.

    Raises:
        SettingError: it can't.
    """
    try:
        yield
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        raise SettingError(f"{flag} {text!r} is of no use here: {said}") from error


@contextmanager
def computed(flag: str, text: str) -> Iterator[None]:
    """Turn Spark's errors about values, as it computes a text for each row, into a sentence; others pass.

    Raises:
        SettingError: a value has no result: a text that is no number, a division by zero.
    """
    try:
        yield
    except PySparkException as error:
        if (error.getSqlState() or "").startswith(_OF_VALUES):
            said = str(error).strip().splitlines()[0]
            raise SettingError(f"{flag} {text!r} fails on a row: {said}") from error
        raise


def holds(condition: str) -> SparkColumn:
    """Whether a condition is TRUE; never NULL."""
    return F.coalesce(F.expr(f"({condition})"), F.lit(False))


def measured(rows: DataFrame, named: str) -> Content:
    """What some rows hold, counted now."""
    return measure_content(rows, repr(named))


def nothing(like: Content) -> Content:
    """What no row holds, of the same columns."""
    return Content(0, dict.fromkeys(like.sums, 0))


def may_mark(place: Place, settings: DeleteSettings | UpdateSettings | MergeSettings) -> bool:
    """Whether rows may be only marked: not where all is to be written anew, nor where others read the table."""
    return bool(settings.rewrite_share) and not settings.publish and not publications(place.table.catalog.files)


def placed_rows(place: Place, where: str) -> Placed | None:
    """The rows that meet a condition, with their places; None where these can't be told by one scan of the table."""
    read = read_of(place, matching_rows(place, where))
    if read is None:
        return None
    return rows_with_places(place.spark, read).narrowed(lambda rows: rows.where(holds(where)))


def read_of(place: Place, rows: DataFrame) -> TableRead | None:
    """Return what some rows of the table need of its blocks; None where that is not one scan of all columns."""
    reads = planned_reads(rows)
    table, names = place.table, place.table.schema.names
    if not reads:  # no row can match
        scan = TableScan(table.name, table.name, names, Filter.of(FALSE))
        return table_read(table, scan, table.settings)
    return reads[0] if len(reads) == 1 and reads[0].scan.columns == names else None
