"""``layoutopt plan``: the layout, and the indexes that ``--index`` names or ``--index-budget`` chooses.

``--index-budget`` takes the indexes that save queries held out the most bytes, within a share of the data's. The plan's
blocks are made and measured on a few whole segments, with every index that the log might use. Queries held out are
replayed on them with only those features that the other queries would have made: what these skip needs no index. An
index is chosen by what it lets the queries skip for its bytes (:mod:`layoutopt.indexes.choosing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.block_index import INDEXES
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.storage.index_files import encode_index, held_bytes
from layoutopt.events import Progress, silent
from layoutopt.external.external_tables import pin_version
from layoutopt.features.cross_validation import splits
from layoutopt.features.selection import mine_subset
from layoutopt.features.weights import feature_shares
from layoutopt.indexes.choosing import IndexEffect, choose_indexes, find_candidates, parse_indexes
from layoutopt.indexes.stored import stored_indexes
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query, group_queries
from layoutopt.model.udf import Udfs
from layoutopt.model.vectors import pack
from layoutopt.planning.automatic import plan_best
from layoutopt.planning.pairs import read_pairs
from layoutopt.planning.plan import DEFAULTS
from layoutopt.planning.segment_evaluation import choose_segments
from layoutopt.scan.table import Table
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.planning.source_rows import name_source, open_by_spark, open_source_rows
from layoutopt.writer.dry_run import dry_run_catalog
from layoutopt.writer.segment import gather_segment
from layoutopt.writer.task import WriteJob, write_layouts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from layoutopt.spark.core.sessions import AnySession

# Bytes of an index that a load's driver may hold, for all blocks.
_MOST_HELD: Final = 1 << 30


def plan_with_indexes(
    spark: AnySession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    request: PlanRequest = DEFAULTS,
    progress: Progress = silent,
) -> Plan:
    """Plan as :func:`~layoutopt.planning.automatic.plan_best`, with the requested indexes.

    Raises:
        SettingError: an index that no load could build; as that function.
        PlanError: as that function.
    """
    # Checked before the work begins.
    functions: Udfs = {}
    if not callable(spark):
        from layoutopt.spark.core.functions import find_declared_udfs

        functions = find_declared_udfs(spark)
    indexes = parse_indexes(request.index, document.schema, document.features.settings, functions)
    source = pin_version(source) if isinstance(source, str) else source
    if isinstance(request.pairs, Path):
        request = replace(request, pairs=read_pairs(request.pairs, document, request.partition_by))
    plan = replace(
        plan_best(partial(open_source_rows, spark, source), document, request, progress),
        indexes=indexes,
        file_bytes=int(request.file_bytes),
        parquet_indexes=tuple(sorted(request.parquet_index)),
    )
    if request.index_budget is None:
        return plan
    return _add_indexes(spark, source, plan, document, request.index_budget, progress)


def _add_indexes(
    spark: AnySession,
    source: DataFrame | str | Path,
    plan: Plan,
    document: FeaturesDocument,
    share: float,
    say: Progress,
) -> Plan:
    """Add indexes to a plan, of at most this share of the data's compressed bytes, the plan's own indexes included.

    The plan predicts ``index_share``, their bytes in the data's, and ``index_saves``: the share of the bytes read by
    queries held out that they save. It is unchanged where too few queries can be held out, or none needs an index.
    """
    filters = [query.filter.root for query in document.queries]
    possible = tuple(spec for spec in find_candidates(filters) if spec not in plan.indexes)
    parts = splits(document.queries)
    if not parts or not possible:
        say("no indexes: " + ("the log asks for none" if parts else "its queries are too few to choose by"))
        return plan
    say(f"trying segments, for {len(possible)} indexes")
    trial = _measure_indexes(spark, source, plan, possible, document)
    if trial is None:
        return plan
    folds = [_replay(trial, document, training, held) for training, held in parts]
    read = np.concatenate([fold.read for fold in folds])
    own_sizes, sizes = trial.sizes[: len(plan.indexes)], trial.sizes[len(plan.indexes) :]
    indexes = []
    for i, (size, held_size) in enumerate(zip(sizes, trial.held, strict=True)):
        skipped = np.concatenate([fold.skipped[i] for fold in folds])
        index = IndexEffect(skipped, size, size * sum(fold.reading_weights[i] for fold in folds))
        indexes.append(index if held_size <= _MOST_HELD else replace(index, size=inf))
    chosen = choose_indexes(indexes, read, share * trial.bytes - sum(own_sizes))
    if not chosen:
        say(f"no indexes: none saves queries held out more than they read of it, within {share:.1%} of the data")
        return plan
    for i in chosen:
        say(f"indexing {possible[i]}")
    spent = sum(own_sizes) + sum(sizes[i] for i in chosen)
    saved = float(read[np.logical_or.reduce([indexes[i].skipped for i in chosen])].sum())
    figures = {"index_share": spent / trial.bytes, "index_saves": saved / float(read.sum())}
    added = tuple(possible[i] for i in chosen)
    return replace(plan, indexes=(*plan.indexes, *added), predicted={**plan.predicted, **figures})


@dataclass(frozen=True, eq=False)
class _IndexTrial:
    """The blocks of some segments, measured with the plan's indexes and possible ones; and the table's rows."""

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


def _measure_indexes(
    spark: AnySession,
    source: DataFrame | str | Path,
    plan: Plan,
    possible: tuple[IndexSpec, ...],
    document: FeaturesDocument,
) -> _IndexTrial | None:
    """Make the blocks of some segments; None where the source has no rows."""
    from layoutopt.spark.core.featurize import with_feature_words, with_index_values
    from layoutopt.spark.core.sessions import limit_method_size
    from layoutopt.spark.core.workers import map_segments
    from layoutopt.spark.planning.frame_rows import select_segment_rows

    rows = open_by_spark(spark, source, document, plan.partition_by)
    frame = rows.frame
    with translate_spark_errors(name_source(source)), limit_method_size(frame.sparkSession):
        chosen = choose_segments(rows, plan.segment_rows)
        if not chosen.segments:
            return None
        n, trial = len(chosen.segments), replace(plan, indexes=(*plan.indexes, *possible))
        shares = feature_shares(plan.features, plan.queries)
        job = WriteJob(trial, shares, "sampled", new_load_id(), 0, ("sampled",) * n, tuple(range(n)), rehearsal=True)
        featurised = with_feature_words(select_segment_rows(frame, plan, chosen), plan.features.features)
        indexed = with_index_values(featurised, trial.indexes)
        measured = map_segments(indexed, n, partial(_measure_segment, job))
    if not measured:
        return None
    blocks = pa.concat_tables([measured[number] for number in sorted(measured)])
    return _IndexTrial(plan, possible, job, blocks, sum(chosen.partition_rows.values()))


def _measure_segment(job: WriteJob, number: int, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return a segment's blocks, from all of its rows."""
    segment = gather_segment(job.plan, batches)
    assert segment is not None, "a segment has rows"
    return write_layouts(job, segment)[0]


