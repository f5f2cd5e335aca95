"""Deletes, updates and merges without Spark: beside a model in Python, and what is left to Spark."""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.table import Catalog
from layoutopt.changes import arrow_change
from layoutopt.changes.commit import ChangeReport
from layoutopt.errors import ContentMismatchError, NeedsSparkError, SettingError, SourceError
from layoutopt.inspect.verify import verify
from layoutopt.model.feature import SessionSettings
from layoutopt.model.requests import DeleteRequest, MergeRequest, UpdateRequest
from layoutopt.scan.table import open_table
from tests.changes.without_spark import change_without_spark
from tests.effort import examples, one_in
from tests.scan.builder import build, building
from tests.scan.layouts import SCHEMES
from tests.scan.tables import ARROW, CONDITIONS, SCHEMA, some_rows

Row = dict[str, Any]
Test = Callable[[Row], bool]


def above(value: float | None, bound: float) -> bool:
    """Whether a value is greater in Spark's order, where NaN is the greatest."""
    return value is not None and (value != value or value > bound)


# By Python, each condition's rows: those for which it is TRUE, and not NULL.
WHERE: dict[str, Test] = {
    "id = 7": lambda row: row["id"] == 7,
    "kind IN ('air', '') OR day IS NULL": lambda row: row["kind"] in ("air", "") or row["day"] is None,
    "score > 0.5": lambda row: above(row["score"], 0.5),
    "score = 0": lambda row: row["score"] == 0,
    "NOT score > 0.5": lambda row: row["score"] is not None and not above(row["score"], 0.5),
    "price >= 99.5 -- dear": lambda row: row["price"] is not None and row["price"] >= Decimal("99.5"),
    "kind LIKE '%p' AND year = 1995": lambda row: (row["kind"] or "").endswith("p") and row["year"] == 1995,
    "day < date '1994-02-01'": lambda row: row["day"] is not None and row["day"] < dt.date(1994, 2, 1),
    "upper(kind) = 'SHIP' AND id % 3 = 1": lambda row: row["kind"] == "ship" and row["id"] % 3 == 1,
    "seen <= '2020-01-10 00:00:00'": lambda row: (
        row["seen"] is not None and row["seen"] <= dt.datetime(2020, 1, 10, tzinfo=dt.UTC)
    ),
    "year = 1994 AND id < 150": lambda row: row["year"] == 1994 and row["id"] < 150,
    "id < 0 OR NULL": lambda row: False,
    "true AND false": lambda row: False,
}
SETS: dict[tuple[str, ...], Callable[[Row], Row]] = {
    ("kind = concat(coalesce(kind, 'none'), '!')",): lambda row: {
        "kind": f"{'none' if row['kind'] is None else row['kind']}!"
    },
    ("price = price + 1", "score = NULL"): lambda row: {
        "price": None if row["price"] is None else row["price"] + 1, "score": None,
    },
    ("score = CASE WHEN id % 2 = 0 THEN -0.0D ELSE score END", "day = date '2001-02-03'"): lambda row: {
        "score": 0.0 if row["id"] % 2 == 0 else row["score"], "day": dt.date(2001, 2, 3),
    },
    ("id = id",): lambda row: {},
}  # fmt: skip


def comparable(rows: list[Row]) -> list[str]:
    """Rows in an order, with -0.0 as 0.0."""
    return sorted(
        repr({name: value + 0.0 if name == "score" and value is not None else value for name, value in row.items()})
        for row in rows
    )


