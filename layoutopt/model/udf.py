"""User-defined functions: what has to be known of one so that queries skip by it (Sun 2017, 3.3.1, 6.2).

A condition with a function is a feature like any other where the function is deterministic: its bits are computed while
rows are loaded, and a query with the same condition skips by them. A function may also say what it implies about plain
columns, by which minima, maxima and indexes skip (Tashma 2020, V-C).
"""

from __future__ import annotations

import datetime as dt
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import wraps
from hashlib import sha256
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, Final

from layoutopt.errors import QueryError, SettingError, carried

WHERE_TRUE: Final = "true"
"""The key of what a boolean function implies where it is TRUE."""
OPERATORS: Final = ("=", "<", "<=", ">", ">=")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_RETURNS: Final = re.compile(r"boolean|tinyint|smallint|int|bigint|float|double|string|date|decimal\(\d+,\d+\)")
_MEASURED: Final = re.compile(r"_layoutopt_(?P<name>\w+)_[0-9a-f]{16}")
_WHOLE: Final = (int,)
_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {
        "boolean": (bool,), "tinyint": _WHOLE, "smallint": _WHOLE, "int": _WHOLE, "bigint": _WHOLE,
        "float": (float, int), "double": (float, int), "string": (str,), "date": (dt.date,), "decimal": (Decimal,),
    }
)  # fmt: skip
_OF_ANNOTATIONS: Final[Mapping[Any, str]] = MappingProxyType(
    {bool: "boolean", int: "bigint", float: "double", str: "string", dt.date: "date"}
)


@dataclass(frozen=True)
class Udf:
    """A deterministic function of some values of a row. Calling it calls the Python function.

    Attributes:
        name: by which SQL texts call it, in lower case.
        returns: the Spark type of its result.
        function: what computes it, of Python values as Spark gives them to a UDF (None is NULL).
        parameters: the names of its parameters, which ``implies`` refers to.
        implies: by :data:`WHERE_TRUE` or one of :data:`OPERATORS` a condition in Spark's SQL that is TRUE wherever the
            function is TRUE, or compares so with ``:value``; ``:name`` stands for an argument.
        digest: of the code, 16 hexadecimal digits.

    Raises:
        SettingError: a name, type or condition that can't be.
    """

    name: str
    returns: str
    function: Callable[..., Any] = field(compare=False)
    parameters: tuple[str, ...]
    implies: Mapping[str, str] = field(compare=False)
    digest: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingError(f"{self.name!r} is no name of a function; give letters, digits and underscores")
        if not _RETURNS.fullmatch(self.returns):
            raise SettingError(
                f"the function {self.name} returns {self.returns!r}, by which nothing is compared here; give boolean, "
                "int, bigint, double, string, date, decimal(10,2), or the like"
            )
        known = (WHERE_TRUE,) if self.returns == "boolean" else OPERATORS
        for key, text in self.implies.items():
            if key not in known:
                raise SettingError(f"the function {self.name} implies something by {key!r}; give {', '.join(known)}")
            compared = () if key == WHERE_TRUE else ("value",)
            strange = set(re.findall(r":([A-Za-z_]\w*)", text)) - {*self.parameters, *compared}
            if strange:
                raise SettingError(
                    f"what {self.name} implies names :{min(strange)}; its parameters are {', '.join(self.parameters)}"
                )

    def __call__(self, *arguments: Any) -> Any:
        """The value of the Python function."""
        return self.function(*arguments)

    @property
    def measured_name(self) -> str:
        """What the function is called in conditions, and where features are computed: by its name and its code.

        So calls of changed code are calls of another function, to every rule that there is.
        """
        return f"_layoutopt_{self.name}_{self.digest}"

    def checked(self) -> Callable[..., Any]:
        """The Python function; if it fails, or gives another type (NULL to Spark), it raises a QueryError, carried."""
        function, name, returns = self.function, self.name, self.returns
        kinds = _PYTHON_TYPES[returns.split("(")[0]]

        @wraps(function)
        def value_of(*arguments: Any) -> Any:
            try:
                value: Any = function(*arguments)
            except Exception as error:
                given = ", ".join(repr(argument)[:60] for argument in arguments)
                why = f"{name}({given}) failed ({type(error).__name__}: {error})"
                raise carried(QueryError(f"{why}; mend the function")) from error
            value = value.item() if hasattr(value, "item") else value  # numpy's own
            if value is None or type(value) in kinds:
                return float(value) if type(value) is int and float in kinds else value
            why = f"the function {name} returned {value!r:.80}, which is no {returns}"
            raise carried(QueryError(f"{why}; mend the function"))

        return value_of

    def or_null(self) -> Callable[..., Any]:
        """As :meth:`checked` with NULL in place of an exception: a row for which it fails matches nothing."""
        checked = self.checked()

        def value_or_null(*arguments: Any) -> Any:
            try:
                return checked(*arguments)
            except Exception:
                return None

        return value_or_null


