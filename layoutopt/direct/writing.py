"""One load in this process: few rows are written beside those that a table has, proved, and committed.

What a task of a Spark job does with a segment is done here, by the same code, one segment after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.checks import Content, check_content, check_partitions, check_positions
from layoutopt.catalog.commit import comes_beside, commit_load
from layoutopt.catalog.deletes import Marks
from layoutopt.catalog.entries import partition_entries, written_content, written_positions
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.direct.vectors import vectors_of
from layoutopt.errors import NeedsSparkError, TableError
from layoutopt.events import Stages
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.expressions import left_to_spark
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.feature import Settings
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Schema
from layoutopt.writer.gather import POOL, GatheredSegment
from layoutopt.writer.load_ids import ANY, REFUSED, check_block_numbers, first_block, fresh_load_id, removed_after
from layoutopt.writer.load_report import LoadReport, load_report
from layoutopt.writer.positions import value_hashes
from layoutopt.writer.task import WriteJob, answer_of
from layoutopt.writer.written import Written, collected


@dataclass(frozen=True, eq=False)
class FewToWrite:
    """What is to be written.

    Attributes:
        source: names where the rows are from, in messages.
        rows: under the plan's columns.
        counted: how many there have to be, as who stored them says.
        places: of each partition the places of its rows, ``int64[k]``, by its value.
        fingerprints: of partition keys, the digest of the source's files.
        content: what all rows together must have, where that is known better than by the rows.
        operation: what the history calls it.
        batch: what is appended.
        marks: entries that the rows take the place of.
    """

    source: str
    rows: pa.Table
    counted: int
    places: Mapping[PlainValue, Ints]
    operation: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    content: Content | None = None
    batch: str | None = None
    marks: Marks | None = None


def check_plan_needs_no_spark(plan: Plan) -> None:
    """Refuse a plan with indexes of expressions that only Spark computes, or made for sessions with other settings.

    Raises:
        NeedsSparkError: it is one.
    """
    if plan.settings != Settings():
        raise NeedsSparkError(f"the table is for sessions with {plan.settings}")
    if left_to_spark(spec.subject for spec in plan.indexes):
        raise NeedsSparkError("the table has an index of an expression that only Spark computes")


def write_few(catalog: Catalog, plan: Plan, few: FewToWrite, watch: Stages) -> LoadReport:
    """Write rows and commit them.

    Args:
        catalog: the table's, at its newest snapshot.
        plan: what the rows are laid out by.
        few: the rows.
        watch: times the stages.

    Raises:
        NeedsSparkError: a feature, or a partition's size, is none for this process; nothing was written.
        ContentMismatchError: what was written is not what was read; nothing was committed.
        CommitConflictError, AlreadyLoadedError, TableError: as :func:`~layoutopt.catalog.commit.commit_load`.
    """
    snapshot, files = catalog.snapshot, catalog.files
    names = PartitionNames.of(plan.schema, plan.partition_by, snapshot)
    values = {names.key(value): value for value in few.places}
    if len(values) < len(few.places) or max(map(len, few.places.values())) > plan.segment_rows:
        raise NeedsSparkError("a partition has more rows than a segment")
    check_block_numbers(plan, len(few.places))
    with watch.stage("features", "evaluating features"):
        words = vectors_of(plan.features.features, few.rows, plan.schema)
    load_id = fresh_load_id(snapshot)
    with removed_after(ANY, files, load_id, values):
        with watch.stage("write", f"writing {len(values)} segments", load_id=load_id) as counts:
            written = _written(_job(files, plan, few, tuple(values), load_id), few, words)
            counts["blocks"] = written.blocks.num_rows
        scalars = {key: names.scalar(value) for key, value in values.items()}
        with watch.stage("check", "comparing with the source"):
            entries = partition_entries(written.blocks, plan, load_id, scalars)
            _check(plan, few, written)
            counted = {names.key(value): len(places) for value, places in few.places.items()}
            check_partitions(entries, names, values, counted, few.source)
    entries = tuple(replace(entry, source=few.fingerprints.get(entry.key)) for entry in entries)
    with removed_after(REFUSED, files, load_id, values), watch.stage("commit", "committing") as counts:
        made = commit_load(
            files, snapshot, plan, load_id, entries, written.blocks, indexes=written.indexes,
            operation=few.operation, batch=few.batch, marks=few.marks,
        )  # fmt: skip
        counts["snapshot"] = made.number
    return load_report(load_id, made, plan, tuple(values), len(values), written, watch.seconds)


def _job(files: TableFiles, plan: Plan, few: FewToWrite, keys: tuple[str, ...], load_id: str) -> WriteJob:
    return WriteJob(
        plan=plan,
        shares=feature_shares(plan.features, plan.queries),
        root=files.full_path(""),
        load_id=load_id,
        first_block=first_block(load_id),
        keys=keys,
        numbers=(0,) * len(keys),
        late=comes_beside(few.operation, few.marks),
        lent=files.for_tasks().lent,
    )


def _written(job: WriteJob, few: FewToWrite, words: Words) -> Written:
    """Every segment written, in the order of the partitions."""
    observed = Content(few.counted, _sums(few.rows, job.plan.schema))
    answers = []
    try:
        for number, places in enumerate(few.places.values()):
            rows = few.rows.take(pa.array(places)).combine_chunks(POOL)
            answers.append(answer_of(job, GatheredSegment(number, rows, words[places])).split())
    except OSError as error:
        raise TableError(
            f"the table {job.root!r} can't be written ({error.strerror or error}), nothing was committed; mend that "
            "and retry"
        ) from error
    return collected(job.plan, job.keys, job.numbers, answers, observed)


def _sums(rows: pa.Table, schema: Schema) -> dict[str, int]:
    """The checksum of each column, of rows as they were read."""
    found = {}
    for column in schema.columns:
        hashes = value_hashes(rows[column.name], column.type)
        assert hashes is not None, "tables with other columns are refused"
        found[column.name] = int(hashes.sum(dtype=np.int64))
    return found


def _check(plan: Plan, few: FewToWrite, written: Written) -> None:
    """Refuse blocks that are not the rows that were read, or rows that are not what is known of them."""
    table = BlockTable.from_arrow(written.blocks, plan)
    content = written_content(table)
    if few.content is not None:
        known = {name: sum for name, sum in content.sums.items() if name in few.content.sums}
        check_content(few.content, Content(content.rows, known), few.source)
    check_content(written.observed, content, few.source)
    if plan.scheme.has_tids:
        check_positions(written.positions, written_positions(table), few.source)
