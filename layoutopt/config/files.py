"""Settings from configuration files and flags: validated, and told in one sentence where they are wrong.

A configuration file has one table a verb, with the flags' names as keys (`block-rows` or `block_rows`), and a table
`[spark]` with properties for the Spark session, a table `[udfs]` with functions of your own, and a table `[encryption]`
that says where the key of an encrypted table is to be had::

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

What is given on the command line comes before the file, and the file before the defaults.
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

from layoutopt.config.benching import BenchSettings
from layoutopt.config.fields import VerbSettings, is_positional, key_of
from layoutopt.config.measuring import CalibrateSettings, MineSettings
from layoutopt.config.settings import (
    AdviseSettings,
    AnalyzeSettings,
    AppendSettings,
    DeleteSettings,
    DriftSettings,
    EvaluateSettings,
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
    StatusSettings,
    UpdateSettings,
    VacuumSettings,
    VerifySettings,
)
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from layoutopt.model.udf import Udf

# ----------------------------------------------------------------------------------------------------
# The verbs of the command line that take settings.

_KINDS: Final[tuple[type[VerbSettings], ...]] = (
    AnalyzeSettings, AdviseSettings, PlanSettings, LoadSettings, ReloadSettings, AppendSettings, DeleteSettings,
    UpdateSettings, MergeSettings, OptimizeSettings, StatusSettings, DriftSettings, QuerySettings, ExplainSettings,
    EvaluateSettings, VerifySettings, FilesSettings, HistorySettings, VacuumSettings, RestoreSettings, PublishSettings,
    IndexSettings, RefreshSettings, ServeSettings, CalibrateSettings, MineSettings, BenchSettings,
)  # fmt: skip
VERBS: Final = MappingProxyType({kind.__name__.removesuffix("Settings").lower(): kind for kind in _KINDS})
"""The verbs that take settings, by the names of the command line."""


SPARK_SECTION: Final = "spark"
UDF_SECTION: Final = "udfs"
ENCRYPTION_SECTION: Final = "encryption"

Verb = TypeVar("Verb", bound=VerbSettings)


def make_settings(kind: type[Verb], values: Mapping[str, object]) -> Verb:
    """Validate a verb's settings; values that are None count as not given.

    Raises:
        SettingError: a value is missing or bad, or a key is no setting.
    """
    try:
        return kind.model_validate({key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        raise SettingError(_sentence(kind, error.errors()[0], "")) from error


def read_values(path: str | Path, kind: type[VerbSettings]) -> dict[str, Any]:
    """What a configuration file says of one verb, validated, by field name; defaults are left out.

    Raises:
        SettingError: the file can't be read or is no TOML, has an unknown table or key, or a bad value.
    """
    sections = _sections(path)
    verb = next(name for name, settings in VERBS.items() if settings is kind)
    by_key = {key_of(name, field): name for name, field in kind.model_fields.items()}
    given = {}
    for key, value in sections.get(verb, {}).items():
        name = by_key.get(key.replace("_", "-"))
        if name is None:
            raise SettingError(f"{str(path)!r} has an unknown key {key!r} in [{verb}]; it takes {', '.join(by_key)}")
        given[name] = value
    try:
        valid = kind.model_validate(given)
    except ValidationError as error:
        wrong = [e for e in error.errors() if e["type"] != "missing"]
        if wrong:
            raise SettingError(_sentence(kind, wrong[0], f" in [{verb}] of {str(path)!r}")) from error
        return given
    return {name: getattr(valid, name) for name in given}


def read_spark_properties(path: str | Path) -> dict[str, str]:
    """The `[spark]` table of a configuration file: properties for the Spark session, as texts.

    Raises:
        SettingError: the file can't be read or is no TOML, or a property is a table or a list.
    """
    properties = _sections(path).get(SPARK_SECTION, {})
    for key, value in properties.items():
        if not isinstance(value, str | int | float):
            raise SettingError(
                f"the Spark property {key!r} in {str(path)!r} is no text, number or boolean; quote its name"
            )
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in properties.items()}


def read_functions(path: str | Path) -> tuple[str, ...]:
    """The `[udfs]` table of a configuration file, each as ``NAME=MODULE:FUNCTION``.

    Raises:
        SettingError: the file can't be read or is no TOML, or a value is no text.
    """
    functions = _sections(path).get(UDF_SECTION, {})
    for name, value in functions.items():
        if not isinstance(value, str):
            raise SettingError(f"the function {name!r} in [udfs] of {str(path)!r} is no text; write MODULE:FUNCTION")
    return tuple(f"{name}={value}" for name, value in functions.items())


def read_key(path: str | Path) -> str | None:
    """The reference to a key in the `[encryption]` table of a configuration file; None where there is none.

    Raises:
        SettingError: the file can't be read or is no TOML, or the table has something else.
    """
    found = _sections(path).get(ENCRYPTION_SECTION, {})
    if any(name != "key" or not isinstance(value, str) for name, value in found.items()):
        raise SettingError(f"[encryption] of {str(path)!r} should have nothing but a text `key`, as env:NAME")
    return found.get("key")


def _sections(path: str | Path) -> dict[str, dict[str, Any]]:
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
            raise SettingError(f"{str(path)!r} has {name!r} where only these tables may be: {', '.join(known)}")
    return content


def _sentence(kind: type[VerbSettings], error: Any, where: str) -> str:
    place = str(error["loc"][0]) if error["loc"] else "?"
    field = next((field for name, field in kind.model_fields.items() if place in (name, field.alias)), None)
    key = key_of(place, field) if field else place.replace("_", "-")
    if error["type"] == "missing":
        placed = field is not None and is_positional(field)
        how = f"after the command (as --{key} to a script of jobs/)" if placed else f"as --{key}"
        return f"{key!r} is missing{where}; give it {how}, or in the configuration"
    if error["type"] == "extra_forbidden":
        return f"{key!r} is no setting{where}; the settings are {', '.join(map(str, kind.model_fields))}"
    return f"{key} = {str(error['input'])!r}{where} is no good value: {error['msg'].removeprefix('Value error, ')}"


# ----------------------------------------------------------------------------------------------------
# The functions of the user's, named as MODULE:FUNCTION after a flag or in a configuration file.

_NAMED: Final = re.compile(r"(?:(?P<name>\w+)\s*=\s*)?(?P<module>[\w.]+):(?P<function>[\w.]+)")


def find_udfs(texts: Sequence[str]) -> tuple[Udf, ...]:
    """Import functions; modules are looked for in the working folder too.

    Args:
        texts: each ``MODULE:FUNCTION``, or ``NAME=MODULE:FUNCTION`` where SQL texts call it otherwise.

    Raises:
        SettingError: a text names no function, or its module can't be imported.
    """
    return tuple(_find(text) for text in texts)


def _find(text: str) -> Udf:
    from layoutopt.model.udf import as_udf

    named = _NAMED.fullmatch(text.strip())
    if named is None:
        raise SettingError(f"{text!r} names no function; write MODULE:FUNCTION, or NAME=MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:  # an installed command has its own folder there instead
        sys.path.append(here)
    try:
        found: object = importlib.import_module(named["module"])
        for part in named["function"].split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's module does as it is imported
        raise SettingError(
            f"the function {text!r} can't be imported ({type(error).__name__}: {error}); check its name"
        ) from error
    return as_udf(found, named["name"] and named["name"].lower())
