"""Evaluate feature vectors in Spark SQL, as bigint words, without Python code per row (Sun 2017, 3.4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import SettingError
from layoutopt.evaluation.expressions import select_for_spark
from layoutopt.evaluation.predicates import features_left_to_spark
from layoutopt.model.feature import Feature
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import describe, to_sql
from layoutopt.model.schema import value_names, word_names
from layoutopt.model.types import quote_name
from layoutopt.model.vectors import WORD_BITS, VectorCounts
from layoutopt.sources.profile import COUNT, MAX_PAIRS, counts_by_key
from layoutopt.spark.core.partition_values import partition_column
from layoutopt.spark.core.sessions import limit_method_size
from layoutopt.spark.core.versions import to_arrow


def _word_sql(features: Sequence[Feature], word: int) -> str:
    """Return one word of the feature vectors as a Spark SQL expression of type bigint.

    Bit ``i`` is 1 where feature ``64 * word + i`` is TRUE; NULL counts as FALSE. Bits are joined by ``|``, since a sum
    would overflow at bit 63.
    """
    members = features[word * WORD_BITS : (word + 1) * WORD_BITS]
    bits = []
    for i, feature in enumerate(members):
        condition = " AND ".join(f"({to_sql(predicate)})" for predicate in feature.predicates) or "true"
        bits.append(f"if({condition}, shiftleft(1L, {i}), 0L)")
    return _or_tree(bits)


def _or_tree(terms: Sequence[str]) -> str:
    """Join the terms by ``|`` as a balanced tree, so that generated code nests only logarithmically deep.

    >>> _or_tree(["a", "b", "c"])
    '(a | (b | c))'
    """
    if len(terms) <= 1:
        return terms[0] if terms else "0L"
    middle = len(terms) // 2
    return f"({_or_tree(terms[:middle])} | {_or_tree(terms[middle:])})"


def word_columns(features: Sequence[Feature]) -> list[Column]:
    """Return the feature vectors as bigint columns ``_w0`` .., bit patterns of the model's uint64 words."""
    return [F.expr(_word_sql(features, i)).alias(name) for i, name in enumerate(word_names(len(features)))]


def with_feature_words(df: DataFrame, features: Sequence[Feature], columns: Iterable[str] | None = None) -> DataFrame:
    """Return the rows with words over the features that tasks can't evaluate by the keys of their columns.

    These are features of functions, LIKE and users (:mod:`layoutopt.evaluation.predicates`). ``columns`` are kept, all
    when None.
    """
    names = list(df.columns if columns is None else columns)
    left = [features[i] for i in features_left_to_spark(features, names)]
    return df.select(*map(quote_name, names), *(word_columns(left) if left else ()))


def with_index_values(df: DataFrame, indexes: Sequence[IndexSpec]) -> DataFrame:
    """Return the rows with the values of indexed expressions that Spark computes: columns ``_wx0`` ..

    Raises:
        SettingError: Spark's type of an expression is not the one that filters assume.
    """
    computed = select_for_spark(spec.subject for spec in indexes)
    names = value_names(len(computed))
    rows = df.select("*", *(F.expr(to_sql(expr)).alias(name) for expr, name in zip(computed, names, strict=True)))
    for expr, name in zip(computed, names, strict=True):
        type = rows.schema[name].dataType.simpleString()
        if type != expr.type:
            raise SettingError(f"{describe(expr)} is {type} to Spark, not {expr.type}; leave the index of it out")
    return rows


def count_vectors(
    df: DataFrame, features: Sequence[Feature], by: str | None = None, max_pairs: int = MAX_PAIRS
) -> dict[PlainValue, VectorCounts]:
    """Count the distinct vectors by value of the partition column ``by``, in one SQL aggregate.

    Without a column all rows have the key None.

    Raises:
        BoundError: there are more than ``max_pairs``, which the driver can't hold.
    """
    names = word_names(len(features))
    key = partition_column(df, by).alias("_key")
    grouped = df.select(key, *word_columns(features)).groupBy("_key", *names).agg(F.count("*").alias(COUNT))
    with limit_method_size(df.sparkSession):
        pairs = to_arrow(grouped.limit(max_pairs + 1))
    return counts_by_key(pairs, len(features), max_pairs)
