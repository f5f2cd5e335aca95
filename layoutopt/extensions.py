"""What other packages add: libraries that few users need, and by Python's entry points partitioners, methods, log
formats, engines and types of indexes.

A package names what it adds in its ``pyproject.toml``, and is found once it is installed, in Spark's workers too::

    [project.entry-points."layoutopt.partitioners"]
    mine = "my_package.blocks:partition"

What each kind has to be, and the tests that it has to pass, is in CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Literal, TypeVar

from layoutopt.errors import SettingError

Kind = Literal["partitioners", "methods", "log_formats", "engines", "indexes"]
T = TypeVar("T")


def find(kind: Kind, name: str, built_in: Mapping[str, T], word: str) -> T:
    """What has this name: built in, else installed.

    Args:
        kind: of what.
        name: what is asked for.
        built_in: what the package has itself; nothing installed replaces it.
        word: what one of it is called in messages.

    Raises:
        SettingError: nothing has the name, two packages claim it, or its package can't be imported.

    >>> find("partitioners", "ward", {"ward": 1}, "partitioner")
    1
    """
    if name in built_in:
        return built_in[name]
    claims = {point.value: point for point in _installed(kind) if point.name == name}
    if len(claims) > 1:
        raise SettingError(
            f"the {word} {name!r} is claimed by {' and by '.join(sorted(claims))}; uninstall one of them"
        )
    if not claims:
        known = ", ".join(names(kind, built_in))
        raise SettingError(f"there is no {word} {name!r}; choose one of {known}")
    (point,) = claims.values()
    try:
        found: T = point.load()
    except (ImportError, AttributeError) as error:
        raise SettingError(f"the {word} {name!r} ({point.value}) can't be imported: {error}") from error
    return found


def names(kind: Kind, built_in: Mapping[str, object]) -> tuple[str, ...]:
    """What is built in, in its order, then what is installed."""
    return tuple(dict.fromkeys([*built_in, *sorted(point.name for point in _installed(kind))]))


def _installed(kind: Kind) -> list[EntryPoint]:
    return list(entry_points(group=f"layoutopt.{kind}"))


def require(library: str, extra: str) -> ModuleType:
    """A library that only some users need.

    Args:
        library: the module's name.
        extra: the extra of this package that installs it.

    Raises:
        SettingError: it is not installed, or can't be imported; says how to install it.

    >>> require("json", "delta").__name__
    'json'
    """
    try:
        return import_module(library)
    except ImportError as error:
        raise SettingError(
            f"this needs the library {library!r}, which can't be imported ({error}); pip install 'layoutopt[{extra}]'"
        ) from error
