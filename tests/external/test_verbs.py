"""The verbs `index` and `refresh`, and what the others say of indexes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from layoutopt.cli.app import main
from tests.external.folders import write
from tests.scan.tables import some_rows

_SPARKS = "org.apache.spark.sql.parquet.row.metadata"


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    write(tmp_path / "web-events" / "a.parquet", some_rows(100))
    return str(tmp_path / "web-events"), str(tmp_path / "indexes")


def test_index_query_and_refresh(places: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    source, into = places
    assert main(["index", source, "--into", into, "--index", "id:bloom", "--index", "lower(kind):ngrams"]) == 0
    said = capsys.readouterr().out
    assert f"{source}: 1 files indexed, 0 unchanged, 0 gone" in said
    assert "indexes: id:bloom, lower(kind):ngrams" in said
    assert main(["query", into, "SELECT count(*) AS n FROM web_events WHERE id = 5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [[1]]
    write(Path(source) / "b.parquet", some_rows(30))
    assert main(["explain", into, "id = 50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["reads"][0]["read"]["blocks"], found["files_not_indexed"]) == (4, 1)
    assert main(["explain", into, "id = 50"]) == 0
    assert "1 files are newer than the indexes and read whole; `refresh` indexes them" in capsys.readouterr().out
    assert main(["refresh", into, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["measured"], report["kept"], report["files"]) == (1, 1, 2)
    assert main(["files", into]) == 0
    assert sorted(capsys.readouterr().out.split()) == [f"{source}/a.parquet", f"{source}/b.parquet"]


@pytest.mark.parametrize(("declared", "refused"), [("char(5)", True), ("array<char(2)>", True), ("varchar(5)", False)])
def test_texts_that_spark_pads_are_refused(
    tmp_path: Path, declared: str, refused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = {"__CHAR_VARCHAR_TYPE_STRING": declared}
    said = {"type": "struct", "fields": [{"name": "c", "type": "string", "nullable": True, "metadata": meta}]}
    rows = pa.table({"c": ["a    ", "b    "]})
    write(tmp_path / "t" / "a.parquet", rows.replace_schema_metadata({_SPARKS: json.dumps(said)}))
    done = main(["index", str(tmp_path / "t"), "--into", str(tmp_path / "i"), "--index", "c:bloom"])
    assert done == (2 if refused else 0)
    assert (f"a column of {declared}" in capsys.readouterr().err) == refused


def test_a_log_names_the_indexes(places: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, into = places
    log = tmp_path / "log.sql"
    log.write_text("SELECT id FROM web_events WHERE kind LIKE '%rail%';\nSELECT id FROM web_events WHERE id = 3;\n")
    assert main(["index", source, "--into", into, "--log", str(log), "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["indexes"]) == ["id:bloom", "kind:ngrams"]


def test_a_budget_takes_what_is_worth_its_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = np.random.default_rng(1).permutation(20_000)
    for part in range(5):
        held = numbers[part * 4000 : (part + 1) * 4000]
        write(tmp_path / "rows" / f"{part}.parquet", pa.table({"n": held, "text": [f"{n} times" for n in held]}), 200)
    log = tmp_path / "log.sql"
    log.write_text("".join(f"SELECT text FROM rows WHERE n = {n};\n" for n in range(20)))
    arguments = ["index", str(tmp_path / "rows"), "--log", str(log), "--json"]
    assert main([*arguments, "--into", str(tmp_path / "a"), "--index-budget", "60%"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one.split(":")[0] for one in found["indexes"]] == ["n"]
    assert main([*arguments, "--into", str(tmp_path / "b"), "--index-budget", "0.01%"]) == 0
    assert json.loads(capsys.readouterr().out)["indexes"] == []
    assert main([*arguments[:2], "--into", str(tmp_path / "c"), "--index-budget", "2%"]) == 2
    assert "needs a query log" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb",
    [
        ["status", "{}"], ["verify", "{}"], ["history", "{}"], ["evaluate", "{}", "log.sql"],
        ["publish", "{}", "--as", "delta"], ["restore", "{}", "--snapshot", "0"], ["drift", "{}", "log.sql"],
    ],
)  # fmt: skip
def test_other_verbs_ask_for_a_table(
    places: tuple[str, str], verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, into = places
    assert main(["index", source, "--into", into]) == 0
    capsys.readouterr()
    assert main([word.format(into) for word in verb]) == 2
    assert f"holds the indexes of '{source}'" in capsys.readouterr().err


def test_there_is_no_condition_on_blocks(places: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    source, into = places
    assert main(["index", source, "--into", into]) == 0
    assert main(["explain", into, "id = 5", "--predicate"]) == 2
    assert "remove --predicate" in capsys.readouterr().err
    assert main(["explain", into, "id = 5", "--bytes"]) == 0


def test_a_snapshot_is_refused(places: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    source, into = places
    assert main(["index", source, "--into", into]) == 0
    assert main(["query", into, "SELECT 1 FROM web_events", "--snapshot", "0"]) == 2
    assert "only be read as it is now" in capsys.readouterr().err
