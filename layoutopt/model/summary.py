"""Results as JSON, and in a notebook: a line as text, and a table of two columns as HTML."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Report:
    """A dataclass that verbs print as JSON; ``derived`` are the names of its properties to print."""

    derived: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return asdict(cast("DataclassInstance", self)) | {name: getattr(self, name) for name in self.derived}


class Summarised(ABC):
    """A result with a summary; as a dataclass it needs ``repr=False``."""

    @abstractmethod
    def summarise(self) -> Mapping[str, object]:
        """Return the few values that a reader wants first, by name."""

    def __repr__(self) -> str:
        """Return the type and the summary on one line."""
        return (
            f"{type(self).__name__}({', '.join(f'{name}={_show(value)}' for name, value in self.summarise().items())})"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{escape(_show(value))}</td></tr>"
            for name, value in self.summarise().items()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"


def _show(value: object) -> str:
    """Return a number with separators, and anything else as it is written in Python.

    >>> _show(1234567), _show("tpch"), _show(0.25)
    ('1,234,567', "'tpch'", '0.25')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return repr(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
