"""Conditions that only Spark understands, where a block or a partition has a single value of their columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from layoutopt.model.schema import Column, Schema
from layoutopt.scan.explain import Reason
from layoutopt.spark import disable, enable, register, why
from tests.scan.builder import build, building, by_position
from tests.spark.session.answers import answer, skipped

pytestmark = [pytest.mark.spark, pytest.mark.checks_texts, pytest.mark.usefixtures("each_reader")]

SCHEMA = Schema(
    tuple(Column(name, type) for name, type in {"year": "int", "d": "date", "s": "string", "i": "int"}.items())
)
COUNT = 6


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """An enabled session that knows 60 rows as t, in 6 blocks of one date and one text, and as the view s.

    The last block has only NULL for a date, the one before has NULL beside its date.
    """
    days = [dt.date(2024, 1 + i // 2, 5 + i) if i < 5 else None for i in range(COUNT) for _ in range(10)]
    days[-11] = None
    texts = [f"{i}b-{i}" for i in range(COUNT) for _ in range(10)]
    years = [2010 + i // 3 for i in range(COUNT) for _ in range(10)]
    schema = pa.schema([("year", pa.int32()), ("d", pa.date32()), ("s", pa.string()), ("i", pa.int32())])
    rows = pa.table([years, days, texts, list(range(60))], schema=schema)
    path = tmp_path_factory.mktemp("single") / "t"
    build(path, rows, building(SCHEMA, partition_by="year", blocking=by_position(10)))
    session = spark.newSession()
    register(session, "t", str(path))
    session.createDataFrame(rows).createOrReplaceTempView("s")
    enable(session)
    yield session
    disable(session)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("cast(year AS string) LIKE '%0'", 3),
        ("reverse(cast(year AS string)) = '1102'", 3),
        ("date_format(d, 'yyyy-MM') = '2024-02'", 4),
        ("date_format(d, 'MMMM') = 'February'", 4),
        ("hash(year) = hash(2011)", 3),
        ("pmod(xxhash64(s), 3) = 5", 6),
        ("md5(s) = md5('2b-2')", 5),
        ("crc32(concat(s, year)) = crc32('2b-22010')", 5),
        ("sha2(s, 256) = 'x'", 6),
        ("concat_ws('/', year, s, d) LIKE '2010/1b%'", 5),
        ("concat_ws('/', s, d) = '5b-5'", 5),
        ("concat_ws('/', s, d) = '4b-4'", 5),
        ("NOT (date_format(d, 'yyyyMM') >= '202402')", 4),
        ("(soundex(s) = 'zz' OR initcap(s) = '3b-3') AND i >= 0", 5),
        ("lpad(cast(year AS string), 6, '0') = '002010' OR i = 59", 2),
        ("translate(s, 'b', 'x') IN ('1x-1', '2x-2')", 4),
        ("CASE WHEN unhex(s) IS NULL THEN s RLIKE '^[01](b)' ELSE FALSE END", 4),
        ("1 / (year - 2010) > 0", 0),
        ("element_at(split(s, '-'), 2) = '4'", 5),
        ("rand() < 2 AND hash(d) = 5", 6),
        ("hash(i) = 5", 0),
        ("hash(s, i) = 5", 0),
    ],
)
def test_skipped_blocks(condition: str, expected: int, session: SparkSession) -> None:
    if not condition.startswith("1 /"):
        assert answer(session.sql(f"SELECT * FROM t WHERE {condition}")) == answer(
            session.sql(f"SELECT * FROM s WHERE {condition}")
        )
        assert skipped(session) == expected
        return
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        session.sql(f"SELECT * FROM t WHERE {condition}").collect()


def test_reasons(session: SparkSession) -> None:
    """Parts that skip are credited; others keep the reason why they have no meaning here."""
    (explained,) = why(session.sql("SELECT * FROM t WHERE hash(s) = hash('2b-2') AND hash(i) <> 1 AND hash(year) = 0"))
    parts = {part.text: (part.reason, dict(part.alone)) for part in explained.reads[0].conjuncts}
    by_column = {next(name for name in ("year", "s", "i") if f"({name}" in text): parts[text] for text in parts}
    assert by_column["s"] == (Reason.SKIPS, {"partition": 0, "features": 0, "statistics": 5, "index": 0})
    assert by_column["year"] == (Reason.SKIPS, {"partition": 6, "features": 0, "statistics": 6, "index": 0})
    assert by_column["i"] == (Reason.FUNCTION, {})
    assert len(parts) == 3
