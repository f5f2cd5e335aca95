"""Bounds of partitions as planning knows them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from layoutopt.model.predicate import Col, Filter, InSet
from layoutopt.model.skipping import BlockFacts, cannot_match
from layoutopt.model.values import compare
from layoutopt.spark.pairs import partition_bounds


def texts(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def test_partitions_with_texts_that_are_no_utf8_are_excluded_from_no_query() -> None:
    """By bytes, FF is above the emoji; as a str with a surrogate it would be below, and the query excluded."""
    emoji = "\U0001f600"
    measured = pa.table({"_low0": texts(b"a", b"a", None), "_high0": texts(b"b", b"\xff", None), "_n0": [2, 2, 0]})
    rows = np.array([2, 2, 2])
    bounds = partition_bounds(measured, 0, "string", rows)
    assert bounds.known.tolist() == [True, False, False]
    above = Filter.of(InSet(Col("s", "string"), compare(">", emoji, "string")))
    facts = BlockFacts(rows=rows, bounds={"s": bounds})
    assert cannot_match(above.root, facts, None).tolist() == [True, False, True]
