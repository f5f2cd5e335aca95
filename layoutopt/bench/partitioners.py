"""`layoutopt bench partitioners`: what partitioners make of the feature vectors of one segment of each stream.

Their objective is the exact one, rows that the training queries cannot skip. Ward's method runs twice: by the weights
of Equation 3.1, as the thesis has it, and by the marginal weights that plans have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import SEED, Bench, data_step, read_features, source_rows
from layoutopt.bench.tpch.queries import chosen_streams
from layoutopt.features.weights import feature_weights
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query, classes
from layoutopt.partitioning.block_sizes import blocking_lower_bound, min_rows_for
from layoutopt.partitioning.objective import SkipSetObjective, objective_of, scanned
from layoutopt.partitioning.registry import PARTITIONERS, WARD, find_partitioner

if TYPE_CHECKING:
    from layoutopt.methods.interface import PartitionHistogram

PARTITION_BY: Final = "o_year"
BLOCKS: Final = 90  # in a segment: a year in blocks of 10,000 rows, at scale factor 1
MAX_VECTORS: Final = 10_000
THESIS: Final = "ward, weights of Equation 3.1"


@dataclass(frozen=True)
class Segment:
    """One partition of a stream's table: the vectors, what their blocks are judged by, and the weights for Ward's."""

    stream: str
    queries: tuple[Query, ...]
    features: FeatureSet
    pairs: PartitionHistogram

    @property
    def objective(self) -> SkipSetObjective:
        """Rows that the training queries cannot skip."""
        return objective_of(self.queries, self.features, self.pairs.query_weights, self.pairs.vectors.rows)

    @property
    def thesis_weights(self) -> Floats:
        """A feature weighs as much as the queries that it subsumes (Eq. 3.1)."""
        return feature_weights(self.features.matrix(self.queries), self.pairs.query_weights)


@dataclass(frozen=True)
class PartitionerFigure:
    """What one partitioner made of one segment.

    Attributes:
        stream: of queries.
        vectors: distinct ones of the segment.
        partitioner: its name.
        blocks: how many it made.
        of_full_scan: share of the rows that the training queries read.
        of_bound: the same over what no blocks can beat.
        seconds: it took.
    """

    stream: str
    vectors: int
    partitioner: str
    blocks: int
    of_full_scan: float
    of_bound: float
    seconds: float


def partitioner_figures(
    scale: float = 0.1,
    *,
    root: Path = DEFAULT_ROOT,
    streams: Sequence[str] = (),
    names: Sequence[str] = tuple(PARTITIONERS),
    say: Callable[[str], None],
) -> tuple[PartitionerFigure, ...]:
    """Count the feature vectors of a middle year of each stream's table, and let every partitioner make blocks of them.

    All streams when ``streams`` is empty. Features found before under ``root``, the folder of all experiments, are used
    again.

    Raises:
        SettingError: a scale factor that can't be generated, or a stream or partitioner that is not known.
    """
    asked = chosen_streams(streams)
    with spark_when_needed("layoutopt-partitioners") as spark:
        bench = Bench(TpchData(scale, root), spark)
        run(data_step(bench), say)
        segments = [segment_of(bench, stream, say) for stream in asked]
    return tuple(figure for segment in segments for figure in compared(segment, names, say))


def segment_of(bench: Bench, stream: str, say: Callable[[str], None]) -> Segment:
    """Analyse a stream's log, if that is not done, and count the vectors of a middle year of its table."""
    from layoutopt.spark.planning.source_profile import Counting, count_histograms

    document = read_features(bench, stream, say)
    queries = tuple(classes(document.queries))
    say(f"{stream}: counting feature vectors")
    rows = source_rows(bench, document.schema)
    counting = Counting(rows, queries, document.schema, PARTITION_BY, MAX_VECTORS, say)
    kept, partitions = count_histograms(counting, document.features)
    return Segment(stream, queries, kept, partitions[len(partitions) // 2])


def compared(segment: Segment, names: Sequence[str], say: Callable[[str], None]) -> Iterator[PartitionerFigure]:
    """What Ward's method by the thesis's weights makes of a segment, and each of the partitioners named."""
    vectors, objective = segment.pairs.vectors, segment.objective
    min_rows = min_rows_for(max(1, vectors.rows // BLOCKS))
    full = vectors.rows * float(objective.weights.sum())
    bound = blocking_lower_bound(objective, vectors, min_rows)
    ways = [(THESIS, WARD, segment.thesis_weights), *((name, name, segment.pairs.weights) for name in names)]
    for label, name, weights in ways:
        say(f"{segment.stream}: {label}")
        start = perf_counter()
        blocks = find_partitioner(name)(vectors, weights, min_rows, SEED, objective)
        seconds = round(perf_counter() - start, 1)
        read = scanned(objective, blocks, vectors)
        yield PartitionerFigure(
            segment.stream, len(vectors), label, blocks.n_blocks, read / full, read / bound, seconds
        )


def print_partitioners(console: Console, figures: Sequence[PartitionerFigure]) -> None:
    """Print a table a stream: what each partitioner reached and took, and how it compares with Ward's method."""
    for stream in dict.fromkeys(figure.stream for figure in figures):
        of_stream = [figure for figure in figures if figure.stream == stream]
        read = {figure.partitioner: figure.of_full_scan for figure in of_stream}
        title = f"{stream}: rows that the training queries read, {of_stream[0].vectors:,} vectors of one year"
        table = Table("partitioner", title=title, title_justify="left")
        for name in ("blocks", "of a full scan", "of the lower bound", "of the thesis's Ward", "of Ward", "seconds"):
            table.add_column(name, justify="right")
        for one in of_stream:
            ratios = [f"{one.of_full_scan / read[to]:.3f}" if to in read else "" for to in (THESIS, WARD)]
            shares = (f"{one.of_full_scan:.2%}", f"{one.of_bound:.3f}", *ratios, f"{one.seconds:.1f}")
            table.add_row(one.partitioner, str(one.blocks), *shares)
        console.print(table)
