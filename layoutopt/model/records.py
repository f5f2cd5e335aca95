"""Nouns as JSON and back, by the annotations of their fields: every document and snapshot is read through here.

JSON is untrusted and read strictly: a text is no number, a number no text, a boolean no number, and every member must
be there that is not left out of equal nouns' JSON. Members that no field has are ignored. What a type can't say, the
constructors of the nouns refuse. (Why no library does this: docs/decisions/0004-serialisation.md.)
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from layoutopt.errors import LayoutoptError, PlanError

# ----------------------------------------------------------------------------------------------------
# A tuple whose items are made when they are first asked for.

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


Json = dict[str, object]
Reader = Callable[[Any, str], Any]
"""Makes a value of JSON, given its place for messages; raises ValueError."""

_DEEPEST: Final = 420
"""Deeper JSON is refused: no filter has 200 levels of two lists or objects, and reading must not exhaust the stack."""


@dataclass(frozen=True)
class Form:
    """How a noun's JSON differs from an object with a member for each field, called as the field.

    Attributes:
        names: the members of fields that are called otherwise.
        constants: members that each such noun has; they tell kinds of nouns apart.
        left_out: fields without a member where they have their default.
        bare: the JSON is that of the noun's only field.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    bare: bool = False


@dataclass(frozen=True)
class As:
    """Annotates a field that stands in JSON as another type, or only with some of its type's values.

    Attributes:
        json: the type in JSON.
        read: makes the field's value of one of that type; raises ValueError where it is none.
        write: the inverse.
    """

    json: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


class Record:
    """A frozen dataclass that is written as JSON and read back."""

    form: ClassVar[Form] = Form()

    def to_json(self) -> Any:
        """A JSON value that :meth:`from_json` reads back."""
        return to_json(self)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The noun that :meth:`to_json` wrote.

        Raises:
            PlanError: the value is no such noun's JSON; names what is wrong with it, and where.
        """
        return cast(Self, from_json(cls, value, cls.__name__.lower()))


class _Member(NamedTuple):
    field: str
    name: str
    type: Any
    write: Callable[[Any], Any] | None
    default: Any  # where it may be left out


_REQUIRED: Final = object()
_UNIONS: Final = (Union, UnionType)


@cache
def _members(kind: Any) -> tuple[_Member, ...]:
    types = get_type_hints(kind, include_extras=True)
    found = []
    for each in fields(kind):
        (mark,) = getattr(types[each.name], "__metadata__", (None,))
        default = each.default if each.name in kind.form.left_out else _REQUIRED
        name = kind.form.names.get(each.name, each.name)
        found.append(_Member(each.name, name, types[each.name], mark and mark.write, default))
    return tuple(found)


def to_json(value: object) -> Any:
    """A noun, or plain values in tuples and mappings, as JSON.

    >>> to_json((b"a", 1.5))
    [{'base64': 'YQ=='}, 1.5]
    """
    if isinstance(value, Record):
        written = dict(value.form.constants)
        kind: Any = type(value)
        for member in _members(kind):
            held = getattr(value, member.field)
            if held != member.default:
                written[member.name] = to_json(member.write(held) if member.write else held)
        return next(iter(written.values())) if value.form.bare else written
    if isinstance(value, tuple | list | LateTuple):
        return [to_json(each) for each in value]
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    return {"base64": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value


def from_json(kind: Any, value: object, name: str) -> Any:
    """As :meth:`Record.from_json`, for any type that :func:`read` takes; ``name`` says what it is."""
    try:
        check_depth(value)
        return read(kind, value, name)
    except (ValueError, TypeError, ArithmeticError, RecursionError, LayoutoptError) as error:
        raise PlanError(f"the JSON of a {name} is damaged: {error}; write the document again") from error


def check_depth(value: object) -> None:
    """Refuse JSON that is too deep to be read, hashed and compared.

    Raises:
        ValueError: it is.
    """
    level = [value]
    for _ in range(_DEEPEST):
        inner = [each for each in level if isinstance(each, dict | list)]
        if not inner:
            return
        level = [child for each in inner for child in (each.values() if isinstance(each, dict) else each)]
    raise ValueError(f"it is more than {_DEEPEST} levels deep")


def read(kind: Any, value: object, place: str) -> Any:
    """JSON as a value of a type.

    Args:
        kind: a record, a plain type, a tuple, a mapping, a union of these, or such a type annotated with :class:`As`.
        value: the JSON value.
        place: where it stands, for messages.

    Raises:
        ValueError: the value is no such JSON, or its noun's constructor refuses it.

    >>> read(tuple[int, ...], [1, "x"], "row")
    Traceback (most recent call last):
      ...
    ValueError: row[1] should be a whole number, not 'x'
    """
    reader = _readers(kind).get(type(value))
    if reader is None:
        raise ValueError(f"{place} should be {_said(kind)}, not {short(value)}")
    return reader(value, place)


@cache
def _readers(kind: Any) -> Mapping[type, Reader]:
    """What reads a type, by the JSON type of the value."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {json: _converter(reader, args[1].read) for json, reader in _readers(args[1].json).items()}
    if origin in _UNIONS:
        records = tuple(each for each in args if _is_record(each))
        # A number is an int first: as a float it would be written otherwise.
        plain = sorted((each for each in args if each not in records), key=lambda each: each is not float)
        of_plain = {json: reader for each in plain for json, reader in _readers(each).items()}
        return {**of_plain, dict: partial(_record, records)} if records else of_plain
    if origin is tuple:
        of_list = partial(_list, args[0]) if args[1:] == (...,) else partial(_row, args)
        return {list: of_list, LateTuple: _same}  # the latter reads its JSON later
    if origin is not None:
        return {dict: partial(_mapping, *args)}
    if not _is_record(kind):
        return _PLAIN[kind]
    if kind.form.bare:
        return {json: _converter(reader, kind) for json, reader in _readers(_members(kind)[0].type).items()}
    return {dict: partial(_record, (kind,))}


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


