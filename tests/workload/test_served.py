"""What arrives of filters at a catalog: TRUE wherever the filter is, and no more than its words allow."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.features.analysis import analyze_log
from layoutopt.model.predicates import (
    TRUE,
    Col,
    Comparison,
    Filter,
    InSet,
    Like,
    Node,
    conjunction,
    disjunction,
    to_sql,
)
from layoutopt.model.predicates.patterns import parse_like
from layoutopt.model.query import Query
from layoutopt.model.requests import AnalyzeRequest
from layoutopt.model.values import ValueSet
from layoutopt.sql.schema import schema_from
from layoutopt.workload.served import split_served, weaken_filter

A, B, S = Col("a", "int"), Col("b", "int"), Col("s", "string")
LITERALS: tuple[Node, ...] = (
    InSet(A, ValueSet.interval(None, 2)),
    InSet(B, ValueSet.of([1, 3])),
    InSet(A, ValueSet.empty(), null=True),
    InSet(S, ValueSet.point("xy").complement()),
    Comparison(A, "<", B),
    Comparison(A, "=", B),
    Like(S, parse_like("%y")),
)
PLAIN = LITERALS[:4]


def nodes() -> st.SearchStrategy[Node]:
    return st.recursive(
        st.sampled_from(LITERALS),
        lambda inner: st.builds(
            lambda join, parts: join(parts), st.sampled_from([conjunction, disjunction]), st.lists(inner, max_size=3)
        ),
        max_leaves=6,
    )


@pytest.fixture(scope="module")
def rows() -> duckdb.DuckDBPyConnection:
    """Every combination of a few values, with NULL."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT a, b, s FROM (VALUES (NULL), (0), (1), (2), (3)) v(a), "
        "(VALUES (NULL), (0), (1), (2), (3)) w(b), (VALUES (NULL), ('xy'), ('y'), ('z')) x(s)"
    )
    return connection


@given(node=nodes())
def test_what_arrives_is_true_wherever_the_filter_is(node: Node, rows: duckdb.DuckDBPyConnection) -> None:
    def holds(of: Node) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        found = rows.execute(f"SELECT coalesce({to_sql(of)}, false) FROM t ORDER BY a, b, s").fetchnumpy()
        return np.asarray(next(iter(found.values())))

    arriving = weaken_filter(node)
    assert weaken_filter(arriving) == arriving
    assert not (holds(node) & ~holds(arriving)).any()


@given(parts=st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3))
def test_what_can_be_said_arrives_whole(parts: list[Node]) -> None:
    for node in (conjunction(parts), disjunction(parts)):
        assert weaken_filter(node) == node
        assert weaken_filter(conjunction([node, Comparison(A, "<", B)])) == node
        assert weaken_filter(disjunction([node, Comparison(A, "<", B)])) == TRUE


def test_each_query_keeps_its_weight() -> None:
    whole = Query(0, "t", ("a",), Filter.of(LITERALS[0]), weight=3.0)
    cut = Query(1, "t", ("a", "b"), Filter.of(conjunction([LITERALS[0], LITERALS[4]])), weight=4.0)
    assert split_served((whole, cut), 0) == (whole, cut)
    first, kept, arriving = split_served((whole, cut), 0.25)
    assert first == whole
    assert (kept.id, kept.weight, kept.filter) == (1, 3.0, cut.filter)
    assert (arriving.id, arriving.weight, arriving.filter) == (1, 1.0, whole.filter)
    assert kept.exact
    assert not arriving.exact
    assert [query.weight for query in split_served((whole, cut), 1)] == [3.0, 4.0]


def test_features_suit_what_arrives(tmp_path: Path) -> None:
    """Without the comparison nothing but the value of a column tells which rows a query needs."""
    log = tmp_path / "log.jsonl"
    texts = [f"SELECT a FROM t WHERE kind = {i % 2} AND a < b" for i in range(40)]
    log.write_text("\n".join(json.dumps({"sql": text}) for text in texts))
    schema = schema_from("CREATE TABLE t (a INT, b INT, kind INT)")
    for share, compared in ((0.0, True), (1.0, False)):
        document = analyze_log(AnalyzeRequest(log=str(log), served=share), schema).document
        about = {name for feature in document.features.features for name in feature.node.columns}
        assert ("b" in about) == compared
        assert "kind" in about
        assert sum(query.weight for query in document.queries) == 40
