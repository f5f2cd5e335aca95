"""The record of a function: what parsing, typing, folding, skipping, indexes and Spark's plans know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from layoutopt.functions.ranges import FLOATS, Range, has_int_keys
from layoutopt.model.predicates import Call
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import Key

# Returns the range of a call's values in each block, from those of its arguments; None if unknown.
Bounds = Callable[[Call, Sequence[Range]], Range | None]

TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
# What an argument's type may be, by the name in a signature; any other name is a type.
_KINDS: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "number": lambda type: (
            type in FLOATS or type in INTEGER_BITS or (bool(decimal_digits(type)) and has_int_keys(type))
        ),
        "time": lambda type: type in TIMES,
        "timestamp": lambda type: type in ("timestamp", "timestamp_ntz"),
        "any": lambda type: True,
    }
)


def is_bounded_number(type: str) -> bool:
    """Return whether a type is one of numbers whose keys are int64."""
    return _KINDS["number"](type)


def unbounded(call: Call, args: Sequence[Range]) -> None:
    """Bound no values: only the NULLs of the function follow from those of its arguments."""


def always(call: Call) -> bool:
    """Return True: DuckDB computes the same for every call."""
    return True


def never(call: Call) -> bool:
    """Return False: DuckDB may compute something else."""
    return False


@dataclass(frozen=True)
class Function:
    """A deterministic function that fails on no row, as filters call it.

    Attributes:
        name: lower-case Spark name.
        takes: the type of each argument as Spark coerces it, or a kind (:data:`_KINDS`).
        gives: the result's type; None if it depends on the arguments. A function with a result type is read by its
            signature alone; ``sql/`` builds the calls of others.
        optional: how many of the last arguments may be left out.
        variadic: whether there may be any number of arguments, each of the last type.
        parsed: sqlglot's classes of the function.
        keys: sqlglot's keys of the arguments, in their order.
        refused: sqlglot's keys of arguments that change the meaning.
        units: the units by which ``extract`` calls it.
        catalyst: Catalyst's classes whose operands are the arguments.
        bounds: the rule of its values; without one, neither values nor NULLs are known.
        total: whether it is NULL only if an argument is.
        strict: whether it is NULL if an argument is.
        first_argument: for a function of one argument that never decreases, the smallest key of the argument whose
            value is at least a whole number.
        compute: its value for constants without NULL, exactly Spark's; None if uncertain.
        on_ascii: Arrow's kernel for texts of ASCII.
        is_piece: whether it returns a piece of a text.
        is_portable: whether DuckDB computes the same for a call whose arguments have the call's types.
    """

    name: str
    takes: tuple[str, ...] = ()
    gives: str | None = None
    optional: int = 0
    variadic: bool = False
    parsed: tuple[str, ...] = ()
    keys: tuple[str, ...] = ("this",)
    refused: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    catalyst: tuple[str, ...] = ()
    bounds: Bounds | None = None
    total: bool = False
    strict: bool = True
    first_argument: Callable[[int], int] | None = None
    compute: Callable[..., Key | None] | None = None
    on_ascii: Callable[[Any], Any] | None = None
    is_piece: bool = False
    is_portable: Callable[[Call], bool] = never

    def argument_types(self, count: int) -> tuple[str, ...] | None:
        """Return the types of so many arguments; None if the function takes fewer or more."""
        if self.variadic:
            return self.takes[-1:] * count
        return self.takes[:count] if len(self.takes) - self.optional <= count <= len(self.takes) else None

    def accepts(self, types: Sequence[str]) -> bool:
        """Return whether the function may be called with arguments of these types."""
        kinds = self.argument_types(len(types))
        return kinds is not None and all(map(_is_of_kind, types, kinds))

    def evaluate(self, arguments: Sequence[Key | None]) -> Key | None:
        """Return the value for constants, exactly as Spark computes it; None if NULL or uncertain."""
        kinds = self.argument_types(len(arguments))
        if self.compute is None or kinds is None:
            return None
        fits = (
            isinstance(value, str if kind == "string" else int) for value, kind in zip(arguments, kinds, strict=True)
        )
        return self.compute(*arguments) if all(fits) else None


def _is_of_kind(type: str, kind: str) -> bool:
    return _KINDS[kind](type) if kind in _KINDS else type == kind
