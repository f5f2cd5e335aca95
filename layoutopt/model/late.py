"""A tuple whose items are made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

Item = TypeVar("Item")


class LateTuple(Sequence[Item], Generic[Item]):
    """A tuple whose items are made when they are first asked for. It equals the tuple; its length is known before.

    >>> late = LateTuple(2, lambda: (1, 2))
    >>> len(late), late == (1, 2), late[1:], hash(late) == hash((1, 2))
    (2, True, (2,), True)
    """

    def __init__(self, length: int, make: Callable[[], tuple[Item, ...]]) -> None:
        self._length, self._make = length, make

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        return self._make()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, LateTuple) else other)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._items,)
