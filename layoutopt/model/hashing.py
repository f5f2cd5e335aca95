"""A base for frozen nouns whose hash is computed once: filters are looked up in tables again and again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar


class HashedOnce:
    """A frozen dataclass that remembers its hash.

    ``@dataclass`` replaces an inherited ``__hash__``, so a class says ``__hash__ = HashedOnce.__hash__`` itself. The
    hash is not pickled: that of a string differs from process to process.
    """

    _hash: ClassVar[int]  # of the object; a ClassVar so that dataclasses take it for no field

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            computed = hash((type(self).__name__, *self._values()))
            object.__setattr__(self, "_hash", computed)
            return computed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
