"""``layoutopt plan``: the layout, and the indexes that ``--index`` names or ``--index-budget`` chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from layoutopt.catalog.block_index import INDEXES
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.storage.index_files import encode_index, held_bytes
from layoutopt.config.settings import PlanSettings
from layoutopt.events import Progress
from layoutopt.features.cross_validation import splits
from layoutopt.features.selection import mined_from
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.choosing import Judged, candidates, indexes_asked, worth_their_bytes
from layoutopt.indexes.stored import stored_indexes
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, classes
from layoutopt.model.vectors import pack
from layoutopt.scan.table import Table
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.sources.external_tables import pinned
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.featurize import index_values, with_feature_words
from layoutopt.spark.core.functions import declared
from layoutopt.spark.core.sessions import AnySession, compiled_in_parts, started
from layoutopt.spark.core.workers import map_segments
from layoutopt.spark.loading.dry_run import rehearsed_catalog
from layoutopt.spark.planning.automatic import plan_best
from layoutopt.spark.planning.hold_out import EvaluatedPlan
from layoutopt.spark.planning.plan import opened_by_spark
from layoutopt.spark.planning.segment_evaluation import rows_of_segments, some_segments
from layoutopt.writer.segment import gather_segment
from layoutopt.writer.task import WriteJob, write_layouts
from layoutopt.writer.task_result import stream_of

# ----------------------------------------------------------------------------------------------------
# ``plan --index-budget``: the indexes that save queries held back the most bytes, within a share of the data's.
#
# The plan's blocks are made and measured on a few whole segments, with every index that the log might use. Queries held
# back are replayed on them, and see only features that the other queries would have made: what those foresaw needs no
# index. What an index then lets them skip, for the bytes that it takes, decides (:mod:`layoutopt.indexes.choosing`).

_MOST_HELD: Final = 1 << 30
"""Bytes of an index that a load's driver holds, of all blocks."""
_RESULT_SCHEMA = "segment int, blocks binary"
_RESULT = pa.schema([("segment", pa.int32()), ("blocks", pa.binary())])


def with_indexes_within(
    spark: SparkSession, settings: PlanSettings, plan: Plan, document: FeaturesDocument, share: float, say: Progress
) -> Plan:
    """The plan with indexes of at most this share of the data's compressed bytes, those that it has counted too.

    The plan predicts ``index_share``, their bytes in the data's, and ``index_saves``: the share of the bytes read by
    queries held back that they save. It stays as it is where too few queries can be held back, or none needs an index.

    Raises:
        SettingError, SchemaError, SourceError: as :func:`layoutopt.spark.planning.plan.make_plan`.
    """
    filters = [query.filter.root for query in document.queries]
    possible = tuple(spec for spec in candidates(filters) if spec not in plan.indexes)
    parts = splits(document.queries)
    if not parts or not possible:
        say("no indexes: " + ("the log asks for none" if parts else "its queries are too few to choose by"))
        return plan
    say(f"rehearsing segments, for {len(possible)} indexes")
    rehearsal = _rehearse(spark, settings, plan, possible, document)
    if rehearsal is None:
        return plan
    judged = [_judged(rehearsal, document, training, held) for training, held in parts]
    read = np.concatenate([fold.read for fold in judged])
    had, sizes = rehearsal.sizes[: len(plan.indexes)], rehearsal.sizes[len(plan.indexes) :]
    indexes = [
        Judged(np.concatenate([fold.skipped[i] for fold in judged]), size, size * sum(fold.asked[i] for fold in judged))
        for i, size in enumerate(sizes)
    ]
    indexes = [
        one if held <= _MOST_HELD else replace(one, size=inf) for one, held in zip(indexes, rehearsal.held, strict=True)
    ]
    chosen = worth_their_bytes(indexes, read, share * rehearsal.bytes - sum(had))
    if not chosen:
        say(f"no indexes: none saves queries held back more than they read of it, within {share:.1%} of the data")
        return plan
    for i in chosen:
        say(f"indexing {possible[i]}")
    spent = sum(had) + sum(sizes[i] for i in chosen)
    saved = float(read[np.logical_or.reduce([indexes[i].skipped for i in chosen])].sum())
    figures = {"index_share": spent / rehearsal.bytes, "index_saves": saved / float(read.sum())}
    taken = tuple(possible[i] for i in chosen)
    return replace(plan, indexes=(*plan.indexes, *taken), predicted={**plan.predicted, **figures})


@dataclass(frozen=True, eq=False)
class _Rehearsal:
    """The blocks of some segments by a plan, measured with its own indexes and possible ones; and the table's rows."""

    plan: Plan
    possible: tuple[IndexSpec, ...]
    job: WriteJob
    blocks: pa.Table
    rows: int

    @cached_property
    def held(self) -> list[float]:
        """About the bytes that the driver of a load of the whole table holds of each possible index."""
        times = self.rows / max(pa.compute.sum(self.blocks["rows"]).as_py(), 1)
        stored = self.blocks[INDEXES]
        first = len(self.plan.indexes)
        children = (pa.compute.struct_field(stored, [first + k]) for k in range(len(self.possible)))
        return [times * held_bytes(child) for child in children]

    @property
    def bytes(self) -> float:
        """The compressed bytes of the blocks."""
        return float(pa.compute.sum(self.blocks["bytes"]).as_py())

    @cached_property
    def sizes(self) -> list[float]:
        """The bytes of each index's file, the plan's first."""
        stored = self.blocks[INDEXES]
        count = len(self.plan.indexes) + len(self.possible)
        return [float(len(encode_index(pa.compute.struct_field(stored, [k])))) for k in range(count)]


