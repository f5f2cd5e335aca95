"""Partitions of every type and hostile value: none is lost or taken for another one, however it is asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.config.files import make_settings
from layoutopt.config.settings import LoadSettings
from layoutopt.errors import (
    ContentMismatchError,
    LayoutoptError,
    MissingPartitionError,
    NeedsSparkError,
    SettingError,
    SourceError,
)
from layoutopt.inspect.verify import verify
from layoutopt.loading.load import LoadsReport
from layoutopt.loading.write import write_segments
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.feature import SessionSettings
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.requests import LoadRequest
from layoutopt.planning.sample_evaluation import draw_sample
from layoutopt.scan.table import Table, open_table
from layoutopt.spark import disable, enable, register
from layoutopt.spark.core.featurize import with_feature_words
from layoutopt.spark.core.partition_values import is_one_of
from layoutopt.spark.loading.load import load, run_load
from layoutopt.spark.loading.source_files import source_partitions
from tests.effort import long_too
from tests.spark.plans import make_plan
from tests.spark.settings import UNCOMPILED, compared_here, new_session
from tests.spark.tables import plan_of, simple_document, source_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 4
BERLIN = "Europe/Berlin"
# How a value is written in SQL, and how `--partition` asks for it; None where the text is the same.
Values = Sequence[tuple[str, str]]
TEXTS: Values = [
    ("'b'", "p=b"),
    ("'null'", "p=null"),
    ("NULL", "p=__null__"),
    ("'NULL'", "p=NULL"),
    ("'__null__'", 'p:="__null__"'),
    ("'x'", "x"),
    ("'p=null'", "p=p=null"),
    ("'(NULL)'", "p=(NULL)"),
    ("'__HIVE_DEFAULT_PARTITION__'", 'p:="__HIVE_DEFAULT_PARTITION__"'),
    ("'P = b'", "p=P = b"),
    ("'p=c'", 'P:="p=c"'),
    ("'a=b'", "p=a=b"),
    ("''", "p="),
    ("' b'", "p= b"),
    ("'ünï/😀..'", "p=ünï/😀.."),
    ("repeat('y', 200)", "p=" + "y" * 200),
]
OF_TYPES: dict[str, Values] = {
    "date": [
        ("date'0001-01-01'", "p=0001-01-01"),
        ("date'1500-02-28'", "p=1500-02-28"),
        ("date'1582-10-04'", "p=1582-10-04"),
        ("date'1582-10-15'", "1582-10-15"),
        ("date'2020-02-29'", "p=2020-02-29"),
        ("date'9999-12-31'", "p=9999-12-31"),
        ("cast(NULL AS date)", "p=null"),
    ],
    "timestamp": [
        ("timestamp'2021-10-31 02:30:00+02:00'", "p=2021-10-31 02:30:00"),
        ("timestamp'2021-10-31 02:30:00+01:00'", "p=2021-10-31 02:30:00+01:00"),
        ("timestamp'2021-03-28 02:30:00'", "p=2021-03-28 03:30:00"),
        ("timestamp'1500-01-01 00:00:00'", "p=1500-01-01 00:00:00"),
        ("timestamp'0001-01-02 00:00:00'", "p=0001-01-02"),
        ("timestamp'9999-12-31 23:59:59.999999'", "p=9999-12-31 23:59:59.999999"),
        ("cast(NULL AS timestamp)", "p=__null__"),
    ],
    "timestamp_ntz": [
        ("timestamp_ntz'2020-01-01 01:02:03'", "p=2020-01-01 01:02:03"),
        ("timestamp_ntz'2021-03-28 02:30:00'", "p=2021-03-28 02:30:00"),
        ("timestamp_ntz'2021-03-28 03:30:00'", "p=2021-03-28 03:30:00"),
        ("timestamp_ntz'2021-10-31 02:30:00.000001'", "p=2021-10-31 02:30:00.000001"),
        ("timestamp_ntz'1500-01-01 00:00:00'", "p=1500-01-01"),
        ("timestamp_ntz'0001-01-01 00:00:00.000001'", "p=0001-01-01 00:00:00.000001"),
        ("timestamp_ntz'9999-12-31 23:59:59.999999'", "p=9999-12-31 23:59:59.999999"),
        ("cast(NULL AS timestamp_ntz)", "p=null"),
    ],
    "decimal(38,4)": [
        ("cast(1.5 AS decimal(38,4))", "p=1.5"),
        (f"cast(-{'7' * 34}.5678 AS decimal(38,4))", f"p=-{'7' * 34}.5678"),
        ("cast(NULL AS decimal(38,4))", "null"),
    ],
    "boolean": [("true", "p=true"), ("false", "false"), ("cast(NULL AS boolean)", "p=null")],
    "bigint": [
        ("cast('-9223372036854775808' AS bigint)", "p=-9223372036854775808"),
        ("9223372036854775807L", "p=9223372036854775807"),
        ("0L", "p=0"),
        ("cast(NULL AS bigint)", "p=null"),
    ],
    "tinyint": [("-128Y", "-128"), ("127Y", "p=127")],
    "string": TEXTS,
}  # fmt: skip
SOME_TEXTS = (*TEXTS[:6:2], *TEXTS[10:15:2])
SOME_TYPES = ("string", "timestamp")


@pytest.fixture(autouse=True, scope="module")
def _in_berlin() -> Iterator[None]:
    """Python's own zone is one whose clocks go back; no value may pass through it."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = BERLIN
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return new_session(spark, {**UNCOMPILED, "spark.sql.session.timeZone": BERLIN})


