"""Samples of rows as feature vectors, for methods that search over more features than rows can be counted by.

With hundreds of global features nearly every row has a vector of its own (Sun 2017, 4.5 samples too). Rows that Spark
reads are chosen by a hash of their content, so that the same source gives the same sample on any number of cores: of
all columns but long ones (texts, nested) that no feature is about, since reading and hashing those would be most of the
work. Rows of plain files are chosen by their places instead (:mod:`layoutopt.direct.survey`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.direct.survey import DRAWS, limit_of
from layoutopt.model.feature import FeatureSet
from layoutopt.model.types import quoted
from layoutopt.model.vectors import VectorCounts
from layoutopt.spark.core.featurize import vector_counts
from layoutopt.spark.core.partition_values import literal, null_first, of_partitions, partition_column
from layoutopt.spark.core.source import hashable
from layoutopt.spark.planning.plain_rows import PlainRows, Rows

SAMPLED_PARTITIONS = 3
SAMPLE_ROWS = 40_000
"""Rows sampled of one partition."""

_SHORT = (NumericType, DateType, TimestampType, TimestampNTZType)


def sample_vectors(
    rows: DataFrame,
    features: FeatureSet,
    partition_by: str | None,
    partition_rows: Mapping[PlainValue, int],
    sample_rows: int = SAMPLE_ROWS,
) -> dict[PlainValue, VectorCounts]:
    """About ``sample_rows`` rows' vectors of each of some partitions.

    Args:
        rows: the source.
        features: bit ``i`` is feature ``i``.
        partition_by: the partition column, or None.
        partition_rows: the rows of each partition to sample, by its value.
        sample_rows: rows wanted of each.
    """
    some = drawn_rows(rows, features, partition_by, partition_rows, sample_rows)
    return vector_counts(some, features.features, partition_by)


def drawn_rows(
    rows: DataFrame,
    features: FeatureSet,
    partition_by: str | None,
    partition_rows: Mapping[PlainValue, int],
    sample_rows: int = SAMPLE_ROWS,
) -> DataFrame:
    """The rows that :func:`sample_vectors` counts, with the same arguments."""
    draw = _draw(rows, features)
    drawn_below = {value: limit_of(sample_rows / max(1, count)) for value, count in partition_rows.items()}
    if partition_by is None:
        return rows.where(draw < F.lit(drawn_below.get(None, 0)))
    key, type = F.col(quoted(partition_by)), rows.schema[partition_by].dataType
    limit = F.lit(0)
    for value, below in drawn_below.items():
        limit = F.when(key.eqNullSafe(literal(value, type)), F.lit(below)).otherwise(limit)
    return of_partitions(rows, partition_by, list(drawn_below)).where(draw < limit)


def rows_by_partition(rows: Rows, partition_by: str | None) -> dict[PlainValue, int]:
    """The rows of each partition by its value, NULL first; a table without partitions is one, of the value None."""
    if isinstance(rows, PlainRows):
        return dict(rows.partition_rows)
    keyed = rows.groupBy(partition_column(rows, partition_by).alias("_key"))
    counted = keyed.agg(F.count(F.lit(1)).alias("_rows")).toArrow()
    found = dict(zip(counted["_key"].to_pylist(), counted["_rows"].to_pylist(), strict=True))
    return {value: found[value] for value in sorted(found, key=null_first)}


def rows_drawn(rows: DataFrame, features: FeatureSet, share: float) -> DataFrame:
    """About that share of the rows, all of their columns; the same ones whatever their order."""
    return rows.where(_draw(rows, features) < F.lit(limit_of(share)))


def _draw(rows: DataFrame, features: FeatureSet) -> Column:
    """A number from 0 to ``_DRAWS - 1`` that depends on a row's content."""
    used = frozenset().union(*(feature.columns for feature in features))
    short = [field for field in rows.schema.fields if field.name in used or isinstance(field.dataType, _SHORT)]
    values = [hashable(field.name, field.dataType) for field in short or rows.schema.fields]
    return F.pmod(F.xxhash64(*values), F.lit(DRAWS))
