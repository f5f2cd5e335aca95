"""The kinds of settings: how each is written in a file and after a flag, and what is refused."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.fields import FieldInfo

from layoutopt.extensions import Kind, names
from layoutopt.model.documents import ParquetIndex
from layoutopt.model.types import split_parts


def _listed(value: object) -> object:
    """Lists may be written as one text with commas, in a file or after a flag, or repeat the flag."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return texts
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def _split_outside_brackets(value: object) -> object:
    """As :func:`_listed`, but commas between brackets are part of what is listed."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return texts
    return tuple(part.strip() for text in texts for part in split_parts(str(text)) if part.strip())


def _one_or_several(value: object) -> object:
    """A single text may stand for a list of it."""
    return (value,) if isinstance(value, str) else value


def _filled(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty")
    return value


def parse_age(text: str) -> timedelta:
    """A time written as a number and a unit.

    Raises:
        ValueError: the text is none.

    >>> parse_age("90m"), parse_age("7d")
    (datetime.timedelta(seconds=5400), datetime.timedelta(days=7))
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if match is None:
        raise ValueError("should be a number and one of s, m, h, d, w, as in 7d")
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[match[2]]
    return timedelta(seconds=int(match[1]) * seconds)


def _checked_age(text: str) -> str:
    parse_age(text)
    return text


def _checked_span(text: str) -> str:
    if not parse_age(text):
        raise ValueError("should be longer than nothing")
    return text


def _writable(path: Path) -> Path:
    """Said before the work that the file is for, not after it."""
    if path.is_dir():
        raise ValueError("is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError("is in no folder that is there; make it first")
    return path


def _checked_zone(text: str) -> str:
    """A region, or an offset as Spark writes them."""
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        if not re.fullmatch(r"(UTC|GMT|UT)?[+-][0-9]{1,2}(:?[0-9]{2}){0,2}|Z|[A-Z]{3}", text):
            raise ValueError("should be a time zone as Europe/Prague, UTC or +02:00") from error
    return text


Age = Annotated[str, AfterValidator(_checked_age)]
Span = Annotated[str, AfterValidator(_checked_span)]
"""As an age, but not zero."""
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Expressions = Annotated[tuple[str, ...], BeforeValidator(_split_outside_brackets)]
ParquetIndexes = Annotated[tuple[ParquetIndex, ...], BeforeValidator(_listed)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_listed)]
Text = Annotated[str, BeforeValidator(_filled)]
NewFile = Annotated[Path, AfterValidator(_writable)]
"""A file to be written; its folder has to be there."""
TimeZone = Annotated[Text, AfterValidator(_checked_zone)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_one_or_several)]
"""One text or several, each as it is, commas and all."""


def _share(value: object) -> object:
    """A share may be written with a percent sign."""
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100
        except ValueError:
            return value
    return value


Share = Annotated[float, BeforeValidator(_share)]


class Positional:
    """Marks a setting that the command line takes by its place, not by a flag."""


Place = Annotated[Text, Positional()]


def or_installed(kind: Kind) -> WrapValidator:
    """Lets a setting of choices name what another package adds, too."""

    def check(value: object, choices: ValidatorFunctionWrapHandler) -> object:
        return value if value in names(kind, {}) else choices(value)

    return WrapValidator(check)


class VerbSettings(BaseModel):
    """The settings of one verb. Keys that are no setting are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


def is_positional(field: FieldInfo) -> bool:
    """Whether the command line takes a setting by its place."""
    return any(isinstance(mark, Positional) for mark in field.metadata)


def has_commas(field: FieldInfo) -> bool:
    """Whether a setting of several values may be written as one text with commas."""
    return not any(isinstance(mark, BeforeValidator) and mark.func is _one_or_several for mark in field.metadata)


def key_of(name: str, field: FieldInfo) -> str:
    """A setting's key in a file, which is its flag without the dashes in front."""
    return (field.alias or name).replace("_", "-")
