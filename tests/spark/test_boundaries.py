"""Comparisons at the ends of every type, against Spark's own answers on a Parquet file whose columns may be NULL.

Spark's analyser and optimiser rewrite comparisons with literals near the ends of a type, and not always into what SQL
means: so the rows for which a condition is TRUE are read from Spark, as a projected boolean and of a WHERE, and every
filter, every block and DuckDB's answer are held against them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import QueryError
from layoutopt.evaluation import engine
from layoutopt.evaluation.engine import EngineQuery, EngineView
from layoutopt.evaluation.predicates import is_keyed, matching_rows, words_by_keys
from layoutopt.model.feature import Feature, SessionSettings
from layoutopt.model.predicates import TRUE, to_sql
from layoutopt.model.vectors import unpack
from layoutopt.scan.table import Table
from layoutopt.sql.duckdb.translate import portable_sql
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import TableScan, find_scans
from tests.scan.builder import build, building, by_position
from tests.spark.boundaries import COLUMNS, SCHEMA, boundaries, rows
from tests.spark.settings import UNCOMPILED, new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Bits = np.ndarray[Any, Any]
ROWS = rows()
WIDE, ARMS, EACH = 400, 8, 6

BEYOND = [
    condition.format(c=name, l=literal)
    for name, literal in [
        ("b", "9223372036854775808"), ("y", "9223372036854775807.5"), ("h", "1e30BD"),
        ("i", "(9223372036854775808)"), ("b + 0", "9223372036854775808BD"), ("abs(b % 9)", "9223372036854775808"),
        ("coalesce(b, NULL)", "9223372036854775808"), ("cast(i AS BIGINT)", "9223372036854775809"),
    ]
    for condition in ("{c} < {l}", "{l} >= {c}", "NOT ({c} >= {l})", "{c} > -{l}", "{c} BETWEEN -1 AND {l}",
                      "NOT ({c} NOT BETWEEN 0 AND {l})", "({c} <= {l}) IS NOT NULL", "({c} > {l}) IS NULL",
                      "{c} >= {l}", "{c} = {l}", "{c} <> {l}", "NOT ({c} <=> {l})", "{c} NOT IN ({l}, 5)")
    if "(9" not in literal or "-{l}" not in condition
]  # fmt: skip


@pytest.fixture(
    scope="module", params=[pytest.param(True, id="ansi"), pytest.param(False, id="legacy", marks=pytest.mark.long)]
)
def ansi(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def session(spark: SparkSession, ansi: bool, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session that reads the rows from a file, pushes nothing down, and evaluates each text once, so uncompiled."""
    file = tmp_path_factory.mktemp("boundaries") / "t.parquet"
    pq.write_table(ROWS, file)
    settings = {"spark.sql.ansi.enabled": str(ansi).lower(), "spark.sql.parquet.filterPushdown": "false"}
    session = new_session(spark, {**UNCOMPILED, **settings})
    session.read.parquet(str(file)).createOrReplaceTempView("t")
    return session


@pytest.fixture(scope="module")
def single_rows(tmp_path_factory: pytest.TempPathFactory) -> list[Table]:
    """Tables of a block a row: a partition for all, and one for each value of two columns."""
    root = tmp_path_factory.mktemp("single")
    return [
        build(root / str(column), ROWS, building(SCHEMA, blocking=by_position(1), partition_by=column))
        for column in (None, "b", "y")
    ]


def projected(session: SparkSession, conditions: Sequence[str]) -> dict[str, Bits]:
    """The rows that make each condition TRUE in a SELECT list, bool[rows]; conditions that fail are left out."""
    return dict(_projected(session, list(conditions)))


