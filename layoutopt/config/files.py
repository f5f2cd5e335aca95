"""Read and validate settings from configuration files and flags; each error is one sentence.

A configuration file has a table for each verb, with the names of flags as keys (`block-rows` or `block_rows`). Table
`[spark]` has properties of the Spark session, `[udfs]` user-defined functions, `[encryption]` a reference to the key of
an encrypted table::

    [analyze]
    log = "queries.jsonl"
    schema = "events.parquet"
    num-features = 40

    [spark]
    "spark.driver.memory" = "4g"

    [udfs]
    agent_name = "acme.functions:agent_name"

    [encryption]
    key = "env:EVENTS_KEY"

The command line overrides the file, and the file overrides the defaults.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from layoutopt.config.fields import VerbSettings, is_positional, key_of
from layoutopt.config.settings import (
    AdviseSettings,
    AnalyzeSettings,
    AppendSettings,
    BenchSettings,
    DeleteSettings,
    DriftSettings,
    EvaluateSettings,
    ExpireSettings,
    ExplainSettings,
    FilesSettings,
    HistorySettings,
    IndexSettings,
    LoadSettings,
    MergeSettings,
    OptimizeSettings,
    PlanSettings,
    PublishSettings,
    QuerySettings,
    RefreshSettings,
    ReloadSettings,
    RestoreSettings,
    ServeSettings,
    ShellSettings,
    StatusSettings,
    UpdateSettings,
    UpSettings,
    VacuumSettings,
    VerifySettings,
)
from layoutopt.errors import SettingError, expected_names

if TYPE_CHECKING:
    from layoutopt.model.udf import Udf

_KINDS: Final[tuple[type[VerbSettings], ...]] = (
    UpSettings, AnalyzeSettings, AdviseSettings, PlanSettings, LoadSettings, ReloadSettings, AppendSettings,
    DeleteSettings, UpdateSettings, MergeSettings, OptimizeSettings, StatusSettings, DriftSettings, QuerySettings,
    ShellSettings, ExplainSettings, EvaluateSettings, VerifySettings, FilesSettings, HistorySettings, ExpireSettings,
    VacuumSettings, RestoreSettings, PublishSettings, IndexSettings, RefreshSettings, ServeSettings, BenchSettings,
)  # fmt: skip
# The settings of each verb, by the verb's name on the command line.
VERBS: Final = MappingProxyType({kind.__name__.removesuffix("Settings").lower(): kind for kind in _KINDS})

SPARK_SECTION: Final = "spark"
UDF_SECTION: Final = "udfs"
ENCRYPTION_SECTION: Final = "encryption"

Verb = TypeVar("Verb", bound=VerbSettings)


def make_settings(kind: type[Verb], values: Mapping[str, object]) -> Verb:
    """Validate a verb's settings; None counts as not given.

    Raises:
        SettingError: a value is missing or invalid, or a key is unknown.
    """
    try:
        return kind.model_validate({key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        raise SettingError(_describe(kind, error.errors()[0], "")) from error


def read_values(path: str | Path, kind: type[VerbSettings]) -> dict[str, Any]:
    """Return a configuration file's valid settings of a verb by field name, without defaults.

    Raises:
        SettingError: the file can't be read, is not TOML, or has an unknown table or key or an invalid value.
    """
    sections = _read_sections(path)
    verb = next(name for name, settings in VERBS.items() if settings is kind)
    by_key = {key_of(name, field): name for name, field in kind.model_fields.items()}
    given = {}
    for key, value in sections.get(verb, {}).items():
        name = by_key.get(key.replace("_", "-"))
        if name is None:
            raise SettingError(
                f"{str(path)!r} has an unknown key {key!r} in [{verb}]: {expected_names(key.replace('_', '-'), by_key)}"
            )
        given[name] = value
    try:
        valid = kind.model_validate(given)
    except ValidationError as error:
        problems = [problem for problem in error.errors() if problem["type"] != "missing"]
        if problems:
            raise SettingError(_describe(kind, problems[0], f" in [{verb}] of {str(path)!r}")) from error
        return given
    return {name: getattr(valid, name) for name in given}


def read_spark_properties(path: str | Path) -> dict[str, str]:
    """Return the `[spark]` table of a configuration file as texts.

    Raises:
        SettingError: the file can't be read or is not TOML, or a property is a table or a list.
    """
    properties = _read_sections(path).get(SPARK_SECTION, {})
    for key, value in properties.items():
        if not isinstance(value, str | int | float):
            raise SettingError(
                f"the Spark property {key!r} in {str(path)!r} is not a text, number or boolean; quote its name"
            )
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in properties.items()}


def read_functions(path: str | Path) -> tuple[str, ...]:
    """Return the `[udfs]` table of a configuration file, each as ``NAME=MODULE:FUNCTION``.

    Raises:
        SettingError: the file can't be read or is not TOML, or a value is not a text.
    """
    functions = _read_sections(path).get(UDF_SECTION, {})
    for name, value in functions.items():
        if not isinstance(value, str):
            raise SettingError(f"the function {name!r} in [udfs] of {str(path)!r} is not a text; write MODULE:FUNCTION")
    return tuple(f"{name}={value}" for name, value in functions.items())


def read_key(path: str | Path) -> str | None:
    """Return the key reference in the `[encryption]` table of a configuration file, or None.

    Raises:
        SettingError: the file can't be read or is not TOML, or the table has anything else.
    """
    section = _read_sections(path).get(ENCRYPTION_SECTION, {})
    if any(name != "key" or not isinstance(value, str) for name, value in section.items()):
        raise SettingError(f"[encryption] of {str(path)!r} should have only a text `key`, like env:NAME")
    return section.get("key")


def _read_sections(path: str | Path) -> dict[str, dict[str, Any]]:
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"the configuration {str(path)!r} can't be read ({error.strerror}); check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingError(f"the configuration {str(path)!r} is not TOML: {error}") from error
    known = (*VERBS, SPARK_SECTION, UDF_SECTION, ENCRYPTION_SECTION)
    for name, section in content.items():
        if name not in known or not isinstance(section, dict):
            raise SettingError(f"{str(path)!r} has an unknown table {name!r}: {expected_names(name, known)}")
    return content


def _describe(kind: type[VerbSettings], error: Any, where: str) -> str:
    place = str(error["loc"][0]) if error["loc"] else "?"
    field = next((field for name, field in kind.model_fields.items() if place in (name, field.alias)), None)
    key = key_of(place, field) if field else place.replace("_", "-")
    if error["type"] == "missing":
        placed = field is not None and is_positional(field)
        how = f"after the command (--{key} for a script of jobs/)" if placed else f"as --{key}"
        return f"{key!r} is missing{where}; give it {how}, or in the configuration file"
    if error["type"] == "extra_forbidden":
        keys = [key_of(name, field) for name, field in kind.model_fields.items()]
        return f"unknown setting {key!r}{where}: {expected_names(key, keys)}"
    return f"invalid value {key} = {str(error['input'])!r}{where}: {_expect(error)}"


# By the type of a validation error: what was expected, with the placeholders of the error's context.
_EXPECTED: Final = {
    "int": "expected a whole number", "float": "expected a number", "decimal": "expected a number",
    "bool": "expected true or false", "string": "expected a text", "path": "expected a path",
    "tuple": "expected a list", "byte_size": "expected a size in bytes, like 128MB",
    "greater_than_equal": "expected at least {ge}", "greater_than": "expected more than {gt}",
    "less_than_equal": "expected at most {le}", "less_than": "expected less than {lt}",
    "too_short": "expected at least {min_length}",
}  # fmt: skip


def _expect(error: Any) -> str:
    """Return what a validation error expected; the library's own words mean little to users."""
    type, context = str(error["type"]), error.get("ctx", {})
    if type == "literal_error":
        return expected_names(str(error["input"]), re.findall(r"'(.*?)'", context["expected"]))
    kinds = (type, type.split("_")[0])
    template = next((_EXPECTED[kind] for kind in kinds if kind in _EXPECTED), "")
    return template.format(**context) or str(error["msg"]).removeprefix("Value error, ")


