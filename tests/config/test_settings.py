"""Settings: one default and one meaning each, files that name what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.config.fields import VerbSettings, key_of
from layoutopt.config.files import VERBS, import_udfs, make_settings, read_functions, read_spark_properties, read_values
from layoutopt.config.settings import (
    AnalyzeSettings,
    IndexSettings,
    OptimizeSettings,
    PlanSettings,
    PublishSettings,
    RefreshSettings,
    RestoreSettings,
    VerifySettings,
)
from layoutopt.errors import SettingError

REQUIRED = {"log", "schema", "source", "table", "sql", "experiment", "where", "set", "on"}


def conf(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", VERBS.values(), ids=VERBS.keys())
def test_every_setting_has_a_description_and_a_default_or_is_required(kind: type[VerbSettings]) -> None:
    for name, field in kind.model_fields.items():
        assert field.description, name
        needed = key_of(name, field) in REQUIRED or (kind is RestoreSettings and name == "snapshot")
        others_read = ((VerifySettings, "source"), (OptimizeSettings, "log"), (IndexSettings, "log"))
        needed &= (kind, name) not in others_read
        needed |= (kind, name) in ((PublishSettings, "format"), (IndexSettings, "into"), (RefreshSettings, "index"))
        assert field.is_required() == (needed and name != "table"), name


@pytest.mark.parametrize("kind", VERBS.values(), ids=VERBS.keys())
def test_every_default_is_valid(kind: type[VerbSettings]) -> None:
    values = {"snapshot": 3, "format": "delta"}
    required = {name: values.get(name, "demo") for name, field in kind.model_fields.items() if field.is_required()}
    defaults = {n: f.default for n, f in kind.model_fields.items() if not f.is_required() and f.default is not None}
    assert make_settings(kind, {**required, **defaults}) == make_settings(kind, required)


def test_a_file_supplies_settings_with_dashes_or_underscores(tmp_path: Path) -> None:
    path = conf(tmp_path, '[plan]\nsource = "rows"\nblock-rows = 700\nmax_vectors = 9\nby = "a, b"\n')
    settings = make_settings(PlanSettings, read_values(path, PlanSettings))
    assert (settings.source, settings.block_rows, settings.max_vectors) == ("rows", 700, 9)
    assert settings.by == ("a", "b")
    assert settings.seed == 0


@pytest.mark.parametrize(
    ("output", "why"), [("", "is a folder"), ("no/such/x.json", "is in a folder that does not exist")]
)
def test_files_that_cannot_be_written_are_refused_at_once(tmp_path: Path, output: str, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        make_settings(PlanSettings, {"source": "rows", "output": str(tmp_path / output)})


@pytest.mark.parametrize("zone", ["UTC", "Europe/Prague", "+02:00", "GMT+1", "UTC-03:30", "Z", "PST"])
def test_time_zones_are_those_of_spark(zone: str) -> None:
    assert make_settings(AnalyzeSettings, {"log": "l.sql", "schema": "t", "time_zone": zone}).time_zone == zone


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "12", "../etc/passwd", "/etc/passwd"])
def test_unknown_time_zones_are_refused(zone: str) -> None:
    with pytest.raises(SettingError, match="time-zone"):
        make_settings(AnalyzeSettings, {"log": "l.sql", "schema": "t", "time_zone": zone})


def test_values_hold_only_what_the_file_says(tmp_path: Path) -> None:
    path = conf(tmp_path, '[analyze]\nschema = "t.sql"\n[load]\nplan = "p.json"\n')
    assert read_values(path, AnalyzeSettings) == {"schema_source": "t.sql"}
    assert read_values(path, PlanSettings) == {}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[plan]\nblock_row = 7", "block_row"),
        ("[plan]\nblock_rows = 0", "block-rows = '0'"),
        ('[plan]\nblock_rows = "many"', "block-rows = 'many'"),
        ('[plan]\nmethod = "magic"', "method = 'magic'"),
        ('[plan]\nsource = " "', "source = ' '"),
        ("[plane]\nblock_rows = 7", "plane"),
        ("block_rows = 7", "block_rows"),
        ("[plan", "TOML"),
        ("plan = " + "[" * 10_000, "TOML"),
    ],
)
def test_a_bad_file_is_refused_with_what_is_wrong(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_values(conf(tmp_path, text), PlanSettings)
    assert named in str(caught.value)
    assert "settings.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"nowhere\.toml"):
        read_values(tmp_path / "nowhere.toml", PlanSettings)


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="'source' is missing"):
        make_settings(PlanSettings, read_values(conf(tmp_path, "[plan]\nseed = 1"), PlanSettings))


def test_a_missing_argument_is_said_to_come_after_the_command(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"'table' is missing; give it after the command \(--table for a script"):
        make_settings(VerifySettings, read_values(conf(tmp_path, "[verify]\nsample = 0.1"), VerifySettings))


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(SettingError, match="unknown setting 'colour'"):
        make_settings(PlanSettings, {"source": "rows", "colour": 1})


def test_spark_properties_are_texts(tmp_path: Path) -> None:
    path = conf(tmp_path, '[spark]\n"spark.a" = true\n"spark.b" = 2\n"spark.c" = "x"\n')
    assert read_spark_properties(path) == {"spark.a": "true", "spark.b": "2", "spark.c": "x"}


def test_a_nested_spark_property_is_refused(tmp_path: Path) -> None:
    # spark.a without quotes is a table in TOML: a common slip.
    with pytest.raises(SettingError, match="quote its name"):
        read_spark_properties(conf(tmp_path, "[spark]\nspark.a = 1\n"))


def test_functions_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text('[udfs]\nagent = "acme.functions:agent_name"\n[analyze]\nlog = "log.sql"\n', encoding="utf-8")
    assert read_functions(file) == ("agent=acme.functions:agent_name",)
    file.write_text("[udfs]\nagent = 3\n", encoding="utf-8")
    with pytest.raises(SettingError, match=r"the function 'agent' in \[udfs\]"):
        read_functions(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent_name", "does not name a function"),
        ("no_such_module:f", "can't be imported"),
        ("math:pi", "is no function"),
    ],
)
def test_functions_that_are_none_are_named(text: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        import_udfs([text])
