"""Folders that change after they were indexed: a query's answer is always that of the files as they are."""

from __future__ import annotations

import datetime as dt
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.scan.table import Table
from tests.effort import examples
from tests.external.folders import INDEXES, blocks_read, index, opened, write
from tests.scan.generated import conditions
from tests.scan.tables import ARROW, expected, same, some_rows

WHAT = ["id", "id, price, kind", "count(*) AS n", "*", "year, count(*) AS n, max(price) AS s"]


@dataclass(frozen=True)
class Written:
    """How one file is written: which rows, in groups of how many, what it lacks, and what its footer says."""

    seed: int
    rows: int
    group: int
    lacking: tuple[str, ...]
    narrow: bool
    statistics: bool
    in_folder: bool

    def to(self, root: Path, name: str) -> None:
        """Writes the file; of those in Hive-style folders one for each year."""
        rows = some_rows(self.rows, self.seed).drop_columns(list(self.lacking))
        if self.narrow and "score" not in self.lacking:
            rows = rows.set_column(rows.column_names.index("score"), "score", rows["score"].cast(pa.float32()))
        how: dict[str, Any] = {"row_group_size": self.group, "write_statistics": self.statistics}
        if not self.in_folder:
            write(root / name, rows, **how)
            return
        for year in pc.unique(rows["year"]).to_pylist():
            part = rows.filter(pc.field("year") == year).drop_columns(["year"])
            write(root / f"year={year}" / name, part, **how)


files = st.builds(
    Written,
    seed=st.integers(0, 5),
    rows=st.integers(0, 40),
    group=st.sampled_from([3, 10, 100]),
    lacking=st.sampled_from([(), (), ("kind",), ("score", "price")]),
    narrow=st.booleans(),
    statistics=st.booleans(),
    in_folder=st.just(False),
)
sources = st.booleans().flatmap(
    lambda hive: st.lists(files.map(lambda one: Written(**{**one.__dict__, "in_folder": hive})), min_size=2, max_size=4)
)


def rows_of(root: Path) -> pa.Table:
    """All rows that the files have now, by a reader that knows nothing of indexes."""
    parts = [ARROW.empty_table()]
    for path in sorted(root.rglob("*.parquet")):
        rows = pq.ParquetFile(path).read()
        if path.parent.name.startswith("year="):
            rows = rows.append_column("year", pa.repeat(int(path.parent.name.partition("=")[2]), rows.num_rows))
        arrays = [
            rows[name].cast(type) if name in rows.column_names else pa.nulls(rows.num_rows, type)
            for name, type in zip(ARROW.names, ARROW.types, strict=True)
        ]
        parts.append(pa.table(arrays, schema=ARROW))
    return pa.concat_tables(parts)


@dataclass(frozen=True)
class Case:
    """A folder, what becomes of it once it is indexed, and what is asked."""

    written: list[Written]
    later: Written
    where: list[str]
    what: str
    indexes: tuple[str, ...]
    change: str
    place: int


cases = st.builds(
    Case,
    written=sources,
    later=files,
    where=st.lists(conditions, min_size=1, max_size=2),
    what=st.sampled_from(WHAT),
    indexes=st.sampled_from([INDEXES, INDEXES[:2], ()]),
    change=st.sampled_from(["none", "added", "over", "removed", "moved"]),
    place=st.integers(0, 100),
)


@settings(max_examples=examples(5))
@given(cases)
def test_answers_are_those_of_the_files_as_they_are(case: Case) -> None:
    _check(case)


@pytest.mark.long
@settings(max_examples=examples(300))
@given(cases)
def test_answers_are_those_of_the_files_as_they_are_at_length(case: Case) -> None:
    _check(case)


