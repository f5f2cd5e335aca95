"""A package of four tiny extensions, installed beside layoutopt, is found by its entry points and does its work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from layoutopt.cli import main
from layoutopt.config.reading import make_settings
from layoutopt.config.settings import PlanSettings
from layoutopt.errors import LogError, SettingError
from layoutopt.methods.proposals import PlanningInput, PlanRequest
from layoutopt.methods.registry import check_request, find_method, is_sampled
from layoutopt.model.feature import FeatureSet
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.partitioning.ward import ward
from layoutopt.workload.log import read_log
from tests.partitioning.segments import random_segment
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

PACKAGE = """
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.methods.proposals import LayoutProposal
from layoutopt.model.layout import ByOrder, Layout, Scheme
from layoutopt.partitioning.partition import Partition
from layoutopt.workload.log import LogEntry


def one_block(vectors, weights, min_rows, seed, objective=None):
    n = len(vectors)
    return Partition(np.arange(n), np.zeros(n, dtype=np.int64), vectors.counts, 1)


def as_it_comes(planning):
    names = planning.schema.names
    return LayoutProposal(Scheme((Layout(names, (), names, ByOrder("input")),)), {"tiny": 1.0})


def read_pipes(stream, column, dialect):
    for number, line in enumerate(stream):
        user, sql = line.rstrip("\\n").split("|", 1)
        yield LogEntry(number, sql, user=user)


def count(scan):
    return pa.table({"rows": [scan.to_dataset().count_rows()]})
"""

POINTS = """
[layoutopt.partitioners]
one-block = tiny_extensions:one_block
[layoutopt.methods]
as-it-comes = tiny_extensions:as_it_comes
[layoutopt.log_formats]
.pipes = tiny_extensions:read_pipes
[layoutopt.engines]
count = tiny_extensions:count
broken = tiny_extensions:nothing
"""


def install(folder: Path, name: str, points: str, code: str = "") -> None:
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
    if code:
        (folder / "tiny_extensions.py").write_text(code, encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "tiny", POINTS, PACKAGE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "tiny_extensions", raising=False)
    return folder


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


def test_what_is_not_there_is_said(installed: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no partitioner 'two-blocks'; choose one of ward, .*one-block"):
        find_partitioner("two-blocks")
    with pytest.raises(LogError, match=r"no \.sql, \.jsonl, \.csv or \.pipes file"):
        list(read_log(tmp_path / "queries.txt"))
    table = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))
    with pytest.raises(SettingError, match="can't be imported"):
        table.scan("SELECT id FROM t").to_arrow("broken")


def test_nothing_replaces_what_is_built_in_and_two_claims_are_refused(installed: Path) -> None:
    install(installed, "other", "[layoutopt.partitioners]\nward = json:loads\none-block = json:dumps\n")
    assert find_partitioner("ward") is ward
    with pytest.raises(SettingError, match="claimed by json:dumps and by tiny_extensions:one_block"):
        find_partitioner("one-block")
