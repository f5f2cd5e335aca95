"""A package of tiny extensions, installed beside layoutopt, is found by its entry points and does its work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.cli import main
from layoutopt.config.files import make_settings
from layoutopt.config.settings import PlanSettings
from layoutopt.errors import LogError, SettingError
from layoutopt.methods.interface import PlanningInput, PlanRequest
from layoutopt.methods.registry import check_request, find_method, is_sampled
from layoutopt.model.feature import FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Col
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.partitioning.ward import ward
from layoutopt.workload.log import read_log
from tests.extension_package import install, install_package
from tests.partitioning.segments import random_segment
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_package(tmp_path, monkeypatch)


def test_a_partitioner(installed: Path) -> None:
    segment = random_segment(30, 4, 0, 8)
    partition = find_partitioner("one-block")(segment.vectors, segment.weights, segment.min_rows, 0)
    assert partition.n_blocks == 1
    assert partition.rows.sum() == segment.vectors.rows


def test_a_method(installed: Path) -> None:
    request = PlanRequest("as-it-comes", partitioner="one-block")
    check_request(request)
    assert is_sampled("as-it-comes")
    proposal = find_method("as-it-comes")(PlanningInput(request, SCHEMA, FeatureSet(()), (), ()))
    assert proposal.predicted == {"tiny": 1.0}
    assert str(make_settings(PlanSettings, {"source": "s", "method": "as-it-comes"}).method) == "as-it-comes"


def test_a_log_format(installed: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.pipes"
    log.write_text("ann|SELECT id FROM t WHERE id = 1\nbob|SELECT id FROM t\n", encoding="utf-8")
    assert [(entry.user, entry.sql[-2:]) for entry in read_log(log)] == [
        ("ann", "1"[-2:] if False else "= 1"[-2:]),
        ("bob", " t"),
    ]


def test_an_engine(installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))
    answer = table.scan("SELECT id FROM t").to_arrow("count")
    assert answer == pa.table({"rows": [table.rows]})
    assert main(["query", str(tmp_path / "t"), "SELECT id FROM t", "--engine", "count", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_a_type_of_index(installed: Path, tmp_path: Path) -> None:
    indexes = (IndexSpec(Col("id", "int"), "last-digits"),)
    in_blocks = building(SCHEMA, blocking=lambda rows, bits: np.asarray(rows["id"]) % 10, indexes=indexes)
    table = build(tmp_path / "t", some_rows(), in_blocks)
    read = table.scan("SELECT id FROM t WHERE id = 13").explain().to_json()["reads"][0]
    assert (read["read"]["blocks"], read["skipped_by"]["index"]["blocks"]) == (1, 9)
    answer = table.sql("SELECT id FROM t WHERE id IN (13, 33)")
    assert sorted(answer["id"].to_pylist()) == [13, 33]


def test_what_is_not_there_is_said(installed: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"unknown partitioner 'two-blocks': did you mean 'one-block'"):
        find_partitioner("two-blocks")
    with pytest.raises(LogError, match=r"no \.sql, \.jsonl, \.csv, \.pipes, \.json or \.parquet file"):
        list(read_log(tmp_path / "queries.txt"))
    table = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))
    with pytest.raises(SettingError, match="can't be imported"):
        table.scan("SELECT id FROM t").to_arrow("broken")


def test_nothing_replaces_what_is_built_in_and_two_claims_are_refused(installed: Path) -> None:
    install(installed, "other", "[layoutopt.partitioners]\nward = json:loads\none-block = json:dumps\n")
    assert find_partitioner("ward") is ward
    with pytest.raises(SettingError, match="defined by json:dumps and by tiny_extensions:one_block"):
        find_partitioner("one-block")
