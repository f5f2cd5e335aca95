"""Loads of Delta and Iceberg tables without Spark: their live rows, under their columns, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.errors import AlreadyLoadedError, ContentMismatchError, SettingError, SourceError
from layoutopt.external.external_tables import read_schema
from layoutopt.inspect.verify import verify
from layoutopt.loading.append import append_locally
from layoutopt.loading.load import LoadsReport, run_load
from layoutopt.loading.local_source import open_door
from layoutopt.model.requests import AppendRequest, LoadRequest
from layoutopt.model.schema import Schema
from layoutopt.scan.table import open_table
from layoutopt.sources.executor import Processes
from layoutopt.sources.listing import count_files, list_source_files
from layoutopt.sources.split import FileSplit
from tests.effort import examples, long_too
from tests.external.tables import (
    by_id,
    delete_positions,
    deletion_vector,
    delta_rows,
    delta_table,
    first_file,
    hinted,
    iceberg_rows,
    iceberg_table,
)
from tests.scan.builder import building


def load(source: str, root: Path, by: str | None = None, **given: Any) -> LoadsReport:
    """Load a source into ``table``, by a plan of its columns."""
    plan = root / "plan.json"
    if not plan.exists():
        plan.write_bytes(building(read_schema(source), ("id > 3",), partition_by=by).plan.dumps())
    names: dict[str, Any] = {"source": source, "table_path": str(root / "table"), "plan": plan}
    return run_load(open_door, LoadRequest(**(names | given)))


def stored(root: Path) -> list[dict[str, Any]]:
    table = open_table(str(root / "table"))
    assert verify(table).ok
    return by_id(table.scan(columns=list(table.schema.names)).to_arrow())


@pytest.mark.parametrize("by", [None, "p"])
def test_a_delta_table_is_loaded_without_deleted_rows(tmp_path: Path, by: str | None) -> None:
    root = delta_table(tmp_path / "rows", nested=False)
    report = load(f"delta:{root}", tmp_path, by)
    assert report.source == f"delta:{root}@0"
    assert stored(tmp_path) == delta_rows(root)
    assert load(f"delta:{root}", tmp_path, by).loads == ()
    if by is not None:
        assert report.partitions == ("__null__", "a%20b")
        assert load(f"delta:{root}", tmp_path, by, partition=("p=a b",), replace=True).loads[0].rows == 3


@pytest.mark.parametrize("by", [None, "p"])
def test_an_iceberg_table_is_loaded_under_its_newest_columns(tmp_path: Path, by: str | None) -> None:
    table = iceberg_table(tmp_path / "rows")
    load(hinted(table), tmp_path, by)
    assert stored(tmp_path) == iceberg_rows(table.metadata_location)


def test_a_version_with_other_deletes_has_other_rows(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path / "rows")
    load(hinted(table), tmp_path)
    delete_positions(table, first_file(table), [1])
    with pytest.raises(AlreadyLoadedError, match="--replace"):
        load(hinted(table), tmp_path)
    load(hinted(table), tmp_path, replace=True)
    assert stored(tmp_path) == iceberg_rows(table.metadata_location)


def test_columns_have_their_defaults_in_older_files(tmp_path: Path) -> None:
    place = Path(hinted(iceberg_table(tmp_path / "rows")).removeprefix("iceberg:"))
    newest = place / "metadata" / (place / "metadata" / "version-hint.text").read_text()
    document = json.loads(newest.read_text())
    document["format-version"], document["next-row-id"] = 3, 0
    fields = next(s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])["fields"]
    added = [("n", "int", 7), ("d", "date", "2026-01-31"), ("b", "boolean", True), ("m", "decimal(5, 2)", "1.50")]
    for number, (name, type, value) in enumerate(added, 100):
        field = {"id": number, "name": name, "type": type, "required": False}
        fields.append(field | {"initial-default": value, "write-default": value})
    document["last-column-id"] = 200
    newest.write_text(json.dumps(document))
    load(f"iceberg:{place}", tmp_path, "n")
    rows = stored(tmp_path)
    assert {(row["n"], str(row["d"]), row["b"], str(row["m"])) for row in rows} == {(7, "2026-01-31", True, "1.50")}
    assert [row["id"] for row in rows] == [row["id"] for row in iceberg_rows(str(newest))]


def test_what_would_give_wrong_rows_is_refused(tmp_path: Path) -> None:
    root = delta_table(tmp_path / "rows")  # with a renamed field of a struct
    with pytest.raises(SettingError, match="without Spark: the column 'inner' has fields with other names"):
        load(f"delta:{root}", tmp_path)
    table = iceberg_table(tmp_path / "other")
    source = hinted(table)
    (tmp_path / "plan.json").unlink()
    load(source, tmp_path)
    delete_positions(table, first_file(table), [2], equality=True)
    with pytest.raises(SourceError, match="equality deletes"):
        load(hinted(table), tmp_path)


@pytest.mark.parametrize("change", ["rows", "values"])
def test_duckdb_proves_what_arrow_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    root = delta_table(tmp_path / "rows", nested=False)
    honest = FileSplit.read_rows

    def read(split: FileSplit, schema: Schema, names: Sequence[str], **more: Any) -> Any:
        for rows, low in honest(split, schema, names, **more):
            ids = pa.array([id + 100 for id in rows["id"].to_pylist()])
            yield (rows.slice(1) if change == "rows" else rows.set_column(0, "id", ids)), low

    monkeypatch.setattr(FileSplit, "read_rows", read)
    with pytest.raises(ContentMismatchError, match="nothing was committed"):
        load(f"delta:{root}", tmp_path)


def test_a_batch_of_a_table_is_appended_once(tmp_path: Path) -> None:
    for name, first in (("rows", 0), ("more", 50)):
        write_deltalake(str(tmp_path / name), pa.table({"id": range(first, first + 50), "p": ["x", "y"] * 25}))
    load(f"delta:{tmp_path / 'rows'}", tmp_path, "p")
    batch = AppendRequest(table_path=str(tmp_path / "table"), source=f"delta:{tmp_path / 'more'}")
    assert append_locally(batch).load is not None
    assert append_locally(batch).load is None
    assert [row["id"] for row in stored(tmp_path)] == list(range(100))


@settings(max_examples=examples(20), deadline=None)
@given(
    files=st.lists(st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=30), min_size=1, max_size=3),
    deleted=st.sets(st.integers(0, 29)),
    by=st.sampled_from([None, "p", "id"]),
    split_bytes=st.sampled_from([1, 1 << 27]),
)
def test_the_live_rows_of_any_files_are_counted_and_read(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[str | None]],
    deleted: set[int],
    by: str | None,
    split_bytes: int,
) -> None:
    root = tmp_path_factory.mktemp("delta")
    first = 0
    for held in files:
        ids = pa.array(range(first, first + len(held)), pa.int64())
        write_deltalake(str(root), pa.table({"id": ids, "p": pa.array(held, pa.string())}), mode="append")
        first += 100
    expected = sorted((100 * number + place, p) for number, held in enumerate(files) for place, p in enumerate(held))
    places = sorted(place for place in deleted if place < len(files[0]))
    if places:
        _delete(root, places)
        expected = [row for row in expected if row[0] not in places]
    source = f"delta:{root}@{DeltaTable(root).version()}"
    schema = read_schema(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layoutopt.sources.listing._SPLIT_BYTES", split_bytes)
        counted = count_files(list_source_files(source, schema, by), schema, by, Processes(1))
    found = [(split, rows) for split, _ in counted for rows, _ in split.read_rows(schema, schema.names)]
    assert sorted((row["id"], row["p"]) for _, rows in found for row in rows.to_pylist()) == expected
    counts: dict[Any, int] = {}
    for _, by_value in counted:
        for value, rows in by_value.items():
            counts[value] = counts.get(value, 0) + rows
    values = [None if by is None else p if by == "p" else id for id, p in expected]
    assert counts == {value: values.count(value) for value in values}


def _delete(root: Path, places: list[int]) -> None:
    """Delete rows of the first file by a deletion vector."""
    log = root / "_delta_log"
    actions = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    metadata = next(action for action in actions if "metaData" in action)
    added = next(action["add"] for action in actions if "add" in action)
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    again = added | {"deletionVector": deletion_vector(places), "dataChange": True}
    lines = [{"protocol": protocol}, metadata, {"remove": removed}, {"add": again}]
    version = len(list(log.glob("*.json")))
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))


WITHOUT_PYSPARK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from layoutopt.cli import main
sys.exit(main())
"""


