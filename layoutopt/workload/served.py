"""Queries as they arrive at a catalog that plans scans for engines: what their filters can say there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from layoutopt.model.predicates import TRUE, And, Col, Constant, Filter, InSet, Node, Or, conjunction, disjunction
from layoutopt.model.query import Query


def said(node: Node) -> Node:
    """The strictest filter that Iceberg has words for and that is TRUE wherever this one is.

    Its words are comparisons of columns with constants, joined by AND and OR: comparisons of two columns, functions and
    patterns become TRUE.

    >>> from layoutopt.model.predicates import Comparison
    >>> from layoutopt.model.values import ValueSet
    >>> a, b = Col("a", "int"), Col("b", "int")
    >>> small = InSet(a, ValueSet.interval(None, 5))
    >>> said(conjunction([small, Comparison(a, "<", b)])) == small, said(disjunction([small, Comparison(a, "<", b)]))
    (True, Constant(value=True))
    """
    if isinstance(node, And):
        return conjunction(map(said, node.children))
    if isinstance(node, Or):
        return disjunction(map(said, node.children))
    is_plain = isinstance(node, Constant) or (isinstance(node, InSet) and isinstance(node.subject, Col))
    return node if is_plain else TRUE


def as_served(queries: Iterable[Query], share: float) -> tuple[Query, ...]:
    """A log of which a share of each statement's runs comes through a catalog, where only :func:`said` of it arrives.

    Args:
        queries: with the whole filters.
        share: of their weights, from 0 to 1. A query whose filter can be said stays as it is; any other becomes two.
    """
    return tuple(part for query in queries for part in _parts(query, share))


def _parts(query: Query, share: float) -> Iterator[Query]:
    arriving = said(query.filter.root)
    if arriving == query.filter.root or share == 0:
        yield query
        return
    if share < 1:
        yield replace(query, weight=query.weight * (1 - share))
    yield replace(query, weight=query.weight * share, filter=Filter.of(arriving), exact=False)
