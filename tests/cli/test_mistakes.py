"""Mistakes of users, over all verbs: each is one sentence, with its exit code, and is found before Spark starts."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from tests.cli.mistakes import BY_SPARK, MISTAKES, SPARK, make_shop

# Words of libraries, of Java and of Spark's logs, which mean nothing to users.
FOREIGN = (
    "pydantic", "sqlglot", "traceback", "py4j", "org.apache", "unexpected", "exception", "valueerror", "keyerror",
    "typeerror", "sqlstate", "errorclass", "errno", "<class", "none", "identifier", "tokentype", "invalid expression",
    "input should", "arrow",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source, a log, what the verbs make of them without Spark, and files that mistakes name."""
    folder = tmp_path_factory.mktemp("shop")
    make_shop(folder)
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Receives the name of each Spark session that is started; none is."""
    names: list[str] = []

    def refuse(app: str = "", *_: Any, **__: Any) -> None:
        names.append(app)
        raise RuntimeError("Spark would be started")

    monkeypatch.setattr("layoutopt.spark.core.sessions.spark_session", refuse)
    return names


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder, without the key of its encrypted table."""
    monkeypatch.chdir(made)
    for name in ("SHOP_KEY", *SPARK):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "code", "named"), MISTAKES, ids=[command for command, *_ in MISTAKES])
def test_a_mistake_is_told_in_a_sentence_before_spark_starts(
    started: list[str], capsys: pytest.CaptureFixture[str], command: str, code: int, named: tuple[str, ...]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = main(shlex.split(command.replace("PORT", port)))
    assert started == []
    check_told(capsys, result, code, [word.replace("PORT", port) for word in named])


@pytest.mark.usefixtures("here")
def test_loaded_partitions_are_found_before_spark_starts(
    started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["load", "rows.parquet", "table", "--executor", "spark"]
    for partition in ([], ["--partition", "day=2026-01-02"], ["--from", "2026-01-02"]):
        assert main([*words, *partition, "--json"]) == DONE
        assert "2026-01-02" in json.loads(capsys.readouterr().out)["already"]
    assert started == []


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "here")
@pytest.mark.parametrize(("command", "code", "named"), BY_SPARK, ids=[command for command, *_ in BY_SPARK])
def test_a_mistake_that_only_spark_knows_is_told_in_a_sentence(
    made: Path, capsys: pytest.CaptureFixture[str], command: str, code: int, named: tuple[str, ...]
) -> None:
    words = shlex.split(command.replace("rows.parquet", str(made / "rows.parquet")))  # Java has its own folder
    check_told(capsys, main([*words, "--no-progress"]), code, named)


def check_told(capsys: pytest.CaptureFixture[str], result: int, code: int, named: Sequence[str]) -> None:
    """Check that a sentence on stderr has some words, and none of :data:`FOREIGN`."""
    said = capsys.readouterr()
    assert said.err.startswith("layoutopt: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    sentence = said.err.lower()
    assert [word for word in FOREIGN if word in sentence] == []
    assert [word for word in named if word.lower() not in sentence] == []
    assert result == code
