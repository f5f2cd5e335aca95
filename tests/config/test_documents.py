"""Documents that settings name: found, told apart, and named where they are no good."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.config.documents import read_features, read_plan
from layoutopt.errors import PlanError
from tests.scan.builder import building
from tests.scan.tables import CONDITIONS, SCHEMA


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "log.sql").write_text("SELECT a FROM t WHERE a = 1; SELECT a FROM t WHERE a = 1;", encoding="utf-8")
    words = [str(tmp_path / "log.sql"), "--schema", "CREATE TABLE t (a INT)", "-o", str(tmp_path / "features.json")]
    assert main(["analyze", *words]) == DONE
    (tmp_path / "plan.json").write_bytes(building(SCHEMA, CONDITIONS).plan.dumps())
    (tmp_path / "other.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "binary.json").write_bytes(b"\x00PAR1")
    (tmp_path / "newer.json").write_text('{"format": "layoutopt-plan", "version": 99}', encoding="utf-8")
    return tmp_path


def test_documents_are_read(place: Path) -> None:
    assert read_features(place / "features.json").table == "t"
    assert read_plan(place / "plan.json").table == "t"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "rows", "--features", "plan.json"], "'plan.json' is a plan, not a features file; give a file that"),
        (["load", "rows", "table", "--plan", "features.json"], "'features.json' is a features file, not a plan; give"),
        (
            ["load", "rows", "table", "--plan", "other.json"],
            "'other.json' is not a plan; give a file that `layoutopt plan`",
        ),
        (["load", "rows", "table", "--plan", "binary.json"], "'binary.json' is not a plan"),
        (
            ["load", "rows", "table", "--plan", "newer.json"],
            "'newer.json' can't be used: the layoutopt-plan document",
        ),
    ],
)
def test_other_files_are_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(place)
    capsys.readouterr()
    assert main(words) == BAD_USAGE
    message = capsys.readouterr().err
    assert message.startswith(f"layoutopt: {said}")
    assert message.count("\n") == 1


def test_a_missing_file_names_its_maker(place: Path) -> None:
    with pytest.raises(PlanError, match="make it with `layoutopt plan`"):
        read_plan(place / "nowhere.json")