def _make_delta(root: Path) -> str:
    return f"delta:{delta_table(root, nested=False)}"


def _make_iceberg(root: Path) -> str:
    return hinted(iceberg_table(root))


@pytest.mark.parametrize("make", [_make_delta, *long_too(_make_iceberg)])
def test_tables_are_planned_and_loaded_where_pyspark_is_not_installed(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    source, log = make(tmp_path / "rows"), tmp_path / "log.sql"
    log.write_text("".join(f"SELECT id FROM t WHERE id > {3 + i % 4};\n" for i in range(20)))

    # An installation of Spark, which the tests have, would have to say what a path means.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}

    def run(*words: object) -> None:
        command = [sys.executable, "-c", WITHOUT_PYSPARK, *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    features, plan = tmp_path / "features.json", tmp_path / "plan.json"
    run("analyze", log, "--schema", source, "--threshold", 1, "-o", features)
    run("plan", source, "--features", features, "--method", "sop", "--block-rows", 2, "-o", plan)
    run("load", source, tmp_path / "table", "--plan", plan)
    assert np.array_equal([row["id"] for row in stored(tmp_path)], [row["id"] for row in _rows_of(source)])


def _rows_of(source: str) -> list[dict[str, Any]]:
    name, _, place = source.partition(":")
    if name == "delta":
        return delta_rows(place)
    newest = Path(place) / "metadata" / (Path(place) / "metadata" / "version-hint.text").read_text()
    return iceberg_rows(str(newest))
