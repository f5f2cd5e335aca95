"""Which blocks Spark leaves out by itself, by the query's own filter: a guess that only costs time where it is wrong.

Spark pushes comparisons of columns with constants to Parquet, which skips a row group by the minima and maxima in its
footer and, for a few values that are asked for, by the dictionary of the column's chunk: where none of the values is in
it, no row matches. A feature's bits say the same of a block, so they tell what a dictionary will.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from layoutopt.catalog.keys import FLOATS, INTEGERS
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import And, Col, InSet, Node, Or, conjunction, conjuncts
from layoutopt.model.values import ValueSet
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.reads import TableRead
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.spark.session.pushdown import is_pushable

_MOST_VALUES: Final = 10
"""Of longer lists Spark pushes the least and the greatest value alone, unless the session takes them
(:mod:`layoutopt.spark.session.listing`): it may then skip more than is guessed here."""


def skipped_by_spark(read: TableRead, pruned: PrunedPlan) -> Bits:
    """The blocks of a plan that Spark skips by itself where it opens their files, bool[n]."""
    source, root = pruned.source, read.scan.filter.root
    pushed = [part for part in conjuncts(root) if _is_pushed(part, read)]
    if not pushed:
        return np.zeros(source.blocks.n, dtype=np.bool_)
    skipped = cannot_match(conjunction(pushed), source.block_statistics, None, by_indexes=False)
    if _has_dictionaries(read):
        features = source.features_under(source.plan.settings)
        for part in filter(_asks_for_few, pushed):
            skipped |= cannot_match(part, source.block_statistics, features, by_statistics=False, by_indexes=False)
    return skipped


def _has_dictionaries(read: TableRead) -> bool:
    """Whether Spark may ask the dictionaries of a table's columns: it would find 0.0 and -0.0 different in them."""
    return not any(column.type in FLOATS for column in read.table.schema.columns)


def _is_pushed(node: Node, read: TableRead) -> bool:
    """Whether a part of a filter compares columns with constants alone, and Parquet may be asked for all of them."""
    if isinstance(node, And | Or):
        return all(_is_pushed(child, read) for child in node.children)
    if not isinstance(node, InSet) or not isinstance(node.subject, Col):
        return False
    return is_pushable(read.table, read.table.schema.find(node.subject.name), read.layouts)


def _asks_for_few(node: Node) -> bool:
    """Whether a column is to have one of a few values."""
    if not isinstance(node, InSet) or node.null:
        return False
    points = node.values.points()
    if points is not None:
        return len(points) <= _MOST_VALUES
    return node.subject.type in INTEGERS and _width(node.values) <= _MOST_VALUES


def _width(values: ValueSet) -> float:
    """How many integers a set has."""
    bounded = all(isinstance(low, int) and isinstance(high, int) for low, high in values.intervals)
    return sum(high - low for low, high in values.intervals) if bounded else np.inf  # type: ignore[operator, misc]
