"""The Python interface: what a path, pandas and Arrow give is the same, and options are those of the requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.config.fields import VerbSettings
from layoutopt.config.settings import (
    AdviseSettings,
    AnalyzeSettings,
    AppendSettings,
    DeleteSettings,
    LoadSettings,
    MergeSettings,
    OptimizeSettings,
    PlanSettings,
    UpdateSettings,
)
from layoutopt.features.analysis import Features
from layoutopt.loading.load import LoadsReport
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.layout import Plan
from layoutopt.model.requests import (
    AdviseRequest,
    AnalyzeRequest,
    AppendRequest,
    DeleteRequest,
    LoadRequest,
    MergeRequest,
    OptimizeRequest,
    UpdateRequest,
)
from tests.docs.pages import ROOT, blocks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GUIDE = ROOT / "docs" / "guides" / "python.md"
# Attributes of requests that are no settings: a plot's, and an experiment's.
ONLY_REQUESTS = ("curve", "slices")
KINDS = ("air", "rail", "ship")
ROWS = pa.table(
    {
        "id": pa.array(range(300), pa.int64()),
        "kind": pa.array([KINDS[i * 7 % 3] for i in range(300)]),
        "day": pa.array([i // 100 for i in range(300)], pa.int32()),
    }
)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.sql"
    path.write_text("".join(f"SELECT id FROM t WHERE kind = '{kind}';\n" for kind in ("air", "rail") * 4))
    return str(path)


def write(rows: pa.Table) -> str:
    pq.write_table(rows, "rows.parquet")
    return str(Path("rows.parquet").absolute())


def make(rows: Any, log: str, **options: Any) -> tuple[Features, Plan, LoadsReport]:
    """Analyse, plan in a way that takes no time, and load."""
    features = layoutopt.analyze(log, rows)
    plan = layoutopt.plan(rows, features, partition_by="day", method="input-order", row_order="none", block_rows=10)
    return features, plan, layoutopt.load(rows, "table", plan, **options)


@pytest.mark.parametrize("to_source", [write, pa.Table.to_pandas, lambda rows: rows], ids=["path", "pandas", "arrow"])
def test_rows_of_any_kind_make_the_same_table(log: str, to_source: Callable[[pa.Table], Any]) -> None:
    features, plan, report = make(to_source(ROWS), log)
    assert features.document.schema.names == tuple(ROWS.column_names)
    assert plan == make_plan_of_file(log)
    assert (report.partitions, len(report.loads)) == (("0", "1", "2"), 1)
    assert repr(report).startswith("LoadsReport(table='table', snapshot=0, partitions=3")
    table = layoutopt.open_table("table")
    assert table.sql("SELECT id, kind, day FROM t ORDER BY id").equals(ROWS)
    again = layoutopt.load(to_source(ROWS), "table")
    assert (again.already, again.loads) == (("0", "1", "2"), ())
    with pytest.raises(layoutopt.LayoutoptError, match="loaded from other content"):
        layoutopt.load(to_source(ROWS.slice(1)), "table")
    assert layoutopt.load(to_source(ROWS.slice(1)), "table", partition="day=0", replace=True).partitions == ("0",)
    assert layoutopt.open_table("table").rows == 299


def make_plan_of_file(log: str) -> Plan:
    features = layoutopt.analyze(log, write(ROWS))
    features.save("features.json")
    options: dict[str, Any] = {"method": "input-order", "row_order": ("none",), "block_rows": 10}
    return layoutopt.plan(Path("rows.parquet").absolute(), "features.json", partition_by="day", **options)


def test_a_batch_of_rows_is_appended_once(log: str) -> None:
    make(ROWS, log)
    batch = ROWS.slice(0, 10).to_pandas()
    report = layoutopt.append("table", batch, batch_id="1")
    assert report.load is not None
    assert report.load.rows == 10
    assert layoutopt.append("table", batch, batch_id="1").load is None
    evaluation = layoutopt.evaluate("table", log)
    assert evaluation.totals.queries == 8
    assert evaluation == layoutopt.evaluate(layoutopt.open_table("table"), log)


def test_six_lines_of_the_guide_lay_out_a_data_frame(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in blocks_of(GUIDE) if "layoutopt.analyze(" in block.code]
    assert len(block.code.splitlines()) == 6
    monkeypatch.setattr("layoutopt.planning.automatic.CANDIDATES", ("input-order", "cuts"))  # all take minutes
    Path("tables").mkdir()
    Path("queries.jsonl").write_text('{"sql": "SELECT id FROM events WHERE country = \'FR\'"}\n' * 8)
    rows = ROWS.set_column(1, "country", pc.replace_substring(ROWS["kind"], "air", "FR"))
    names: dict[str, Any] = {"rows": rows.to_pandas()}
    exec(compile(block.code, "python.md", "exec"), names)
    assert names["answer"].to_pylist() == [{"count(1)": 100}]


def test_stages_are_reported(log: str) -> None:
    sentences: list[str] = []
    make(ROWS, log, progress=sentences.append)
    assert "committing" in sentences


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layoutopt.plan(ROWS, "features.json", block_row=3), "unknown option 'block_row': did you mean"),
        (lambda: layoutopt.load(ROWS, "table", table_path="t"), "unknown option 'table_path'"),
        (lambda: layoutopt.load(3, "table"), "the source is a int; expected a path"),
        (lambda: layoutopt.load(ROWS, "table", executor="sparc"), "unknown executor 'sparc'"),
        (lambda: layoutopt.delete("table"), "the option 'where' is missing"),
    ],
)
def test_a_mistake_is_one_sentence(call: Callable[[], object], message: str) -> None:
    with pytest.raises(layoutopt.SettingError, match=message):
        call()


def test_options_have_the_defaults_and_words_of_the_request() -> None:
    parameters = inspect.signature(layoutopt.plan).parameters
    for field in fields(PlanRequest):
        assert parameters[field.name].default == field.default
        assert f"{field.name}" in str(layoutopt.plan.__doc__)
    assert "source" not in str(layoutopt.load.__doc__).partition("Options")[2].split(":")[0]
    assert inspect.signature(layoutopt.delete).parameters["where"].default is inspect.Parameter.empty


@pytest.mark.parametrize(
    ("settings", "request_kind"),
    [
        (AdviseSettings, AdviseRequest),
        (AnalyzeSettings, AnalyzeRequest),
        (AppendSettings, AppendRequest),
        (DeleteSettings, DeleteRequest),
        (LoadSettings, LoadRequest),
        (MergeSettings, MergeRequest),
        (OptimizeSettings, OptimizeRequest),
        (PlanSettings, PlanRequest),
        (UpdateSettings, UpdateRequest),
    ],
)
def test_the_command_line_has_the_defaults_of_the_request(
    settings: type[VerbSettings], request_kind: type[Any]
) -> None:
    for field in fields(request_kind):
        if field.name in ONLY_REQUESTS:
            continue
        known = settings.model_fields[field.name]
        if field.default is not MISSING:
            assert known.default == field.default, field.name
        else:
            assert known.is_required(), field.name


@pytest.mark.spark
class TestDataFrames:
    """Rows of Spark."""

    @pytest.fixture
    def rows(self, spark: SparkSession, log: str) -> DataFrame:
        return spark.read.parquet(f"file:{write(ROWS)}").where("id >= 0")

    def test_a_data_frame_is_laid_out_and_changed(self, rows: DataFrame, log: str) -> None:
        _, plan, report = make(rows, log)
        assert (report.source, report.partitions) == ("DataFrame", ("0", "1", "2"))
        assert plan == make_plan_of_file(log)
        assert layoutopt.append("table", rows.where("id < 5"), batch_id="1").load is not None
        assert layoutopt.delete("table", where="id = 7").deleted == 1
        assert layoutopt.merge("table", rows.where("id = 9"), on="id").updated == 1
        ids = layoutopt.open_table("table").sql("SELECT id FROM t ORDER BY id")["id"].to_pylist()
        assert ids == sorted([*(i for i in range(300) if i != 7), *range(5)])

    def test_a_session_reads_what_it_is_given(self, spark: SparkSession, rows: DataFrame, log: str) -> None:
        features = layoutopt.analyze(log, rows)
        options: dict[str, Any] = {
            "partition_by": "day",
            "method": "input-order",
            "row_order": "none",
            "block_rows": 10,
        }
        plan = layoutopt.plan(rows, features, executor=spark, **options)
        assert layoutopt.load(rows, "table", plan, executor=spark).partitions == ("0", "1", "2")
        assert layoutopt.open_table("table").rows == 300
