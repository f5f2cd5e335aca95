"""A table that Spark changes and one that Arrow changes have the same rows, marks and checksums afterwards."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from layoutopt.catalog.table import Catalog
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.inspect.verify import verify
from layoutopt.model.requests import DeleteRequest, MergeRequest, UpdateRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.changes.spark_change import change_by_spark
from tests.changes.without_spark import change_without_spark
from tests.effort import long_too
from tests.spark.changes.living import COLUMNS, Begin, answer, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def state(path: str) -> list[tuple[object, ...]]:
    """What a snapshot says of its partitions."""
    return [
        (entry.key, entry.rows, entry.live_rows, entry.live_checksums, entry.bounds)
        for entry in Catalog.open(path).partitions
    ]


@pytest.mark.parametrize("scheme", ["gsop-r", *long_too("sop", "gsop")])
def test_both_engines_make_the_same_table(spark: SparkSession, begin: Begin, scheme: str) -> None:
    living = begin(scheme)
    other = shutil.copytree(living.path, str(living.root / "other"))
    assignments = ("kind = id % 3", "text = concat(coalesce(text, ''), ',', kind)", "price = price / 3")
    feed = [*((*made(number, generation=1), "U") for number in range(20, 29)), (*made(99), "U"), (*made(30), "D")]
    source = living.source(feed, f"{COLUMNS}, op string")
    changes: list[tuple[Any, dict[str, Any], float]] = [
        (DeleteRequest, {"where": "price > 2.5 OR text IS NULL AND day = 1"}, 1.0),
        (UpdateRequest, {"where": "kind < 3", "assignments": assignments}, 1.0),
        (UpdateRequest, {"where": "price = 0", "assignments": ("text = id",)}, 0.0),
        (
            MergeRequest,
            {"source": source, "on": ("id",), "delete_when": "op = 'D'"},
            1.0,
        ),
        (DeleteRequest, {"where": "day IS NULL OR kind = 1"}, 0.0),
    ]
    for request, given, share in changes:
        paths = (living.path, other)
        one, two = (request(table_path=path, rewrite_share=share, **given) for path in paths)
        first, second = change_by_spark(spark, one), change_without_spark(two)
        assert (first.deleted, first.updated, first.inserted) == (second.deleted, second.updated, second.inserted)
        assert (first.marked is None, first.load is None) == (second.marked is None, second.load is None)
        assert answer(open_table(living.path), None) == answer(open_table(other), None)
        assert sorted(map(str, state(living.path))) == sorted(map(str, state(other)))
    assert verify(open_table(other)).ok


def test_the_command_line_starts_spark_only_where_it_has_to(
    spark: SparkSession, begin: Begin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    living = begin("sop")
    started: list[str] = []

    def start(*arguments: object, **named: object) -> SparkSession:
        started.append("spark")
        return spark

    monkeypatch.setattr("layoutopt.cli.inputs.start_spark", start)
    assert main(["delete", living.path, "--where", "id = 5"]) == DONE
    assert main(["update", living.path, "--set", "kind = 1", "--where", "id = 6", "--executor", "local"]) == DONE
    assert main(["delete", living.path, "--where", "hash(id) = 0", "--executor", "local"]) != DONE
    assert "give --executor spark" in capsys.readouterr().err
    assert not started
    assert main(["delete", living.path, "--where", "hash(id) = 0"]) == DONE
    assert started == ["spark"]
    assert main(["delete", living.path, "--where", "id = 7", "--executor", "spark"]) == DONE
    assert started == ["spark"] * 2
    assert open_table(living.path).rows == 58