def called_name(fn: str) -> str:
    """What SQL texts call the function of a call in a condition; Spark's own functions are called as they are.

    >>> called_name("lower"), called_name("_layoutopt_agent_0123456789abcdef")
    ('lower', 'agent')
    """
    named = _MEASURED.fullmatch(fn)
    return fn if named is None else named["name"]


def is_user_defined(fn: str) -> bool:
    """Whether the function of a call in a condition is a user's, by its :attr:`Udf.measured_name`.

    >>> is_user_defined("lower"), is_user_defined("_layoutopt_agent_0123456789abcdef")
    (False, True)
    """
    return _MEASURED.fullmatch(fn) is not None


Udfs = Mapping[str, Udf]
"""Functions by name."""
NO_UDFS: Final[Udfs] = MappingProxyType({})


def udf(
    returns: str, *, name: str | None = None, implies: str | Mapping[str, str] | None = None, version: str | None = None
) -> Callable[[Callable[..., Any]], Udf]:
    """Declare a Python function for queries, features and sessions: it is deterministic by your word.

    Args:
        returns: the Spark type of its result: ``boolean``, ``string``, ``double``, ...
        name: by which SQL texts call it; the function's own in lower case when left out.
        implies: a condition that is TRUE wherever the function is: a text for a boolean function, for others one for
            each operator that it is compared by, where ``:value`` is what it is compared with.
        version: a text that changes whenever the function gives other values. Left out, any change of the file that it
            is defined in counts as one, and any of what it holds of a function that made it; what it imports is not
            looked at. Of one that was typed in, its own text and the functions and values that it names count.

    Raises:
        SettingError: a name, type or condition that can't be, or a function without source and version.

    >>> @udf("double", implies={"<": ":a BETWEEN :b - :value AND :b + :value"}, version="1")
    ... def Apart(a, b):
    ...     return abs(a - b)
    >>> Apart.name, Apart.returns, Apart(3.0, 1.0)
    ('apart', 'double', 2.0)
    """

    def declare(function: Callable[..., Any]) -> Udf:
        own = function.__name__.lower()
        conditions = {WHERE_TRUE: implies} if isinstance(implies, str) else dict(implies or {})
        return Udf(
            name or own,
            returns,
            function,
            tuple(inspect.signature(function).parameters),
            MappingProxyType(conditions),
            _digest(function, returns, version),
        )

    return declare


def as_udf(found: object, name: str | None = None) -> Udf:
    """A function that was found in a module, declared: by :func:`udf`, by PySpark's `udf`, or by its return type.

    Args:
        found: the object.
        name: by which SQL texts are to call it; its own when left out.

    Raises:
        SettingError: it is no function, or nothing says what it returns.
    """
    if isinstance(found, Udf):
        return found if name is None else replace(found, name=name)
    function, kind = getattr(found, "func", found), getattr(found, "returnType", None)
    if not inspect.isfunction(function):
        raise SettingError(f"{found!r} is no function; name one that is defined in Python by `def`")
    if not getattr(found, "deterministic", True):
        raise SettingError(f"the function {function.__name__} is declared non-deterministic; nothing skips by it")
    if kind is not None:
        return udf(kind.simpleString(), name=name)(function)
    annotated = typing.get_type_hints(function).get("return")
    returns = _OF_ANNOTATIONS.get(annotated)
    if returns is None:
        raise SettingError(
            f"nothing says what {function.__name__} returns; write `-> bool`, or @layoutopt.udf('string') above it"
        )
    return udf(returns, name=name)(function)