_UDF_TEXT: Final = re.compile(r"(?:(?P<name>\w+)\s*=\s*)?(?P<module>[\w.]+):(?P<function>[\w.]+)")


def import_udfs(texts: Sequence[str]) -> tuple[Udf, ...]:
    """Import user-defined functions; modules may be in the working folder.

    Args:
        texts: each ``MODULE:FUNCTION``, or ``NAME=MODULE:FUNCTION`` for another name in SQL.

    Raises:
        SettingError: a text does not name a function, or its module can't be imported.
    """
    return tuple(_import_udf(text) for text in texts)


def _import_udf(text: str) -> Udf:
    from layoutopt.model.udf import as_udf

    match = _UDF_TEXT.fullmatch(text.strip())
    if match is None:
        raise SettingError(f"{text!r} does not name a function; write MODULE:FUNCTION, or NAME=MODULE:FUNCTION")
    folder = str(Path.cwd())
    if folder not in sys.path:  # sys.path[0] of an installed command is the command's folder
        sys.path.append(folder)
    try:
        function: object = importlib.import_module(match["module"])
        for part in match["function"].split("."):
            function = getattr(function, part)
    except Exception as error:  # importing the user's module may raise anything
        raise SettingError(
            f"the function {text!r} can't be imported ({type(error).__name__}: {error}); check its name"
        ) from error
    return as_udf(function, match["name"] and match["name"].lower())
