"""User-defined functions by which queries skip (Sun 2017, 3.3.1, 6.2).

A condition with a deterministic function is a feature like any other: its bits are computed during the load, and a
query with the same condition skips by them. A function may also declare what it implies about plain columns, by which
minima, maxima and indexes skip (Tashma 2020, V-C).
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

from layoutopt.errors import QueryError, SettingError, encode_error, expected_names

# The key of what a boolean function implies where it is TRUE.
WHERE_TRUE: Final = "true"
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
        name: its name in SQL, in lower case.
        returns: the Spark type of its result.
        function: the Python function of a Spark UDF's values (None is NULL).
        parameters: the names of its parameters, which ``implies`` refers to.
        implies: by :data:`WHERE_TRUE` or one of :data:`OPERATORS` a condition in Spark's SQL that is TRUE wherever the
            function is TRUE, or compares so with ``:value``; ``:name`` stands for an argument.
        digest: of the code, 16 hexadecimal digits.
    """

    name: str
    returns: str
    function: Callable[..., Any] = field(compare=False)
    parameters: tuple[str, ...]
    implies: Mapping[str, str] = field(compare=False)
    digest: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingError(f"{self.name!r} is no function name; give letters, digits and underscores")
        if not _RETURNS.fullmatch(self.returns):
            raise SettingError(
                f"the function {self.name} returns {self.returns!r}, which is not supported; give boolean, int, "
                "bigint, double, string, date, decimal(10,2), or the like"
            )
        known = (WHERE_TRUE,) if self.returns == "boolean" else OPERATORS
        for key, text in self.implies.items():
            if key not in known:
                raise SettingError(f"unknown key {key!r} of what {self.name} implies: {expected_names(key, known)}")
            compared = () if key == WHERE_TRUE else ("value",)
            unknown = set(re.findall(r":([A-Za-z_]\w*)", text)) - {*self.parameters, *compared}
            if unknown:
                raise SettingError(
                    f"what {self.name} implies names :{min(unknown)}; its parameters are {', '.join(self.parameters)}"
                )

    def __call__(self, *arguments: Any) -> Any:
        """Call the Python function."""
        return self.function(*arguments)

    @property
    def measured_name(self) -> str:
        """Return the function's name in conditions and features, with its code's digest: new code is a new function."""
        return f"_layoutopt_{self.name}_{self.digest}"

    def checked(self) -> Callable[..., Any]:
        """Return the Python function with checks: a failure, or a value of another type, is an encoded QueryError."""
        function, name, returns = self.function, self.name, self.returns
        kinds = _PYTHON_TYPES[returns.split("(")[0]]

        @wraps(function)
        def compute(*arguments: Any) -> Any:
            try:
                value: Any = function(*arguments)
            except Exception as error:
                arguments_text = ", ".join(repr(argument)[:60] for argument in arguments)
                problem = f"{name}({arguments_text}) failed ({type(error).__name__}: {error})"
                raise encode_error(QueryError(f"{problem}; fix the function")) from error
            value = value.item() if hasattr(value, "item") else value  # numpy's own
            if value is None or type(value) in kinds:
                return float(value) if type(value) is int and float in kinds else value
            problem = f"the function {name} returned {value!r:.80}, which is no {returns}"
            raise encode_error(QueryError(f"{problem}; fix the function"))

        return compute

    def or_null(self) -> Callable[..., Any]:
        """Return :meth:`checked` with NULL instead of an exception: a row for which it fails matches nothing."""
        checked = self.checked()

        def compute(*arguments: Any) -> Any:
            try:
                return checked(*arguments)
            except Exception:
                return None

        return compute


def called_name(fn: str) -> str:
    """Return a function's name in SQL, from its name in conditions; Spark's own functions keep theirs.

    >>> called_name("lower"), called_name("_layoutopt_agent_0123456789abcdef")
    ('lower', 'agent')
    """
    match = _MEASURED.fullmatch(fn)
    return fn if match is None else match["name"]


def is_user_defined(fn: str) -> bool:
    """Return whether a function in a condition is user-defined, by its :attr:`Udf.measured_name`.

    >>> is_user_defined("lower"), is_user_defined("_layoutopt_agent_0123456789abcdef")
    (False, True)
    """
    return _MEASURED.fullmatch(fn) is not None


# Functions by name.
Udfs = Mapping[str, Udf]
NO_UDFS: Final[Udfs] = MappingProxyType({})


def udf(
    returns: str, *, name: str | None = None, implies: str | Mapping[str, str] | None = None, version: str | None = None
) -> Callable[[Callable[..., Any]], Udf]:
    """Declare a Python function for queries, features and sessions. The caller guarantees that it is deterministic.

    Args:
        returns: the Spark type of its result: ``boolean``, ``string``, ``double``, ...
        name: its name in SQL; by default the function's own in lower case.
        implies: a condition that is TRUE wherever the function is: a text for a boolean function, for others one for
            each operator that it is compared by, where ``:value`` is the other side.
        version: a text that changes whenever the function's results do. By default any change of its file counts, and
            of values it captured; imports are ignored. For an interactive function its text, and the functions and
            values that it names, count.

    Raises:
        SettingError: an invalid name, type or condition, or a function without source and version.

    >>> @udf("double", implies={"<": ":a BETWEEN :b - :value AND :b + :value"}, version="1")
    ... def Apart(a, b):
    ...     return abs(a - b)
    >>> Apart.name, Apart.returns, Apart(3.0, 1.0)
    ('apart', 'double', 2.0)
    """

    def declare(function: Callable[..., Any]) -> Udf:
        default_name = function.__name__.lower()
        conditions = {WHERE_TRUE: implies} if isinstance(implies, str) else dict(implies or {})
        parameters = tuple(inspect.signature(function).parameters)
        digest = _digest(function, returns, version)
        return Udf(name or default_name, returns, function, parameters, MappingProxyType(conditions), digest)

    return declare


