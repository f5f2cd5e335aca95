"""Records as JSON and back, by the annotations of their fields: every document and snapshot is read through here.

JSON is untrusted and read strictly: values are not converted between types, and every member is required unless its
form leaves out defaults. Unknown members are ignored. Constructors refuse what a type can't express. (Why no library
does this: docs/decisions/0004-serialisation.md.)
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

Item = TypeVar("Item")


class LazyTuple(Sequence[Item], Generic[Item]):
    """A tuple whose items are computed on first use. It equals the tuple; its length is known before.

    >>> late = LazyTuple(2, lambda: (1, 2))
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
        return self._items == (other._items if isinstance(other, LazyTuple) else other)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._items,)


Json = dict[str, object]
# Returns the value of some JSON, given its place for messages; raises ValueError.
Reader = Callable[[Any, str], Any]

# Deeper JSON is refused: no filter has 200 levels of two lists or objects, and reading must not exhaust the stack.
_DEEPEST: Final = 420


@dataclass(frozen=True)
class Form:
    """How a record's JSON differs from an object with a member for each field, named like the field.

    Attributes:
        names: other names of members, by field.
        constants: members that each such record has, by which kinds of records are told apart.
        left_out: fields without a member where they have their default.
        bare: the JSON is that of the record's only field.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    bare: bool = False


@dataclass(frozen=True)
class As:
    """Annotates a field whose JSON has another type, ``json``, or allows only some values.

    ``read`` converts such a value to the field's, or raises ValueError; ``write`` is the inverse.
    """

    json: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


class Record:
    """A frozen dataclass that converts to JSON and back."""

    form: ClassVar[Form] = Form()

    def to_json(self) -> Any:
        """Return a JSON value that :meth:`from_json` reads back."""
        return to_json(self)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the record that :meth:`to_json` wrote; raise PlanError for other values, with the place."""
        return cast(Self, from_json(cls, value, cls.__name__.lower()))


class _Member(NamedTuple):
    field: str
    name: str
    type: Any
    write: Callable[[Any], Any] | None
    default: Any  # if it may be left out


_REQUIRED: Final = object()
_UNIONS: Final = (Union, UnionType)


@cache
def _list_members(kind: Any) -> tuple[_Member, ...]:
    types = get_type_hints(kind, include_extras=True)
    members = []
    for member in fields(kind):
        (mark,) = getattr(types[member.name], "__metadata__", (None,))
        default = member.default if member.name in kind.form.left_out else _REQUIRED
        name = kind.form.names.get(member.name, member.name)
        members.append(_Member(member.name, name, types[member.name], mark and mark.write, default))
    return tuple(members)