class Living:
    """A table beside its model: its rows by id."""

    def __init__(self, root: Path, scheme: str, by: str | None, rows: int = 240, seed: int = 1) -> None:
        self.root, self.path = root, str(root / "table")
        table = some_rows(rows, seed)
        made = building(SCHEMA, CONDITIONS, layouts=SCHEMES[scheme], partition_by=by, segment_rows=100)
        build(root / "table", table, replace(made, plan=replace(made.plan, segment_rows=100)))
        self.model = {row["id"]: row for row in table.to_pylist()}
        self.sources = 0

    def check(self) -> None:
        table = open_table(self.path)
        names = ", ".join(SCHEMA.names)
        assert comparable(table.sql(f"SELECT {names} FROM t").to_pylist()) == comparable(list(self.model.values()))

    def delete(self, where: str, **given: Any) -> ChangeReport:
        report = change_without_spark(DeleteRequest(table_path=self.path, where=where, **given))
        before = len(self.model)
        self.model = {key: row for key, row in self.model.items() if not WHERE[where](row)}
        assert report.deleted == before - len(self.model)
        return report

    def update(self, where: str, texts: tuple[str, ...], **given: Any) -> ChangeReport:
        report = change_without_spark(UpdateRequest(table_path=self.path, where=where, assignments=texts, **given))
        chosen = {key: row | SETS[texts](row) for key, row in self.model.items() if WHERE[where](row)}
        self.model |= chosen
        assert report.updated == len(chosen)
        return report

    def source(self, rows: list[Row], schema: pa.Schema = ARROW) -> str:
        self.sources += 1
        folder = self.root / f"source-{self.sources}"
        folder.mkdir()
        table = pa.Table.from_pylist(rows, schema)
        pq.write_table(table.slice(0, len(rows) // 2), folder / "a.parquet")
        pq.write_table(table.slice(len(rows) // 2), folder / "b.parquet")
        return str(folder)

    def merge(self, rows: list[Row], gone: list[int], **given: Any) -> ChangeReport:
        feed = [row | {"op": "U"} for row in rows] + [
            self.model.get(key, rows[0]) | {"id": key, "op": "D"} for key in gone
        ]
        source = self.source(feed, ARROW.append(pa.field("op", pa.string())))
        request = MergeRequest(table_path=self.path, source=source, on=("ID",), delete_when="op = 'D'", **given)
        report = change_without_spark(request)
        changed = {row["id"] for row in rows}
        assert report.deleted == len(self.model.keys() & set(gone))
        assert (report.updated, report.inserted) == (len(self.model.keys() & changed), len(changed - self.model.keys()))
        self.model = {key: row for key, row in self.model.items() if key not in gone} | {row["id"]: row for row in rows}
        return report

    def step(self, choice: random.Random) -> None:
        share = {"rewrite_share": choice.choice((0.0, 1.0, 0.1))}
        verb = choice.choice(("delete", "update", "merge"))
        if verb == "delete":
            self.delete(choice.choice(list(WHERE)), hard=choice.random() < 0.1, **share)
        elif verb == "update":
            self.update(choice.choice(list(WHERE)), choice.choice(list(SETS)), **share)
        else:
            ids = choice.sample(range(300), choice.randint(2, 12))
            fresh = some_rows(300, choice.randint(2, 9)).to_pylist()
            self.merge([row for row in fresh if row["id"] in ids[1:]], ids[:1], **share)


@pytest.mark.parametrize(("scheme", "by"), one_in(4, product(SCHEMES, (None, "year", "kind"))))
def test_changed_tables_have_the_rows_of_their_model(scheme: str, by: str | None, tmp_path: Path) -> None:
    choice = random.Random(f"{scheme} {by}")
    sets = {texts: of for texts, of in SETS.items() if by is None or not any(text.startswith(by) for text in texts)}
    living = Living(tmp_path, scheme, by)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "SETS", sets)
        for _ in range(examples(24)):
            living.step(choice)
            living.check()
    assert verify(open_table(living.path)).ok


@pytest.mark.parametrize("where", one_in(2, WHERE.keys()))
def test_each_condition_finds_its_rows(where: str, tmp_path: Path) -> None:
    living = Living(tmp_path, "gsop-r", "year")
    living.update(where, ("id = id",), rewrite_share=1)
    marked = living.delete(where, rewrite_share=1)
    assert (marked.marked is not None) == (marked.deleted > 0)
    assert living.delete(where).deleted == 0
    living.check()


def test_what_is_not_certain_is_left_to_spark_and_writes_nothing(tmp_path: Path) -> None:
    living = Living(tmp_path, "gsop", None)
    source = living.source(some_rows(9, 3).to_pylist())

    def change(where: str, *texts: str, **given: Any) -> ChangeReport:
        if texts:
            return change_without_spark(UpdateRequest(table_path=living.path, where=where, assignments=texts), **given)
        return change_without_spark(DeleteRequest(table_path=living.path, where=where), **given)

    for where in (
        "rand() < 2", "t.id = 7", "id IN (SELECT id FROM t)", "id = (SELECT max(id) FROM t)", "max(id) = 7", "id + 1",
        "input_file_name() = ''", "id = 1 / (id - id)", "day < current_date()", "current_user() = 'x' OR id = 1",
        "cast(concat(kind, 'x') AS int) = 1", "count(*) > 0", "kind RLIKE '(?<=a)b\\\\p{L}'",
        "row_number() OVER (ORDER BY id) = 1", "hash(id) = 1",
        "exists(array(id), x -> x > 1)",
    ):  # fmt: skip
        with pytest.raises(NeedsSparkError):
            change(where)
    for text in (
        "kind = rand()",
        "kind = (SELECT 'a')",
        "day = kind",
        "year = 3000000000",
        "kind = struct(id)",
        "id = *",
    ):
        with pytest.raises(NeedsSparkError):
            change("id = 7", text)
    for where, texts, match in (("id =", (), "--where"), ("nope = 1", (), "nope"), ("id = 1", ("kind",), "--set")):
        with pytest.raises(SettingError, match=match):
            change(where, *texts)
    with pytest.raises(NeedsSparkError, match="240 rows are to be read"):
        change("kind IS NOT NULL OR kind IS NULL", most_rows=200)
    with pytest.raises(NeedsSparkError, match="the key column 'score' is double"):
        change_without_spark(MergeRequest(table_path=living.path, source=source, on=("score",)))
    assert Catalog.open(living.path).snapshot.number == 0
    living.check()


def test_plans_for_other_settings_are_left_to_spark(tmp_path: Path) -> None:
    there = SessionSettings(time_zone="Europe/Berlin")
    build(tmp_path / "t", some_rows(20), building(SCHEMA, ("id < 5",), settings=there))
    with pytest.raises(NeedsSparkError, match="Europe/Berlin"):
        change_without_spark(DeleteRequest(table_path=str(tmp_path / "t"), where="id = 1"))


def test_sources_with_a_key_twice_or_without_are_refused(tmp_path: Path) -> None:
    living = Living(tmp_path, "sop", "year")
    rows = some_rows(9, 3).to_pylist()
    refused = {"has 2 rows with id=4, year=1995; keep": [*rows, next(row for row in rows if row["id"] == 4)]}
    refused |= {"rows with a NULL in id, year, which match nothing": [*rows, rows[0] | {"year": None}]}
    for match, feed in refused.items():
        with pytest.raises(SourceError, match=match):
            change_without_spark(MergeRequest(table_path=living.path, source=living.source(feed), on=("id", "year")))
    living.check()


def test_a_row_too_few_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living(tmp_path, "gsop-r", "year")
    honest, condition = arrow_change.ArrowChange.exclude, "kind = 'air'"
    monkeypatch.setattr(
        arrow_change.ArrowChange, "exclude", lambda change, rows, where: honest(change, rows, where).slice(1)
    )
    with pytest.raises(ContentMismatchError, match="nothing was committed"):
        change_without_spark(DeleteRequest(table_path=living.path, where=condition, rewrite_share=0))
    living.check()
    assert Catalog.open(living.path).snapshot.number == 0


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
from layoutopt.cli.app import main
for arguments in {arguments!r}:
    assert main(arguments) == 0, arguments
assert not any(name.split(".")[0] == "pyspark" for name in sys.modules)
"""


def test_changes_need_no_pyspark(tmp_path: Path) -> None:
    living = Living(tmp_path, "gsop", "year")
    source = living.source([row | {"kind": "new"} for row in some_rows(300, 3).to_pylist() if row["id"] in (1, 2, 250)])
    arguments = [
        ["delete", living.path, "--where", "id = 7"],
        ["update", living.path, "--set", "kind = 'x'", "--where", "id IN (8, 9)"],
        ["merge", living.path, source, "--on", "id"],
    ]
    code = BLOCKED.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 rows deleted, 0 updated, 0 inserted" in done.stdout
    assert "0 rows deleted, 2 updated, 0 inserted" in done.stdout
    assert "0 rows deleted, 2 updated, 1 inserted" in done.stdout
    answer = open_table(living.path).sql("SELECT kind, count(*) AS n FROM t WHERE kind IN ('x', 'new') GROUP BY kind")
    assert sorted(map(tuple, (row.values() for row in answer.to_pylist()))) == [("new", 3), ("x", 2)]