def by_name(declared: Sequence[Udf]) -> Udfs:
    """Functions by name.

    Raises:
        SettingError: two have one name.
    """
    found: dict[str, Udf] = {}
    for each in declared:
        if found.setdefault(each.name, each) != each:
            raise SettingError(f"two functions are called {each.name}; name one otherwise, as in other={each.name}")
    return found


def _digest(function: Callable[..., Any], returns: str, version: str | None) -> str:
    code = f"version {version}" if version is not None else _source_of(function) + _held_by(function)
    return sha256(f"{function.__qualname__}\n{returns}\n{code}".encode()).hexdigest()[:16]


def _held_by(function: Callable[..., Any], above: tuple[object, ...] = ()) -> str:
    """What a function goes by that its source does not tell; empty for most.

    That is what a function that was made by another holds of it, and what one that was typed in names besides itself:
    other cells of a notebook may give that other values.

    Raises:
        SettingError: something of that can't be told by a text.
    """
    found: dict[str, object] = {}
    if _is_made(function):
        parameters = inspect.signature(function).parameters.values()
        found |= {f"{each.name}=": each.default for each in parameters if each.default is not each.empty}
        found |= inspect.getclosurevars(function).nonlocals
    if _file_of(function) is None:
        known = function.__globals__
        found |= {name: known[name] for name in _names_in(function.__code__) if name in known}
    told = (f"\n{name} {_told(value, function, (*above, function))}" for name, value in sorted(found.items()))
    return "".join(told)


def _is_made(function: Callable[..., Any]) -> bool:
    """Whether another function made it, perhaps a decorator that gave it another name."""
    return bool(function.__closure__) or "<locals>" in function.__qualname__


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _told(value: object, function: Callable[..., Any], above: tuple[object, ...]) -> str:
    """A value as a text that is another one for any other value."""
    if isinstance(value, list | tuple | set | frozenset):
        told = [_told(each, function, above) for each in value]
        return f"{type(value).__name__}({', '.join(told if isinstance(value, list | tuple) else sorted(told))})"
    if type(value) is dict:
        return _told([*value.items()], function, above)
    if value is None or type(value) in (bool, int, float, str, bytes, Decimal, dt.date, dt.datetime):
        return repr(value)
    if isinstance(value, re.Pattern):
        return repr((value.pattern, value.flags))
    if isinstance(value, Udf):
        return value.digest
    if inspect.isfunction(value) and (_file_of(value) is None or _is_made(value)):
        return "" if value in above else _source_of(value) + _held_by(value, above)
    if inspect.isclass(value) and _file_of(value) is None:
        return _source_of(value)
    if inspect.isfunction(value) or inspect.isbuiltin(value) or inspect.isclass(value):
        return f"{value.__module__}.{value.__qualname__}"
    if inspect.ismodule(value):
        return value.__name__
    raise SettingError(
        f"the function {function.__name__} goes by {value!r:.80}, of which no change can be seen; write "
        "@layoutopt.udf(..., version='1')"
    )


def _file_of(function: Callable[..., Any]) -> str | None:
    """The file of the module that a function or class is of; None for what was typed in."""
    return getattr(sys.modules.get(function.__module__), "__file__", None)


def _source_of(function: Callable[..., Any]) -> str:
    """The text of the function's file; of the function alone where it was typed in."""
    path = _file_of(function)
    try:
        return Path(path).read_text(encoding="utf-8") if path else inspect.getsource(function)
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise SettingError(
            f"the source of {function.__name__} can't be read ({error}); write @layoutopt.udf(..., version='1')"
        ) from error