def to_json(value: object) -> Any:
    """Return a record, or plain values in tuples and mappings, as JSON.

    >>> to_json((b"a", 1.5))
    [{'base64': 'YQ=='}, 1.5]
    """
    if isinstance(value, Record):
        members = dict(value.form.constants)
        kind: Any = type(value)
        for member in _list_members(kind):
            content = getattr(value, member.field)
            if content != member.default:
                members[member.name] = to_json(member.write(content) if member.write else content)
        return next(iter(members.values())) if value.form.bare else members
    if isinstance(value, tuple | list | LazyTuple):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    return {"base64": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value


def from_json(kind: Any, value: object, name: str) -> Any:
    """Return a value of any type that :func:`read` takes; ``name`` describes it in messages, errors are PlanErrors."""
    try:
        check_depth(value)
        return read(kind, value, name)
    except (ValueError, TypeError, ArithmeticError, RecursionError, LayoutoptError) as error:
        raise PlanError(f"the JSON of a {name} is damaged: {error}; write the document again") from error


def check_depth(value: object) -> None:
    """Refuse JSON that is too deep to be read, hashed and compared; raise ValueError if it is."""
    level = [value]
    for _ in range(_DEEPEST):
        parents = [item for item in level if isinstance(item, dict | list)]
        if not parents:
            return
        level = [item for parent in parents for item in (parent.values() if isinstance(parent, dict) else parent)]
    raise ValueError(f"it is more than {_DEEPEST} levels deep")


def read(kind: Any, value: object, place: str) -> Any:
    """Return JSON as a value of a type; ``place`` is its position for messages.

    The type is a record, a plain type, a tuple, a mapping, a union of these, or one annotated with :class:`As`.

    >>> read(tuple[int, ...], [1, "x"], "row")
    Traceback (most recent call last):
      ...
    ValueError: row[1] should be a whole number, not 'x'
    """
    reader = _make_readers(kind).get(type(value))
    if reader is None:
        raise ValueError(f"{place} should be {_describe(kind)}, not {short(value)}")
    return reader(value, place)


@cache
def _make_readers(kind: Any) -> Mapping[type, Reader]:
    """Return the readers of a type, by the JSON type of the value."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {json: _make_converter(reader, args[1].read) for json, reader in _make_readers(args[1].json).items()}
    if origin in _UNIONS:
        records = tuple(option for option in args if _is_record(option))
        # A number is an int first: a float would be written differently.
        plain = sorted((option for option in args if option not in records), key=lambda option: option is not float)
        readers = {json: reader for option in plain for json, reader in _make_readers(option).items()}
        return {**readers, dict: partial(_read_record, records)} if records else readers
    if origin is tuple:
        list_reader = partial(_read_list, args[0]) if args[1:] == (...,) else partial(_read_row, args)
        return {list: list_reader, LazyTuple: _keep_value}  # a LazyTuple reads its JSON later
    if origin is not None:
        return {dict: partial(_read_mapping, *args)}
    if not _is_record(kind):
        return _PLAIN[kind]
    if kind.form.bare:
        return {
            json: _make_converter(reader, kind) for json, reader in _make_readers(_list_members(kind)[0].type).items()
        }
    return {dict: partial(_read_record, (kind,))}


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


def _make_converter(reader: Reader, convert: Callable[[Any], Any]) -> Reader:
    def convert_value(value: Any, place: str) -> Any:
        inner = reader(value, place)
        try:
            return convert(inner)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place} is {short(value)}: {error}") from error

    return convert_value


def _read_record(kinds: tuple[Any, ...], value: Mapping[str, Any], place: str) -> Any:
    """Return a record of the kind whose members the object has."""
    kind = kinds[0] if len(kinds) == 1 else next((option for option in kinds if _has_form(option, value)), None)
    if kind is None:
        raise ValueError(f"{place} has the members {short(', '.join(value))}, not those of {_describe(*kinds)}")
    for name, constant in kind.form.constants.items():
        if value.get(name) != constant:
            raise ValueError(f"{place} should have {constant!r} as {name!r}, not {short(value.get(name))}")
    members = {}
    for member in _list_members(kind):
        if member.name in value:
            members[member.field] = read(member.type, value[member.name], f"{place}.{member.name}")
        elif member.default is _REQUIRED:
            raise ValueError(f"{place} has no {member.name!r} but {short(', '.join(value))}")
    try:
        return kind(**members)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place} is refused: {error}") from error


def _has_form(kind: Any, value: Mapping[str, Any]) -> bool:
    has_members = all(member.name in value for member in _list_members(kind) if member.default is _REQUIRED)
    return has_members and all(value.get(name) == constant for name, constant in kind.form.constants.items())


def _read_list(kind: Any, value: list[Any], place: str) -> tuple[Any, ...]:
    items = []
    for i, item in enumerate(value):  # no comprehension: in a deep tree each frame counts
        items.append(read(kind, item, f"{place}[{i}]"))
    return tuple(items)


def _read_row(kinds: tuple[Any, ...], value: list[Any], place: str) -> tuple[Any, ...]:
    if len(value) != len(kinds):
        raise ValueError(f"{place} should be a list of {len(kinds)}, not {short(value)}")
    return tuple([read(kind, item, f"{place}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True))])


def _read_mapping(name_type: Any, value_type: Any, value: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        read(name_type, name, f"a name in {place}"): read(value_type, item, f"{place}[{short(name)}]")
        for name, item in value.items()
    }


def _read_bytes(value: Mapping[str, Any], place: str) -> bytes:
    text = value.get("base64")
    if not isinstance(text, str):
        raise ValueError(f"{place} should be bytes, not {short(value)}")
    return base64.b64decode(text, validate=True)


def _keep_value(value: Any, place: str) -> Any:
    return value


def _to_float(value: Any, place: str) -> float:
    return float(value)


_PLAIN: Final[Mapping[type, Mapping[type, Reader]]] = {
    str: {str: _keep_value},
    int: {int: _keep_value},
    bool: {bool: _keep_value},
    float: {int: _to_float, float: _to_float},
    bytes: {dict: _read_bytes},
    NoneType: {NoneType: _keep_value},
}


_WORDS: Final = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", bytes: "base64 in an object",
    NoneType: "null", tuple: "a list", Mapping: "an object",
}  # fmt: skip


def _describe(*kinds: Any) -> str:
    alternatives = [part for kind in kinds for part in (get_args(kind) if get_origin(kind) in _UNIONS else (kind,))]
    json = [get_args(kind)[1].json if get_origin(kind) is Annotated else kind for kind in alternatives]
    plain = [get_origin(kind) or kind for kind in json]
    return " or ".join(_WORDS.get(kind) or f"a {kind.__name__}" for kind in plain)


def short(value: object) -> str:
    """Return the value for a message, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class HashedOnce:
    """A base for frozen dataclasses that caches the hash: filters are often looked up in tables.

    The hash is not pickled: that of a string differs between processes.
    """

    _hash: ClassVar[int]  # of the object; a ClassVar so that dataclasses take it for no field

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__hash__ = HashedOnce.__hash__  # type: ignore[method-assign]  # @dataclass replaces inherited ones only

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
        kind: Any = type(self)
        return tuple([getattr(self, name) for name in _field_names(kind)])


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, which take long to find."""
    return tuple(field.name for field in fields(kind))
