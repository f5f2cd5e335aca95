"""Keyword arguments that are attributes of a request, whose class has their names, defaults and documentation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from layoutopt.errors import SettingError, expected_names

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Request = TypeVar("Request", bound="DataclassInstance")
Function = TypeVar("Function", bound=Callable[..., Any])

# Names of attributes and what follows them, in a docstring.
_ATTRIBUTE: Final = re.compile(r"^(    ([\w, ]+):.*(?:\n     .*)*\n?)", re.MULTILINE)


def takes_options(kind: type[DataclassInstance], *given: str) -> Callable[[Function], Function]:
    """Return a decorator that shows a request's attributes as keyword arguments of a function's ``**options``.

    Args:
        kind: the request.
        given: the attributes that other arguments of the function give.
    """

    def describe(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field.type,
            )
            for field in fields(kind)
            if field.name not in given
        ]
        function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]  # for help()
        attributes = _ATTRIBUTE.findall((inspect.getdoc(kind) or "").partition("Attributes:\n")[2])
        lines = "".join(text for text, names in attributes if not {*names.split(", ")} <= {*given})
        function.__doc__ = f"{inspect.getdoc(function)}\n\nOptions, attributes of {kind.__name__}:\n{lines}"
        return function

    return describe


def make_request(kind: type[Request], options: Mapping[str, Any], **given: Any) -> Request:
    """Return a request from a function's options; a single value stands for a tuple of one.

    Raises:
        SettingError: there is no such option, or one is missing.

    >>> from layoutopt.model.requests import MergeRequest
    >>> make_request(MergeRequest, {"on": "id"}, table_path="t", source="s").on
    ('id',)
    """
    types = {field.name: str(field.type) for field in fields(kind)}
    for name in options:
        if name not in types or name in given:
            raise SettingError(f"unknown option {name!r}: {expected_names(name, types.keys() - given.keys())}")
    values = {name: _convert(types[name], value) for name, value in options.items()} | given
    missing = next((field for field in fields(kind) if field.default is MISSING and field.name not in values), None)
    if missing is not None:
        raise SettingError(f"the option {missing.name!r} is missing; give it as {missing.name}=...")
    return kind(**values)


def _convert(type: str, value: Any) -> Any:
    if type.startswith("tuple[") and value is not None:
        values = [value] if isinstance(value, str | int | float) else value
        return tuple(float(item) if type.startswith("tuple[float") else item for item in values)
    if "Path" in type:
        return Path(value) if isinstance(value, str) else value
    return str(value) if isinstance(value, Path) else value