@dataclass(frozen=True, eq=False)
class _Fold:
    """What came of the queries that one split holds back, by their weights.

    Attributes:
        read: the bytes that each reads of each block without the possible indexes, ``float64[queries, blocks]``.
        skipped: of each possible index the blocks that each query could skip by it, ``bool[queries, blocks]``.
        asked: how many statements would read each possible index.
    """

    read: Floats
    skipped: list[Bits]
    asked: list[float]


def _rehearse(
    spark: SparkSession,
    settings: PlanSettings,
    plan: Plan,
    possible: tuple[IndexSpec, ...],
    document: FeaturesDocument,
) -> _Rehearsal | None:
    """Make the blocks of some segments; None where the source has no rows."""
    rows = opened_by_spark(spark, settings.source, document, settings.partition_by)
    with translate_spark_errors(repr(settings.source)), compiled_in_parts(spark):
        chosen = some_segments(rows, plan)
        if not chosen.segments:
            return None
        n, trial = len(chosen.segments), replace(plan, indexes=(*plan.indexes, *possible))
        shares = feature_shares(plan.features, plan.queries)
        job = WriteJob(trial, shares, "sampled", new_load_id(), 0, ("sampled",) * n, tuple(range(n)), rehearsal=True)
        words = index_values(
            with_feature_words(rows_of_segments(rows, plan, chosen), plan.features.features), trial.indexes
        )
        found = map_segments(words, n, partial(_measure, job), _RESULT_SCHEMA).toArrow().to_pylist()
    if not found:
        return None
    in_order = sorted(found, key=lambda row: int(row["segment"]))
    blocks = pa.concat_tables([pa.ipc.open_stream(row["blocks"]).read_all() for row in in_order])
    return _Rehearsal(plan, possible, job, blocks, sum(chosen.partition_rows.values()))


def _measure(job: WriteJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The body of ``mapInArrow``: all rows of one segment in, a row with its blocks out."""
    segment = gather_segment(job.plan, batches)
    if segment is not None:
        blocks, _ = write_layouts(job, segment)
        values = [pa.array([segment.id], pa.int32()), pa.array([stream_of(blocks)], pa.binary())]
        yield pa.RecordBatch.from_arrays(values, schema=_RESULT)


def _judged(
    rehearsal: _Rehearsal, document: FeaturesDocument, training: Sequence[Query], held: Sequence[Query]
) -> _Fold:
    """Replay queries held back on the blocks, whose features are those that the training queries make."""
    known = {feature.predicates for feature in mined_from(document, training).features}
    foreseen = [feature.predicates in known for feature in rehearsal.plan.features]
    blocks = _with_features(rehearsal.blocks, np.array(foreseen, dtype=np.bool_))
    table = Table(rehearsed_catalog(rehearsal.plan, rehearsal.job, blocks))
    (source,) = table.sources
    indexed = BlockTable.from_arrow(blocks, rehearsal.job.plan)
    alone = [replace(source.block_statistics, indexes=stored_indexes([spec], indexed)) for spec in rehearsal.possible]
    features, queries = source.features_under(rehearsal.plan.settings), classes(held)
    read = np.zeros((len(queries), source.blocks.n))
    skipped = [np.zeros(read.shape, np.bool_) for _ in rehearsal.possible]
    asked = [0.0] * len(skipped)
    for place, query in enumerate(queries):
        root = query.filter.root
        (pruned,) = table.prune(root, query.columns)
        read[place] = query.weight * np.where(pruned.read, pruned.bytes, 0)
        for i, (spec, statistics) in enumerate(zip(rehearsal.possible, alone, strict=True)):
            if spec.subject.columns <= root.columns:
                skipped[i][place] = cannot_match(root, statistics, features)
                asked[i] += query.weight * bool(pruned.read.any())
    return _Fold(read, skipped, asked)


def _with_features(blocks: pa.Table, known: Bits) -> pa.Table:
    """Blocks in which the features that are not known prove nothing: every block has their bits."""
    unknown = pack(~known[None, :])[0]
    measured = np.asarray(pa.compute.list_flatten(blocks["words"])).view(np.uint64).reshape(blocks.num_rows, -1)
    place, field = blocks.schema.get_field_index("words"), blocks.schema.field("words")
    return blocks.set_column(place, field, pa.array(list((measured | unknown).view(np.int64)), field.type))


def plan_with_indexes(
    spark: AnySession,
    settings: PlanSettings,
    document: FeaturesDocument,
    progress: Progress | None = None,
    draw: Callable[[Sequence[EvaluatedPlan], Path], None] | None = None,
) -> Plan:
    """Plan as :func:`~layoutopt.spark.planning.automatic.plan_best` does, with the indexes that the settings ask for.

    Raises:
        SettingError: an index that no load could build; as that function.
        PlanError: as that function.
    """
    # Before the work: a bad one should not wait for it.
    functions = {} if callable(spark) else declared(spark)
    asked = indexes_asked(settings.index, document.schema, document.features.settings, functions)
    settings = settings.model_copy(update={"source": pinned(settings.source)})
    plan = plan_best(spark, settings, document, progress, draw)
    plan = replace(
        plan, indexes=asked, file_bytes=int(settings.file_bytes), parquet_indexes=tuple(sorted(settings.parquet_index))
    )
    if settings.index_budget is None:
        return plan
    say = progress or (lambda sentence: None)
    return with_indexes_within(started(spark), settings, plan, document, settings.index_budget, say)
