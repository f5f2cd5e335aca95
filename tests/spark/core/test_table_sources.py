"""Tables of other formats as sources: Spark reads of them what their own libraries read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from layoutopt.api.execution import use_session
from layoutopt.config.files import make_settings
from layoutopt.config.settings import LoadSettings
from layoutopt.model.requests import AppendRequest, LoadRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.core.source import open_source, schema_of
from layoutopt.spark.loading.load import run_load
from layoutopt.spark.loading.source_files import source_partitions
from tests.external.tables import by_id, deletion_vector, delta_rows, delta_table, iceberg_rows, iceberg_table
from tests.spark.tables import document, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]


def read(spark: SparkSession, source: str) -> list[dict[str, Any]]:
    return by_id(open_source(spark, source).toArrow())


def test_a_delta_table_with_deletion_vectors_and_renamed_columns(spark: SparkSession, tmp_path: Path) -> None:
    root = delta_table(tmp_path / "t x{y}")
    found = read(spark, f"delta:{root}")
    assert [row["id"] for row in found] == [0, 2, 4, 7, 8, 9]
    assert found == delta_rows(root)


def test_an_iceberg_table_with_deletes_and_changed_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = iceberg_table(tmp_path)
    found = read(spark, f"iceberg:{table.metadata_location}")
    assert [row["id"] for row in found] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert found == iceberg_rows(table.metadata_location)


def test_a_file_of_which_more_rows_are_deleted_counts_as_another(spark: SparkSession, tmp_path: Path) -> None:
    root = delta_table(tmp_path / "t")
    before = source_partitions(open_source(spark, f"delta:{root}@0"), f"delta:{root}@0", "p")
    assert [(one.value, one.rows, len(one.files)) for one in before] == [(None, 3, 1), ("a b", 3, 1)]
    log = tmp_path / "t" / "_delta_log"
    added = json.loads((log / f"{0:020}.json").read_text().splitlines()[2])["add"]
    gone = {"path": added["path"], "deletionVector": added["deletionVector"], "dataChange": True}
    new = added | {"deletionVector": deletion_vector([0, 1, 3, 5])}
    (log / f"{1:020}.json").write_text(f"{json.dumps({'remove': gone})}\n{json.dumps({'add': new})}")
    after = source_partitions(open_source(spark, f"delta:{root}@1"), f"delta:{root}@1", "p")
    assert [one.rows for one in after] == [3, 2]
    assert [a.fingerprint == b.fingerprint for a, b in zip(before, after, strict=True)] == [True, False]


def test_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("s", pa.string())]).empty_table())
    assert schema_of(open_source(spark, f"delta:{tmp_path / 't'}")).names == ("id", "s")
    assert read(spark, f"delta:{tmp_path / 't'}") == []


@pytest.mark.long
def test_loading_one_version_and_appending_the_next(spark: SparkSession, tmp_path: Path) -> None:
    path, table = str(tmp_path / "t"), str(tmp_path / "laid-out")
    rows = pa.table({"id": [1, 2, 3], "kind": [0, 1, 2], "day": ["a", "a", "b"]})
    write_deltalake(path, rows, partition_by=["day"])
    schema = schema_of(open_source(spark, f"delta:{path}"))
    plan = plan_of(document(schema, [is_value(schema, "kind", "=", 1)]), partition_by="day")
    (tmp_path / "plan.json").write_bytes(plan.dumps())
    values = {"source": f"delta:{path}", "table_path": table, "plan": tmp_path / "plan.json"}

    def load(**given: object) -> Any:
        return run_load(spark, make_settings(LoadSettings, values | given).to_request(LoadRequest))

    first = load(partition=["day=a"])
    assert (first.source, first.partitions) == (f"delta:{path}@0", ("a",))
    write_deltalake(path, pa.table({"id": [4], "kind": [0], "day": ["c"]}), mode="append", partition_by=["day"])
    assert load().partitions == ("b", "c")  # the files of a are as they were
    assert load().loads == ()
    assert json.loads(json.dumps(load().to_json()))["source"] == f"delta:{path}@1"
    late = str(tmp_path / "late")
    write_deltalake(late, pa.table({"id": [5], "kind": [1], "day": ["a"]}), partition_by=["day"])
    for _ in range(2):
        use_session(spark).append(AppendRequest(table_path=table, source=f"delta:{late}"))
    assert sorted(open_table(table).sql("SELECT id FROM t")["id"].to_pylist()) == [1, 2, 3, 4, 5]
