"""Sources in an object store: the plan and the table are those of the same files on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.errors import ContentMismatchError, NeedsSparkError, NotATableError, SourceError, StoreError
from layoutopt.external.external_tables import read_schema
from layoutopt.features.analysis import Features
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Plan
from layoutopt.sources.listing import list_source_files
from layoutopt.sources.source import Source
from tests.cluster.events import DAYS, UNSEEN, make_rows, write_source
from tests.s3 import run_s3

s3fs: Any = pytest.importorskip("s3fs", reason="needs the extra s3")


@dataclass
class Place:
    """Events in a folder of this machine, and in a bucket."""

    folder: Path
    document: Features
    bucket: str = "s3://sources"

    def plan(self, source: object) -> Plan:
        options: dict[str, Any] = {"method": "sop", "block_rows": 100, "partition_by": "day"}
        return layoutopt.plan(str(source), self.document, executor="local", **options)

    def put(self, folder: Path, name: str) -> str:
        """Copy a folder into the bucket."""
        s3fs.S3FileSystem().put(str(folder), f"sources/{name}", recursive=True)
        return f"{self.bucket}/{name}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("stored")
    write_source(folder)
    by_day = folder / "by-day"
    for day in range(DAYS):
        (by_day / f"day={day}").mkdir(parents=True)
        pq.write_table(make_rows(day).drop_columns("day"), by_day / f"day={day}" / "rows.parquet")
    document = layoutopt.analyze(folder / "log.sql", folder / "source", table="events", threshold=1)
    with run_s3("sources"):
        place = Place(folder, document)
        place.put(folder / "source", "flat")
        place.put(by_day, "by-day")
        yield place


@pytest.mark.parametrize(("stored", "local"), [("flat", "source"), ("by-day", "by-day")])
def test_plans_and_tables_are_those_of_local_files(place: Place, tmp_path: Path, stored: str, local: str) -> None:
    source = f"{place.bucket}/{stored}"
    plan = place.plan(source)
    assert plan.digest == place.plan(place.folder / local).digest
    tables = [f"{place.bucket}/table-of-{stored}", str(tmp_path / "table")]
    for path, rows in zip(tables, (source, place.folder / local), strict=True):
        layoutopt.load(rows, path, plan, executor="local")
        assert verify(layoutopt.open_table(path)).ok
    of_stored, of_local = (layoutopt.open_table(path).sql(UNSEEN[2]).to_pylist() for path in tables)
    assert of_stored == of_local != []
    again = layoutopt.load(source, tables[0], plan, executor="local")
    assert (again.already, again.loads) == (("0", "1", "2"), ())


def test_files_are_listed_as_those_of_a_folder(place: Place, tmp_path: Path) -> None:
    schema = read_schema(str(place.folder / "source"))
    for name in ("b:c.parquet", "a", "_hidden", "_SUCCESS"):
        pq.write_table(make_rows(0, 0, 3), tmp_path / name)
    source = place.put(tmp_path, "named")
    assert [file.path for file in list_source_files(source, schema, "day")] == [f"{source}/a", f"{source}/b:c.parquet"]
    assert [file.path for file in list_source_files(f"{source}/a", schema, "day")] == [f"{source}/a"]
    (tmp_path / "day=1").mkdir()
    pq.write_table(make_rows(1, 0, 3), tmp_path / "day=1" / "c.parquet")
    with pytest.raises(NeedsSparkError, match="files beside folders"):
        list_source_files(place.put(tmp_path, "mixed"), schema, "day")
    with pytest.raises(SourceError, match="has no files"):
        list_source_files(f"{place.bucket}/nowhere", schema, "day")


def test_a_file_that_changes_during_a_load_is_noticed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = place.plan(f"{place.bucket}/flat")
    source = place.put(place.folder / "source", "changing")
    map_segments = Source.map_segments

    def change(rows: Source, *words: Any, **more: Any) -> Any:
        values = map_segments(rows, *words, **more)
        pq.write_table(make_rows(0, 0, 3), tmp_path / "day-0-0.parquet")
        s3fs.S3FileSystem().put(str(tmp_path / "day-0-0.parquet"), "sources/changing/day-0-0.parquet")
        return values

    monkeypatch.setattr(Source, "map_segments", change)
    with pytest.raises(ContentMismatchError, match=r"'s3://sources/changing/day-0-0.parquet' was changed"):
        layoutopt.load(source, tmp_path / "table", plan, executor="local")
    with pytest.raises(NotATableError, match="was never loaded"):
        layoutopt.open_table(str(tmp_path / "table"))


def test_a_damaged_file_and_missing_credentials_are_one_sentence(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = place.plan(f"{place.bucket}/flat")
    pq.write_table(make_rows(0), tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    source = place.put(tmp_path, "damaged")
    with pytest.raises(SourceError, match=r"file 's3://sources/damaged/a.parquet' is no Parquet"):
        layoutopt.load(source, tmp_path / "table", plan, executor="local")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreError, match="give credentials to each process that uses the store"):
        layoutopt.load(f"{place.bucket}/flat", tmp_path / "table", plan, executor="local")
