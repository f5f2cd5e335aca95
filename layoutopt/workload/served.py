"""Weaken filters to what engines send to a catalog that plans scans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from layoutopt.model.predicates import TRUE, And, Col, Constant, Filter, InSet, Node, Or, conjunction, disjunction
from layoutopt.model.query import Query


def weaken_filter(node: Node) -> Node:
    """Return the strictest filter that Iceberg can express and that is TRUE wherever this one is.

    Iceberg has comparisons of columns with constants, joined by AND and OR. Comparisons of two columns, functions and
    patterns become TRUE.

    >>> from layoutopt.model.predicates import Comparison
    >>> from layoutopt.model.values import ValueSet
    >>> a, b = Col("a", "int"), Col("b", "int")
    >>> small = InSet(a, ValueSet.interval(None, 5))
    >>> pair = [small, Comparison(a, "<", b)]
    >>> weaken_filter(conjunction(pair)) == small, weaken_filter(disjunction(pair))
    (True, Constant(value=True))
    """
    if isinstance(node, And):
        return conjunction(map(weaken_filter, node.children))
    if isinstance(node, Or):
        return disjunction(map(weaken_filter, node.children))
    is_plain = isinstance(node, Constant) or (isinstance(node, InSet) and isinstance(node.subject, Col))
    return node if is_plain else TRUE


def split_served(queries: Iterable[Query], share: float) -> tuple[Query, ...]:
    """Return a log: a share of each statement's runs comes through a catalog, weakened by :func:`weaken_filter`.

    ``share`` is that of the weights, from 0 to 1. A query whose filter Iceberg can express is unchanged; any other
    becomes two.
    """
    return tuple(part for query in queries for part in _split_query(query, share))


def _split_query(query: Query, share: float) -> Iterator[Query]:
    sent_filter = weaken_filter(query.filter.root)
    if sent_filter == query.filter.root or share == 0:
        yield query
        return
    if share < 1:
        yield replace(query, weight=query.weight * (1 - share))
    yield replace(query, weight=query.weight * share, filter=Filter.of(sent_filter), exact=False)
