"""`serve` as users type it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
import pytest

from layoutopt.cli.app import main
from layoutopt.model.schema import Column, Schema
from tests.scan.builder import build, building

COMMAND = [sys.executable, "-c", "import sys; from layoutopt.cli.app import main; sys.exit(main(sys.argv[1:]))"]


@pytest.fixture
def table(tmp_path: Path) -> str:
    build(tmp_path / "t", pa.table({"id": pa.array([1, 2], pa.int32())}), building(Schema((Column("id", "int"),))))
    return str(tmp_path / "t")


def test_a_server_serves_until_it_is_told_to_end(table: str, tmp_path: Path) -> None:
    log, temporary = tmp_path / "requests.jsonl", tmp_path / "temporary"
    temporary.mkdir()
    words = ["serve", table, f"sales.other={table}", "--port", "0", "--json", "--log-json", str(log)]
    environment = {"TMPDIR": str(temporary), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        assert (said["tables"], said["notes"]) == (["default.t", "sales.other"], [])
        with urlopen(f"{said['url']}/v1/namespaces/sales/tables/other") as answer:
            assert json.load(answer)["config"] == {"scan-planning-mode": "server"}
        assert list(temporary.rglob("*.avro"))
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    assert not list(temporary.iterdir())
    (line,) = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    assert (line["event"], line["method"], line["status"]) == ("request", "GET", 200)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to serve; name tables, or a folder of tables by --root"),
        (["{table}", "--host", "0.0.0.0"], "'0.0.0.0' accepts requests of other machines; give --token-file"),
        (["{table}", "--token-file", "{table}/none"], "can't be read"),
        (["{table}", "--token-file", "{short}"], "needs a token of at least 16 characters"),
        (["{table}", "t={table}/x"], "would both be 'default.t'; write NAME=FOLDER"),
        (["{table}x"], "there is nothing at"),
        (["--root", "{table}x"], "is no folder; name an existing folder of tables"),
        (["a..b={table}"], "names no table; write FOLDER, NAME=FOLDER or NAMESPACE.NAME=FOLDER"),
        (["{table}", "--port", "{taken}"], "can't be listened on (Address already in use)"),
        (["{table}", "--port", "70000"], "port"),
        (["{table}", "--max-filter-depth", "0"], "max-filter-depth"),
    ],
)
def test_bad_usage_is_one_sentence(
    table: str, tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "token"
    short.write_text("secret\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        values = {"table": table, "short": str(short), "taken": str(listener.getsockname()[1])}
        assert main(["serve", *(word.format(**values) for word in words)]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
