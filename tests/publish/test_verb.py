"""`publish` and `--publish` as users type them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from layoutopt.cli.app import main
from layoutopt.errors import SettingError
from layoutopt.extensions import require
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.schema import Column, Schema
from layoutopt.publish.publishing import parse_publications, publish_all
from tests.scan.builder import build, building


@pytest.fixture
def table(tmp_path: Path) -> str:
    build(tmp_path / "t", pa.table({"id": pa.array([1, 2], pa.int32())}), building(Schema((Column("id", "int"),))))
    return str(tmp_path / "t")


def test_publishing_and_forgetting(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", table, "--as", "delta", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["snapshot"], said["shown"][0]["rows"]) == ("delta", 0, 2)
    assert main(["publish", table, "--as", "delta"]) == 0
    assert "no change" in capsys.readouterr().out
    assert main(["publish", table, "--as", "delta", "--forget"]) == 0
    assert "any more: 2 records" in capsys.readouterr().out


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog of pyiceberg's configuration."""
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path / 'catalog.db'}")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which it reads once a process


@pytest.mark.usefixtures("prod")
def test_a_catalog_of_pyiceberg(table: str) -> None:
    assert main(["publish", table, "--as", "iceberg", "--to", "iceberg:prod/sales.t"]) == 0
    found = load_catalog("prod")
    assert found.load_table("sales.t").scan().to_arrow()["id"].to_pylist() == [1, 2]
    (report,) = publish_all(table, ["iceberg=iceberg:prod/sales.t"], lambda sentence: None)
    assert not report.shown[0].committed


@pytest.mark.usefixtures("prod")
def test_each_layout_is_a_table_of_the_catalog(tmp_path: Path) -> None:
    layouts = [Layout((name,), (), (name,), ByVectors()) for name in ("id", "x")]
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "x": pa.array([3, 4], pa.int32())})
    build(tmp_path / "t", rows, building(Schema((Column("id", "int"), Column("x", "int"))), layouts=layouts))
    assert main(["publish", str(tmp_path / "t"), "--as", "iceberg", "--to", "iceberg:prod/sales.t"]) == 0
    found = load_catalog("prod")
    shown = [found.load_table(f"sales.t_layout_{layout}").scan().to_arrow().to_pydict() for layout in (0, 1)]
    assert shown == [{"id": [1, 2]}, {"x": [3, 4]}]


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("iceberg:prod", "write iceberg:CATALOG/NAMESPACE.TABLE"),
        ("iceberg:nowhere/a.b", "'nowhere' can't be opened"),
    ],
)
def test_bad_places_are_bad_usage(table: str, to: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", table, "--as", "iceberg", "--to", to]) == 2
    assert says in capsys.readouterr().err


def test_what_is_no_table_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", str(tmp_path), "--as", "delta"]) == 2
    assert "layoutopt table" in capsys.readouterr().err


def test_places_of_settings(table: str) -> None:
    places = parse_publications(table, ["delta", f"iceberg={table}/x"])
    assert [(place.format, place.location) for place in places] == [("delta", table), ("iceberg", f"{table}/x")]
    with pytest.raises(SettingError, match="'hudi' names no place to publish to"):
        parse_publications(table, ["hudi"])


def test_a_missing_library_is_one_sentence() -> None:
    with pytest.raises(SettingError, match=r"pip install 'layoutopt\[delta\]'"):
        require("no_such_library", "delta")