def _converter(reader: Reader, convert: Callable[[Any], Any]) -> Reader:
    def converted(value: Any, place: str) -> Any:
        inner = reader(value, place)
        try:
            return convert(inner)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place} is {short(value)}: {error}") from error

    return converted


def _record(kinds: tuple[Any, ...], value: Mapping[str, Any], place: str) -> Any:
    """A noun of the kind whose members the object has."""
    kind = kinds[0] if len(kinds) == 1 else next((each for each in kinds if _is_of(each, value)), None)
    if kind is None:
        raise ValueError(f"{place} has the members {short(', '.join(value))}, not those of {_said(*kinds)}")
    for name, constant in kind.form.constants.items():
        if value.get(name) != constant:
            raise ValueError(f"{place} should have {constant!r} as {name!r}, not {short(value.get(name))}")
    held = {}
    for member in _members(kind):
        if member.name in value:
            held[member.field] = read(member.type, value[member.name], f"{place}.{member.name}")
        elif member.default is _REQUIRED:
            raise ValueError(f"{place} has no {member.name!r} but {short(', '.join(value))}")
    try:
        return kind(**held)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place} is refused: {error}") from error


def _is_of(kind: Any, value: Mapping[str, Any]) -> bool:
    has_members = all(member.name in value for member in _members(kind) if member.default is _REQUIRED)
    return has_members and all(value.get(name) == constant for name, constant in kind.form.constants.items())


def _list(kind: Any, value: list[Any], place: str) -> tuple[Any, ...]:
    found = []
    for i, each in enumerate(value):  # no comprehension: in a deep tree each frame counts
        found.append(read(kind, each, f"{place}[{i}]"))
    return tuple(found)


def _row(kinds: tuple[Any, ...], value: list[Any], place: str) -> tuple[Any, ...]:
    if len(value) != len(kinds):
        raise ValueError(f"{place} should be a list of {len(kinds)}, not {short(value)}")
    return tuple([read(kind, each, f"{place}[{i}]") for i, (kind, each) in enumerate(zip(kinds, value, strict=True))])


def _mapping(of_name: Any, of_value: Any, value: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        read(of_name, name, f"a name in {place}"): read(of_value, each, f"{place}[{short(name)}]")
        for name, each in value.items()
    }


def _bytes(value: Mapping[str, Any], place: str) -> bytes:
    text = value.get("base64")
    if not isinstance(text, str):
        raise ValueError(f"{place} should be bytes, not {short(value)}")
    return base64.b64decode(text, validate=True)


def _same(value: Any, place: str) -> Any:
    return value


def _number(value: Any, place: str) -> float:
    return float(value)


_PLAIN: Final[Mapping[type, Mapping[type, Reader]]] = {
    str: {str: _same},
    int: {int: _same},
    bool: {bool: _same},
    float: {int: _number, float: _number},
    bytes: {dict: _bytes},
    NoneType: {NoneType: _same},
}


_WORDS: Final = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", bytes: "base64 in an object",
    NoneType: "null", tuple: "a list", Mapping: "an object",
}  # fmt: skip


def _said(*kinds: Any) -> str:
    """Types for a message."""
    alternatives = [part for kind in kinds for part in (get_args(kind) if get_origin(kind) in _UNIONS else (kind,))]
    json = [get_args(kind)[1].json if get_origin(kind) is Annotated else kind for kind in alternatives]
    plain = [get_origin(kind) or kind for kind in json]
    return " or ".join(_WORDS.get(kind) or f"a {kind.__name__}" for kind in plain)


def short(value: object) -> str:
    """The value for a message, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ----------------------------------------------------------------------------------------------------
# A base for frozen nouns whose hash is computed once: filters are looked up in tables again and again.


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
