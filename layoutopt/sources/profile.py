"""Profile a source's rows for planning, in tasks that read the files by Arrow.

Rows are drawn by their places in the files, so that the same files give the same rows on any number of cores. Feature
vectors are counted and columns are bounded on these rows, in each partition. Nothing is skipped by these measurements.
Jobs are pickled to the tasks; their methods raise NeedsSparkError where Arrow might read a file or a feature otherwise
than Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import BoundError, NeedsSparkError
from layoutopt.evaluation.keys import FLOATS
from layoutopt.evaluation.predicates import read_word_columns, segment_words
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.feature import FeatureSet
from layoutopt.model.schema import Column, Schema, word_names
from layoutopt.model.vectors import VectorCounts
from layoutopt.sources.segments import Chunk
from layoutopt.sources.shuffle import CutJob, Splits, read_split
from layoutopt.sources.split import Split, plain_partition_values
from layoutopt.sources.vectors import evaluate_words
from layoutopt.writer.segment import pack_shuffle_batch

KEY: Final = "_key"
COUNT: Final = "_count"
ROWS: Final = "_rows"
CHUNK: Final = "_chunk"
DRAW: Final = "_draw"
# The driver holds at most so many (vector, count) pairs: about a gigabyte at 128 features.
MAX_PAIRS: Final = 8_000_000
# A row is drawn where its number, one of so many, is below a limit.
DRAWS: Final = 1_000_000

_FEW_BYTES: Final = 1 << 22  # of rows that are read at once where some of a split may be enough
_SPLITMIX: Final = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))

# A column (or no column), the aggregate function, and the name of the result.
_Aggregate: TypeAlias = tuple["str | list[str]", str, str]


class Profile(NamedTuple):
    """The vectors and bounds of some rows.

    Attributes:
        pairs: ``_key`` (the partition's plain value), the words of a vector as int64, the ``_count`` of its rows.
        bounds: by ``_key`` the partition's ``_rows``, and of the ``i``-th bounded column the least value ``_low{i}``,
            the greatest ``_high{i}``, and the number ``_n{i}`` of values other than NULL. NaN is the greatest float.
    """

    pairs: pa.Table
    bounds: pa.Table


def profile_rows(job: CutJob, rows: pa.Table, features: FeatureSet, bounded: Sequence[Column]) -> Profile:
    """Return the profile of rows that a job read; bit ``i`` of a vector is feature ``i``.

    Raises:
        NeedsSparkError: Arrow might read otherwise than Spark.
    """
    with _translate_arrow_errors():
        keys = _partition_keys(job, rows)
        words = evaluate_vectors(features, rows, job.read_schema).view(np.int64)
        pair = [KEY, *word_names(len(features))]
        pairs = pa.Table.from_arrays([keys, *map(pa.array, np.ascontiguousarray(words.T))], pair)
        bounds = _merge_nan_bounds(_measure_bounds(rows, keys, bounded), bounded)
        return Profile(_group(pairs, pair, [([], "count_all", COUNT)]), bounds)


@dataclass(frozen=True)
class ChunkCountJob:
    """A request for the rows of each partition and chunk; a row's chunk is its position without ``shift`` bits."""

    job: CutJob
    shift: int

    def run_task(self, splits: Splits) -> pa.Table | None:
        """Return ``_key``, ``_chunk`` and ``_rows`` of one task's rows; None where there are none."""
        with _translate_arrow_errors():
            parts = []
            for split in splits:
                for rows, low in read_split(self.job, split):
                    chunks = pa.array(np.arange(low, low + rows.num_rows) >> self.shift)
                    keyed = pa.table({KEY: _partition_keys(self.job, rows), CHUNK: chunks})
                    parts.append(_group(keyed, [KEY, CHUNK], [([], "count_all", ROWS)]))
            return self.merge(parts) if parts else None

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge the counts of several parts of the rows."""
        return _group(pa.concat_tables(parts), [KEY, CHUNK], [(ROWS, "sum", ROWS)])


def list_chunks(counts: pa.Table, shift: int) -> list[Chunk]:
    """Return the chunks of counts as of :class:`ChunkCountJob`, in the order of the source."""
    columns = (counts[name].to_pylist() for name in (KEY, CHUNK, ROWS))
    chunks = (Chunk(value, chunk << shift, rows) for value, chunk, rows in zip(*columns, strict=True))
    return sorted(chunks, key=lambda chunk: chunk.low)


def counts_by_key(pairs: pa.Table, n_features: int, max_pairs: int = MAX_PAIRS) -> dict[PlainValue, VectorCounts]:
    """Return the vectors of each key with their counts, in the order of the vectors.

    ``pairs`` are the key ``_key``, the words of a vector, and the ``_count`` of its rows, in any order.

    Raises:
        BoundError: there are more than ``max_pairs``.
    """
    if pairs.num_rows > max_pairs:
        raise BoundError(
            f"{n_features} features make more than {max_pairs} pairs of partition and vector; lower num_features"
        )
    vectors: dict[PlainValue, VectorCounts] = {}
    coded = pairs["_key"].combine_chunks().dictionary_encode(null_encoding="encode")
    codes = np.asarray(coded.indices, dtype=np.int64)
    words = read_word_columns(pairs, n_features)
    counts = np.asarray(pairs[COUNT], dtype=np.int64)
    in_order = np.lexsort((*words.T[::-1], codes))
    for code, key in enumerate(coded.dictionary.to_pylist()):
        rows = in_order[codes[in_order] == code]
        vectors[key] = VectorCounts(words[rows], counts[rows], n_features)
    return vectors


def _merge_nan_bounds(bounds: pa.Table, bounded: Sequence[Column]) -> pa.Table:
    """Return bounds with NaN as the greatest float, without the counts of NaN."""
    for i, column in enumerate(bounded):
        if column.type in FLOATS:
            low, high = bounds[f"_low{i}"], bounds[f"_high{i}"]
            has_nan, nan = pc.greater(bounds[f"_nan{i}"], 0), pa.scalar(float("nan"), low.type)
            only_nan = pc.and_(has_nan, pc.is_null(low))
            merged = {f"_low{i}": pc.if_else(only_nan, nan, low), f"_high{i}": pc.if_else(has_nan, nan, high)}
            for name, values in merged.items():
                bounds = bounds.set_column(bounds.column_names.index(name), name, values)
            bounds = bounds.drop_columns([f"_nan{i}"])
    return bounds


def _measure_bounds(rows: pa.Table, keys: pa.Array, bounded: Sequence[Column]) -> pa.Table:
    """Return the bounds of some columns by partition; ``keys`` are the rows'.

    Of floats they leave out NaN, which ``_nan{i}`` counts.
    """
    columns: dict[str, pa.Array | pa.ChunkedArray] = {KEY: keys}
    aggregates: list[_Aggregate] = [([], "count_all", ROWS)]
    for i, column in enumerate(bounded):
        values, name = rows[column.name], f"v{i}"
        aggregates += [(name, "min", f"_low{i}"), (name, "max", f"_high{i}"), (f"all{i}", "count", f"_n{i}")]
        columns[f"all{i}"] = columns[name] = values
        if column.type in FLOATS:
            nan = pc.fill_null(pc.is_nan(values), False)
            columns |= {f"nan{i}": nan.cast(pa.int64()), name: pc.if_else(nan, pa.scalar(None, values.type), values)}
            aggregates.append((f"nan{i}", "sum", f"_nan{i}"))
    return _group(pa.table(columns), [KEY], aggregates)


@dataclass(frozen=True)
class DrawJob:
    """A request for drawn rows, with their numbers ``_draw``.

    Attributes:
        job: the rows and columns that tasks read; splits of one file follow each other.
        limits: by the position of a split's first row, the limit of each partition, below which a row's number is
            drawn; nothing is drawn of other splits.
        enough: a task reads no more of a split once it drew so many rows of it; None reads all.
    """

    job: CutJob
    limits: Mapping[int, Mapping[PlainValue, int]]
    enough: int | None = None

    def run_task(self, splits: Splits) -> pa.Table | None:
        """Return the rows drawn of one task's, in the order of the files; None where it reads none."""
        with _translate_arrow_errors():
            parts = [part for split in splits for part in self._draw_split(split)]
            return pa.concat_tables(parts).combine_chunks() if parts else None

    def _draw_split(self, split: Split) -> Iterator[pa.Table]:
        drawn = 0
        for rows, low in read_split(self.job, split, None if self.enough is None else _FEW_BYTES):
            part = self._draw(split, rows, low)
            yield part
            drawn += part.num_rows
            if self.enough is not None and drawn >= self.enough:
                return

    def pack(self, segment: int, split: Split, rows: pa.Table, low: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows drawn of some of a split as a shuffle batch for a segment, in the order of the files.

        ``low`` is the position in the source of the first of these rows.
        """
        drawn = self._draw(split, rows, low)
        if drawn.num_rows:
            yield pack_shuffle_batch(segment, low, drawn, self.job.compressed)

    def _draw(self, split: Split, rows: pa.Table, low: int) -> pa.Table:
        if split.low not in self.limits:
            return rows.slice(0, 0).append_column(DRAW, pa.array([], pa.int32()))
        draws = pa.array(_draw_numbers(low, rows.num_rows).astype(np.int32))
        return select_drawn(self.job, rows.append_column(DRAW, draws), self.limits[split.low])


def select_drawn(job: CutJob, rows: pa.Table, limits: Mapping[PlainValue, int]) -> pa.Table:
    """Return the rows whose number ``_draw`` is below the limit of their partition; none of other partitions."""
    keys = _partition_keys(job, rows).dictionary_encode("encode")
    by_code = np.array([limits.get(value, 0) for value in keys.dictionary.to_pylist()], dtype=np.int64)
    return rows.filter(pa.array(np.asarray(rows[DRAW]) < by_code[np.asarray(keys.indices)]))


def draw_limit(share: float) -> int:
    """Return the limit of numbers, of ``DRAWS``, below which about a share of the rows is drawn; never 0.

    >>> draw_limit(0.25), draw_limit(7), draw_limit(0)
    (250000, 1000000, 1)
    """
    return max(1, round(DRAWS * min(1.0, share)))


def _draw_numbers(first: int, count: int) -> Ints:
    """Return pseudo-random numbers below ``DRAWS`` of neighbouring rows, from their positions by splitmix64."""
    mixed = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    mixed *= _SPLITMIX[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _SPLITMIX[1]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SPLITMIX[2]
    numbers: Ints = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(DRAWS)).astype(np.int64)
    return numbers


def evaluate_vectors(features: FeatureSet, rows: pa.Table, schema: Schema) -> Words:
    """Return the feature vectors, ``uint64[n, w]``; raises as :func:`~layoutopt.sources.vectors.evaluate_words`."""

    def evaluate(left: Sequence[int]) -> Words:
        return evaluate_words([features.features[i] for i in left], rows, schema, settings=features.settings)

    return segment_words(features.features, rows, evaluate)


def _partition_keys(job: CutJob, rows: pa.Table) -> pa.Array:
    if job.partition_by is None:
        return pa.nulls(rows.num_rows, pa.int32())
    return plain_partition_values(rows, job.partition_by)


@contextmanager
def _translate_arrow_errors() -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise NeedsSparkError(f"Arrow can't tell ({error})") from error


def _group(rows: pa.Table, by: Sequence[str], aggregates: Sequence[_Aggregate]) -> pa.Table:
    grouped = rows.group_by(list(by), use_threads=False)
    result = grouped.aggregate([(column, function) for column, function, _ in aggregates])
    names = [f"{column}_{function}" if column else function for column, function, _ in aggregates]
    return result.select([*by, *names]).rename_columns([*by, *(name for _, _, name in aggregates)])