def _projected(session: SparkSession, conditions: list[str]) -> Iterator[tuple[str, Bits]]:
    tests = ", ".join(f"coalesce(({condition}), false)" for condition in conditions)
    try:
        found = session.sql(f"SELECT id, array({tests}) AS bits FROM t").toArrow().sort_by("id")
    except Exception:  # Spark's errors are of many classes: the one condition that fails is found by halves
        if len(conditions) > 1:
            half = len(conditions) // 2
            yield from _projected(session, conditions[:half])
            yield from _projected(session, conditions[half:])
        return
    yield from zip(conditions, np.array(found["bits"].to_pylist(), dtype=bool).T, strict=True)


def filtered(session: SparkSession, conditions: Sequence[str]) -> dict[str, Bits]:
    """The rows that a WHERE keeps, bool[rows]; no condition may fail."""
    arms = [f"SELECT {k} AS k, id FROM t WHERE {condition}" for k, condition in enumerate(conditions)]
    found = session.sql(" UNION ALL ".join(arms)).toArrow()
    kept = np.zeros((len(conditions), ROWS.num_rows), dtype=bool)
    kept[found["k"].to_numpy(), found["id"].to_numpy()] = True
    return dict(zip(conditions, kept, strict=True))


def read(condition: str, ansi: bool) -> TableScan | None:
    """Our reading of a condition; None where the text is none that is followed."""
    try:
        (scan,) = find_scans(f"SELECT id FROM t WHERE {condition}", {"t": SCHEMA}, settings=SessionSettings(ansi=ansi))
    except StatementError:
        return None
    return scan


def check_filters(session: SparkSession, truth: dict[str, Bits], ansi: bool) -> float:
    """No filter leaves a row out that Spark matches, and exact ones are exact; gives the share of these."""
    scans = {condition: scan for condition in truth if (scan := read(condition, ansi)) is not None}
    ours = {condition: matching_rows(scan.filter.root, ROWS) for condition, scan in scans.items()}
    called = {condition: to_sql(scans[condition].filter.root) for condition, bits in ours.items() if bits is None}
    by_spark = projected(session, list(called.values()))
    exact = 0
    for condition, scan in scans.items():
        bits = ours[condition]
        kept = by_spark[called[condition]] if bits is None else bits
        assert not (truth[condition] & ~kept).any(), f"{condition} leaves rows out: {scan.filter.root}"
        if scan.exact:
            assert (truth[condition] == kept).all(), f"{condition} is called exact: {scan.filter.root}"
            exact += 1
    check_words({condition: scans[condition] for condition in truth if condition in scans}, truth)
    return exact / len(truth)


def check_words(scans: Mapping[str, TableScan], truth: dict[str, Bits]) -> None:
    """Features found by keys, as a load's tasks find them, are set for every row that Spark matches."""
    filters = {condition: scan.filter for condition, scan in scans.items()}
    features = {condition: Feature(of.predicates) for condition, of in filters.items() if of.predicates}
    keyed = {condition: feature for condition, feature in features.items() if is_keyed(feature)}
    bits = unpack(words_by_keys(list(keyed.values()), ROWS), len(keyed))
    for place, (condition, feature) in enumerate(keyed.items()):
        assert not (truth[condition] & ~bits[:, place]).any(), f"{condition} has rows without its feature"
        assert (bits[:, place] == matching_rows(feature.node, ROWS)).all(), condition


def check_engine(truth: dict[str, Bits]) -> float:
    """DuckDB answers as Spark does, or the text is refused; gives the share of those answered."""
    answered, view = 0, EngineView("rows_of_t", ROWS.schema, ROWS.to_batches)
    for condition, bits in truth.items():
        try:
            portable = portable_sql(f"SELECT id FROM t WHERE {condition}", {"t": SCHEMA}, "rows_of_t")
            query = EngineQuery(
                portable.sql, portable.columns, (view,), "UTC", False, portable.functions, portable.uses_times
            )
            found = engine.answer(query)["id"].to_pylist()
        except QueryError:
            continue
        assert sorted(found) == np.flatnonzero(bits).tolist(), f"{condition}: {portable.sql}"
        answered += 1
    return answered / len(truth)


