"""Types of settings: how a file or a flag spells each, and which values are rejected."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.fields import FieldInfo

from layoutopt.errors import SettingError
from layoutopt.extensions import Kind, names
from layoutopt.model.documents import ParquetIndex
from layoutopt.model.types import split_parts

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def _split_list(value: object, split: Callable[[str], Iterable[str]] = lambda text: text.split(",")) -> object:
    """Split a text with commas, or each text of a list, as from a repeated flag."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return texts
    return tuple(part.strip() for text in texts for part in split(str(text)) if part.strip())


def _split_outside_brackets(value: object) -> object:
    return _split_list(value, split_parts)


def _wrap_text(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _check_filled(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty")
    return value


def parse_age(text: str) -> timedelta:
    """Parse a duration: a number and a unit.

    Raises:
        ValueError: the text is no duration.

    >>> parse_age("90m"), parse_age("7d")
    (datetime.timedelta(seconds=5400), datetime.timedelta(days=7))
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if match is None:
        raise ValueError("should be a number and one of s, m, h, d, w, as in 7d")
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[match[2]]
    return timedelta(seconds=int(match[1]) * seconds)


def parse_bytes(value: int | str) -> int:
    """Parse a number of bytes, perhaps with a unit.

    Raises:
        SettingError: the value is no such number.

    >>> parse_bytes("500MB"), parse_bytes("2GiB"), parse_bytes(7)
    (500000000, 2147483648, 7)
    """
    try:
        return int(TypeAdapter(ByteSize).validate_python(value))
    except ValidationError as error:
        raise SettingError(f"{value!r} is no number of bytes; write it like 500MB, 2GiB or 1000000") from error


def parse_threshold(text: str) -> tuple[str | None, float]:
    """Parse a share from 0 to 1, perhaps of a user.

    Raises:
        ValueError: the text is no such share.

    >>> parse_threshold("60%"), parse_threshold("dashboard=0.8")
    ((None, 0.6), ('dashboard', 0.8))
    """
    user, equals, share = text.rpartition("=")
    try:
        value = float(str(_parse_share(share)))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1 or (equals and not user):
        raise ValueError(f"{text!r} should be a share as 60%, or one of a user as dashboard=80%")
    return user or None, value


def _check_thresholds(texts: tuple[str, ...]) -> tuple[str, ...]:
    users = [parse_threshold(text)[0] for text in texts]
    if len(set(users)) < len(users):
        raise ValueError("should have one share for each user")
    return texts


def _check_age(text: str) -> str:
    parse_age(text)
    return text


def _check_span(text: str) -> str:
    if not parse_age(text):
        raise ValueError("should be longer than 0")
    return text


def _check_writable(path: Path) -> Path:
    """Reject an output path before the work starts."""
    if path.is_dir():
        raise ValueError("is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError("is in a folder that does not exist; create it first")
    return path


def _check_zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        # Spark also takes offsets.
        if not re.fullmatch(r"(UTC|GMT|UT)?[+-][0-9]{1,2}(:?[0-9]{2}){0,2}|Z|[A-Z]{3}", text):
            raise ValueError("should be a time zone as Europe/Prague, UTC or +02:00") from error
    return text


def _parse_share(value: object) -> object:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100
        except ValueError:
            return value
    return value


def _split_names(value: object) -> object:
    return _split_list(value)


Request = TypeVar("Request", bound="DataclassInstance")

Age = Annotated[str, AfterValidator(_check_age)]
# An age above zero.
Span = Annotated[str, AfterValidator(_check_span)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split_names)]
# Names, except that commas between brackets do not separate.
Expressions = Annotated[tuple[str, ...], BeforeValidator(_split_outside_brackets)]
ParquetIndexes = Annotated[tuple[ParquetIndex, ...], BeforeValidator(_split_names)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_split_names)]
Text = Annotated[str, BeforeValidator(_check_filled)]
# A file to write; its folder must exist.
NewFile = Annotated[Path, AfterValidator(_check_writable)]
TimeZone = Annotated[Text, AfterValidator(_check_zone)]
# One text or several; commas do not separate.
Texts = Annotated[tuple[Text, ...], BeforeValidator(_wrap_text)]
# A number, or a percentage like 2%.
Share = Annotated[float, BeforeValidator(_parse_share)]

# Shares, each of all or of a user.
Thresholds = Annotated[Texts, AfterValidator(_check_thresholds)]


class Positional:
    """Mark a setting as a positional argument of the command line."""


Place = Annotated[Text, Positional()]


def or_installed(kind: Kind) -> WrapValidator:
    """Return a validator by which a setting of choices accepts extensions of a kind too."""

    def check(value: object, choices: ValidatorFunctionWrapHandler) -> object:
        return value if value in names(kind, {}) else choices(value)

    return WrapValidator(check)


class VerbSettings(BaseModel):
    """The settings of one verb; unknown keys are rejected.

    Attributes:
        tuning: names of settings that may improve results; the help has a section for them.
        expert: names of settings that few users need; the help lists them last.
    """

    tuning: ClassVar[frozenset[str]] = frozenset()
    expert: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    def to_request(self, kind: type[Request], **more: Any) -> Request:
        """Return the request of a verb, with the values of these settings and ``more``, and else its defaults."""
        names = {field.name for field in dataclasses.fields(kind)} & type(self).model_fields.keys() - set(more)
        return kind(**{name: getattr(self, name) for name in names}, **more)


def is_positional(field: FieldInfo) -> bool:
    """Return whether a setting is a positional argument of the command line."""
    return any(isinstance(mark, Positional) for mark in field.metadata)


def has_commas(field: FieldInfo) -> bool:
    """Return whether a setting of several values takes one text with commas."""
    return not any(isinstance(mark, BeforeValidator) and mark.func is _wrap_text for mark in field.metadata)


def key_of(name: str, field: FieldInfo) -> str:
    """Return a setting's key in a file: its flag without the leading dashes."""
    return (field.alias or name).replace("_", "-")
