"""Extensions: optional libraries, and partitioners, methods, log formats, engines and indexes of other packages.

A package declares an extension in its ``pyproject.toml``; installing it is enough, also in Spark's workers::

    [project.entry-points."layoutopt.partitioners"]
    mine = "my_package.blocks:partition"

CONTRIBUTING.md describes each kind's interface and tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Literal, TypeVar

from layoutopt.errors import SettingError, expected_names

Kind = Literal["partitioners", "methods", "log_formats", "engines", "indexes"]
T = TypeVar("T")


def find(kind: Kind, name: str, built_in: Mapping[str, T], word: str) -> T:
    """Return the built-in or installed extension of a name; installed ones can't replace built-in ones.

    ``word`` is the kind's name in messages. Raises SettingError if the name is unknown, if two packages claim it, or if
    its package can't be imported.

    >>> find("partitioners", "ward", {"ward": 1}, "partitioner")
    1
    """
    if name in built_in:
        return built_in[name]
    claims = {point.value: point for point in _list_installed(kind) if point.name == name}
    if len(claims) > 1:
        raise SettingError(
            f"the {word} {name!r} is defined by {' and by '.join(sorted(claims))}; uninstall one of them"
        )
    if not claims:
        raise SettingError(f"unknown {word} {name!r}: {expected_names(name, names(kind, built_in))}")
    (point,) = claims.values()
    try:
        extension: T = point.load()
    except (ImportError, AttributeError) as error:
        raise SettingError(f"the {word} {name!r} ({point.value}) can't be imported: {error}") from error
    return extension


def names(kind: Kind, built_in: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of built-in extensions in their order, then of installed ones."""
    return tuple(dict.fromkeys([*built_in, *sorted(point.name for point in _list_installed(kind))]))


def _list_installed(kind: Kind) -> list[EntryPoint]:
    return list(entry_points(group=f"layoutopt.{kind}"))


def require(library: str, extra: str) -> ModuleType:
    """Import an optional library, or raise a SettingError that names the package's extra to install.

    >>> require("json", "delta").__name__
    'json'
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise missing_library(library, extra, error) from error


def missing_library(library: str, extra: str, error: ImportError) -> SettingError:
    """Return the error about an optional library that can't be imported, which names the package's extra to install."""
    return SettingError(
        f"this needs the library {library!r}, which can't be imported ({error}); run pip install 'layoutopt[{extra}]'"
    )