def check_blocks(tables: Sequence[Table], truth: dict[str, Bits]) -> float:
    """No block is skipped by statistics, nor a partition, that holds a match; gives the share of blocks skipped."""
    skipped = 0.0
    followed = [(condition, bits) for condition, bits in truth.items() if read(condition, True) is not None]
    for table, (condition, bits) in itertools.product(tables, followed):
        (pruned,) = table.scan(f"SELECT id FROM t WHERE {condition}").reads[0].pruned
        ids = np.array([_row_of(table)[block] for block in pruned.source.blocks.block_id[~pruned.read].tolist()], int)
        assert not bits[ids].any(), f"{condition} skips rows that it matches"
        skipped += len(ids)
    return skipped / (len(tables) * len(truth) * int(ROWS.num_rows))


_ROW_OF: dict[str, dict[int, int]] = {}


def _row_of(table: Table) -> dict[int, int]:
    """Block number to the row, by id, that it holds."""
    root = table.catalog.files.root
    if root not in _ROW_OF:
        read = pa.concat_tables(pq.read_table(path, columns=["id", "_block"]) for path in table.files())
        _ROW_OF[root] = dict(zip(read["_block"].to_pylist(), read["id"].to_pylist(), strict=True))
    return _ROW_OF[root]


def check(session: SparkSession, tables: Sequence[Table], conditions: Sequence[str], ansi: bool) -> dict[str, Bits]:
    truth = projected(session, conditions)
    assert len(truth) > 0.98 * len(conditions), "few conditions fail"
    assert check_filters(session, truth, ansi) > (0.5 if ansi else 0.3)
    if ansi:  # the embedded engine answers as Spark does with ANSI mode on
        assert check_engine(truth) > 0.1
        assert check_blocks(tables, dict(list(truth.items())[::10])) > 0.2
    return truth


@pytest.mark.long
def test_decimals_beyond_bigint(session: SparkSession, single_rows: list[Table], ansi: bool) -> None:
    truth = projected(session, BEYOND)
    assert len(truth) == len(BEYOND)
    assert truth["b < 9223372036854775808"].all(), "Spark finds it TRUE for NULL too"
    check_filters(session, truth, ansi)
    if ansi:
        check_engine(truth)
        check_blocks(single_rows, truth)
        for condition, bits in filtered(session, BEYOND[:: len(BEYOND) // ARMS]).items():
            assert (bits == truth[condition]).all(), condition


def test_a_sample_of_all_boundaries(session: SparkSession, single_rows: list[Table], ansi: bool) -> None:
    of_column = [[each.condition for each in boundaries() if each.column == name] for name in COLUMNS]
    sample = [condition for of in of_column for condition in of[7 * ansi :: len(of) // EACH]]
    random.Random(0).shuffle(sample)
    for start in range(0, len(sample), WIDE):
        truth = check(session, single_rows, sample[start : start + WIDE], ansi)
        for condition, bits in filtered(session, list(truth)[:ARMS]).items():
            assert (bits == truth[condition]).all(), condition


@pytest.mark.long
def test_all_boundaries(session: SparkSession, single_rows: list[Table], ansi: bool) -> None:
    every = [each.condition for each in boundaries()]
    random.Random(0).shuffle(every)
    for start in range(0, len(every), WIDE):
        truth = projected(session, every[start : start + WIDE])
        check_filters(session, truth, ansi)
        if ansi:
            check_engine(truth)
            check_blocks(single_rows, dict(list(truth.items())[::20]))
        for condition, bits in filtered(session, list(truth)[:: len(truth) // 4]).items():
            assert (bits == truth[condition]).all(), condition


def test_what_is_true_of_every_row_skips_nothing() -> None:
    for condition in ("b < 9223372036854775808", "NOT (b >= 9223372036854775808)", "-9223372036854775809 < b"):
        scan = read(condition, True)
        assert scan is not None
        assert scan.filter.root == TRUE
