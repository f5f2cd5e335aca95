"""Encrypted tables and Spark: loaded, changed and read as others are, with nothing in the clear on the disk."""

from __future__ import annotations

import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import layoutopt.spark as skipping
from layoutopt.catalog.history import history
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import EncryptedTableError, EncryptionKeyError
from layoutopt.inspect.status import verify_path
from layoutopt.inspect.verify import verify
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import ByVectors, Layout, Scheme
from layoutopt.model.predicates import Col
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import run_load
from tests.scan.encrypting import found_in
from tests.spark.changes.living import SCHEMES, Living
from tests.spark.tables import document, is_value, plan_of

pytestmark = pytest.mark.spark
KEY = "env:LIVING_KEY"
NUMBER = 0x7A71_1234_5678_0000
"""Above it are numbers whose eight bytes stand nowhere by chance."""
NAMES = ("zqnum", "zqkind", "zqday", "zqlist")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that Spark's workers, which are there already, don't have."""
    monkeypatch.setenv("LIVING_KEY", "c3" * 16)
    monkeypatch.delenv("LAYOUTOPT_KEY", raising=False)


def scheme_of(name: str) -> Scheme | None:
    first, second = NAMES[:3], NAMES[3:]
    return {
        "sop": None,
        "gsop": Scheme((Layout(first, (0, 1), first, ByVectors()), Layout(second, (2,), second, ByVectors()))),
        "gsop-r": Scheme(
            (Layout(NAMES, (0, 1), NAMES, ByVectors()), Layout(("zqnum", "zqkind"), (2,), (), ByVectors()))
        ),
    }[name]


def written(spark: SparkSession, root: Path, scheme: str) -> None:
    """A source whose every value and name can be searched for, rows to be appended, and a plan with an index."""
    rows = spark.range(120).selectExpr(
        f"id + {NUMBER} AS zqnum",
        "concat('zq-kind-', id % 5) AS zqkind",
        "concat('zq-day-', id % 3) AS zqday",
        "array(concat('zq-item-', id), null) AS zqlist",
    )
    rows.where(f"zqnum < {NUMBER + 90}").coalesce(1).write.parquet(str(root / "source"))
    rows.where(f"zqnum >= {NUMBER + 90}").coalesce(1).write.parquet(str(root / "more"))
    schema = schema_of(rows)
    of = document(schema, [is_value(schema, "zqkind", "=", f"zq-kind-{kind}") for kind in range(3)])
    plan = plan_of(of, partition_by="zqday", scheme=scheme_of(scheme), block_rows=6)
    plan = replace(plan, indexes=(IndexSpec(Col("zqnum", "bigint"), "value-list"),))
    (root / "plan.json").write_bytes(plan.dumps())


def verbs(root: Path, table: str) -> list[list[str]]:
    """Every way to change a table, after a load."""
    path = str(root / table)
    return [
        ["append", path, str(root / "more"), "--batch-id", "zq-batch"],
        ["delete", path, "--where", "zqkind = 'zq-kind-1'", "--rewrite-share", "1"],
        ["update", path, "--set", "zqkind = 'zq-new'", "--where", f"zqnum = {NUMBER + 7}", "--rewrite-share", "0"],
        ["verify", path],
        ["status", path],
        ["history", path],
        ["optimize", path, "--deleted-share", "0"],
        ["verify", path, "--engine", "spark"],
        ["vacuum", path, "--older-than", "0s", "--retain-snapshots", "2"],
    ]


def load(root: Path, table: str, key: str | None) -> str:
    path, plan = root / table, root / "plan.json"
    words = ["load", str(root / "source"), str(path), "--plan", str(plan), *([] if key is None else ["--encrypt", key])]
    assert main(words) == DONE
    return str(path)


MARKERS = [b"zq-kind", b"zq-day", b"zq-item", *(name.encode() for name in NAMES)]
NUMBERS = [struct.pack("<q", NUMBER + i) for i in range(120)]


def check_hidden(root: Path, clear: str, encrypted: str, *more: bytes) -> None:
    found = {marker for marker, _ in found_in(root / clear, [*MARKERS, *NUMBERS, *more])}
    assert found >= {*MARKERS, *more}, "the search can find"
    assert found & set(NUMBERS)
    assert found_in(root / encrypted, [*MARKERS, *NUMBERS, *more]) == set()


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("encrypted")
    written(spark, root, "gsop-r")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIVING_KEY", "c3" * 16)
        source, plan = str(root / "source"), root / "plan.json"
        run_load(spark, LoadRequest(source=source, table_path=str(root / "table"), plan=plan, encrypt=KEY))
    return root


@pytest.mark.long
def test_nothing_stands_in_the_clear(spark: SparkSession, loaded: Path, tmp_path: Path) -> None:
    table = Path(shutil.copytree(loaded / "table", tmp_path / "table"))
    load(loaded, "clear", key=None)
    for words in verbs(loaded, "table")[:2]:
        assert main([words[0], str(table), *words[2:]]) == DONE
    assert {path.name for path in (table / "_layoutopt").iterdir() if path.is_dir()} == {
        "blocks", "deletes", "indexes", "plans", "snapshots", "sources",
    }  # fmt: skip
    shutil.copytree(loaded / "clear", tmp_path / "clear")
    check_hidden(tmp_path, "clear", "table")
    assert open_table(str(table)).sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 96}]
    assert verify_path(str(table)).ok


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["sop", "gsop", "gsop-r"])
def test_nothing_stands_in_the_clear_whatever_is_done(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    written(spark, tmp_path, scheme)
    rows = []
    for table, key in (("clear", None), ("encrypted", KEY)):
        path = load(tmp_path, table, key)
        for words in verbs(tmp_path, table):
            assert main([*words, "--json"]) == DONE, words
        answer = open_table(path).sql("SELECT * FROM t").to_pylist()
        rows.append(sorted(answer, key=lambda row: int(row["zqnum"])))
    assert rows[0] == rows[1]
    assert len(rows[0]) == 96
    check_hidden(tmp_path, "clear", "encrypted", b"zq-new", b"zq-batch")


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_encrypted_table_that_is_changed_at_random(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    living = Living(spark, tmp_path, encrypt=KEY)
    living.begin(SCHEMES[scheme])
    living.check()
    living.merge(list(range(4, 16)), 2)
    choice = random.Random(scheme)
    for _ in range(8):
        living.step(choice)
        living.check()
    living.check_past()
    table = open_table(living.path)
    assert verify(table).ok
    assert {file.suffix for file in (tmp_path / "table").rglob("*") if file.is_file()} == {".json", ".parquet"}
    assert b"price" not in b"".join(file.read_bytes() for file in (tmp_path / "table").rglob("*") if file.is_file())


@pytest.mark.long
def test_sessions_skip_in_it(spark: SparkSession, loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSEWHERE", "c3" * 16)
    monkeypatch.delenv("LIVING_KEY")
    session, path = spark.newSession(), str(loaded / "table")
    with pytest.raises(EncryptionKeyError, match="LIVING_KEY"):
        skipping.register(session, "t", path)
    skipping.register(session, "t", path, key="env:ELSEWHERE")
    skipping.enable(session)
    answer = session.sql(f"SELECT zqkind, zqlist FROM t WHERE zqnum = {NUMBER + 8}").collect()
    assert answer == [("zq-kind-3", ["zq-item-8", None])]
    (scan,) = skipping.last_scans(session)
    assert scan.read.blocks == 1 < scan.total.blocks
    assert session.table("t").count() == session.sql("SELECT * FROM t").count() == 90
    assert session.sql("SELECT count(*) FROM t WHERE zqkind = 'zq-kind-2'").first() == (18,)
    read = skipping.read_table(session, path, key=f"command:echo {'c3' * 16}")
    assert read.where("zqday = 'zq-day-1'").count() == 30
    scan_of = open_table(path, key="env:ELSEWHERE").scan("SELECT zqnum FROM t WHERE zqkind = 'zq-kind-2'")
    assert len(scan_of.to_spark(spark).collect()) == 18


def test_nothing_is_written_without_the_key(
    spark: SparkSession,
    loaded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, source, plan = str(loaded / "table"), str(loaded / "more"), str(loaded / "plan.json")
    before = sorted(Path(path).rglob("*"))
    for name, value, said in (("LIVING_KEY", "c4" * 16, "not the one"), ("LIVING_KEY", "", "is not set")):
        monkeypatch.setenv(name, value)
        for words in (
            ["append", path, source],
            ["delete", path, "--where", "zqnum > 0"],
            ["load", source, path, "--plan", plan],
            ["load", source, path, "--plan", plan, "--encrypt", KEY],
            ["load", source, str(tmp_path / "new"), "--plan", plan, "--encrypt", "env:NOBODYS"],
        ):
            assert main(words) == BAD_USAGE, words
            assert (said in (err := capsys.readouterr().err)) or "NOBODYS" in err
    assert main(["load", source, str(tmp_path / "new"), "--plan", plan, "--key", KEY]) == BAD_USAGE
    assert "name the key by --encrypt" in capsys.readouterr().err
    assert sorted(Path(path).rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


def test_what_shows_it_to_others_is_refused(spark: SparkSession, loaded: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"source": str(loaded / "source"), "plan": loaded / "plan.json", "publish": ("delta",)}
    for table in (tmp_path / "new", loaded / "table"):
        with pytest.raises(EncryptedTableError, match="key"):
            run_load(spark, LoadRequest(table_path=str(table), encrypt=KEY, **given))
    assert list(tmp_path.iterdir()) == []
    assert verify_path(str(loaded / "table")).ok
    assert len(history(open_table(str(loaded / "table")).catalog.files)) == 1