def _check(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, into = Path(folder, "rows"), Path(folder, "indexes")
        whole = Written(0, 30, 7, (), False, True, case.written[0].in_folder)  # so that every column is there
        for number, one in enumerate([whole, *case.written]):
            one.to(root, f"{number}.parquet")
        index(root, into, case.indexes)

        def check() -> None:
            table, rows = opened(into), rows_of(root)
            for condition in case.where:
                columns = ", ".join(ARROW.names) if case.what == "*" else case.what
                group = " GROUP BY year" if case.what.startswith("year,") else ""
                sql = f"SELECT {columns} FROM t WHERE {condition}{group}"
                assert same(table.sql(sql).to_pylist(), expected(sql, rows)), sql

        check()
        there = sorted(root.rglob("*.parquet"))
        victim = there[case.place % len(there)]
        if case.change == "added":
            Written(**{**case.later.__dict__, "in_folder": whole.in_folder}).to(root, "later.parquet")
        elif case.change == "over":
            write(victim, pq.ParquetFile(there[0]).read(), case.later.group)
        elif case.change == "removed" and victim.name != "0.parquet":
            victim.unlink()
        elif case.change == "moved":
            victim.rename(victim.with_name("elsewhere.parquet"))
        check()
        index(root, into, None)
        check()


def test_an_unseen_value_is_skipped_by_its_index(tmp_path: Path) -> None:
    rows = some_rows(200)
    write(tmp_path / "rows" / "a.parquet", rows)
    write(tmp_path / "rows" / "b.parquet", some_rows(200, 2), write_statistics=False)
    index(tmp_path / "rows", tmp_path / "indexes")
    total, read = blocks_read(opened(tmp_path / "indexes"), "SELECT * FROM t WHERE id = 77")
    assert (total, read) == (40, 2)
    _, read = blocks_read(opened(tmp_path / "indexes"), "SELECT * FROM t WHERE id > 1000")
    assert read == 20  # minima and maxima of the file whose footer has some


def test_new_and_changed_files_are_read_whole(tmp_path: Path) -> None:
    root, into, sql = tmp_path / "rows", tmp_path / "indexes", "SELECT id FROM t WHERE kind = 'nowhere'"
    for name in ("a", "b", "c"):
        write(root / f"{name}.parquet", some_rows(100))
    index(root, into)
    assert blocks_read(opened(into), sql) == (30, 0)
    write(root / "d.parquet", some_rows(50))
    write(root / "a.parquet", some_rows(70, 5))
    (root / "b.parquet").unlink()
    assert blocks_read(opened(into), sql) == (22, 12)
    report = index(root, into, None)
    assert (report.measured, report.kept, report.gone) == (2, 1, 1)
    assert blocks_read(opened(into), sql) == (22, 0)


def test_files_in_folders_are_skipped_by_the_folders_names(tmp_path: Path) -> None:
    root, into = tmp_path / "rows", tmp_path / "indexes"
    for day in ("2024-01-01", "2024-01-02", "__HIVE_DEFAULT_PARTITION__"):
        write(root / f"day={day}" / "a.parquet", pa.table({"n": range(20)}))
    index(root, into, ["n:bloom"])
    table = opened(into)
    assert blocks_read(table, "SELECT n FROM t WHERE day = date '2024-01-02'") == (6, 2)
    assert blocks_read(table, "SELECT n FROM t WHERE day IS NULL") == (6, 2)
    assert blocks_read(table, "SELECT n FROM t WHERE day IS NULL AND n = 3") == (6, 1)
    found = table.sql("SELECT day, sum(n) AS n FROM t GROUP BY day").to_pylist()
    assert sorted((str(row["day"]), row["n"]) for row in found) == [
        ("2024-01-01", 190),
        ("2024-01-02", 190),
        ("None", 190),
    ]


def test_columns_that_come_and_types_that_widen(tmp_path: Path) -> None:
    root, into = tmp_path / "rows", tmp_path / "indexes"
    write(root / "a.parquet", pa.table({"n": pa.array(range(20), pa.int32())}))
    index(root, into, ["n:bloom"])
    write(root / "b.parquet", pa.table({"n": pa.array([1, 2], pa.int32()), "more": ["x", "y"]}))
    assert opened(into).sql("SELECT n, more FROM t WHERE n = 1").to_pylist() == [
        {"n": 1, "more": None},
        {"n": 1, "more": "x"},
    ]
    assert blocks_read(opened(into), "SELECT n FROM t WHERE n = 15") == (3, 2)
    write(root / "c.parquet", pa.table({"n": [2**40, 2]}))
    table = opened(into)
    assert table.schema.find("n").type == "bigint"
    assert table.sql("SELECT count(*) AS c FROM t WHERE n = 2").to_pylist() == [{"c": 3}]
    index(root, into, None)
    assert blocks_read(opened(into), f"SELECT n FROM t WHERE n = {2**40}") == (4, 1)


def test_nested_columns_are_read_as_one_type(tmp_path: Path) -> None:
    root, into = tmp_path / "rows", tmp_path / "indexes"
    values = [{"n": i, "st": {"a": i, "b": [str(i)]}, "m": [("k", i)]} for i in range(20)]
    types = pa.schema([("n", pa.int64()), ("st", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
                       ("m", pa.map_(pa.string(), pa.int64()))])  # fmt: skip
    write(root / "a.parquet", pa.Table.from_pylist(values, types))
    large = types.set(1, pa.field("st", pa.struct([("a", pa.int64()), ("b", pa.large_list(pa.large_string()))])))
    write(root / "b.parquet", pa.Table.from_pylist(values, large))
    index(root, into, ["st.a:bloom"])
    table = opened(into)
    assert blocks_read(table, "SELECT n FROM t WHERE st.a = 3") == (4, 2)
    found = table.scan("SELECT st, m FROM t WHERE n = 3").to_arrow().to_pylist()
    assert found == [{"st": {"a": 3, "b": ["3"]}, "m": [("k", 3)]}] * 2


def test_nan_null_and_columns_that_a_file_lacks(tmp_path: Path) -> None:
    root, into = tmp_path / "rows", tmp_path / "indexes"
    write(root / "a.parquet", pa.table({"n": [1, 2], "x": [0.25, float("nan")], "s": ["a", None]}))
    write(root / "b.parquet", pa.table({"n": [3, 4], "x": [0.5, 0.75]}))
    write(root / "c.parquet", pa.table({"n": [5, 6], "x": [None, None], "s": ["c", "d"]}, pa.schema(TYPES)))
    index(root, into, ["s:bloom", "x:value-list"])
    index(root, tmp_path / "bare", [])
    for table in (opened(into), opened(tmp_path / "bare")):
        name = table.name

        def ids(where: str, table: Table = table, name: str = name) -> list[int]:
            return sorted(table.sql(f"SELECT n FROM {name} WHERE {where}")["n"].to_pylist())

        assert ids("x > 1") == [2]  # NaN is the largest
        assert ids("NOT x <= 0.5") == [2, 4]
        assert ids("x IS NULL") == [5, 6]
        assert ids("s IS NULL") == [2, 3, 4]
        assert ids("s = 'c' OR s IS NULL AND x < 0.6") == [3, 5]
        assert ids("s <> 'a'") == [5, 6]
        assert blocks_read(table, f"SELECT n FROM {name} WHERE s IS NULL") == (3, 2)


TYPES = [("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]


def test_a_folder_whose_values_become_texts(tmp_path: Path) -> None:
    root, into = tmp_path / "rows", tmp_path / "indexes"
    for value in ("1", "20"):
        write(root / f"x={value}" / "a.parquet", pa.table({"n": range(20)}))
    index(root, into, ["n:bloom"])
    assert blocks_read(opened(into), "SELECT n FROM t WHERE x > 3") == (4, 2)
    write(root / "x=1b" / "a.parquet", pa.table({"n": range(5)}))
    table = opened(into)
    assert table.schema.find("x").type == "string"
    assert table.sql("SELECT count(*) AS c FROM t WHERE x < '1c'").to_pylist() == [{"c": 25}]
    assert index(root, into, None).measured == 3
    assert blocks_read(opened(into), "SELECT n FROM t WHERE x = '1'") == (5, 2)


@pytest.mark.parametrize(
    ("where", "found", "read"),
    [
        ("u8 = 7", 2, 2), ("u32 = 4294967290", 2, 2), ("u32 > 4294967290", 10, 2), ("u64 = 18446744073709551610", 2, 2),
        ("d9 = 0.05", 2, 2), ("d9 < 0", 20, 4), ("d38 = -200000000000000000000", 2, 2), ("d38 > 0", 18, 4),
        ("day < date '1500-01-04'", 6, 2), ("f = 0", 2, 2), ("f < 2", 4, 2), ("s > 'é'", 40, 8), ("cat = '7'", 2, 2),
    ],
)  # fmt: skip
def test_types_that_others_write(types: Table, where: str, found: int, read: int) -> None:
    assert types.sql(f"SELECT count(*) AS n FROM t WHERE {where}").to_pylist() == [{"n": found}]
    assert blocks_read(types, f"SELECT u8 FROM t WHERE {where}") == (8, read)


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Twenty rows, twice, in row groups of five: the second time decimals are stored as whole numbers."""
    n = range(20)
    rows = pa.table(
        {
            "u8": pa.array(n, pa.uint8()),
            "u32": pa.array([2**32 - 1 - i for i in n], pa.uint32()),
            "u64": pa.array([2**64 - 1 - i for i in n], pa.uint64()),
            "d9": pa.array([Decimal(i - 10) / 100 for i in n], pa.decimal128(9, 2)),
            "d38": pa.array([Decimal(i - 10) * 10**20 for i in n], pa.decimal128(38, 2)),
            "day": [dt.date(1500, 1, 1) + dt.timedelta(days=i) for i in n],
            "f": pa.array([-0.0, *map(float, n[1:])], pa.float32()),
            "s": ["é" * 80 + chr(97 + i) for i in n],
            "cat": pa.array([str(i) for i in n]).dictionary_encode(),
        }
    )
    folder = tmp_path_factory.mktemp("types")
    for whole in (False, True):
        write(folder / "rows" / f"{whole}.parquet", rows, 5, store_decimal_as_integer=whole)
    index(folder / "rows", folder / "indexes", [f"{name}:bloom" for name in rows.column_names])
    return opened(folder / "indexes")


def test_elements_keys_and_values_of_others_files_skip(tmp_path: Path) -> None:
    """Also where a file lacks the column, or came later."""
    ids = list(range(60))
    tags = [None if i % 7 == 0 else [f"w{i // 10}", None, f"x{i}"] for i in ids]
    maps = [[(f"k{i // 20}", i)] for i in ids]
    rows = pa.table({"id": ids, "tags": tags, "m": pa.array(maps, pa.map_(pa.string(), pa.int32()))})
    write(tmp_path / "t" / "a.parquet", rows)
    write(tmp_path / "t" / "b.parquet", rows.drop_columns(["tags"]))
    index(tmp_path / "t", tmp_path / "i", ("tags:value-list", "map_keys(m):bloom"))
    for text, wanted, groups in [
        ("array_contains(tags, 'w3')", [i for i in ids if i // 10 == 3 and i % 7], 1),
        ("exists(tags, x -> x IN ('x8', 'x52'))", [8, 52], 2),
        ("array_contains(tags, 'never')", [], 0),
        ("map_contains_key(m, 'k2')", sorted(2 * ids[40:]), 4),
    ]:
        table = opened(tmp_path / "i")
        assert table.sql(f"SELECT id FROM t WHERE {text} ORDER BY id")["id"].to_pylist() == wanted, text
        assert blocks_read(table, f"SELECT id FROM t WHERE {text}") == (12, groups), text
    write(tmp_path / "t" / "c.parquet", rows)
    table = opened(tmp_path / "i")
    assert table.sql("SELECT id FROM t WHERE array_contains(tags, 'x8')")["id"].to_pylist() == [8, 8]
    assert blocks_read(table, "SELECT id FROM t WHERE array_contains(tags, 'x8')") == (18, 7)


def test_timestamps_without_an_offset_are_in_utc(tmp_path: Path) -> None:
    hours = [dt.datetime(2026, 11, 20, hour, tzinfo=dt.UTC) for hour in range(24)]
    rows = pa.table({"id": range(24), "ts": pa.array(hours, pa.timestamp("us", "UTC"))})
    write(tmp_path / "rows" / "a.parquet", rows, row_group_size=4)
    index(tmp_path / "rows", tmp_path / "indexes", ["id:bloom"])
    table = opened(tmp_path / "indexes")
    for literal, first in (("2026-11-20 08:00:00", 8), ("2026-11-20 08:00:00+01:00", 7)):
        sql = f"SELECT id FROM t WHERE ts >= TIMESTAMP '{literal}'"
        assert sorted(table.sql(sql)["id"].to_pylist()) == list(range(first, 24))
        assert blocks_read(table, sql)[1] < 6
