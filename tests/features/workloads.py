"""Small workloads, built from nouns."""

from __future__ import annotations

from collections.abc import Sequence

from layoutopt.model.predicates import Col, Filter, InSet, Literal, Node, Predicate, conjunction, disjunction
from layoutopt.model.query import Query
from layoutopt.model.values import ValueSet, compare

PRODUCT = Col("product", "string")
REVENUE = Col("revenue", "int")
REGION = Col("region", "string")


def is_in(column: Col, *values: object) -> InSet:
    sets = ValueSet.empty()
    for value in values:
        sets = sets.union(compare("=", value, column.type))
    return InSet(column, sets)


def comparison(column: Col, operator: str, value: object) -> InSet:
    return InSet(column, compare(operator, value, column.type))


def predicate(*literals: Literal) -> Predicate:
    return Predicate(tuple(literals))


def query(*nodes: Node, weight: float = 1.0, number: int = 0) -> Query:
    root = conjunction(nodes)
    return Query(id=number, table="t", columns=("product", "revenue", "region"), filter=Filter.of(root), weight=weight)


def workload(*filters: Sequence[Node]) -> list[Query]:
    return [query(*nodes, number=i) for i, nodes in enumerate(filters)]


SHOES, SHIRTS = is_in(PRODUCT, "shoes"), is_in(PRODUCT, "shirts")
BOTH = is_in(PRODUCT, "shoes", "shirts")
OVER_32, OVER_21 = comparison(REVENUE, ">", 32), comparison(REVENUE, ">", 21)
EITHER = disjunction([SHOES, OVER_32])

# Example 1 of Sun 2017, 3.3.1.
EXAMPLE_1 = workload((SHOES,), (BOTH, OVER_32), (SHIRTS, OVER_21))
