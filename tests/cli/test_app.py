"""The command line: every verb documented, every error one sentence, quick to start."""

from __future__ import annotations

import json
import logging
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from py4j.protocol import Py4JError

import layoutopt
from layoutopt.cli.app import app, main
from layoutopt.cli.console import BAD_USAGE, DONE, FAILED, INTERRUPTED, Session, add_verb, run_app
from layoutopt.cli.help import GROUPS
from layoutopt.config.fields import VerbSettings, key_of
from layoutopt.config.files import VERBS
from layoutopt.errors import CatalogError, LayoutoptError

LOG = """
SELECT product FROM sales WHERE product = 'shoes' AND revenue > 20;
SELECT product FROM sales WHERE product = 'shoes';
SELECT product FROM sales WHERE product IN ('shoes', 'shirts') AND sold = DATE '2026-01-01';
SELECT nothing FROM sales;
"""
SCHEMA = "CREATE TABLE sales (product STRING, revenue INT, sold DATE)"
ROOT = Path(__file__).parents[2]
COMMON = ("--conf", "--json", "--progress", "--debug")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.sql").write_text(LOG, encoding="utf-8")
    (tmp_path / "schema.sql").write_text(SCHEMA, encoding="utf-8")
    return tmp_path


def help_of(verb: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([verb, "--help"]) == DONE
    return capsys.readouterr().out


def commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # a group, as it has several verbs


def test_the_verbs_are_those_with_settings() -> None:
    assert set(commands()) == set(VERBS)


def test_without_arguments_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == DONE
    assert "From a log to a table" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(verb, capsys)
    assert re.search(r"^  [A-Z].{30,}", text, re.MULTILINE), "a sentence of help"
    assert f"  layoutopt {verb} " in text.partition("Example:")[2]
    for flag in COMMON:
        assert flag in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_setting_is_a_flag_or_an_argument_with_help(verb: str) -> None:
    parameters = {p.name: p for p in commands()[verb].params}
    for name, field in VERBS[verb].model_fields.items():
        assert parameters[name].help, name
        key = key_of(name, field)
        assert f"--{key}" in parameters[name].opts or parameters[name].param_type_name == "argument"


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_parses(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = help_of(verb, capsys).partition("Example:")[2].strip()
    words = shlex.split(" ".join(example.split()))
    assert words[:2] == ["layoutopt", verb]
    commands()[verb].make_context(verb, words[2:])


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_has_a_short_flag_and_one_style_of_values(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [verb] if verb else []
    assert main([*words, "-h"]) == DONE
    short = capsys.readouterr().out
    assert main([*words, "--help"]) == DONE
    assert capsys.readouterr().out == short
    assert not re.findall(r"<\w+>|\b(?:PATH|STR|INTEGER|FLOAT|BOOLEAN)\b", short)


def test_the_help_lists_each_verb_in_one_group() -> None:
    assert sorted(verb for verbs in GROUPS.values() for verb in verbs) == sorted(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_begins_with_what_most_need(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = VERBS[verb]
    assert kind.tuning | kind.expert <= set(kind.model_fields)
    assert not kind.tuning & kind.expert
    assert len(kind.model_fields) - len(kind.expert) <= 15
    assert main([verb, "--help"]) == DONE
    needed, _, rest = capsys.readouterr().out.partition("Options of all commands:")
    before, _, after = needed.partition("Expert options:")
    for name in kind.expert:
        flag = f"--{kind.model_fields[name].alias or name}".replace("_", "-")
        assert re.search(rf"^  {flag}\b", after, re.MULTILINE)
        assert not re.search(rf"^  {flag}\b", before, re.MULTILINE)
    assert "--json" in rest


def test_the_version_is_printed_without_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == DONE
    assert capsys.readouterr().out == f"{layoutopt.__version__}\n"


def test_the_package_is_run_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["layoutopt", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("layoutopt", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == layoutopt.__version__


def test_without_arguments_the_verbs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    said = capsys.readouterr().out
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S", said, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["analyse"], "analyse"),
        (["analyze"], "'log' is missing; give it after the command"),
        (["analyze", "x.sql", "--schema", "s", "--num-features", "0"], "num-features = '0'"),
        (["analyze", "x.sql", "--schema", "s", "--num-features", "many"], "many"),
        (["analyze", "x.sql", "--colour", "red"], "--colour"),
        (["plan", "rows", "--method", "magic"], "method = 'magic'"),
        (["files", "t", "--conf", "nowhere.toml"], "nowhere.toml"),
        (["files", "nowhere"], "nowhere"),
        (["analyze", "log.sql", "--schema", "missing.parquet"], "missing.parquet"),
        (["analyze", "missing.sql", "--schema", "schema.sql"], "missing.sql"),
        (["analyze", "log.sql", "--schema", "schema.sql", "--exclude-columns", "colour"], "colour"),
        (["analyze", "log.sql", "--schema", "schema.sql", "--threshold", "99"], "T = 99"),
    ],
)
def test_bad_usage_is_one_sentence_that_names_it(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    assert main(words) == BAD_USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert named in said.err
    assert "Traceback" not in said.err


def failing(error: Exception) -> typer.Typer:
    other = typer.Typer(pretty_exceptions_enable=False)

    @other.command()
    def fail(debug: bool = False) -> None:
        raise error

    return other


@pytest.mark.parametrize(
    ("error", "code", "named"),
    [
        (CatalogError("the snapshot 3 is damaged;\nrestore it"), FAILED, "the snapshot 3 is damaged; restore it"),
        (LayoutoptError("no"), FAILED, "no"),
        (OSError(28, "No space left on device", "data/1.parquet"), FAILED, "data/1.parquet: No space left on device"),
        (ConnectionRefusedError(111, "Connection refused"), FAILED, "lost the connection"),
        (Py4JError("functions does not exist in the JVM"), FAILED, "lost the connection"),
        (ZeroDivisionError("by zero"), FAILED, "--debug"),
    ],
)
def test_failures_are_one_sentence(capsys: pytest.CaptureFixture[str], error: Exception, code: int, named: str) -> None:
    assert run_app(failing(error), []) == code
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("args", [(), ("nothing was committed",)])
def test_an_interrupted_verb_says_so(capsys: pytest.CaptureFixture[str], args: tuple[str, ...]) -> None:
    other = typer.Typer(pretty_exceptions_enable=False)

    @add_verb(other, VERBS["files"], example="layoutopt fail")
    def fail(settings: VerbSettings, session: Session) -> None:
        """Be interrupted."""
        raise KeyboardInterrupt(*args)

    assert run_app(other, ["t"]) == INTERRUPTED
    assert capsys.readouterr().err == f"layoutopt: {': '.join(['interrupted', *args])}\n"


def test_what_fails_because_of_an_interruption_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    other = typer.Typer(pretty_exceptions_enable=False)

    @add_verb(other, VERBS["files"], example="layoutopt fail")
    def fail(settings: VerbSettings, session: Session) -> None:
        """Be interrupted, as Spark's client is: its clean-up fails too."""
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("An error occurred while calling o926.getResult")

    assert run_app(other, ["t"]) == INTERRUPTED
    assert capsys.readouterr().err == "layoutopt: interrupted\n"


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(failing(ZeroDivisionError("by zero")), ["--debug"]) == FAILED
    assert "Traceback" in capsys.readouterr().err


def test_analyze_writes_features_and_prints_a_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "log.sql", "--schema", "schema.sql"]) == DONE
    said = capsys.readouterr()
    assert "shoes" in said.out
    assert "3 of 4 statements used" in said.out
    assert "Commonality" in said.out
    assert "Stability" in said.out
    assert said.err == ""
    document = json.loads((here / "features.json").read_text(encoding="utf-8"))
    assert document["table"] == "sales"


def test_how_a_log_was_read_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # as outside of tests
    monkeypatch.setattr(logging.getLogger("layoutopt.workload"), "handlers", [])
    lines = [line for line in (here / "log.sql").read_text(encoding="utf-8").splitlines() if "sales" in line]
    (here / "lines.sql").write_text("\n".join(line.rstrip(";") for line in lines), encoding="utf-8")
    assert main(["analyze", "lines.sql", "--schema", "schema.sql"]) == DONE
    said = capsys.readouterr()
    assert f"each of its {len(lines)} lines was read as one" in said.err
    assert f"of {len(lines)} statements used" in said.out


def test_one_of_several_tables_of_a_schema_file_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "all.sql").write_text(f"CREATE TABLE days (day DATE);\n{SCHEMA}", encoding="utf-8")
    assert main(["analyze", "log.sql", "--schema", "all.sql"]) == BAD_USAGE
    assert "(days, sales); name one with --table" in capsys.readouterr().err
    assert main(["analyze", "log.sql", "--schema", "all.sql", "--table", "sales"]) == DONE
    assert "3 of 4 statements used" in capsys.readouterr().out


def test_analyze_prints_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "log.sql", "--schema", "schema.sql", "--json"]) == DONE
    said = json.loads(capsys.readouterr().out)
    assert said["counts"]["statements"] == 4
    assert said["counts"]["used"] == 3
    assert [s["id"] for s in said["skipped"]] == [3]
    assert "nothing" in said["skipped"][0]["detail"]
    assert sum(said["skipped_by_reason"].values()) == 1
    assert any("shirts" in f["filter"] and f["queries"] == 3.0 for f in said["features"])
    assert not any("sold" in f["filter"] for f in said["features"])
    assert said["exclude_columns"] == ["sold"]


def test_a_file_supplies_any_flag_and_the_command_line_wins(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[analyze]\nlog = "log.sql"\nschema = "schema.sql"\nnum-features = 1\noutput = "a.json"\n'
    (here / "conf.toml").write_text(text, encoding="utf-8")
    assert main(["analyze", "--conf", "conf.toml", "-o", "b.json", "--json"]) == DONE
    said = json.loads(capsys.readouterr().out)
    assert len(said["features"]) == 1
    assert (here / "b.json").exists()
    assert not (here / "a.json").exists()


def test_the_same_log_gives_the_same_bytes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.json", "b.json"):
        assert main(["analyze", "log.sql", "--schema", "schema.sql", "-o", name]) == DONE
    assert (here / "a.json").read_bytes() == (here / "b.json").read_bytes()


def test_json_holds_what_json_cannot_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": [float("nan"), float("inf"), 1.5, None, True], "b": Path("x")}
    Session(None, json=True, progress=False).show(value, lambda console: None)
    assert json.loads(capsys.readouterr().out) == {"a": ["nan", "inf", 1.5, None, True], "b": "x"}


def test_what_is_shown_is_text_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    names = "reads [red]a, [/b], :heart:"
    Session(None, json=False, progress=False).show(None, lambda console: console.print(names))
    assert capsys.readouterr().out.strip() == names


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from layoutopt.cli.app import main; main(['load', '--help']); "
        "print([m for m in ('pyspark', 'duckdb', 'pandas', 'pyarrow', 'sqlglot', 'mlxtend', 'matplotlib', 'numpy') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.long
@pytest.mark.spark
def test_from_a_log_to_a_table_and_back(here: Path, spark: object, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(__file__).parents[2] / "data"
    source = str(data / "tpch_sample.parquet")
    table = str(here / "table")

    def said(*words: str) -> Any:
        assert main([*words, "--json"]) == DONE
        return json.loads(capsys.readouterr().out)

    features = said("analyze", str(data / "tpch_queries.sql"), "--schema", source, "--num-features", "8")["features"]
    words = ("--method", "sop", "--guides", "features", "--partition-by", "o_year", "--block-rows", "100")
    planned = said("plan", source, *words)
    assert planned["features"] == [feature["filter"] for feature in features]
    rows = said("load", source, table)["rows"]
    (one,) = said("query", table, "SELECT count(*) FROM tpch WHERE l_shipmode = 'AIR'")["rows"]
    for engine in ("duckdb", "spark"):
        sql = "SELECT l_orderkey FROM tpch WHERE l_shipmode = 'AIR'"
        answer = said("query", table, sql, "--engine", engine, "--limit", "3")
        assert [len(answer["rows"]), answer["rows_total"]] == [3, *one]
    totals = said("evaluate", table, str(data / "tpch_queries.sql"), "--actual")["totals"]
    assert totals["rows_matching"] <= totals["rows_scanned"] < totals["rows_scanned_by_statistics"] < 80 * rows
    assert said("explain", table, "SELECT 1 FROM tpch WHERE l_shipmode = 'AIR'")["table"] == "tpch"
    assert said("verify", table)["rows"] == rows
    files = said("files", table)
    assert [each["rows"] for each in said("history", table)] == [rows]
    Path(files[0]).write_bytes(b"damaged")
    assert main(["verify", table]) == FAILED
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("words", "maker"), [(["plan", "rows"], "analyze"), (["load", "rows", "table"], "plan")])
def test_a_missing_document_names_the_verb_that_makes_it(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], maker: str
) -> None:
    assert main(words) == BAD_USAGE
    assert f"`layoutopt {maker}`" in capsys.readouterr().err
