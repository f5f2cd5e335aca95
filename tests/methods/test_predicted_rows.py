"""What a method predicts of rows scanned is what the one skipping rule leaves of the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.methods.interface import PartitionHistogram, PlanningInput, PlanRequest
from layoutopt.methods.strategies import predict_rows
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.layout import ByVectors
from layoutopt.model.schema import Column, Schema
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits, FeatureIndex, cannot_match
from tests.features.workloads import BOTH, EITHER, OVER_21, SHIRTS, SHOES, predicate, query

SCHEMA = Schema((Column("product", "string"), Column("revenue", "int"), Column("region", "string")))
FEATURES = FeatureSet(tuple(Feature((predicate(node),), 1.0) for node in (SHOES, SHIRTS, OVER_21)), SessionSettings())
QUERIES = tuple(query(node) for node in (SHOES, BOTH, EITHER, OVER_21))


@pytest.mark.parametrize("min_rows", [1, 20, 1_000])
@given(
    counts=st.lists(st.integers(1, 50), min_size=8, max_size=8),
    weights=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_rows_are_those_that_the_rule_leaves(min_rows: int, counts: list[int], weights: list[int]) -> None:
    bits = np.array([[i >> k & 1 for k in range(3)] for i in range(8)], dtype=np.bool_)
    vectors = VectorCounts(pack(bits), np.array(counts), 3)
    of_queries = np.array(weights, dtype=np.float64)
    part = PartitionHistogram(None, vectors.rows, vectors, of_queries, np.ones(3))
    planning = PlanningInput(PlanRequest(), SCHEMA, FEATURES, QUERIES, (part,))
    predicted = predict_rows(planning, [part], ByVectors(WARD), min_rows)

    partition = find_partitioner(WARD)(vectors, part.weights, min_rows, planning.request.seed)
    blocks = BlockStatistics(rows=partition.sizes(), bits=FeatureBits(partition.unions(vectors)))
    index = FeatureIndex(FEATURES)
    scanned = sum(
        weight * int(blocks.rows[~cannot_match(each.filter.root, blocks, index)].sum())
        for each, weight in zip(QUERIES, weights, strict=True)
    )
    full = vectors.rows * sum(each.weight for each in QUERIES)
    assert predicted["rows_scanned_fraction"] == round(scanned / full, 6)
