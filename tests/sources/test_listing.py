"""Sources' files and their splits: each row is counted once, with the value of its partition."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import NeedsSparkError
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.model.schema import Column, Schema
from layoutopt.sources import listing as module
from layoutopt.sources.executor import Processes
from layoutopt.sources.listing import count_files, estimate_rows, list_source_files
from layoutopt.sources.second_reader import read_by_duckdb
from layoutopt.sources.shuffle import CutJob, SegmentRanges, read_split
from layoutopt.sources.split import partition_value

FILES = Schema((Column("id", "int"), Column("day", "date"), Column("kind", "string")))
DAYS = [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None]
FIRST = (DAYS[0] - dt.date(1970, 1, 1)).days if DAYS[0] else 0


def rows(count: int, *columns: str) -> pa.Table:
    all_columns = {
        "id": pa.array(range(count), pa.int32()),
        "day": pa.array([DAYS[i % 3] for i in range(count)], pa.date32()),
        "kind": pa.array([f"k{i % 2}" for i in range(count)], pa.string()),
    }
    return pa.table({name: all_columns[name] for name in columns or all_columns})


def written(path: Path, table: pa.Table, **how: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **how)
    return path


def test_files_of_a_folder_are_sorted_and_hidden_ones_left_out(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "_tmp.parquet", ".c.parquet"):
        written(tmp_path / name, rows(3))
    (tmp_path / "_SUCCESS").touch()
    found = list_source_files(str(tmp_path), FILES, "day")
    assert [(Path(file.path).name, file.constants) for file in found] == [("a.parquet", {}), ("b.parquet", {})]
    assert [file.path for file in list_source_files(str(tmp_path / "a.parquet"), FILES, None)] == [
        str(tmp_path / "a.parquet")
    ]


@pytest.mark.parametrize(
    ("partition_by", "folders", "values"),
    [
        ("day", ["2026-01-01", "2026-01-02", "__HIVE_DEFAULT_PARTITION__"], [FIRST, FIRST + 1, None]),
        ("id", ["007", "-1"], [-1, 7]),
        ("kind", ["a", "b%2Fc"], ["a", "b/c"]),
    ],
)
def test_folders_tell_of_partitions(
    tmp_path: Path, partition_by: str, folders: list[str], values: list[object]
) -> None:
    others = [name for name in FILES.names if name != partition_by]
    for number, folder in enumerate(folders):
        written(tmp_path / f"{partition_by}={folder}" / "x.parquet", rows(number + 1, *others))
    files = list_source_files(str(tmp_path), FILES, partition_by)
    assert [partition_value(file, FILES, partition_by) for file in files] == [(value,) for value in values]
    counted = count_files(files, FILES, partition_by, Processes(1))
    assert sorted(sum(held.values()) for _, held in counted) == list(range(1, len(folders) + 1))
    assert [list(held) for _, held in counted] == [[value] for value in values]


def test_what_may_be_read_otherwise_needs_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = str(written(tmp_path / "flat" / "x.parquet", rows(3)).parent)
    unlike = ("s3a://bucket/x", f"{tmp_path}/f*", f"{flat}/../flat", f"{tmp_path}/none")
    refused: list[tuple[str, str | None]] = [(source, None) for source in unlike]
    for path, columns, partition_by in (
        ("deep/year=1/day=2026-01-01/x.parquet", ("id", "kind"), "day"),
        ("number/kind=1/x.parquet", ("id", "day"), "kind"),
        ("other/year=1/x.parquet", (), "kind"),
        ("kind=k0/x.parquet", (), None),
        ("mixed/x.parquet", (), "kind"),
        ("mixed/kind=a/x.parquet", ("id", "day"), "kind"),
        ("unnamed/kind=/x.parquet", ("id", "day"), "kind"),
    ):
        written(tmp_path / path, rows(3, *columns))
        refused.append((str(tmp_path / path.split("/")[0]), partition_by))
    for source, partition_by in refused:
        with pytest.raises(NeedsSparkError):
            list_source_files(source, FILES, partition_by)
    assert len(list_source_files(flat, FILES, None)) == 1
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(NeedsSparkError, match="not surely"):
        list_source_files(flat, FILES, None)


@pytest.mark.parametrize(("partition_by", "split_bytes"), [(None, 1 << 27), ("day", 1 << 27), ("day", 200), ("id", 1)])
def test_all_rows_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: str | None, split_bytes: int
) -> None:
    monkeypatch.setattr(module, "_SPLIT_BYTES", split_bytes)
    tables = [rows(50), rows(0), rows(7)]
    for number, table in enumerate(tables):
        written(tmp_path / f"{number}.parquet", table, row_group_size=10)
    files = list_source_files(str(tmp_path), FILES, partition_by)
    assert estimate_rows(files) == 57
    counted = count_files(files, FILES, partition_by, Processes(1))
    expected: Counter[object] = Counter()
    for table in tables:
        plain = {"day": table["day"].cast(pa.int32()), "id": table["id"], None: pa.nulls(len(table))}[partition_by]
        expected.update(plain.to_pylist())
    found: Counter[object] = Counter()
    for _, held in counted:
        found.update(held)
    assert found == expected
    job = CutJob(FILES, partition_by, SegmentRanges((), (), ()))
    read = [part["id"].to_pylist() for split, _ in counted for part, _ in read_split(job, split)]
    assert [value for part in read for value in part] == [*range(50), *range(7)]
    assert len(counted) == (2 if split_bytes > 1000 else 6)
    assert [split.low for split, _ in counted] == sorted(split.low for split, _ in counted)


def test_files_of_other_columns_and_none_at_all_need_spark(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", rows(3))
    written(tmp_path / "b.parquet", rows(3, "id", "day"))
    files = list_source_files(str(tmp_path), FILES, None)
    assert [counts for _, counts in count_files(files, FILES, None, Processes(1))] == [{None: 3}, {None: 3}]
    with pytest.raises(NeedsSparkError, match=r"b\.parquet' lacks the partition column 'kind'"):
        count_files(files, FILES, "kind", Processes(1))
    with pytest.raises(NeedsSparkError, match=r"a\.parquet' has other columns"):
        count_files(files, FILES.select(["id", "day"]), None, Processes(1))
    with pytest.raises(NeedsSparkError, match="no file has the column 'kind'"):
        count_files(files[1:], FILES, None, Processes(1))
    written(tmp_path / "empty" / "a.parquet", rows(0))
    assert count_files(list_source_files(str(tmp_path / "empty"), FILES, None), FILES, None, Processes(1)) == ()
    (tmp_path / "nothing").mkdir()
    for nothing in (tmp_path / "nothing", written(tmp_path / "_hidden.parquet", rows(3))):
        with pytest.raises(NeedsSparkError, match="no files"):
            list_source_files(str(nothing), FILES, None)
    bad = pa.array([b"\xff"]).cast(pa.binary()).view(pa.string())
    odd = pa.table({**{name: rows(1)[name] for name in ("id", "day")}, "kind": bad})
    with pytest.raises(NeedsSparkError, match="UTF-8"):
        count_files(
            list_source_files(str(written(tmp_path / "odd.parquet", odd)), FILES, "kind"), FILES, "kind", Processes(1)
        )
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(NeedsSparkError, match="footer"):
        estimate_rows(list_source_files(str(tmp_path / "a.parquet"), FILES, None))


@given(
    deleted=st.lists(st.integers(0, 29)),
    group_rows=st.integers(1, 30),
    split_bytes=st.sampled_from([1, 1 << 27]),
    partition_by=st.sampled_from([None, "day", "id"]),
)
def test_deleted_rows_of_any_row_group_are_neither_counted_nor_read(
    deleted: list[int], group_rows: int, split_bytes: int, partition_by: str | None
) -> None:
    live = [place for place in range(30) if place not in deleted]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SPLIT_BYTES", split_bytes)
        path = written(Path(folder, "x.parquet"), rows(30), row_group_size=group_rows)
        file = SnapshotFile(str(path), FILES.names, deleted=np.array(deleted, dtype=np.int64))
        counted = count_files([file], FILES, partition_by, Processes(1))
        read = [part["id"].to_pylist() for split, _ in counted for part, _ in split.read_rows(FILES, ["id"])]
        again = [part["id"].to_pylist() for part in read_by_duckdb(file, FILES, ["id"])]
    assert [id for part in read for id in part] == live
    assert sorted(id for part in again for id in part) == live
    days: list[object] = [FIRST, FIRST + 1, None]
    values: list[object] = [id if partition_by == "id" else days[id % 3] if partition_by else None for id in live]
    found: Counter[object] = Counter()
    for _, counts in counted:
        found.update(counts)
    assert found == Counter(values)