def as_udf(candidate: object, name: str | None = None) -> Udf:
    """Return a function as a UDF, declared by :func:`udf`, PySpark's `udf` or its return type, else SettingError."""
    if isinstance(candidate, Udf):
        return candidate if name is None else replace(candidate, name=name)
    function, kind = getattr(candidate, "func", candidate), getattr(candidate, "returnType", None)
    if not inspect.isfunction(function):
        raise SettingError(f"{candidate!r} is no function; name one that is defined in Python by `def`")
    if not getattr(candidate, "deterministic", True):
        raise SettingError(f"the function {function.__name__} is declared non-deterministic; queries can't skip by it")
    if kind is not None:
        return udf(kind.simpleString(), name=name)(function)
    annotation = typing.get_type_hints(function).get("return")
    returns = _OF_ANNOTATIONS.get(annotation)
    if returns is None:
        raise SettingError(
            f"the return type of {function.__name__} is unknown; write `-> bool`, or @layoutopt.udf('string') above it"
        )
    return udf(returns, name=name)(function)


def by_name(udfs: Sequence[Udf]) -> Udfs:
    """Return functions by name; raise SettingError if two have one name."""
    functions: dict[str, Udf] = {}
    for function in udfs:
        if functions.setdefault(function.name, function) != function:
            raise SettingError(f"two functions are called {function.name}; rename one, as in other={function.name}")
    return functions


def _digest(function: Callable[..., Any], returns: str, version: str | None) -> str:
    code = f"version {version}" if version is not None else _read_source(function) + _describe_captured(function)
    return sha256(f"{function.__qualname__}\n{returns}\n{code}".encode()).hexdigest()[:16]


def _describe_captured(function: Callable[..., Any], callers: tuple[object, ...] = ()) -> str:
    """Return what a function depends on outside its source text; empty for most.

    That is what a nested function captured, and what an interactive function names: other cells of a notebook may
    change it.
    """
    values: dict[str, object] = {}
    if _is_nested(function):
        parameters = inspect.signature(function).parameters.values()
        values |= {f"{item.name}=": item.default for item in parameters if item.default is not item.empty}
        values |= inspect.getclosurevars(function).nonlocals
    if _find_file(function) is None:
        scope = function.__globals__
        values |= {name: scope[name] for name in _list_names(function.__code__) if name in scope}
    texts = (
        f"\n{name} {_describe_value(value, function, (*callers, function))}" for name, value in sorted(values.items())
    )
    return "".join(texts)


def _is_nested(function: Callable[..., Any]) -> bool:
    """Return whether the function was defined within another, such as a decorator."""
    return bool(function.__closure__) or "<locals>" in function.__qualname__


def _list_names(code: CodeType) -> set[str]:
    nested = (_list_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*nested)


def _describe_value(value: object, function: Callable[..., Any], callers: tuple[object, ...]) -> str:
    """Return a value as a text that differs for any other value."""
    if isinstance(value, list | tuple | set | frozenset):
        texts = [_describe_value(item, function, callers) for item in value]
        return f"{type(value).__name__}({', '.join(texts if isinstance(value, list | tuple) else sorted(texts))})"
    if type(value) is dict:
        return _describe_value([*value.items()], function, callers)
    if value is None or type(value) in (bool, int, float, str, bytes, Decimal, dt.date, dt.datetime):
        return repr(value)
    if isinstance(value, re.Pattern):
        return repr((value.pattern, value.flags))
    if isinstance(value, Udf):
        return value.digest
    if inspect.isfunction(value) and (_find_file(value) is None or _is_nested(value)):
        return "" if value in callers else _read_source(value) + _describe_captured(value, callers)
    if inspect.isclass(value) and _find_file(value) is None:
        return _read_source(value)
    if inspect.isfunction(value) or inspect.isbuiltin(value) or inspect.isclass(value):
        return f"{value.__module__}.{value.__qualname__}"
    if inspect.ismodule(value):
        return value.__name__
    raise SettingError(
        f"the function {function.__name__} depends on {value!r:.80}, whose changes can't be detected; write "
        "@layoutopt.udf(..., version='1')"
    )


def _find_file(function: Callable[..., Any]) -> str | None:
    """Return the file of a function's or class's module; None for interactive code."""
    return getattr(sys.modules.get(function.__module__), "__file__", None)


def _read_source(function: Callable[..., Any]) -> str:
    """Return the text of the function's file; only the function's text for interactive code."""
    path = _find_file(function)
    try:
        return Path(path).read_text(encoding="utf-8") if path else inspect.getsource(function)
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise SettingError(
            f"the source of {function.__name__} can't be read ({error}); write @layoutopt.udf(..., version='1')"
        ) from error