def rows_of(session: SparkSession, values: Sequence[str]) -> DataFrame:
    """``ROWS`` rows of each value, in ``p``."""
    of_value = "SELECT {} + id AS id, id % 5 AS kind, {} AS p FROM range({})"
    parts = [of_value.format(ROWS * i, value, ROWS) for i, value in enumerate(values)]
    return session.sql(" UNION ALL ".join(parts)).selectExpr("cast(id AS int) AS id", "cast(kind AS int) AS kind", "p")


class Place:
    """A source, a plan, and tables to load it into."""

    def __init__(self, folder: Path, session: SparkSession, values: Sequence[str]) -> None:
        self.folder, self.session = folder, session
        rows_of(session, values).coalesce(1).write.parquet(str(folder / "source"))
        self.source = session.read.parquet(str(folder / "source"))
        self.write_plan()

    def document(self) -> FeaturesDocument:
        document = simple_document(self.source)
        return replace(document, features=replace(document.features, settings=SessionSettings(time_zone=BERLIN)))

    def write_plan(self) -> None:
        document = self.document()
        (self.folder / "plan.json").write_bytes(plan_of(document, partition_by="p").dumps())

    def load(self, name: str = "table", **given: object) -> LoadsReport:
        values = {"source": str(self.folder / "source"), "table_path": str(self.folder / name)}
        settings = make_settings(LoadSettings, {**values, "plan": self.folder / "plan.json", **given}).to_request(
            LoadRequest
        )
        return run_load(self.session, settings)

    def table(self, name: str = "table") -> Table:
        return open_table(str(self.folder / name))

    def ids(self, name: str = "table") -> list[int]:
        return sorted(self.table(name).sql("SELECT id FROM t")["id"].to_pylist())


