"""Loads as they are asked for: once each however often they are retried, resumed, refused where rows would be lost."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from layoutopt.catalog.table import Catalog
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.config.files import make_settings
from layoutopt.config.settings import LoadSettings
from layoutopt.errors import (
    AlreadyLoadedError,
    CommitConflictError,
    MissingPartitionError,
    PartitionsFailedError,
    PlanError,
    SchemaError,
    SettingError,
    TableError,
)
from layoutopt.events import EventLog
from layoutopt.inspect.verify import verify
from layoutopt.loading.load import LoadsReport
from layoutopt.loading.load import load as load_rows
from layoutopt.model.layout import Plan
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.loading.load import load, run_load
from layoutopt.spark.loading.verify import rows_of_entries
from tests.effort import long_too
from tests.spark.tables import plan_of, simple_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]

DAYS = ("2026-11-18", "2026-11-19", "2026-11-20")


def day_rows(day: int, rows: int = 40) -> pa.Table:
    schema = pa.schema([("id", pa.int32()), ("kind", pa.int32()), ("text", pa.string())])
    return pa.Table.from_pylist(
        [{"id": 1000 * day + i, "kind": i % 5, "text": f"row {i}"} for i in range(rows)], schema
    )


def write_files(folder: Path, *files: pa.Table) -> None:
    """Files with these rows, in place of those that are there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, rows in enumerate(files):
        pq.write_table(rows, folder / f"part-{number}.parquet")


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source with a folder a day and a plan for it, in ``place``; and tables of its first day, and of all."""
    folder = tmp_path_factory.mktemp("days")
    for number, day in enumerate(DAYS):
        write_files(folder / "place" / "source" / f"dt={day}", day_rows(number))
    source, plan = str(folder / "place" / "source"), folder / "place" / "plan.json"
    plan.write_bytes(plan_of(simple_document(spark.read.parquet(source)), partition_by="dt").dumps())
    shutil.copytree(folder / "place", folder / "kept")
    for name, given in (("first", {"partition": (DAYS[0],)}), ("all", {})):
        values = {"source": source, "table_path": str(folder / name), "plan": plan} | given
        run_load(spark, make_settings(LoadSettings, values).to_request(LoadRequest))
    return folder


@pytest.fixture
def place(made: Path) -> Path:
    """The source and the plan as they were made, where they were: tables know files by their paths and times."""
    shutil.rmtree(made / "place")
    return Path(shutil.copytree(made / "kept", made / "place"))


@pytest.fixture
def first_is_loaded(made: Path, place: Path) -> None:
    """The table has the first day."""
    shutil.copytree(made / "first", place / "table")


@pytest.fixture
def all_are_loaded(made: Path, place: Path) -> None:
    """The table has all days, of one commit."""
    shutil.copytree(made / "all", place / "table")


class Log:
    """A log whose events can be looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        return [line for line in lines if line["event"] == kind]


@pytest.fixture
def ask(spark: SparkSession, place: Path) -> Callable[..., LoadsReport]:
    """Load with these settings; by the plan unless told."""

    def run(**given: object) -> LoadsReport:
        values = {"source": str(place / "source"), "table_path": str(place / "table"), "plan": place / "plan.json"}
        with (place / "log.jsonl").open("a") as stream:
            return run_load(
                spark, make_settings(LoadSettings, values | given).to_request(LoadRequest), log=EventLog(stream)
            )

    return run


def held(place: Path) -> dict[str, str]:
    return {entry.key: entry.load_id for entry in Catalog.open(str(place / "table")).snapshot.partitions}


def ids(place: Path) -> list[int]:
    return sorted(open_table(str(place / "table")).sql("SELECT id FROM t")["id"].to_pylist())


def test_a_partition_is_loaded_once_however_often_it_is_asked_for(place: Path, ask: Callable[..., LoadsReport]) -> None:
    first = ask(partition=(f"dt={DAYS[1]}",))
    assert (first.partitions, first.already) == ((DAYS[1],), ())
    before = held(place)
    again = ask(partition=(f"dt={DAYS[1]}",))
    assert (again.loads, again.already) == ((), (DAYS[1],))
    assert held(place) == before
    # Without a plan the table's own is taken, and a day that is there stays.
    assert ask(partition=(DAYS[1], DAYS[2]), plan=None).partitions == (DAYS[2],)
    assert ids(place) == [*range(1000, 1040), *range(2000, 2040)]
    assert Log(place / "log.jsonl").events("load")[1]["already"] == [DAYS[1]]


