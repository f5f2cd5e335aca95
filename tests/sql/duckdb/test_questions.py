"""Generated questions: the embedded engine answers nearly all, each as Spark does on the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from layoutopt.errors import LayoutoptError
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import Table
from tests.effort import examples
from tests.hunt.compare import rows_of
from tests.scan.builder import build, building, by_position
from tests.spark.catalyst.generated import ROWS, TYPES, rows_sql
from tests.spark.settings import new_session
from tests.sql.duckdb.questions import Questions, in_every_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.unshadowed("every answer is compared with Spark's")]

ANSWERED = 0.98
ZONE = "UTC"


@dataclass
class Tally:
    """What the embedded engine said of the questions that Spark answers.

    Attributes:
        answered: how many it answers as Spark does.
        refused: the questions that it refuses, and why.
        different: the questions with another answer, or with one where Spark fails.
    """

    answered: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session whose table ``t`` lies in no file."""
    session = new_session(spark)
    session.conf.set("spark.sql.session.timeZone", ZONE)
    frame = session.sql(in_every_engine(rows_sql()))
    session.createDataFrame(frame.toArrow(), frame.schema).createOrReplaceTempView("t")
    return session


@pytest.fixture(scope="module")
def table(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """The same rows in one block, so that no failing row is skipped."""
    schema = Schema((Column("id", "int"), *(Column(name, type) for name, type in TYPES.items())))
    root = tmp_path_factory.mktemp("questions") / "t"
    return build(root, session.table("t").toArrow(), building(schema, blocking=by_position(ROWS)))


def ask(session: SparkSession, table: Table, questions: Iterator[str], count: int) -> Tally:
    """Ask until Spark has answered so many questions."""
    tally = Tally()
    while tally.answered + len(tally.refused) + len(tally.different) < count:
        sql = next(questions)
        expected, found = _answer(lambda text: session.sql(text).toArrow(), sql), _answer(table.sql, sql)
        if isinstance(expected, Exception):
            if not isinstance(found, Exception) and not _leaves_out_what_fails(session, sql, found):
                tally.different.append(f"{sql}: Spark fails with {str(expected)[:200]}")
        elif isinstance(found, Exception):
            tally.refused[sql] = str(found)
        elif _rows(found) != _rows(expected) or found.schema.types != expected.schema.types:
            tally.different.append(sql)
        else:
            tally.answered += 1
    return tally


def _answer(run: Callable[[str], pa.Table], sql: str) -> pa.Table | Exception:
    try:
        return run(sql)
    except (LayoutoptError, PySparkException) as error:
        return error


def _rows(answer: pa.Table) -> Counter[tuple[object, ...]]:
    columns = [
        column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
        if pa.types.is_temporal(column.type)  # Python has no year 10000
        else column
        for column in answer.columns
    ]
    return rows_of(pa.Table.from_arrays(columns, names=answer.schema.names), ZONE)


def _leaves_out_what_fails(session: SparkSession, sql: str, found: pa.Table) -> bool:
    """Return whether the answer is Spark's over the rows for which no condition of the text fails.

    Engines evaluate the parts of a condition in any order, so one that excludes a row may hide another's failure.
    """
    condition = sql.partition(" WHERE ")[2]
    for end in (") a ", " GROUP BY ", " ORDER BY ", " HAVING "):
        condition = condition.partition(end)[0]
    if not condition:
        return False
    failing = [row for row in range(ROWS) if _fails(session, f"SELECT id FROM t WHERE id = {row} AND ({condition})")]
    kept = f"(SELECT * FROM t WHERE id NOT IN ({', '.join(map(str, failing)) or -1})) t"
    expected = _answer(lambda text: session.sql(text).toArrow(), sql.replace("FROM t", f"FROM {kept}", 1))
    return not isinstance(expected, Exception) and _rows(expected) == _rows(found)


def _fails(session: SparkSession, sql: str) -> bool:
    return isinstance(_answer(lambda text: session.sql(text).toArrow(), sql), Exception)


def check(tally: Tally) -> None:
    """Nearly all was answered, and as Spark does."""
    total = tally.answered + len(tally.refused)
    reasons = Counter(tally.refused.values())
    print(f"{tally.answered} of {total} answered; refused: {reasons.most_common(20)}")  # noqa: T201 - the measure
    assert not tally.different, "\n".join(tally.different)
    assert len(tally.refused) <= max((1 - ANSWERED) * total, 1), tally.refused


def generate(seed: int) -> Iterator[str]:
    """Yield questions without end."""
    questions = Questions(seed)
    while True:
        yield questions.next()


def test_some_questions_are_answered_as_spark_does(session: SparkSession, table: Table) -> None:
    check(ask(session, table, generate(1), examples(40)))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 7))
def test_questions_are_answered_as_spark_does(seed: int, session: SparkSession, table: Table) -> None:
    check(ask(session, table, generate(seed), 200))
