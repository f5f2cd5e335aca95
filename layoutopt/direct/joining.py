"""What appends left of a partition joined, without Spark where that is few rows."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from layoutopt.catalog.entries import content_of_entries
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.direct.few_rows import MOST_BYTES, MOST_ROWS
from layoutopt.direct.plain_parquet import check_columns
from layoutopt.direct.writing import FewToWrite, check_plan_needs_no_spark, write_few
from layoutopt.errors import CommitConflictError, NeedsSparkError
from layoutopt.events import Stages
from layoutopt.evolve.joining import JOIN, has_small_entries, in_place_of, small_entries
from layoutopt.inspect.status import current_plan
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.scan.arrow_types import any_arrow_type
from layoutopt.scan.read import read_segments
from layoutopt.scan.reads import TableRead
from layoutopt.scan.table import Table, open_own_table
from layoutopt.sql.scans import TableScan
from layoutopt.writer.load_report import LoadReport


def join_few(path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Join small entries of some partitions, in one commit, by the table's newest plan.

    Args:
        path: of the table.
        keys: of the partitions.
        watch: times the stages.

    Returns:
        The commit; None where none is to be joined, or somebody else changed one meanwhile: theirs counts.

    Raises:
        NeedsSparkError: they have too many rows, or something that only Spark knows; nothing was written.
        ContentMismatchError: what was written is not what the entries have.
        LayoutoptError: as :func:`~layoutopt.direct.writing.write_few`.
    """
    if not has_small_entries(path, keys):
        return None
    table = open_own_table(path)
    catalog = table.catalog
    entries = small_entries(catalog.snapshot, keys)
    if not entries:
        return None
    plan = current_plan(catalog)
    check_plan_needs_no_spark(plan)
    check_columns(plan.schema, plan.partition_by)
    if set(catalog.snapshot.schema.names) != set(plan.schema.names):  # rows of other plans may have values of it
        raise NeedsSparkError("the table has columns that its newest plan lacks")
    live = [entry for entry in entries if entry.live_rows]
    counted = sum(entry.live_rows for entry in live)
    if not catalog.files.is_plain:
        raise NeedsSparkError("the table is encrypted")
    if not 0 < counted <= MOST_ROWS:
        raise NeedsSparkError(f"{counted} rows are to be joined")
    rows, places = _rows_of(table, plan, live)
    few = FewToWrite(
        f"the table {path!r}",
        rows,
        counted,
        places,
        JOIN,
        content=content_of_entries(entries),
        marks=in_place_of(entries),
    )
    try:
        return write_few(catalog, plan, few, watch)
    except CommitConflictError:
        return None


def _rows_of(table: Table, plan: Plan, entries: Collection[PartitionEntry]) -> tuple[pa.Table, dict[PlainValue, Ints]]:
    """The rows of entries, and the places of each partition's among them."""
    names = PartitionNames.of(plan.schema, plan.partition_by, table.catalog.snapshot)
    of_value: dict[PlainValue, list[PartitionEntry]] = {}
    for entry in entries:
        told = names.value_of(entry)
        if not told:
            raise NeedsSparkError(f"the catalog does not tell the value of partition {entry.key!r}")
        of_value.setdefault(told[0], []).append(entry)
    tables: list[pa.Table] = []
    places: dict[PlainValue, Ints] = {}
    before = 0
    for value, chosen in of_value.items():
        tables.append(_read(table, plan, chosen))
        if sum(each.nbytes for each in tables) > MOST_BYTES:
            raise NeedsSparkError(f"the rows to be joined take more than {MOST_BYTES} bytes")
        places[value] = np.arange(before, before + tables[-1].num_rows)
        before += tables[-1].num_rows
    return pa.concat_tables(tables), places


def _read(table: Table, plan: Plan, entries: Collection[PartitionEntry]) -> pa.Table:
    """All rows of some entries under the plan's columns."""
    scan = TableScan(table.name, table.name, table.schema.names, Filter.of(TRUE))
    read = TableRead(table, scan, table.all_rows_of(list(entries), scan.columns))
    form = pa.schema([(column.name, any_arrow_type(column.type)) for column in read.columns])
    batches, taken = [], 0
    for batch in read_segments(table.catalog.files, read.segments, read.columns):
        batches.append(batch.cast(form))
        taken += batches[-1].nbytes
        if taken > MOST_BYTES:
            raise NeedsSparkError(f"the rows to be joined take more than {MOST_BYTES} bytes")
    return pa.Table.from_batches(batches, form).select(list(plan.schema.names))
