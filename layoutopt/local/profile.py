"""What planning asks of a source's rows, answered by tasks that read the files by Arrow.

A survey is one pass over the columns that queries filter: how often each feature vector occurs in each partition, and
between which values each column lies there. Rows are drawn by their places in the files, so that the same files give
the same rows on any number of cores. Nothing is skipped by what is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import FLOATS
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import NeedsSparkError
from layoutopt.local.parquet_files import plain_partitions
from layoutopt.local.splits import CutJob, Split, rows_of_split
from layoutopt.local.vectors import evaluate_words
from layoutopt.model.arrays import Ints, Words
from layoutopt.model.feature import Feature
from layoutopt.model.schema import Column, Schema, word_names
from layoutopt.writer.evaluation import segment_words
from layoutopt.writer.segment import parcel_of

KEY: Final = "_key"
COUNT: Final = "_count"
ROWS: Final = "_rows"
CHUNK: Final = "_chunk"
DRAWS: Final = 1_000_000
"""A row is drawn where its number, of so many, is small enough."""

_ROW_BITS: Final = 40  # of a place; the file's number is above
_SPLITMIX: Final = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))

Folded: TypeAlias = tuple["str | list[str]", str, str]  # a column, how it is folded, the name of what comes of it


class Surveyed(NamedTuple):
    """What a survey found.

    Attributes:
        pairs: ``_key`` (the partition's value, plain), the words of a vector as int64, the ``_count`` of its rows.
        bounds: of each ``_key`` its ``_rows``, and of column ``i`` of those asked for the least value ``_low{i}``, the
            greatest ``_high{i}``, how many ``_n{i}`` are no NULL, and of floats how many ``_nan{i}`` are NaN, which
            least and greatest leave out.
    """

    pairs: pa.Table
    bounds: pa.Table


@dataclass(frozen=True)
class Survey:
    """What is asked; pickled to the tasks.

    Attributes:
        job: which rows and columns they read.
        features: bit ``i`` of a vector is feature ``i``.
        bounded: the columns whose bounds are asked for.
        most_pairs: that one task may find.
    """

    job: CutJob
    features: tuple[Feature, ...]
    bounded: tuple[Column, ...]
    most_pairs: int

    def of_task(self, number: int) -> Surveyed | None:
        """What the rows of one task say; None where there are none.

        Raises:
            NeedsSparkError: a file or a feature is not surely read as Spark reads it, or there are too many vectors.
        """
        with _left_to_spark():
            found: Surveyed | None = None
            for split in self.job.tasks[number]:
                for rows, _ in rows_of_split(self.job, split):
                    part = self.of_rows(rows)
                    found = part if found is None else self.merged([found, part])
                    if found.pairs.num_rows > self.most_pairs:
                        raise NeedsSparkError(f"a task finds more than {self.most_pairs} distinct vectors")
            return found

    def merged(self, parts: Sequence[Surveyed]) -> Surveyed:
        """One survey out of those of several parts of the rows."""
        pairs = pa.concat_tables(part.pairs for part in parts)
        bounds = pa.concat_tables(part.bounds for part in parts)
        how = {"_low": "min", "_high": "max"}
        names = [name for name in bounds.column_names if name != KEY]
        folded = [(name, how.get(name.rstrip("0123456789"), "sum"), name) for name in names]
        return Surveyed(_grouped(pairs, self._pair, [(COUNT, "sum", COUNT)]), _grouped(bounds, [KEY], folded))

    @property
    def _pair(self) -> list[str]:
        return [KEY, *word_names(len(self.features))]

    def of_rows(self, rows: pa.Table) -> Surveyed:
        """What some rows say."""
        keys = keys_of(self.job, rows)
        words = vectors(self.features, rows, self.job.read).view(np.int64)
        pairs = pa.Table.from_arrays([keys, *map(pa.array, np.ascontiguousarray(words.T))], self._pair)
        return Surveyed(_grouped(pairs, self._pair, [([], "count_all", COUNT)]), bounds_of(rows, keys, self.bounded))


@dataclass(frozen=True)
class ChunkCount:
    """How many rows of each partition there are in each chunk of the source; pickled to the tasks.

    Attributes:
        job: which rows they read.
        shift: the chunk of a row is its position without so many of its last bits.
    """

    job: CutJob
    shift: int

    def of_task(self, number: int) -> pa.Table | None:
        """``_key``, ``_chunk`` and ``_rows`` of one task's rows; None where there are none.

        Raises:
            NeedsSparkError: a file is not surely read as Spark reads it.
        """
        with _left_to_spark():
            parts = [
                self._of_rows(rows, low)
                for split in self.job.tasks[number]
                for rows, low in rows_of_split(self.job, split)
            ]
            return self.merged(parts) if parts else None

    def merged(self, parts: Sequence[pa.Table]) -> pa.Table:
        """One count out of those of several parts of the rows."""
        return _grouped(pa.concat_tables(parts), [KEY, CHUNK], [(ROWS, "sum", ROWS)])

    def _of_rows(self, rows: pa.Table, low: int) -> pa.Table:
        chunks = pa.array(np.arange(low, low + rows.num_rows) >> self.shift)
        of_rows = pa.table({KEY: keys_of(self.job, rows), CHUNK: chunks})
        return _grouped(of_rows, [KEY, CHUNK], [([], "count_all", ROWS)])


def with_nan(bounds: pa.Table, bounded: Sequence[Column]) -> pa.Table:
    """The bounds of a survey, NaN being greater than all numbers.

    Args:
        bounds: of all parts of the rows.
        bounded: the columns that they are of.
    """
    for i, column in enumerate(bounded):
        if column.type in FLOATS:
            low, high = bounds[f"_low{i}"], bounds[f"_high{i}"]
            some, nan = pc.greater(bounds[f"_nan{i}"], 0), pa.scalar(float("nan"), low.type)
            none = pc.and_(some, pc.is_null(low))
            for name, values in ((f"_low{i}", pc.if_else(none, nan, low)), (f"_high{i}", pc.if_else(some, nan, high))):
                bounds = bounds.set_column(bounds.column_names.index(name), name, values)
            bounds = bounds.drop_columns([f"_nan{i}"])
    return bounds


def bounds_of(rows: pa.Table, keys: pa.Array, bounded: Sequence[Column]) -> pa.Table:
    """The bounds of some columns of rows in each partition, as :class:`Surveyed` has them.

    Args:
        rows: with these columns.
        keys: the partition of each.
        bounded: the columns.
    """
    held: dict[str, pa.Array | pa.ChunkedArray] = {KEY: keys}
    folded: list[Folded] = [([], "count_all", ROWS)]
    for i, column in enumerate(bounded):
        values, name = rows[column.name], f"v{i}"
        folded += [(name, "min", f"_low{i}"), (name, "max", f"_high{i}"), (f"all{i}", "count", f"_n{i}")]
        held[f"all{i}"] = held[name] = values
        if column.type in FLOATS:
            nan = pc.fill_null(pc.is_nan(values), False)
            held |= {f"nan{i}": nan.cast(pa.int64()), name: pc.if_else(nan, pa.scalar(None, values.type), values)}
            folded.append((f"nan{i}", "sum", f"_nan{i}"))
    return _grouped(pa.table(held), [KEY], folded)


@dataclass(frozen=True)
class Draw:
    """Which rows are drawn; pickled to the tasks.

    Attributes:
        job: which rows and columns they read; splits of one file follow each other.
        below: by value of the partition column, plain, below which number of ``DRAWS`` its rows are drawn.
        firsts: of each split, by its path and start, the place of its first row, as :func:`places_in_files` has it.
    """

    job: CutJob
    below: Mapping[PlainValue, int]
    firsts: Mapping[tuple[str, int], int]

    def of_task(self, number: int) -> pa.Table | None:
        """The rows drawn of one task's, in the order of the files; None where it reads none.

        Raises:
            NeedsSparkError: a file is not surely read as Spark reads it.
        """
        with _left_to_spark():
            splits = self.job.tasks[number]
            parts = [self._drawn(split, *part) for split in splits for part in rows_of_split(self.job, split)]
            return pa.concat_tables(parts).combine_chunks() if parts else None

    def parcels(self, segment: int, split: Split, rows: pa.Table, low: int) -> Iterator[pa.RecordBatch]:
        """The rows drawn of some of a split as a parcel to a segment, in which they keep the order of the files.

        Args:
            segment: that takes them.
            split: the split.
            rows: some of its rows.
            low: the position in the source of the first of them.
        """
        drawn = self._drawn(split, rows, low)
        if drawn.num_rows:
            yield parcel_of(segment, self._first(split, low), drawn, self.job.compressed)

    def _first(self, split: Split, low: int) -> int:
        """The place of the row of a split at a position in the source."""
        return self.firsts[split.path, split.start] + low - split.low

    def _drawn(self, split: Split, rows: pa.Table, low: int) -> pa.Table:
        return rows.filter(pa.array(_numbers(self._first(split, low), rows.num_rows) < self._limits(rows)))

    def _limits(self, rows: pa.Table) -> Ints:
        keys = keys_of(self.job, rows).dictionary_encode("encode")
        limits: Ints = np.array([self.below.get(value, 0) for value in keys.dictionary.to_pylist()], dtype=np.int64)
        of_rows: Ints = limits[np.asarray(keys.indices)]
        return of_rows


def limit_of(share: float) -> int:
    """Below which number of ``DRAWS`` rows are drawn so that it is about a share of them, never none.

    >>> limit_of(0.25), limit_of(7), limit_of(0)
    (250000, 1000000, 1)
    """
    return max(1, round(DRAWS * min(1.0, share)))


def places_in_files(splits: Iterable[Split]) -> dict[tuple[str, int], int]:
    """The place of each split's first row, by its path and start: the file's number, then the row's in the file.

    Args:
        splits: all of the files, those of each in their order.
    """
    firsts = {}
    for number, (_, of_file) in enumerate(groupby(splits, key=lambda split: split.path)):
        first = number << _ROW_BITS
        for split in of_file:
            firsts[split.path, split.start] = first
            first += split.rows
    return firsts


def _numbers(first: int, count: int) -> Ints:
    """The numbers of neighbouring rows, below ``DRAWS``, as if by chance: their places, by splitmix64."""
    mixed = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    mixed *= _SPLITMIX[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _SPLITMIX[1]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SPLITMIX[2]
    numbers: Ints = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(DRAWS)).astype(np.int64)
    return numbers


def vectors(features: Sequence[Feature], rows: pa.Table, schema: Schema) -> Words:
    """Return the rows' feature vectors, ``uint64[n, w]``; raises as :func:`~layoutopt.local.vectors.evaluate_words`."""
    return segment_words(features, rows, lambda left: evaluate_words([features[place] for place in left], rows, schema))


def keys_of(job: CutJob, rows: pa.Table) -> pa.Array:
    """The partition of each row as its plain value; NULL in a table without partitions."""
    if job.partition_by is None:
        return pa.nulls(rows.num_rows, pa.int32())
    return plain_partitions(rows, job.partition_by)


@contextmanager
def _left_to_spark() -> Iterator[None]:
    """What Arrow can't tell is left to Spark."""
    try:
        yield
    except pa.ArrowException as error:
        raise NeedsSparkError(f"Arrow can't tell ({error})") from error


def _grouped(rows: pa.Table, by: Sequence[str], folded: Sequence[Folded]) -> pa.Table:
    """The rows folded by some columns: (column, how, the name of the result) each; NULL is a value as any other."""
    found = rows.group_by(list(by), use_threads=False).aggregate([(column, how) for column, how, _ in folded])
    given = [f"{column}_{how}" if column else how for column, how, _ in folded]
    return found.select([*by, *given]).rename_columns([*by, *(name for _, _, name in folded)])