@dataclass(frozen=True, eq=False)
class _FoldResult:
    """The result of replaying the queries that one split holds out, by their weights.

    Attributes:
        read: the bytes that each reads of each block without the possible indexes, ``float64[queries, blocks]``.
        skipped: for each possible index the blocks that each query could skip by it, ``bool[queries, blocks]``.
        reading_weights: how many statements would read each possible index.
    """

    read: Floats
    skipped: list[Bits]
    reading_weights: list[float]


def _replay(
    trial: _IndexTrial, document: FeaturesDocument, training: Sequence[Query], held: Sequence[Query]
) -> _FoldResult:
    """Replay queries held out on the blocks, with only the features that the training queries make."""
    known = {feature.predicates for feature in mine_subset(document, training).features}
    is_known = np.array([feature.predicates in known for feature in trial.plan.features], dtype=np.bool_)
    blocks = _without_features(trial.blocks, ~is_known)
    table = Table(dry_run_catalog(trial.plan, trial.job, blocks))
    (source,) = table.sources
    block_table = BlockTable.from_arrow(blocks, trial.job.plan)
    statistics = [
        replace(source.block_statistics, indexes=stored_indexes([spec], block_table)) for spec in trial.possible
    ]
    features, queries = source.features_under(trial.plan.settings), group_queries(held)
    read = np.zeros((len(queries), source.blocks.n))
    skipped = [np.zeros(read.shape, np.bool_) for _ in trial.possible]
    reading_weights = [0.0] * len(skipped)
    for place, query in enumerate(queries):
        root = query.filter.root
        (pruned,) = table.prune(root, query.columns)
        read[place] = query.weight * np.where(pruned.read, pruned.bytes, 0)
        for i, (spec, with_index) in enumerate(zip(trial.possible, statistics, strict=True)):
            if spec.subject.columns <= root.columns:
                skipped[i][place] = cannot_match(root, with_index, features)
                reading_weights[i] += query.weight * bool(pruned.read.any())
    return _FoldResult(read, skipped, reading_weights)


def _without_features(blocks: pa.Table, unknown: Bits) -> pa.Table:
    bits = pack(unknown[None, :])[0]
    measured = np.asarray(pa.compute.list_flatten(blocks["words"])).view(np.uint64).reshape(blocks.num_rows, -1)
    place, field = blocks.schema.get_field_index("words"), blocks.schema.field("words")
    return blocks.set_column(place, field, pa.array(list((measured | bits).view(np.int64)), field.type))
