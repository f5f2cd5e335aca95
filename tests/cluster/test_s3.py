"""A source and a table in an object store, which the tasks on a cluster read and write with their own credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import layoutopt
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Plan
from tests.catalog.storage.faulty_store import Fault, run_before
from tests.cluster.events import DAYS, ROWS_A_DAY, UNSEEN, make_rows, query_rows
from tests.cluster.spark_cluster import Cluster, refuse, submit
from tests.s3 import KEYS, run_s3

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

SOURCE, TABLE = "s3://lake/source", "s3://lake/table"


@pytest.fixture(scope="module")
def variables(place: Path) -> Iterator[dict[str, str]]:
    """The environment of those who use the store, in which the source is."""
    with run_s3("lake") as variables:
        import s3fs

        s3fs.S3FileSystem().put(str(place / "source"), "lake/source", recursive=True)
        yield variables


def with_store(variables: dict[str, str]) -> dict[str, Any]:
    """Return the options of a job whose driver and tasks have these variables."""
    conf = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    return {"environment": variables, "conf": conf}


def test_plan_load_and_query(
    cluster: Cluster, place: Path, made: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    layoutopt.analyze(place / "log.sql", place / "source", table="events", threshold=1).save(tmp_path / "features.json")
    words = ["--source", SOURCE, "--features", tmp_path / "features.json", "--partition-by", "day", "--method", "sop"]
    options = with_store(variables)
    submit(cluster, "plan", *words, "--block-rows", 100, "--output", tmp_path / "plan.json", **options)
    local = Plan.loads((place / "made.json").read_bytes())
    assert Plan.loads((tmp_path / "plan.json").read_bytes()).digest == local.digest
    said = submit(cluster, "load", "--source", SOURCE, "--table", TABLE, "--plan", tmp_path / "plan.json", **options)
    assert f"loaded {DAYS * ROWS_A_DAY} rows" in said
    opened = layoutopt.open_table(TABLE)
    assert verify(opened).ok
    rows = pa.concat_tables([make_rows(day) for day in range(DAYS)])
    assert opened.sql(UNSEEN[2]).to_pylist() == query_rows(rows, UNSEEN[2]).to_pylist()


def test_workers_without_credentials(
    cluster: Cluster, place: Path, made: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    conf = {
        "spark.executorEnv.AWS_EC2_METADATA_DISABLED": "true",
        "spark.executorEnv.AWS_ENDPOINT_URL": variables["AWS_ENDPOINT_URL"],
    }
    # The driver's variables are not those of the workers, which are started by the cluster.
    words = ["--source", SOURCE, "--table", tmp_path / "table", "--plan", place / "made.json"]
    said = refuse(cluster, "load", *words, code=1, conf=conf, environment=variables)
    assert "the store refused 's3://lake/source" in said
    assert "give credentials to each process that uses the store, to Spark's workers too" in said
    assert not list((tmp_path / "table").rglob("*.parquet"))


def test_a_store_without_conditional_writes(
    cluster: Cluster, place: Path, made: Path, variables: dict[str, str]
) -> None:
    target = urlsplit(variables["AWS_ENDPOINT_URL"])
    assert target.hostname is not None
    assert target.port is not None
    with run_before((target.hostname, target.port)) as (address, store), store.fail(Fault("conditional", "PUT .*")):
        options = with_store({**KEYS, "AWS_ENDPOINT_URL": address})
        words = ["--source", place / "source", "--table", "s3://lake/refused", "--plan", place / "made.json"]
        said = refuse(cluster, "load", *words, code=1, **options)
    assert "can't create a file exclusively" in said
    assert "use another store for tables" in said
    with pytest.raises(layoutopt.errors.NotATableError):
        layoutopt.open_table("s3://lake/refused")
