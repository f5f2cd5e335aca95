"""Feature vectors in Spark SQL, packed into bigint words without any Python per row (Sun 2017, 3.4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.errors import BoundError, SettingError
from layoutopt.indexes.expressions import left_to_spark
from layoutopt.model.feature import Feature
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import describe, to_sql
from layoutopt.model.schema import value_names, word_names
from layoutopt.model.types import quoted
from layoutopt.model.vectors import WORD_BITS, VectorCounts
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.sessions import compiled_in_parts
from layoutopt.writer.evaluation import features_left_to_spark, words_of

_COUNT = "_count"
# (vector, count) pairs that the driver takes in at most: about a gigabyte at 128 features.
MAX_PAIRS = 8_000_000


def feature_sql(feature: Feature) -> str:
    """The feature as a Spark SQL condition: all of its predicates hold."""
    return " AND ".join(f"({to_sql(predicate)})" for predicate in feature.predicates) or "true"


def word_sql(features: Sequence[Feature], word: int) -> str:
    """One word of the feature vectors as a Spark SQL expression of type bigint.

    Bit ``i`` is 1 where feature ``64 * word + i`` is TRUE; NULL counts as FALSE. Bits are joined by ``|``, since a sum
    would overflow at bit 63.
    """
    members = features[word * WORD_BITS : (word + 1) * WORD_BITS]
    bits = [f"if({feature_sql(feature)}, shiftleft(1L, {i}), 0L)" for i, feature in enumerate(members)]
    return _or_tree(bits)


def _or_tree(terms: Sequence[str]) -> str:
    """The terms joined by ``|`` as a balanced tree: code that is generated for it nests only as deep as its logarithm.

    >>> _or_tree(["a", "b", "c"])
    '(a | (b | c))'
    """
    if len(terms) <= 1:
        return terms[0] if terms else "0L"
    middle = len(terms) // 2
    return f"({_or_tree(terms[:middle])} | {_or_tree(terms[middle:])})"


def word_columns(features: Sequence[Feature]) -> list[Column]:
    """The feature vectors of rows: bigint columns ``_w0`` .., bit patterns of the model's uint64 words."""
    return [F.expr(word_sql(features, i)).alias(name) for i, name in enumerate(word_names(len(features)))]


def with_feature_words(df: DataFrame, features: Sequence[Feature], columns: Iterable[str] | None = None) -> DataFrame:
    """The rows, and the words over those of the features that tasks don't find by the keys of their columns.

    Args:
        df: the rows.
        features: all features; of those of functions, LIKE and users are words (:mod:`layoutopt.writer.evaluation`).
        columns: the columns that go on; all when None.
    """
    names = list(df.columns if columns is None else columns)
    left = [features[i] for i in features_left_to_spark(features, names)]
    return df.select(*map(quoted, names), *(word_columns(left) if left else ()))


def index_values(df: DataFrame, indexes: Sequence[IndexSpec]) -> DataFrame:
    """The rows with the values of the indexed expressions that are left to Spark: columns ``_wx0`` ..

    Raises:
        SettingError: Spark gives an expression another type than filters of it are taken to have.
    """
    computed = left_to_spark(spec.subject for spec in indexes)
    names = value_names(len(computed))
    found = df.select("*", *(F.expr(to_sql(expr)).alias(name) for expr, name in zip(computed, names, strict=True)))
    for expr, name in zip(computed, names, strict=True):
        given = found.schema[name].dataType.simpleString()
        if given != expr.type:
            raise SettingError(f"{describe(expr)} is {given} to Spark, not {expr.type}; leave the index of it out")
    return found


def vector_counts(
    df: DataFrame, features: Sequence[Feature], by: str | None = None, max_pairs: int = MAX_PAIRS
) -> dict[PlainValue, VectorCounts]:
    """The distinct vectors and their counts, by value of the column ``by``, from one SQL aggregate.

    Args:
        df: the source.
        features: bit ``i`` is feature ``i``.
        by: the partition column; None puts all rows under the key None.
        max_pairs: refuse more pairs than these, which would not fit the driver.

    Raises:
        BoundError: there are more pairs.
    """
    names = word_names(len(features))
    keys = [partition_column(df, by).alias("_key")]
    grouped = df.select(*keys, *word_columns(features)).groupBy("_key", *names).agg(F.count("*").alias(_COUNT))
    with compiled_in_parts(df.sparkSession):
        pairs = grouped.limit(max_pairs + 1).toArrow()
    return counts_by_key(pairs, len(features), max_pairs)


def counts_by_key(pairs: pa.Table, n_features: int, max_pairs: int = MAX_PAIRS) -> dict[PlainValue, VectorCounts]:
    """The vectors of each key with their counts, in the order of the vectors, whatever the order of the pairs.

    Args:
        pairs: the key ``_key``, the words of a vector, and the ``_count`` of its rows.
        n_features: of the vectors.
        max_pairs: refuse more pairs than these.

    Raises:
        BoundError: there are more pairs.
    """
    if pairs.num_rows > max_pairs:
        raise BoundError(
            f"{n_features} features make more than {max_pairs} pairs of partition and vector; lower num_features"
        )
    found: dict[PlainValue, VectorCounts] = {}
    coded = pairs["_key"].combine_chunks().dictionary_encode(null_encoding="encode")
    codes = np.asarray(coded.indices, dtype=np.int64)
    words = words_of(pairs, n_features)
    counts = np.asarray(pairs[_COUNT], dtype=np.int64)
    in_order = np.lexsort((*words.T[::-1], codes))
    for code, key in enumerate(coded.dictionary.to_pylist()):
        rows = in_order[codes[in_order] == code]
        found[key] = VectorCounts(words[rows], counts[rows], n_features)
    return found


def pairs_table(counts: Mapping[PlainValue, VectorCounts], names: PartitionNames) -> pa.Table:
    """The pairs as a table to look at: ``partition`` as text, ``words`` as a list of bit patterns, ``count``."""
    texts = {key: None if key is None else str(names.scalar(key)) for key in counts}
    partitions = [texts[key] for key, vectors in counts.items() for _ in range(len(vectors))]
    words = [row.tolist() for vectors in counts.values() for row in vectors.words.view(np.int64)]
    rows = [count for vectors in counts.values() for count in vectors.counts.tolist()]
    schema = pa.schema([("partition", pa.string()), ("words", pa.list_(pa.int64())), ("count", pa.int64())])
    return pa.table([partitions, words, rows], schema=schema)