@pytest.mark.parametrize("type", [*SOME_TYPES, *long_too(*(type for type in OF_TYPES if type not in SOME_TYPES))])
def test_every_partition_of_a_source_is_loaded(session: SparkSession, tmp_path: Path, type: str) -> None:
    values = OF_TYPES[type]
    place = Place(tmp_path, session, [sql for sql, _ in values])
    report = place.load()
    assert report.to_json()["rows"] == ROWS * len(values)
    entries = place.table().catalog.partitions
    assert [entry.rows for entry in entries] == [ROWS] * len(values)
    assert place.ids() == list(range(ROWS * len(values)))
    assert verify(place.table()).ok
    assert place.load().partitions == ()  # every one is known again
    register(session, "loaded", str(tmp_path / "table"))
    enable(session)
    try:
        asked = (f"SELECT {number} AS of, id FROM loaded WHERE p <=> {sql}" for number, (sql, _) in enumerate(values))
        with compared_here():
            found = session.sql(" UNION ALL ".join(asked)).collect()
        assert sorted((row["of"], row["id"]) for row in found) == [(i // ROWS, i) for i in range(ROWS * len(values))]
    finally:
        disable(session)


@pytest.mark.long
@pytest.mark.parametrize(
    ("type", "method"), [("timestamp", "gsop"), *long_too(("timestamp", "sop"), ("date", "gsop"), ("date", "sop"))]
)
def test_every_partition_is_planned_for(session: SparkSession, tmp_path: Path, type: str, method: str) -> None:
    place = Place(tmp_path, session, [sql for sql, _ in OF_TYPES[type]])
    document = place.document()
    make_plan(session, place.source, document, PlanRequest(method=method, partition_by="p", block_rows=2, cost="bytes"))
    sample = draw_sample(source_rows(place.source, "p"), document.features, "p", 100)
    assert [segment.table.num_rows for segment in sample.segments] == [ROWS] * 3  # spread over all of them


@pytest.mark.parametrize("values", [SOME_TEXTS, *long_too(TEXTS, OF_TYPES["timestamp"], OF_TYPES["date"])])
def test_each_partition_can_be_asked_for_and_loaded_again(
    session: SparkSession, tmp_path: Path, values: Values
) -> None:
    place = Place(tmp_path, session, [sql for sql, _ in values])
    asked = tuple(text for _, text in values)
    for number, text in enumerate(asked[:2]):
        place.load(partition=(text,))
        assert place.ids() == list(range(ROWS * (number + 1)))
    assert len(place.load(partition=asked).loads) == len(asked) - 2
    assert place.load(partition=asked).loads == ()
    again = place.load(partition=asked[1:2], replace=True)
    assert [one.rows for one in again.loads] == [ROWS]
    assert place.ids() == list(range(ROWS * len(values)))


def test_what_is_null_to_other_types_is_a_text_among_texts(session: SparkSession, tmp_path: Path) -> None:
    place = Place(tmp_path, session, ["'b'", "NULL"])
    with pytest.raises(MissingPartitionError, match=r"no rows for p=null \(NULL is p=__null__\)"):
        place.load(partition=("p=null",))
    assert place.load(partition=("p:=null",)).loads[0].rows == ROWS
    with pytest.raises(SettingError, match="no text in quotes behind :="):
        place.load(partition=("p:=b",))
    with pytest.raises(SettingError, match="partitioned by p, not 'q'"):
        place.load(partition=("q=b",))


@pytest.mark.long
def test_a_range_of_partitions_takes_its_ends(session: SparkSession, tmp_path: Path) -> None:
    values = [sql for sql, _ in OF_TYPES["timestamp"]]
    place = Place(tmp_path, session, values)
    report = place.load(first="2021-10-31 02:30:00", last="2021-10-31 02:30:00+01:00")
    assert len(report.loads) == 2
    assert place.ids() == list(range(2 * ROWS))
    assert len(place.load("older", last="1582-10-15").loads) == 2


@pytest.mark.long
def test_folders_named_as_hive_names_them(session: SparkSession, tmp_path: Path) -> None:
    texts = ["null", "p=null", "x*", "[y]", "%41", "b", "NULL", "a=b", "{z}", "ü 😀", "__null__"]
    literals = ["'" + text + "'" for text in texts]
    rows_of(session, [*literals, "NULL"]).repartition(1).write.partitionBy("p").parquet(str(tmp_path / "source"))
    place = Place.__new__(Place)
    place.folder, place.session = tmp_path, session
    place.source = session.read.parquet(str(tmp_path / "source"))
    place.write_plan()
    assert place.load().to_json()["rows"] == ROWS * (len(texts) + 1)
    assert place.ids() == list(range(ROWS * (len(texts) + 1)))
    asked = [f"p={text}" for text in texts[:5]]
    assert [one.rows for one in place.load("some", partition=asked).loads] == [ROWS] * 5
    assert place.ids("some") == list(range(ROWS * 5))


Break = Callable[[pytest.MonkeyPatch], None]


def _no_nulls(patch: pytest.MonkeyPatch) -> None:
    """What once befell values that are texts for NULL: they select other rows than theirs."""

    def wrong(df: Any, by: str, values: Sequence[Any]) -> Any:
        return is_one_of(df, by, [None if value == "null" else value for value in values])

    patch.setattr("layoutopt.spark.core.partition_values.is_one_of", wrong)


def _one_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionNames, "key", lambda names, value: "one")


def _lost_route(patch: pytest.MonkeyPatch) -> None:
    def losing(*given: Any) -> Any:
        return with_feature_words(*given).where("p IS NULL OR p <> 'b'")

    patch.setattr("layoutopt.spark.loading.spool.with_feature_words", losing)


def _lost_partition(patch: pytest.MonkeyPatch) -> None:
    """A whole source of which a partition is not listed."""
    patch.setattr("layoutopt.spark.loading.load.source_partitions", lambda *given: source_partitions(*given)[1:])


@pytest.fixture(scope="module")
def of_four(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("four"), session, ["'b'", "'c'", "'null'", "NULL"])


def refuse(*_: object, **__: object) -> None:
    raise NeedsSparkError("a test lets Spark read everything")


@pytest.mark.parametrize("broken", [_no_nulls, _one_key, _lost_route, _lost_partition])
def test_a_load_that_would_lose_a_partition_is_refused(of_four: Place, broken: Break) -> None:
    name = broken.__name__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layoutopt.spark.loading.load.open_in_tasks", refuse)
        broken(patch)
        with pytest.raises((ContentMismatchError, SourceError)):
            of_four.load(name)
    with pytest.raises(LayoutoptError):
        of_four.table(name)


def test_values_that_stand_for_others_rows_are_refused(session: SparkSession, tmp_path: Path) -> None:
    """Names are compared with what was measured of the rows."""
    place = Place(tmp_path, session, ["'b'", "'c'"])

    def to_the_other(rows: Any, job: Any, segments: Any, *rest: Any) -> Any:
        first, second = segments
        others = (replace(first, value=second.value), replace(second, value=first.value))
        return write_segments(rows, job, others, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layoutopt.loading.load.write_segments", to_the_other)
        with pytest.raises(ContentMismatchError, match="got rows of other partitions"):
            place.load()


def test_a_load_of_rows_in_hand_takes_texts_and_values(session: SparkSession, tmp_path: Path) -> None:
    place = Place(tmp_path, session, ["1", "2", "3", "cast(NULL AS int)"])
    plan = Plan.loads((tmp_path / "plan.json").read_bytes())
    report = load(session, place.source, tmp_path / "table", plan, partitions=[1, "p=2", None])
    assert (report.rows, report.partitions) == (3 * ROWS, ("1", "2", "__null__"))


@pytest.mark.long
def test_loads_at_once_of_both_times_that_clocks_show(session: SparkSession, tmp_path: Path) -> None:
    values = OF_TYPES["timestamp"][:2]
    place = Place(tmp_path, session, [sql for sql, _ in values])
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda value: place.load(partition=(value[1],)), values))
    assert sorted(one.partitions for one in reports) == [("2021-10-31T00%3A30%3A00Z",), ("2021-10-31T01%3A30%3A00Z",)]
    assert place.ids() == list(range(2 * ROWS))
    first = open_table(str(tmp_path / "table"), as_of=place.table().catalog.snapshot.created_at)
    assert first.catalog.snapshot.rows == 2 * ROWS