@pytest.mark.long
@pytest.mark.parametrize(("group", "parallel"), [(None, 1), (None, 3), (2, 2)])
def test_a_range_goes_on_and_a_rerun_does_the_rest(
    group: int | None, parallel: int, place: Path, ask: Callable[..., LoadsReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any, **named: Any) -> Any:
        if days_since_1970(DAYS[1]) in arguments[3].values:
            raise TableError("the disk is full, nothing was committed; make room and load again")
        return load_rows(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr("layoutopt.loading.load.load", failing)
        with pytest.raises(PartitionsFailedError, match="disk is full"):
            ask(first=DAYS[0], last=DAYS[2], group=group, parallel=parallel)
    assert set(held(place)) == {DAYS[0], DAYS[2]}
    (failed,) = Log(place / "log.jsonl").events("load")
    assert (failed["outcome"], failed["exit"]) == ("failed", 1)
    assert sorted(failed["partitions"]) == [DAYS[0], DAYS[2]]
    assert "disk is full" in failed["error"]
    resumed = ask(first=DAYS[0], last=DAYS[2])
    assert (resumed.partitions, resumed.already) == ((DAYS[1],), (DAYS[0], DAYS[2]))
    assert len(ids(place)) == 120


def test_a_damaged_file_stops_its_day_alone(place: Path, ask: Callable[..., LoadsReport]) -> None:
    file = place / "source" / f"dt={DAYS[1]}" / "part-0.parquet"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(PartitionsFailedError, match=f"not loaded .{DAYS[1]}."):
        ask(first=DAYS[0], last=DAYS[2], parallel=2)
    assert set(held(place)) == {DAYS[0], DAYS[2]}
    file.write_bytes(content)
    assert ask(first=DAYS[0], last=DAYS[2]).partitions == (DAYS[1],)
    assert len(ids(place)) == 120


def days_since_1970(text: str) -> int:
    return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days


@pytest.mark.long
def test_a_range_is_of_values_and_may_be_open(place: Path, ask: Callable[..., LoadsReport]) -> None:
    assert ask(first=DAYS[2]).partitions == (DAYS[2],)
    assert ask(last=DAYS[0]).partitions == (DAYS[0],)
    with pytest.raises(SettingError, match="--from is 'soon', which is no date"):
        ask(first="soon")
    with pytest.raises(SettingError, match="both given"):
        ask(first=DAYS[0], partition=(DAYS[0],))
    with pytest.raises(MissingPartitionError, match="no rows from 2027"):
        ask(first="2027-01-01", last="2027-02-01")


def test_a_day_that_has_not_come_has_its_own_exit_code(place: Path, ask: Callable[..., LoadsReport]) -> None:
    with pytest.raises(MissingPartitionError, match="no rows for dt=2026-11-21") as caught:
        ask(partition=("2026-11-21",))
    assert caught.value.exit_code == 4
    assert not (place / "table").exists()
    assert ask(partition=("2026-11-21",), allow_empty=True).partitions == ("2026-11-21",)
    assert ask(partition=("2026-11-21",), allow_empty=True).already == ("2026-11-21",)


@pytest.mark.long
def test_an_empty_partition_is_filled_without_asking(place: Path, ask: Callable[..., LoadsReport]) -> None:
    ask(partition=("2026-11-21",), allow_empty=True)
    write_files(place / "source" / "dt=2026-11-21", day_rows(5))
    assert ask(partition=("2026-11-21",)).loads[0].rows == 40


@pytest.mark.usefixtures("all_are_loaded")
def test_files_written_again_with_the_same_rows_are_the_same(place: Path, ask: Callable[..., LoadsReport]) -> None:
    before = held(place)
    rows = day_rows(1)
    write_files(place / "source" / f"dt={DAYS[1]}", rows[30:], rows[:10], rows[10:30])
    assert ask().already == DAYS
    assert held(place) == before


@pytest.mark.usefixtures("all_are_loaded")
def test_other_rows_are_refused_until_they_are_to_replace(
    spark: SparkSession, place: Path, ask: Callable[..., LoadsReport]
) -> None:
    rows = day_rows(1)
    others = pa.array(["other"] * rows.num_rows)
    swapped = pa.array([1 - kind if kind < 2 else kind for kind in rows["kind"].to_pylist()], pa.int32())
    for changed in (rows.set_column(2, "text", others), rows.set_column(1, "kind", swapped)):
        write_files(place / "source" / f"dt={DAYS[1]}", changed)
        with pytest.raises(
            AlreadyLoadedError, match=r"2026-11-19' was loaded from other content \(40 rows\)"
        ) as caught:
            ask(partition=(DAYS[1],))
        assert caught.value.exit_code == 3
    report = ask(partition=(DAYS[1],), replace=True)
    assert report.loads[0].rows == 40
    assert ask(partition=(DAYS[1],)).already == (DAYS[1],)
    table = open_table(str(place / "table"))
    (entry,) = table.catalog.snapshot.by_key[DAYS[1]]
    found = rows_of_entries(spark, table, [entry]).drop("dt").toArrow()
    assert found.sort_by("id").to_pylist() == changed.to_pylist()


@pytest.mark.usefixtures("first_is_loaded")
def test_a_whole_source_is_one_commit_of_what_is_missing(place: Path, ask: Callable[..., LoadsReport]) -> None:
    report = ask()
    assert (len(report.loads), report.partitions, report.already) == (1, DAYS[1:], (DAYS[0],))
    assert len(ids(place)) == 120


@pytest.mark.long
@pytest.mark.usefixtures("first_is_loaded")
def test_a_load_that_was_given_up_but_committed_is_found_done(
    place: Path, ask: Callable[..., LoadsReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes load one day: the second finds at its commit that the first was faster, and is content."""
    racing = {"left": 1}

    def with_somebody_else(*arguments: Any, **named: Any) -> Any:
        if racing["left"]:
            racing["left"] = 0
            ask(partition=(DAYS[1],))
        return load_rows(*arguments, **named)

    monkeypatch.setattr("layoutopt.loading.load.load", with_somebody_else)
    report = ask(partition=(DAYS[1],))
    assert (report.loads, report.already) == ((), (DAYS[1],))
    assert len(ids(place)) == 80


@pytest.mark.usefixtures("first_is_loaded")
def test_somebody_elses_other_rows_are_a_conflict(
    spark: SparkSession, ask: Callable[..., LoadsReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    racing = {"left": 1}

    def with_somebody_else(*arguments: Any, **named: Any) -> Any:
        if racing["left"]:
            racing["left"] = 0
            kept = spark.createDataFrame(day_rows(7)).selectExpr("*", f"date '{DAYS[1]}' AS dt")
            load(spark, kept, arguments[1], arguments[2])
        return load_rows(*arguments, **named)

    monkeypatch.setattr("layoutopt.loading.load.load", with_somebody_else)
    with pytest.raises(CommitConflictError, match="another commit"):
        ask(partition=(DAYS[1],))


class TestPlans:
    """Partitions keep the plan that they were loaded by."""

    @pytest.mark.long
    @pytest.mark.usefixtures("first_is_loaded")
    def test_a_new_plan_for_new_partitions_and_for_those_reloaded(
        self, spark: SparkSession, place: Path, ask: Callable[..., LoadsReport]
    ) -> None:
        ask(partition=(DAYS[1],))
        plan = replace(Plan.loads((place / "plan.json").read_bytes()), block_rows=10)
        (place / "new.json").write_bytes(plan.dumps())
        with pytest.raises(AlreadyLoadedError, match="by the plan"):
            ask(plan=place / "new.json", partition=(DAYS[0],))
        ask(plan=place / "new.json", partition=(DAYS[2],))
        plans = {entry.key: entry.plan for entry in Catalog.open(str(place / "table")).partitions}
        assert plans[DAYS[0]] == plans[DAYS[1]] != plans[DAYS[2]] == plan.digest
        table = open_table(str(place / "table"))
        for engine in (table.scan("SELECT id FROM t WHERE kind = 3").to_arrow()["id"].to_pylist(), [
            row["id"] for row in table.scan("SELECT id FROM t WHERE kind = 3").to_spark(spark).collect()
        ]):  # fmt: skip
            assert sorted(engine) == [1000 * day + 5 * i + 3 for day in range(3) for i in range(8)]
        assert any(
            pruned.read.sum() < pruned.source.blocks.n for pruned in table.scan(where="kind = 3").reads[0].pruned
        )
        # The plan of the newest load is the table's from now on.
        assert ask(plan=None, partition=(DAYS[0],), replace=True).plan == plan.digest
        assert verify(open_table(str(place / "table"))).ok

    @pytest.mark.long
    @pytest.mark.usefixtures("first_is_loaded")
    def test_newer_partitions_may_have_more_columns(
        self, spark: SparkSession, place: Path, ask: Callable[..., LoadsReport]
    ) -> None:
        ask(partition=(DAYS[1],))
        more = day_rows(2)
        lists = pa.array([[id] for id in more["id"].to_pylist()], pa.list_(pa.int32()))
        more = more.append_column("twice", pc.add(more["id"], more["id"])).append_column("list", lists)
        write_files(place / "source" / f"dt={DAYS[2]}", more)
        with pytest.raises(SchemaError, match="'twice' is not in the plan"):
            ask(partition=(DAYS[2],))
        merged = spark.read.option("mergeSchema", "true").parquet(str(place / "source"))
        (place / "new.json").write_bytes(plan_of(simple_document(merged), partition_by="dt").dumps())
        ask(plan=place / "new.json", partition=(DAYS[2],))
        # The old plan still loads, and reloads, partitions of the old columns.
        ask(plan=place / "plan.json", partition=(DAYS[0],), replace=True)
        # The new one loads them with NULL.
        ask(plan=place / "new.json", partition=(DAYS[1],), replace=True)
        table = open_table(str(place / "table"))
        assert table.schema.names == ("id", "kind", "text", "dt", "twice", "list")
        for condition, days in (("twice > 0", [2]), ("twice IS NULL", [0, 1]), ("id >= 0", [0, 1, 2])):
            sql = f"SELECT id, twice, list FROM t WHERE {condition}"
            expected = sorted(
                (1000 * day + i, 2 * (1000 * day + i) if day == 2 else None, [1000 * day + i] if day == 2 else None)
                for day in days
                for i in range(40)
            )
            found = table.sql(sql).to_pylist()
            assert sorted(tuple(row.values()) for row in found) == expected, condition
            by_spark = [tuple(row) for row in table.scan(sql).to_spark(spark).collect()]
            assert sorted(by_spark) == expected, condition
        assert verify(table).ok

    @pytest.mark.usefixtures("first_is_loaded")
    def test_another_tables_plan_is_refused(self, place: Path, ask: Callable[..., LoadsReport]) -> None:
        plan = Plan.loads((place / "plan.json").read_bytes())
        (place / "new.json").write_bytes(replace(plan, table="sales").dumps())
        with pytest.raises(PlanError, match="calls the table 'sales' but its partitions were loaded as 't'"):
            ask(plan=place / "new.json", partition=(DAYS[1],))


@pytest.mark.long
def test_folders_that_look_like_numbers_keep_the_sources_type(spark: SparkSession, tmp_path: Path) -> None:
    """One folder alone would make Spark guess another type of the partition column."""
    for code in ("01", "A 1"):
        write_files(tmp_path / "source" / f"code={code}", day_rows(1))
    source = spark.read.parquet(str(tmp_path / "source"))
    (tmp_path / "plan.json").write_bytes(plan_of(simple_document(source), partition_by="code").dumps())
    values = {"source": str(tmp_path / "source"), "table_path": str(tmp_path / "table"), "plan": tmp_path / "plan.json"}
    for code in ("01", "A 1"):
        report = run_load(
            spark, make_settings(LoadSettings, {**values, "partition": (f"code={code}",)}).to_request(LoadRequest)
        )
        assert report.loads[0].rows == 40


@pytest.mark.long
def test_a_single_file_is_a_source_too(place: Path, ask: Callable[..., LoadsReport]) -> None:
    rows = day_rows(1)
    days = [dt.date(2026, 11, 18 if kind == 1 else 19) for kind in rows["kind"].to_pylist()]
    write_files(place / "flat", rows.append_column("dt", pa.array(days)))
    (file,) = (place / "flat").glob("*.parquet")
    assert ask(source=str(file), partition=("2026-11-18",)).loads[0].rows == 8
    assert ask(source=str(place / "flat")).partitions == ("2026-11-19",)


def test_the_command_says_what_it_did_and_exits_as_documented(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, table, plan, log = (str(place / name) for name in ("source", "table", "plan.json", "log.jsonl"))

    def said(code: int, *words: str) -> Any:
        assert main(["load", source, table, *words, "--json", "--log-json", log]) == code
        out = capsys.readouterr()
        return json.loads(out.out) if code == DONE else out.err

    done = said(DONE, "--plan", plan, "--partition", f"dt={DAYS[0]}", "--partition", f"dt={DAYS[1]}")
    assert (done["partitions"], done["rows"], len(done["loads"])) == ([DAYS[0], DAYS[1]], 80, 2)
    assert said(DONE, "--from", DAYS[0], "--to", DAYS[1])["already"] == [DAYS[0], DAYS[1]]
    assert "no rows for dt=2030-01-01" in said(4, "--partition", "dt=2030-01-01")
    assert "no date" in said(BAD_USAGE, "--partition", "dt=x")
    write_files(place / "source" / f"dt={DAYS[0]}", day_rows(8))
    assert "--replace" in said(3, "--partition", f"dt={DAYS[0]}")
    events = Log(Path(log))
    assert [event["exit"] for event in events.events("load")] == [0, 0, 4, 2, 3]
    stages = [event["stage"] for event in events.events("stage")]
    assert stages == ["count", "write", "check", "commit"] * 2
    written = events.events("stage")[1]
    assert written["blocks"] == done["loads"][0]["blocks"]
    assert written["seconds"] > 0
    assert events.events("load")[0]["rows"] == 80
    assert main(["load", source, table, "--log-json", os.devnull + "/x", "--plan", plan]) == BAD_USAGE


def interrupting(word: str, times: int = 1) -> Callable[[str], None]:
    """Progress that is interrupted when a stage of that name begins for the last of so many times."""
    seen: list[str] = []

    def say(sentence: str) -> None:
        seen.append(sentence)
        if sum(word in each for each in seen) == times:
            raise KeyboardInterrupt

    return say


@pytest.mark.long
def test_an_interrupted_load_says_what_was_committed(spark: SparkSession, place: Path) -> None:
    given = {"source": str(place / "source"), "table": str(place / "table"), "plan": place / "plan.json"}
    settings = make_settings(LoadSettings, given | {"partition": [f"dt={DAYS[0]}", f"dt={DAYS[1]}"]}).to_request(
        LoadRequest
    )
    with pytest.raises(KeyboardInterrupt, match=r"^nothing was committed$"):
        run_load(spark, settings, interrupting("writing"))
    with pytest.raises(KeyboardInterrupt, match=r"history .* lists what was committed"):
        run_load(spark, settings, interrupting("writing", times=2))
    assert Catalog.open(str(place / "table")).snapshot.number == 0
    assert len(run_load(spark, settings).loads) == 1


def test_each_commit_is_published_and_so_is_what_a_crash_left_unpublished(
    place: Path, ask: Callable[..., LoadsReport]
) -> None:
    table = str(place / "table")
    ask(partition=[f"dt={day}" for day in DAYS[:2]], publish=["delta"])
    assert DeltaTable(table).version() == 1
    ask(partition=[f"dt={DAYS[2]}"])  # as if it had died between its two commits
    assert DeltaTable(table).count() == 80
    assert ask(publish=["delta"]).loads == ()
    assert DeltaTable(table).count() == 120
    with pytest.raises(SettingError, match="'orc' names no place"):
        ask(publish=["orc"])


@pytest.mark.parametrize("in_files", [True, *long_too(False)])
def test_columns_are_found_in_any_case(place: Path, ask: Callable[..., LoadsReport], in_files: bool) -> None:
    """Of folders and files, whichever of them spells the partition column otherwise than the plan."""
    for number, day in enumerate(DAYS):
        rows = day_rows(number)
        days = pa.array([dt.date.fromisoformat(day)] * rows.num_rows)
        named = (
            rows.append_column("dt", days) if in_files else rows.rename_columns([n.upper() for n in rows.column_names])
        )
        write_files(place / "other" / f"DT={day}", named)
    assert ask(source=str(place / "other"), partition=(DAYS[0],)).partitions == (DAYS[0],)
    assert ask(source=str(place / "other")).partitions == tuple(DAYS[1:])
    assert ids(place) == sorted(id for number in range(len(DAYS)) for id in day_rows(number)["id"].to_pylist())
