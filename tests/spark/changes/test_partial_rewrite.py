"""Partial rewrites: answers stay, other layouts' files stay, and nothing is lost, whoever comes between."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from layoutopt.catalog.commit import CRASH_POINTS
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.errors import CommitConflictError, ContentMismatchError, NeedsSparkError
from layoutopt.inspect.verify import verify
from layoutopt.loading import partition_rows
from layoutopt.loading.rewrite import PartialRewrite, can_rewrite_partially
from layoutopt.maintenance.partial_rewrite import mix_plans
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.model.predicates import Filter
from layoutopt.model.requests import DeleteRequest, OptimizeRequest
from layoutopt.scan.table import open_own_table, open_table
from layoutopt.spark.changes import spark_change
from layoutopt.spark.changes.optimize import OptimizeReport, optimize_table
from layoutopt.spark.changes.spark_change import change_by_spark
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.writer.task_result import LoadReport
from tests.effort import long_too
from tests.spark.changes.living import Begin, rewrite_by_spark
from tests.spark.tables import document, every_type, is_value, kinds_and_shops, plan_of, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def by_kind(old: Plan, columns: tuple[str, ...], kinds: tuple[int, ...]) -> Plan:
    """A plan of one layout of some columns, by features that are new, and one of the others."""
    features = tuple(Feature(Filter.of(is_value(old.schema, "kind", "=", kind)).predicates) for kind in kinds)
    rest = tuple(name for name in old.schema.names if name not in columns)
    guided = Layout(columns, tuple(range(len(kinds))), columns)
    layouts = (guided, Layout(rest, (), rest)) if rest else (guided,)
    return replace(old, features=FeatureSet(features, old.settings), scheme=Scheme(layouts), queries=(), reads=())


class Apart:
    """A table of two layouts and several segments, blocked by two kinds of three."""

    columns = ("id", "kind", "text")

    def __init__(self, spark: SparkSession, root: Path, loaded: str | None = None) -> None:
        self.spark, self.path = spark, str(root / "table")
        rows = simple_rows(spark, 800)
        schema = schema_of(rows)
        of = document(schema, [is_value(schema, "kind", "=", kind) for kind in range(2)])
        left, right = ("id", "day", "kind"), ("text",)
        scheme = Scheme((Layout(left, (0,), left), Layout(right, (1,), right)))
        self.old = plan_of(of, scheme=scheme, block_rows=20, segment_rows=300)
        if loaded is None:
            load(spark, rows, self.path, self.old)
        else:
            shutil.copytree(loaded, self.path)

    def alone(self, kept: tuple[int, ...] = (0, 1)) -> PartialRewrite:
        """What brings the table's one partition to a layout by another kind."""
        (entry,) = Catalog.open(self.path).partitions
        return PartialRewrite(entry, mix_plans(self.old, by_kind(self.old, self.columns, (3,)), kept, (0,)), kept)

    def write(
        self, wanted: PartialRewrite, at: Callable[[str], None] = lambda point: None, snapshot: int | None = None
    ) -> LoadReport:
        return rewrite_by_spark(self.spark, open_own_table(self.path, snapshot=snapshot), wanted, at)

    def check(self) -> None:
        table = open_table(self.path)
        assert verify(table).ok
        found = table.sql("SELECT * FROM t ORDER BY id").to_pylist()
        assert found == [{"id": i, "day": i // 200, "kind": i % 5, "text": f"row {i}"} for i in range(800)]

    def read(self, where: str, columns: tuple[str, ...]) -> tuple[int, ...]:
        """The layouts that a query reads, and the rows that it reads of them, at most."""
        (read,) = open_table(self.path).scan(columns=list(columns), where=where).reads
        return (*read.layouts, sum(pruned.size(pruned.read).rows for pruned in read.pruned))


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return Apart(spark, tmp_path_factory.mktemp("apart")).path


@pytest.fixture
def apart(spark: SparkSession, tmp_path: Path, loaded: str) -> Apart:
    return Apart(spark, tmp_path, loaded)


@pytest.mark.long
def test_a_layout_written_alone_is_read_where_it_skips_more_and_leaves_the_others_as_they_were(apart: Apart) -> None:
    before = Catalog.open(apart.path)
    (blocks,) = (table for _, table in before.block_tables())
    assert apart.read("kind = 3", apart.columns)[:2] == (0, 1)
    known = {kind: apart.read(f"kind = {kind}", ("text",))[-1] for kind in (0, 1)}
    wanted = apart.alone()
    report = apart.write(wanted)
    assert (report.partitions, report.segments, report.rows) == (("all",), 3, 800)
    after = Catalog.open(apart.path)
    (now,) = (table for _, table in after.block_tables())
    assert set(blocks.files) < set(now.files)
    assert report.files == len(now.files) - len(blocks.files)
    assert report.bytes == sum(table.bytes.sum() for table in (now,)) - blocks.bytes.sum()
    apart.check()
    assert apart.read("kind = 3", apart.columns)[0] == 2
    assert apart.read("kind = 3", apart.columns)[1] < 200
    # The layouts that stay know their own features still.
    for kind, rows in known.items():
        assert apart.read(f"kind = {kind}", ("text",))[-1] <= rows
    assert apart.read("day = 1", ("day",))[0] == 0
    spark = open_table(apart.path).scan("SELECT id FROM t WHERE kind = 3").to_spark(apart.spark)
    assert sorted(row.id for row in spark.collect()) == [i for i in range(800) if i % 5 == 3]
    # One that is written again, in the place of the old ones, whose files then go.
    (entry,) = after.partitions
    again = mix_plans(wanted.plan, by_kind(apart.old, ("id", "day", "kind"), (4,)), (2,), (0,))
    apart.write(PartialRewrite(entry, again, (2,)))
    vacuum(TableFiles(apart.path), 1, timedelta(0))
    there = {file.path for file in TableFiles(apart.path).walk("data")}
    assert there == {path for _, table in Catalog.open(apart.path).block_tables() for path in table.files}
    assert there & set(now.files)
    assert not there & set(blocks.files)
    apart.check()


@pytest.mark.parametrize("point", [*CRASH_POINTS[::2], *long_too(*CRASH_POINTS[1::2])])
def test_whoever_dies_leaves_the_table_as_before_or_after(apart: Apart, point: str) -> None:
    class KilledError(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise KilledError

    wanted = apart.alone()
    with pytest.raises(KilledError):
        apart.write(wanted, die)
    done = point == "snapshot-created"
    assert Catalog.open(apart.path).snapshot.number == done
    if point in ("started", "snapshot-created"):
        apart.check()
    if not done:
        apart.write(wanted)
        assert Catalog.open(apart.path).snapshot.number == 1
        apart.check()


@pytest.mark.parametrize("rows", [800, 799], ids=["layouts written", "a row deleted"])
def test_whoever_changes_the_partition_first_wins(apart: Apart, rows: int) -> None:
    wanted = apart.alone()
    if rows == 800:
        apart.write(wanted)
    else:
        change_by_spark(apart.spark, DeleteRequest(table_path=apart.path, where="id = 3"))
    with pytest.raises(CommitConflictError, match="another commit"):
        apart.write(wanted, snapshot=0)
    files = {file.path for file in TableFiles(apart.path).walk("data")}
    assert files == {path for _, table in Catalog.open(apart.path).block_tables() for path in table.files}
    table = open_table(apart.path)
    assert table.sql("SELECT count(*) AS n, count(DISTINCT text) AS m FROM t").to_pylist() == [{"n": rows, "m": rows}]
    assert verify(table).ok


def test_values_that_came_from_another_place_are_refused(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(*arguments: Any) -> pa.Table:
        """Two rows with the text of the other."""
        rows = read(*arguments)
        place = rows.column_names.index("text")
        texts = {"row 7": "row 8", "row 8": "row 7"}
        return rows.set_column(place, "text", pa.array([texts.get(text, text) for text in rows["text"].to_pylist()]))

    read = partition_rows._read_by_tid
    monkeypatch.setattr(partition_rows, "_read_by_tid", shifted)
    with pytest.raises(ContentMismatchError, match="text at other row positions"):
        apart.write(apart.alone())
    assert Catalog.open(apart.path).snapshot.number == 0
    apart.check()


def refuse_arrow(*arguments: object) -> None:
    raise NeedsSparkError("Arrow reads nothing here")


def test_segments_that_only_spark_reads_are_spooled(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = apart.alone()
    monkeypatch.setattr(spark_change, "open_segments", refuse_arrow)
    report = apart.write(wanted)
    assert (report.segments, report.rows) == (3, 800)
    monkeypatch.undo()
    apart.check()
    assert apart.read("kind = 3", apart.columns)[0] == 2
    assert apart.read("kind = 3", apart.columns)[1] < 200


@pytest.mark.long
def test_every_type_is_proved_at_its_place(spark: SparkSession, tmp_path: Path) -> None:
    rows = every_type(spark, 200)
    schema = schema_of(rows)
    of = document(schema, [is_value(schema, "tiny", "=", 3)])
    half = len(schema.names) // 2
    scheme = Scheme(tuple(Layout(names, (0,), names) for names in (schema.names[:half], schema.names[half:])))
    old = plan_of(of, partition_by="year", scheme=scheme)
    path = str(tmp_path / "table")
    load(spark, rows, path, old)
    features = FeatureSet((Feature(Filter.of(is_value(schema, "flag", "=", True)).predicates),), old.settings)
    whole = Layout(schema.names, (0,), schema.names)
    plan = mix_plans(old, replace(old, features=features, scheme=Scheme((whole,))), (0,), (0,))
    table = open_own_table(path)
    for entry in table.catalog.partitions:
        assert can_rewrite_partially(table, entry)
        rewrite_by_spark(spark, open_own_table(path), PartialRewrite(entry, plan, (0,)))
    assert {entry.plan for entry in Catalog.open(path).partitions} == {plan.digest}
    assert verify(open_table(path)).ok


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["gsop", "gsop-r"])
def test_a_table_lives_on_after_layouts_were_written_alone(begin: Begin, scheme: str) -> None:
    living, choice = begin(scheme), random.Random(3)
    living.check()
    changes: list[Callable[[], object]] = [
        lambda: living.write_layouts(choice),
        lambda: living.update("kind = 2"),
        lambda: living.append(6),
        lambda: living.restore(1),
        lambda: living.delete("kind = 2"),
    ]
    for change in changes:
        change()
        living.check()
    table = open_own_table(living.path)
    assert not any(can_rewrite_partially(table, entry) for entry in table.catalog.partitions if entry.deletes)
    living.check_past()
    assert verify(open_table(living.path)).ok


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_many_layouts_written_alone(begin: Begin, seed: int) -> None:
    living = begin(("gsop", "gsop-r")[seed % 2])
    choice = random.Random(seed)
    for _ in range(6):
        living.write_layouts(choice)
        living.check()
        living.append(2) if choice.random() < 0.2 else None
    living.check_past()
    assert verify(open_table(living.path)).ok


class Drifted:
    """A table of two layouts that was planned for queries by kind, a plan for queries by shop, and a log of these."""

    def __init__(self, spark: SparkSession, root: Path, rows: int = 4_000, days: int = 2) -> None:
        self.spark, self.rows, self.path = spark, rows, str(root / "table")
        source = kinds_and_shops(spark, rows, days, "sha2(cast(id as string), 512) AS note")
        schema = schema_of(source)
        of = document(schema, [is_value(schema, "kind", "=", kind) for kind in range(4)])
        old = (Layout(names := schema.names[:-1], (0, 1, 2, 3), names), Layout(("note",), (), ("note",)))
        self.old = plan_of(of, partition_by="day", scheme=Scheme(old), block_rows=100, segment_rows=5_000)
        load(spark, source, self.path, self.old)
        by_shop = document(schema, [is_value(schema, "shop", "=", shop) for shop in range(10)])
        fresh = [Layout(names, tuple(range(10)), names) for names in (("shop", "text", "note"), ("id", "day", "kind"))]
        new = plan_of(by_shop, partition_by="day", scheme=Scheme(tuple(fresh)), block_rows=100, segment_rows=5_000)
        (root / "new.json").write_bytes(new.dumps())
        self.new, self.plan = new, root / "new.json"
        texts = [{"sql": f"SELECT text FROM t WHERE shop = {shop}"} for shop in range(10)]
        self.log = str(root / "log.jsonl")
        Path(self.log).write_text("".join(json.dumps(line) + "\n" for line in texts))

    def optimize(self, **given: Any) -> OptimizeReport:
        return optimize_table(self.spark, OptimizeRequest(table_path=self.path, plan=self.plan, log=self.log, **given))

    def read(self) -> int:
        """The bytes that the log's queries read."""
        table = open_table(self.path)
        scans = [table.scan(f"SELECT text FROM t WHERE shop = {shop}") for shop in range(10)]
        return sum(pruned.size(pruned.read).bytes for scan in scans for read in scan.reads for pruned in read.pruned)


@pytest.mark.long
def test_a_budget_is_spent_on_the_layouts_that_gain_most(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drifted = Drifted(spark, tmp_path)
    before, most = drifted.read(), Catalog.open(drifted.path).partitions[0].bytes
    assert not drifted.optimize(dry_run=True).alone  # whole partitions, where nobody counts bytes
    words = ["optimize", drifted.path, "--plan", str(drifted.plan), "--log", drifted.log, "--budget-share", "0.4"]
    assert main([*words, "--dry-run", "--plot", str(tmp_path / "curve.png")]) == DONE
    said = " ".join(capsys.readouterr().out.split())
    assert "1 layout to be written" in said
    assert "only layouts of these columns: shop, text" in said
    report = drifted.optimize(budget_share=0.4)
    assert report.alone == {"0": (("shop", "text"),), "1": (("shop", "text"),)}
    assert sum(one.bytes for one in report.loads) < 0.4 * report.bytes
    assert [one.bytes for one in report.loads] == pytest.approx([0.33 * most] * 2, rel=0.3)
    # What they read is what a fresh plan would let them read: of ten shops, one.
    now = drifted.read()
    assert now < 0.2 * before
    foretold = {one.key: dict(enumerate(one.parts)) for one in report.candidates}
    assert before - now == pytest.approx(sum(parts[0].gain for parts in foretold.values()), rel=0.1)
    table = open_table(drifted.path)
    assert verify(table).ok
    assert table.sql("SELECT count(DISTINCT text) AS n, count(DISTINCT note) AS m FROM t").to_pylist() == [
        {"n": drifted.rows, "m": drifted.rows}
    ]
    again = drifted.optimize(budget_share=0.4)
    assert (again.loads, again.chosen) == ((), ())
    # All of it can be had still, in one layout less.
    whole = drifted.optimize(partition=("0",))
    assert [one.partitions for one in whole.loads] == [("0",)]
    assert {entry.key: entry.plan == drifted.new.digest for entry in Catalog.open(drifted.path).partitions} == {
        "0": True,
        "1": False,
    }
    assert drifted.read() <= now
