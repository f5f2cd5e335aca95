"""Spark's expressions for DuckDB, in Spark's types.

Operands are typed by the reader of filters, and functions by their records, which say what DuckDB computes alike. Where
DuckDB may compute something else, a Python function of columns (``columns.py``) computes Spark's values; anything else
is refused. Where the engines would coerce differently, Spark's cast is written into the tree. Dates and times that are
constants are written as Spark computes them.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from typing import Any, Final

from sqlglot import exp

from layoutopt.errors import QueryError, SchemaError
from layoutopt.functions.function import TIMES, Function
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.functions.texts import has_one_case
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import Call, Col, Const, parse_like
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS, decimal_digits, nested_parts
from layoutopt.model.udf import Udf, Udfs
from layoutopt.sql.calls import split_branches
from layoutopt.sql.constant_folding import DAYS, MONTHS, fold, split_shift, type_beside_decimal
from layoutopt.sql.duckdb.columns import SIGNED_DIGITS, column_function
from layoutopt.sql.elements import without_lambda
from layoutopt.sql.expressions import read_subject
from layoutopt.sql.functions import (
    DATE_TRUNC_UNITS,
    EXTRACT_UNITS,
    PARSED,
    TRUNC_UNITS,
    TRY_ARITHMETIC,
    list_arguments,
)
from layoutopt.sql.operands import Context, Operand, Subject
from layoutopt.sql.problems import Unusable
from layoutopt.sql.schema import spark_type
from layoutopt.sql.types import (
    TypedConstant,
    cast_constant,
    common_type,
    exact_digits,
    is_floating,
    is_integer,
    is_number,
    normal_type,
    normal_zone,
)

# Decimals of up to so many digits become doubles without a second rounding in either engine.
_EXACT_DOUBLE_DIGITS = 15
_SCALARS = frozenset(INTEGER_BITS) | {
    "boolean", "float", "double", "string", "date", "timestamp", "timestamp_ntz", "binary", "void",
}  # fmt: skip


def is_portable(name: str) -> bool:
    """Return whether values of the type mean the same to both engines."""
    return name in _SCALARS or decimal_digits(name) is not None


def is_converted_alike(source: str, target: str) -> bool:
    """Return whether both engines convert every value of a type to the same value of another.

    >>> is_converted_alike("int", "decimal(15,2)"), is_converted_alike("bigint", "int")
    (True, False)
    """
    if source in (target, "void") or not (is_number(source) and is_number(target)):
        return source in (target, "void")
    digits = decimal_digits(source)
    is_rounded = digits is not None and digits[0] > _EXACT_DOUBLE_DIGITS and is_floating(target)
    try:
        return not is_rounded and common_type(source, target) == target
    except Unusable:  # their decimals are too long
        return False


def _sum_type(argument: str) -> str | None:
    if is_integer(argument):
        return "bigint"
    digits = decimal_digits(argument)
    if digits is not None:
        return f"decimal({min(38, digits[0] + 10)},{digits[1]})"
    return argument if argument == "double" else None


_DUCKDB_NAMES: Final = {"boolean": "BOOLEAN", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE"}
# Types that the functions of columns take besides.
_MORE_NAMES: Final = {"timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP", "binary": "BLOB"}


@dataclass(frozen=True)
class PortableFunction:
    """A Python function as a DuckDB text calls it.

    Attributes:
        name: unique in DuckDB, by the function and its argument types.
        parameters: the arguments' DuckDB types.
        returns: the result's DuckDB type.
        call: the function.
        column_type: Spark's type of the values that a function of columns returns, times as numbers; None for a
            user-defined function of one row's values.
    """

    name: str
    parameters: tuple[str, ...]
    returns: str
    call: Callable[..., Any] = field(compare=False)
    column_type: str | None = None


def portable_function(udf: Udf, parameters: Sequence[str]) -> PortableFunction | None:
    """Return the function for arguments of these Spark types; None if Python may get other values than from Spark.

    >>> length = Udf("length", "int", len, ("text",), {}, "00")
    >>> portable_function(length, ["string"]).parameters, portable_function(length, ["timestamp"])
    (('VARCHAR',), None)
    """
    names = [_duckdb_type(type) for type in (*parameters, udf.returns)]
    if None in names or (not parameters and udf.returns in ("float", "double")):  # might be NaN
        return None
    *parameter_names, returns = map(str, names)
    name = f"{udf.measured_name}_{_hash(parameter_names)}"
    return PortableFunction(name, tuple(parameter_names), returns, udf.checked())


def _hash(names: Sequence[str]) -> str:
    return sha256(" ".join(names).encode()).hexdigest()[:16]


def _duckdb_type(spark: str) -> str | None:
    """Return the DuckDB type that Python functions receive as the same values as from Spark."""
    if spark in INTEGER_BITS:
        return spark.upper()
    digits = decimal_digits(spark)
    return _DUCKDB_NAMES.get(spark) if digits is None else f"DECIMAL({digits[0]},{digits[1]})"


_LAMBDA_FREE: Final = (exp.ArrayContains, exp.Or)
_ENDS: Final[dict[type[exp.Expr], str]] = {
    exp.GT: "list_max", exp.GTE: "list_max", exp.LT: "list_min", exp.LTE: "list_min"
}  # fmt: skip


def rewrite_contains(tree: exp.Expr, udfs: Udfs) -> None:
    """Rewrite tests for an array's element, in the tree, to ``array_contains``; keep other conditions on elements."""
    for node in list(tree.find_all(exp.MapContainsKey, exp.Exists, exp.Anonymous)):
        if isinstance(node, exp.Anonymous) and node.name.casefold() in udfs:
            continue
        plain = _to_contains(node)
        if plain is not None:
            node.replace(exp.Paren(this=plain))


def _to_contains(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.MapContainsKey):
        keys = exp.MapKeys(this=node.this.copy())
        return exp.ArrayContains(this=keys, expression=node.args["key"].copy())
    plain = _without_lambda(node)
    return plain if isinstance(plain, _LAMBDA_FREE) else None  # others are TRUE for the same rows, but not FALSE


def _without_lambda(node: exp.Expr) -> exp.Expr | None:
    try:
        return without_lambda(node, truth=True)
    except Unusable:
        return None


def _compare_end(node: exp.Expr) -> exp.Expr | None:
    """Return ``exists(xs, x -> x > 5)`` as a comparison of the largest (smallest) element; None for others."""
    plain = _without_lambda(node)
    return plain if type(plain) in _ENDS else None


def to_duckdb_arrays(tree: exp.Expr) -> exp.Expr:
    """Replace Spark's array functions in a portable tree by DuckDB's."""
    return tree.transform(_to_duckdb_array, copy=False)


def _to_duckdb_array(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.ArrayContains):
        return _with_nulls(_call("list_contains", node.this, node.expression), node.this)
    if isinstance(node, exp.Exists):
        comparison = _compare_end(node)
        if comparison is not None:
            end = _call(_ENDS[type(comparison)], node.this)
            return _with_nulls(type(comparison)(this=end, expression=comparison.expression), node.this)
    return node


def _with_nulls(condition: exp.Expr, array: exp.Expr) -> exp.Expr:
    """Make a condition NULL, as in Spark, if no element is known to meet it and one is NULL; DuckDB says FALSE."""
    has_no_null = exp.EQ(this=_call("list_count", array), expression=_call("len", array))
    branches = [exp.If(this=condition, true=exp.true()), exp.If(this=has_no_null, true=exp.false())]
    return exp.Case(ifs=branches)


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


# Every whole number of so many digits is a BIGINT.
_BIGINT_DIGITS = 18
# The key under which a node of the tree keeps its type, which its copies inherit.
_TYPE: Final = "spark_type"


def refuse(part: str) -> QueryError:
    """Return the error for a part of a query that DuckDB may read differently."""
    return QueryError(f"{part} might mean something else to DuckDB than to Spark; run the query with --engine spark")


def short(text: str, limit: int = 80) -> str:
    """Return a text for a message: on one line, cut to ``limit`` characters."""
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"


def check_groups(names: Sequence[str]) -> None:
    """Refuse types that the engines may group differently."""
    for name in names:
        if not is_portable(name):
            raise refuse(f"grouping by a {name}")


def check_distinct(names: Sequence[str]) -> None:
    """Refuse types whose distinct values the engines may show differently: Spark shows -0.0 as 0.0."""
    check_groups(names)
    for name in names:
        if is_floating(name):
            raise refuse(f"distinct values of {name}")


class ExpressionTyper(ABC):
    """Spark's type of every expression of a qualified tree; a subclass adds statements and scopes.

    It writes coercions into the tree where DuckDB would coerce differently (a float beside a number, a text beside
    a date).

    Attributes:
        functions: the Python functions that the tree calls so far, by their names in DuckDB.
        uses_times: whether the tree computes something of dates or times.
    """

    def __init__(self, time_zone: str, udfs: Udfs) -> None:
        settings = SessionSettings(time_zone=time_zone)
        self._context = Context(lambda node: (Column(node.name, self._type_column(node)), ()), settings, udfs)
        self.functions: dict[str, PortableFunction] = {}
        self.uses_times = False
        self._variables: dict[str, str] = {}
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], str | None]] = {
            **dict.fromkeys(PARSED, self._type_call),
            **dict.fromkeys(TRY_ARITHMETIC, self._type_arithmetic),
            **dict.fromkeys(_TRIED, lambda e: self._type_computed(e, _TRIED[type(e)])),
            **dict.fromkeys((exp.And, exp.Or, exp.Not), self._type_logic),
            **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), self._type_comparison),
            **dict.fromkeys((exp.NullSafeEQ, exp.Between, exp.In), self._type_comparison),
            **dict.fromkeys((exp.Case, exp.If, exp.Nullif, exp.Nvl2), self._type_case),
            **dict.fromkeys((exp.Literal, exp.Boolean, exp.Null), lambda e: fold(e, time_zone).type),
            **dict.fromkeys((exp.Contains, exp.StartsWith, exp.EndsWith), self._type_text_test),
            **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), self._type_like),
            exp.Abs: lambda e: (
                self._compute(e, "abs", [e.this], [self.type_of(e.this)], self.type_of(e.this))
                if _is_long(self.type_of(e.this))
                else self._type_call(e)
            ),
            **dict.fromkeys((exp.Floor, exp.Ceil, exp.Round), self._type_rounding),
            **dict.fromkeys((exp.Greatest, exp.Least, exp.Coalesce), self._type_selection),
            **dict.fromkeys((exp.Hour, exp.Minute, exp.Second), self._type_clock),
            **dict.fromkeys((exp.Cast, exp.TryCast, exp.TsOrDsToDate), self._type_cast),
            **dict.fromkeys((exp.Dot, exp.Bracket), self._type_element),
            **dict.fromkeys((exp.ArrayMax, exp.ArrayMin), self._type_array_end),
            **dict.fromkeys((exp.Left, exp.Right, exp.Trim), self._type_piece),
            **dict.fromkeys((exp.JSONExtract, exp.JSONExtractScalar), self._type_json),
            exp.IntDiv: lambda e: self._type_computed(e, "div"), exp.TsOrDsAdd: self._type_arithmetic,
            exp.AddMonths: self._type_add_months, exp.DateTrunc: self._type_trunc,
            exp.TimestampTrunc: self._type_date_trunc, exp.DayOfWeek: self._type_day_of_week,
            exp.Extract: self._type_extract, exp.RegexpLike: self._type_regex, exp.IsNan: self._type_is_nan,
            exp.Column: self._type_column, exp.Paren: lambda e: self.type_of(e.this), exp.Neg: self._type_negation,
            exp.Identifier: lambda e: self._variables.get(e.name.lower()), exp.HexString: self._type_bytes,
            exp.Is: self._type_is, exp.ArraySize: self._type_size, exp.Repeat: self._type_repeat,
            exp.Count: self._type_count, exp.CountIf: self._type_count_if, exp.Sum: self._type_sum,
            exp.Avg: self._type_average, exp.Min: self._type_extreme, exp.Max: self._type_extreme,
            exp.DateFromUnixDate: self._type_unix_date,
            exp.Exists: self._type_exists, exp.Subquery: self._type_subquery, exp.Anonymous: self._type_named_function,
            exp.MapKeys: self._type_map_part, exp.ArrayContains: self._type_containment,
        }  # fmt: skip

    def type_of(self, node: exp.Expr) -> str:
        """Return Spark's type of one expression.

        Raises:
            QueryError: it might mean something else to DuckDB.
        """
        name: str | None = node.meta.get(_TYPE)
        if name is None:
            constant, rule = self._fold(node), self._rules.get(type(node))
            try:
                if constant is not None and constant.type in TIMES:
                    name = _write(node, constant)
                elif rule is not None:
                    name = rule(node)
            except (Unusable, SchemaError):
                name = None
            if name is None:
                raise refuse(f"{short(node.sql(dialect='spark'))!r}")
            node.meta[_TYPE] = name
        return name

    @abstractmethod
    def _type_column(self, node: exp.Expr) -> str:
        """Return the type of a column."""

    @abstractmethod
    def _type_subquery(self, node: exp.Expr) -> str:
        """Return the type of the one column that a subquery returns."""

    def _read(self, node: exp.Expr) -> Subject:
        """Return an expression as filters have it, with columns in place of its operands."""
        subject = read_subject(node, self._context, self._read_operand)
        call = subject.expr
        if not isinstance(call, Call) or not FUNCTIONS[call.fn].is_portable(call):
            raise Unusable("unsupported-function", "DuckDB may compute something else")
        return subject

    def _read_operand(self, node: exp.Expr) -> Operand:
        name, constant = self.type_of(node), self._fold(node)
        return Subject(Col("", name), name) if constant is None else constant

    def _fold(self, node: exp.Expr) -> TypedConstant | None:
        """Return an expression's value; None if it is no constant, is NULL, or can't be computed exactly."""
        if node.find(exp.Column) is not None:
            return None  # as fold would say, in a message that takes long to write
        try:
            constant = fold(node, self._context.settings.time_zone)
        except (Unusable, ValueError, ArithmeticError):
            return None
        return None if constant.value is None else constant

    def _type_negation(self, node: exp.Expr) -> str:
        name, constant = self._check_type(node.this, is_number), self._fold(node)
        if constant is not None:
            return constant.type
        if _is_long(name):
            return self._compute(node, "negative", [node.this], [name], name)
        return self._keep_failure(node, name) if is_integer(name) else name

    def _type_cast(self, node: exp.Expr) -> str | None:
        if node.args.get("format"):
            return None
        target = "date" if isinstance(node, exp.TsOrDsToDate) else normal_type(spark_type(node.args["to"]))
        source = self.type_of(node.this)
        if source == target or (is_converted_alike(source, target) and source not in TIMES):
            return target
        self._convert(node.this, target, is_try=isinstance(node, exp.TryCast) and bool(node.args.get("safe")))
        return _replace(node, exp.Paren(this=node.this), target)

    def _convert(self, operand: exp.Expr, target: str, is_try: bool = False) -> None:
        """Write Spark's cast of an operand into the tree; raise Unusable if it is unknown."""
        source = self.type_of(operand)
        if source == target:
            return
        if {source, target} & TIMES:
            self.uses_times = True
        if source == "timestamp" and target == "string":
            local = self._converted(operand, "timestamp_ntz")
            self._compute(operand, "cast", [local], ["timestamp_ntz"], target)
            return
        native = self._native_cast(operand, source, target)
        if native is None:
            name = "try_cast" if is_try else "cast"
            self._compute(operand, name, [operand], [source], target)
        else:
            kind = exp.TryCast if is_try else exp.Cast
            cast = native if target == "boolean" else kind(this=native, to=_data_type(target))
            _replace(operand, cast, target)

    def _native_cast(self, operand: exp.Expr, source: str, target: str) -> exp.Expr | None:
        """Return what DuckDB casts to the target as Spark casts the operand (a boolean: the value itself)."""
        is_exact = is_integer(source) or bool(decimal_digits(source))
        if target == "boolean":
            return exp.NEQ(this=_wrapped(operand), expression=exp.Literal.number(0)) if is_number(source) else None
        if is_integer(target) and is_number(source):
            return operand.copy() if is_integer(source) else _call("trunc", operand)
        if {source, target} <= TIMES:
            is_local = target == "timestamp" and not self._is_utc
            return None if is_local else operand.copy()
        is_alike = (
            source == "void"
            or is_converted_alike(source, target)
            or (is_integer(source) and is_floating(target))
            or (is_exact and (target == "string" or bool(decimal_digits(target))))
            or (source == "boolean" and (is_number(target) or target == "string"))
        )
        return operand.copy() if is_alike else None

    @property
    def _is_utc(self) -> bool:
        return normal_zone(self._context.settings.time_zone) == "UTC"

    def _compute(
        self, node: exp.Expr, name: str, operands: Sequence[exp.Expr], types: Sequence[str], returns: str
    ) -> str:
        """Replace a node by the call of a function of columns; raise Unusable if there is none."""
        function = column_function(name, types, returns, self._context.settings.time_zone)
        names = [_duckdb_type(type) or _MORE_NAMES.get(type) for type in (*types, returns)]
        if function is None or None in names:
            raise Unusable("unsupported-function", f"{name} of {', '.join(types)} is not supported")
        *parameters, result = map(str, names)
        zone = self._context.settings.time_zone if {*types, returns} & TIMES else ""
        called = f"spark_{_hash([name, zone, *types, returns])}"
        self.functions[called] = PortableFunction(called, tuple(parameters), result, function, returns)
        arguments = [
            exp.Cast(this=operand.copy(), to=exp.DataType.build(type, dialect="duckdb"))
            for operand, type in zip(operands, parameters, strict=True)
        ]
        return _replace(node, exp.Anonymous(this=called, expressions=arguments), returns)

    def _type_logic(self, node: exp.Expr) -> str:
        for child in node.iter_expressions():
            self._check_type(child, lambda name: name in ("boolean", "void"))
        return "boolean"

    def _check_type(self, node: exp.Expr, accepts: Callable[[str], bool]) -> str:
        name = self.type_of(node)
        if not accepts(name):
            raise refuse(f"{short(node.sql(dialect='spark'))!r} as an operand")
        return name

    def _type_call(self, node: exp.Expr) -> str:
        try:
            subject = self._read(node)
        except Unusable:
            return self._type_by_record(node)
        assert isinstance(subject.expr, Call), "other expressions are not portable"
        for operand, argument in zip(list_arguments(node), subject.expr.args, strict=True):
            self._coerce(operand, argument.type)
        return subject.type

    def _type_by_record(self, node: exp.Expr) -> str:
        """Compute a function of the registry by its record."""
        function = PARSED[type(node)]
        if any(node.args.get(name) for name in function.refused):
            raise Unusable("unsupported-function", f"{node.sql('spark')} has an unsupported argument")
        return self._compute_record(node, function, list_arguments(node))

    def _compute_record(self, node: exp.Expr, function: Function, operands: Sequence[exp.Expr]) -> str:
        kinds = function.argument_types(len(operands))
        if kinds is None or not {*kinds} <= {"string", "int", "double"}:
            raise Unusable("unsupported-function", f"{node.sql('spark')} is not supported")
        operands = [self._converted(operand, kind) for operand, kind in zip(operands, kinds, strict=True)]
        return self._compute(
            node, function.name, operands, kinds, function.gives or _GIVEN.get(function.name, "string")
        )

    def _converted(self, operand: exp.Expr, target: str) -> exp.Expr:
        """Return an operand, outside the tree, cast to a type."""
        holder = exp.Paren(this=operand.copy())
        self.type_of(holder.this)
        self._convert(holder.this, target)
        inner: exp.Expr = holder.this
        return inner

    def _type_arithmetic(self, node: exp.Expr) -> str | None:
        if isinstance(node, exp.Add | exp.Sub) and split_shift(node) is not None:
            shifted = self._type_shift(node)
            if shifted is not None:
                return shifted
        try:
            name = self._read(node).type
        except Unusable:
            operator = _OPERATORS.get(type(node))
            return None if operator is None else self._type_computed(node, operator)
        for operand in (node.this, node.expression):
            if is_integer(name) and self.type_of(operand) != name:
                _cast(operand, name)
            elif is_floating(name):
                self._coerce(operand, name)
        if is_integer(name):
            return self._keep_failure(node, name)
        return _cast(node, name) if name == "date" else name  # to DuckDB it is a timestamp

    def _keep_failure(self, node: exp.Expr, name: str) -> str:
        """Hide whole numbers' arithmetic from DuckDB's optimiser, which moves constants to where nothing overflows."""
        is_shown = isinstance(node.parent, exp.Select | exp.Alias | exp.AggFunc | exp.Group | exp.Ordered)
        return name if is_shown else _replace(node, _call("least", node), name)

    def _type_computed(self, node: exp.Expr, operator: str) -> str:
        """Return the type of arithmetic that a function of columns computes."""
        names = [self.type_of(operand) for operand in (node.this, node.expression)]
        if any(map(decimal_digits, names)):
            names = [self._digits_type(operand) for operand in (node.this, node.expression)]
        if not all(map(is_number, names)):
            raise Unusable("coercion", f"{node.sql('spark')} is supported for numbers only")
        plain = operator.removeprefix("try_")
        wanted, returns = _arithmetic_types(plain, *names)
        if wanted == returns == "float" and plain in ("+", "-", "*"):
            return returns
        operands = [self._converted(operand, wanted) if wanted else operand for operand in (node.this, node.expression)]
        types = [wanted or self.type_of(operand) for operand in operands]
        if plain == "div" and returns != wanted:
            raise Unusable("coercion", "DIV of decimals is not supported")
        return self._compute(node, operator, operands, types, returns)

    def _digits_type(self, operand: exp.Expr) -> str:
        """Return the type of an operand beside a decimal, where a literal has its own digits."""
        name, constant = self.type_of(operand), self._fold(operand)
        return name if constant is None else type_beside_decimal(operand, constant)

    def _type_shift(self, node: exp.Expr) -> str | None:
        """Type a time plus or minus a constant interval; None for what Spark computes as a date."""
        shift = split_shift(node)
        assert shift is not None, "the caller checks"
        start, amount, unit, _ = shift
        name, count = self.type_of(start), self._fold(amount)
        if count is not None and isinstance(count.value, str):
            count = cast_constant(count, "int", "UTC")
        is_clock = unit in ("HOUR", "MINUTE", "SECOND")
        if name not in TIMES or (name == "date" and not is_clock):
            return None
        is_exact = count is not None and isinstance(count.value, int)
        if not is_exact or not (is_clock or unit in MONTHS or unit in DAYS) or not self._is_utc:
            raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")
        self.uses_times = True
        if name == "date":
            self._convert(start, "timestamp")
        return "timestamp" if name == "date" else name

    def _type_add_months(self, node: exp.Expr) -> str:
        count = self._fold(node.expression)
        if count is None or not is_integer(count.type):
            raise Unusable("unsupported-expression", f"{node.sql('spark')} is supported for constants only")
        self._check_type(node.this, lambda name: name in TIMES)
        interval = exp.Interval(this=exp.Literal.string(str(count.value)), unit=exp.var("MONTH"))
        self.uses_times = True
        return _cast_to(node, exp.Add(this=_wrapped(self._converted(node.this, "date")), expression=interval), "date")

    def _type_unix_date(self, node: exp.Expr) -> str:
        self._check_type(node.this, is_integer)
        self.uses_times = True
        epoch = exp.cast(exp.Literal.string("1970-01-01"), "date")
        return _cast_to(node, exp.Add(this=epoch, expression=_wrapped(self._converted(node.this, "int"))), "date")

    def _type_trunc(self, node: exp.Expr) -> str:
        self._check_type(node.this, lambda name: name in TIMES)
        unit = self._unit(node, TRUNC_UNITS)
        self.uses_times = True
        return _cast_to(node, _call("date_trunc", unit, self._converted(node.this, "date")), "date")

    def _type_date_trunc(self, node: exp.Expr) -> str:
        self._check_type(node.this, lambda name: name in TIMES)
        unit = self._unit(node, DATE_TRUNC_UNITS)
        if not self._is_utc:
            raise Unusable("unsupported-function", f"{node.sql('spark')} is supported in UTC only")
        self.uses_times = True
        return _replace(node, _call("date_trunc", unit, self._converted(node.this, "timestamp")), "timestamp")

    def _unit(self, node: exp.Expr, units: Collection[str]) -> exp.Expr:
        unit = node.args["unit"].name.upper()
        if unit not in units:
            raise Unusable("unsupported-function", f"{unit} is no supported unit")
        return exp.Literal.string(
            {"YYYY": "YEAR", "YY": "YEAR", "MM": "MONTH", "MON": "MONTH", "DD": "DAY"}.get(unit, unit)
        )

    def _type_clock(self, node: exp.Expr) -> str:
        if self._check_type(node.this, lambda name: name in TIMES) == "date":
            self._convert(node.this, "timestamp")
        self.uses_times = True
        return _cast_to(node, _call(type(node).__name__.lower(), node.this), "int")

    def _type_day_of_week(self, node: exp.Expr) -> str:
        self._check_type(node.this, lambda name: name in TIMES)
        self.uses_times = True
        day = exp.Add(this=_call("dayofweek", self._converted(node.this, "date")), expression=exp.Literal.number(1))
        return _cast_to(node, exp.Paren(this=day), "int")

    def _type_extract(self, node: exp.Expr) -> str:
        function = EXTRACT_UNITS.get(node.name.upper())
        if function is None or not function.parsed:
            raise Unusable("unsupported-function", f"{node.sql('spark')} has an unsupported unit")
        part = getattr(exp, function.parsed[-1])(this=node.expression.copy())
        node.replace(part)
        return self.type_of(part)

    def _type_rounding(self, node: exp.Expr) -> str:
        name, places = self.type_of(node.this), 0
        if node.args.get("to") or node.args.get("truncate") or (node.args.get("decimals") and node.key != "round"):
            raise Unusable("unsupported-function", f"{node.sql('spark')} has an unsupported argument")
        if node.args.get("decimals"):
            constant = self._fold(node.args["decimals"])
            if constant is None or not isinstance(constant.value, int) or not 0 <= constant.value <= _MAX_PLACES:
                raise Unusable("unsupported-function", f"{node.sql('spark')} has an unsupported argument")
            places = constant.value
        if is_integer(name):
            returns = name if node.key == "round" else "bigint"
            self._convert(node.this, returns)
            return _replace(node, exp.Paren(this=node.this), returns)
        digits = decimal_digits(name)
        if digits is not None:
            scale = min(places, digits[1])
            returns = f"decimal({min(digits[0] - digits[1] + 1 + scale, 38)},{scale})"
        elif is_floating(name):
            returns = name if node.key == "round" else "bigint"
        else:
            raise Unusable("unsupported-function", f"{node.sql('spark')} of {name} is not supported")
        source = "double" if returns == "bigint" else name
        operands, types = [self._converted(node.this, source)], [source]
        if node.key == "round":
            operands, types = [*operands, exp.Literal.number(places)], [source, "int"]
        return self._compute(node, node.key, operands, types, returns)

    def _type_selection(self, node: exp.Expr) -> str:
        """Type ``coalesce``, ``greatest`` and ``least``."""
        operands = [node.this, *node.expressions]
        names = [self.type_of(operand) for operand in operands]
        name = self._common(names)
        mixes_texts = "string" in names and {*names} - {"string", "void"}
        if not is_portable(name) or (mixes_texts and not isinstance(node, exp.Coalesce)):
            raise Unusable("unordered-type", f"{name} is not supported")
        for operand in operands:
            self._coerce(operand, name)
        if isinstance(node, exp.Coalesce) or not is_floating(name):
            return name
        # Equal floats may be 0.0 and -0.0, and Spark takes the first. NULL does not count.
        converted = [self._converted(operand, name) for operand in (node.this, *node.expressions)]
        result = converted[0]
        for operand in converted[1:]:
            chosen = exp.Paren(this=exp.Null())
            self._compute(chosen.this, f"{node.key}_double", [result, operand], [name, name], name)
            result = exp.Coalesce(this=chosen.this, expressions=[result.copy(), operand.copy()])
        return _replace(node, result, name)

    def _common(self, names: Sequence[str]) -> str:
        """Return the type of values of several types; decimals beyond 38 digits keep their whole digits."""
        return reduce(_common_type, names, "void")

    def _type_piece(self, node: exp.Expr) -> str:
        """Type ``left``, ``right`` and ``trim``."""
        if isinstance(node, exp.Left):
            operands = [node.this, exp.Literal.number(1), node.expression]
            return self._compute_record(node, FUNCTIONS["substring"], operands)
        if isinstance(node, exp.Right):
            return self._compute_record(node, FUNCTIONS["right"], [node.this, node.expression])
        if isinstance(node.expression, exp.Expr):
            raise Unusable("unsupported-function", f"{node.sql('spark')} names the characters to trim")
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        return self._compute_record(node, FUNCTIONS[name], [node.this])

    def _type_regex(self, node: exp.Expr) -> str:
        return self._compute_record(node, FUNCTIONS["rlike"], [node.this, node.expression])

    def _type_text_test(self, node: exp.Expr) -> str:
        for operand in (node.this, node.expression):
            self._coerce(operand, "string")
        return "boolean"

    def _type_is_nan(self, node: exp.Expr) -> str:
        operand = self._converted(node.this, "double")
        return _replace(node, exp.Coalesce(this=_call("isnan", operand), expressions=[exp.false()]), "boolean")

    def _type_bytes(self, node: exp.Expr) -> str:
        return _replace(node, _call("unhex", exp.Literal.string(node.name)), "binary")

    def _type_repeat(self, node: exp.Expr) -> str:
        self._check_type(node.this, lambda name: name == "string")
        self._check_type(node.args["times"], is_integer)
        return _replace(node, _call("repeat", node.this, node.args["times"]), "string")

    def _coerce(self, operand: exp.Expr, name: str) -> None:
        """Write Spark's cast of an operand, unless DuckDB casts alike; raise Unusable if it is unknown."""
        own = self.type_of(operand)
        if own in (name, "void"):
            return
        constant, is_alike = self._fold(operand), is_converted_alike(own, name)
        is_written = constant is not None and (name in TIMES or (name == "double" and decimal_digits(own)))
        if is_written and constant is not None:
            _write(operand, cast_constant(constant, name, self._context.settings.time_zone))
            return
        digits = decimal_digits(name)
        if not is_alike or own == "float" or (digits is not None and digits[0] == _MAX_DIGITS):
            self._convert(operand, name)

    def _type_comparison(self, node: exp.Expr) -> str:
        names, query = [self.type_of(operand) for operand in _operands(node)], node.args.get("query")
        if query is not None:
            names.append(self._type_subquery(query))
        try:
            name = self._common(names)
            if isinstance(node, exp.Between) and any(_common_type(names[0], end) != name for end in names[1:]):
                return self._type_split_range(node)
            is_cast = query is not None and (names[-1] == "float" != name or not is_converted_alike(names[-1], name))
            if is_cast or not is_portable(name):
                raise Unusable("coercion", f"DuckDB may compare in another type than {name}")
            if isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
                self._check_range(_operands(node))
            for operand in _operands(node):
                self._coerce(operand, name)
        except Unusable as problem:
            raise refuse("comparing " + " with ".join(f"a {name}" for name in dict.fromkeys(names))) from problem
        return "boolean"

    def _type_split_range(self, node: exp.Between) -> str:
        """Rewrite BETWEEN to two comparisons, each of which Spark computes in a type of its own."""
        sides = [(exp.GTE, node.args["low"]), (exp.LTE, node.args["high"])]
        both = exp.and_(*(kind(this=node.this.copy(), expression=end.copy()) for kind, end in sides), copy=False)
        node.replace(exp.Paren(this=both))
        return self.type_of(both)

    def _check_range(self, operands: Sequence[exp.Expr]) -> None:
        """Refuse to order whole numbers and a decimal that may be beyond BIGINT (see ``constant_result``)."""
        has_integer = any(is_integer(self.type_of(operand)) for operand in operands)
        for operand in operands:
            digits = decimal_digits(self.type_of(operand)) if has_integer and not operand.find(exp.Column) else None
            if digits is not None and digits[0] - digits[1] > _BIGINT_DIGITS:
                raise refuse(f"comparing a whole number with {short(operand.sql(dialect='spark'))}")

    def _type_is(self, node: exp.Expr) -> str | None:
        self.type_of(node.this)
        return "boolean" if isinstance(node.expression, exp.Null | exp.Boolean) else None

    def _type_like(self, node: exp.Expr) -> str:
        like, escape = node, "\\"
        if isinstance(node, exp.Escape):
            like, escape = node.this, node.expression.name
        if not isinstance(like, exp.Like | exp.ILike):
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        pattern = like.expression
        if isinstance(pattern, exp.Any | exp.All):
            return self._type_likes(node, like, pattern, escape)
        is_folding = isinstance(like, exp.ILike)
        text = pattern.name
        if not (isinstance(pattern, exp.Literal) and pattern.is_string) or (is_folding and not has_one_case(text)):
            raise refuse("LIKE with a computed pattern")
        try:
            parse_like(text, escape)
        except ValueError as error:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}") from error
        operand = self._converted(like.this, "string")
        if is_folding:
            holder = exp.Paren(this=exp.Lower(this=operand))
            self._compute(holder.this, "lower", [operand], ["string"], "string")
            operand, text = holder.this, text.lower()
        plain: exp.Expr = exp.Like(this=_wrapped(operand), expression=exp.Literal.string(text))
        if escape in text:
            plain = exp.Escape(this=plain, expression=exp.Literal.string(escape))
        return _replace(node, exp.Not(this=exp.Paren(this=plain)) if like.args.get("negate") else plain, "boolean")

    def _type_likes(self, node: exp.Expr, like: exp.Expr, patterns: exp.Expr, escape: str) -> str:
        """Write ``LIKE ANY`` and ``LIKE ALL`` as one LIKE for each pattern."""
        listed = patterns.this.unnest()
        texts = listed.expressions if isinstance(listed, exp.Tuple) else [listed]
        tests: list[exp.Expr] = []
        for text in texts:
            test: exp.Expr = type(like)(this=like.this.copy(), expression=text.copy(), negate=like.args.get("negate"))
            tests.append(exp.Escape(this=test, expression=exp.Literal.string(escape)))
        whole = (exp.or_ if isinstance(patterns, exp.Any) else exp.and_)(*tests, copy=False)
        holder = exp.Paren(this=whole)
        node.replace(holder)
        return self.type_of(holder)

    def _type_case(self, node: exp.Expr) -> str:
        tests, values = split_branches(node)
        branches = [exp.If(this=test.copy(), true=value.copy()) for test, value in zip(tests, values, strict=False)]
        default = values[-1].copy()
        case = exp.Case(ifs=branches, default=default)
        for branch in branches:
            self._check_type(branch.this, lambda name: name in ("boolean", "void"))
        types = [self.type_of(value) for value in (*(branch.args["true"] for branch in branches), default)]
        # NULLIF has the type of its value.
        name = self._common(types)
        for branch in branches:
            self._coerce(branch.args["true"], name)
        self._coerce(case.args["default"], name)
        return _replace(node, case, name)

    def _type_count(self, node: exp.Expr) -> str:
        argument = node.this
        if node.expressions or (isinstance(argument, exp.Distinct) and len(argument.expressions) != 1):
            raise refuse("count over several expressions")
        if isinstance(argument, exp.Distinct):
            name = self.type_of(argument.expressions[0])
            if is_floating(name):
                argument.set("expressions", [one_zero(argument.expressions[0], name)])
            else:
                check_groups([name])
        elif not isinstance(argument, exp.Star):
            self.type_of(argument)
        return "bigint"

    def _type_count_if(self, node: exp.Expr) -> str:
        self._check_type(node.this, lambda name: name == "boolean")
        one = exp.If(this=node.this.copy(), true=exp.Literal.number(1))
        return _replace(node, exp.Count(this=exp.Case(ifs=[one])), "bigint")

    def _type_sum(self, node: exp.Expr) -> str | None:
        name = self.type_of(node.this)
        if name == "float":
            self._convert(node.this, "double")
            return "double"
        returns = _sum_type(name)
        if returns is not None and returns != "double":
            return _cast_to(node, node.copy(), returns)
        return returns

    def _type_average(self, node: exp.Expr) -> str | None:
        name = self.type_of(node.this)
        if name in ("tinyint", "smallint", "int", "double"):
            return "double"
        digits = decimal_digits(name)
        if digits is None:
            return None
        total, returns = _sum_type(name), f"decimal({min(digits[0] + 4, 38)},{min(digits[1] + 4, 38)})"
        assert total is not None, "decimals have sums"
        parts = [
            exp.Sum(this=node.this.copy()),
            exp.Nullif(this=exp.Count(this=node.this.copy()), expression=exp.Literal.number(0)),
        ]
        return self._compute(node, "/", parts, [total, "bigint"], returns)

    def _type_extreme(self, node: exp.Expr) -> str | None:
        return None if node.expressions else self._check_type(node.this, is_portable)

    def _type_containment(self, node: exp.Expr) -> str:
        """Return ``boolean`` if both engines find and order the array's elements alike."""
        kind, parts = nested_parts(self.type_of(node.this))
        if kind == "array" and is_floating(parts[0]):
            test = exp.EQ(this=exp.to_identifier("element"), expression=node.expression.copy())
            variable = exp.Lambda(this=test, expressions=[exp.to_identifier("element")])
            self._variables["element"] = parts[0]
            self.type_of(test)
            del self._variables["element"]
            tests = _call("list_transform", node.this, variable)
            return _replace(node, _with_nulls(_call("list_contains", tests, exp.true()), tests), "boolean")
        if kind != "array" or parts[0] not in ("string", *INTEGER_BITS):
            raise refuse(f"an element of {short(node.this.sql(dialect='spark'))!r}")
        return read_subject(node, self._context, self._read_operand).type

    def _type_exists(self, node: exp.Expr) -> str | None:
        condition = node.expression
        if not isinstance(condition, exp.Lambda):
            return "boolean"  # a subquery
        if _compare_end(node) is not None:
            comparison = _compare_end(node)
            assert comparison is not None, "checked above"
            with suppress(QueryError):
                return self.type_of(exp.ArrayContains(this=node.this.copy(), expression=comparison.expression.copy()))
        kind, parts = nested_parts(self.type_of(node.this))
        if kind != "array" or not is_portable(parts[0]) or len(condition.expressions) != 1:
            return None
        name = condition.expressions[0].name.lower()
        if name in self._variables:
            return None
        self._variables[name] = parts[0]
        try:
            self._check_type(condition.this, lambda name: name in ("boolean", "void"))
        finally:
            del self._variables[name]
        tests = _call("list_transform", node.this, condition)
        return _replace(node, _with_nulls(_call("list_contains", tests, exp.true()), tests), "boolean")

    def _type_element(self, node: exp.Expr) -> str:
        """Type a field of a struct, an element of an array, or a map's value."""
        self.type_of(node.this)  # which may replace it
        subject = read_subject(node, self._context, self._read_operand)
        return self._replace_element(node, subject, node.this, fails=not node.args.get("safe"))

    def _replace_element(self, node: exp.Expr, subject: Subject, container: exp.Expr, fails: bool) -> str:
        call = subject.expr
        if not isinstance(call, Call) or not isinstance(call.args[1], Const):
            raise Unusable("unsupported-expression", "only parts of columns are supported")
        key, kind = call.args[1].value, nested_parts(call.args[0].type)[0]
        if call.fn == GET_FIELD:
            return _replace(node, _call("struct_extract", container, exp.Literal.string(str(key))), subject.type)
        if kind == "map":
            text = exp.Literal.string(key) if isinstance(key, str) else exp.Literal.number(int(str(key)))
            return _replace(node, _call("map_extract_value", container, text), subject.type)
        assert isinstance(key, int), "positions are whole numbers"
        if call.fn == "get" and key < 0 and not fails:
            return _replace(node, exp.cast(exp.Null(), _data_type(subject.type)), subject.type)
        place = key + 1 if call.fn == "get" else key
        element = _call("list_extract", container, _number(place))
        if not fails:
            return _replace(node, element, subject.type)
        size = _call("len", container)
        inside = exp.GTE(this=size, expression=exp.Literal.number(abs(place) if place else 1))
        failure = _call("error", exp.Literal.string(f"INVALID_ARRAY_INDEX {key}"))
        branches = [
            exp.If(this=inside, true=element),
            exp.If(this=exp.Is(this=size.copy(), expression=exp.Null()), true=exp.Null()),
        ]
        if key < 0 and call.fn == "get":
            branches = branches[1:]
        return _replace(node, exp.Case(ifs=branches, default=failure), subject.type)

    def _type_array_end(self, node: exp.Expr) -> str:
        self.type_of(node.this)
        subject = read_subject(node, self._context, self._read_operand)
        name = "list_max" if isinstance(node, exp.ArrayMax) else "list_min"
        return _replace(node, _call(name, node.this), subject.type)

    def _type_size(self, node: exp.Expr) -> str:
        kind = nested_parts(self.type_of(node.this))[0]
        if kind not in ("array", "map"):
            raise Unusable("unsupported-expression", f"{node.sql('spark')} is not supported")
        return _cast_to(node, _call("len" if kind == "array" else "cardinality", node.this), "int")

    def _type_json(self, node: exp.Expr) -> str:
        call = read_subject(node, self._context, self._read_operand).expr
        assert isinstance(call, Call), "constants are refused"
        path = call.args[1]
        assert isinstance(path, Const), "the reader checks"
        operands = [self._converted(node.this, "string"), exp.Literal.string(str(path.value))]
        return self._compute(node, "get_json_object", operands, ["string", "string"], "string")

    def _type_map_part(self, node: exp.Expr) -> str:
        return read_subject(node, self._context, self._read_operand).type

    def _type_named_function(self, node: exp.Expr) -> str | None:
        name = node.name.casefold()
        udf = self._context.udfs.get(name)
        if udf is None:
            return self._type_other_function(node, name)
        function = portable_function(udf, [self.type_of(argument) for argument in node.expressions])
        if function is None:
            return None
        self.functions[function.name] = function
        node.set("this", function.name)
        return udf.returns

    def _type_other_function(self, node: exp.Expr, name: str) -> str | None:
        """Type a function of Spark's that sqlglot has no class for."""
        arguments = node.expressions
        if name == "map_values":
            return self._type_map_part(node)
        if name == "get" and len(arguments) == 2:
            bracket = exp.Bracket(this=arguments[0].copy(), expressions=[arguments[1].copy()])
            self.type_of(bracket.this)
            subject = read_subject(bracket, self._context, self._read_operand)
            return self._replace_element(node, subject, bracket.this, fails=False)
        if name == "timestamp_micros" and len(arguments) == 1:
            self._check_type(arguments[0], is_integer)
            self.uses_times = True
            return _replace(node, _call("make_timestamptz", arguments[0]), "timestamp")
        if name == "pmod" and len(arguments) == 2:
            pair = exp.Mod(this=arguments[0].copy(), expression=arguments[1].copy())
            node.replace(pair)
            return self._type_computed(pair, "pmod")
        return None


_OPERATORS: Final[dict[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_TRIED: Final[dict[type[exp.Expr], str]] = {
    exp.SafeAdd: "try_+", exp.SafeSubtract: "try_-", exp.SafeMultiply: "try_*", exp.SafeDivide: "try_/"
}  # fmt: skip
# The results of functions whose records leave them to the reader of filters, if they are not texts.
_GIVEN: Final = {"rlike": "boolean"}
_MAX_DIGITS: Final = 38
_MAX_PLACES: Final = 30
_LEAST_PLACES: Final = 6


def _common_type(left: str, right: str) -> str:
    """Return the type in which Spark compares two types, in ANSI mode; a decimal too long for it loses places.

    >>> _common_type("decimal(38,0)", "decimal(1,1)"), _common_type("int", "string")
    ('decimal(38,0)', 'bigint')
    """
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None or (is_integer(left) and is_integer(right)):
        return common_type(left, right)
    places, whole = max(first[1], second[1]), max(first[0] - first[1], second[0] - second[1])
    beyond = max(whole + places - _MAX_DIGITS, 0)
    return f"decimal({whole + places - beyond},{max(places - beyond, 0)})"


def _arithmetic_types(operator: str, left: str, right: str) -> tuple[str | None, str]:
    """Return the type that operands of arithmetic are cast to, None for their own, and the result's type.

    >>> _arithmetic_types("/", "int", "int"), _arithmetic_types("+", "decimal(38,0)", "decimal(38,18)")
    (('double', 'double'), (None, 'decimal(38,6)'))
    """
    if is_integer(left) and is_integer(right):
        if operator == "div":
            return "bigint", "bigint"
        kind = "double" if operator == "/" else common_type(left, right)
        return kind, kind
    first, second = exact_digits(left), exact_digits(right)
    if first is None or second is None:
        kind = "float" if left == right == "float" and operator not in ("/", "%") else "double"
        if left == right == "float" and operator == "%":
            raise Unusable("unsupported-expression", "a remainder of floats is not supported")
        return kind, kind
    (p1, s1), (p2, s2) = first, second
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    elif operator == "/":
        scale = max(_LEAST_PLACES, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    elif operator == "pmod":
        raise Unusable("unsupported-expression", "pmod of decimals is not supported")
    elif operator == "%":
        scale = max(s1, s2)
        precision = min(p1 - s1, p2 - s2) + scale
    elif operator == "div":
        raise Unusable("unsupported-expression", "DIV of decimals is not supported")
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    if precision > _MAX_DIGITS:
        scale = max(_MAX_DIGITS - (precision - scale), min(scale, _LEAST_PLACES))
        precision = _MAX_DIGITS
    return None, f"decimal({precision},{scale})"


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    if isinstance(node, exp.In):
        if node.args.get("unnest") or node.args.get("field"):
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return [node.this, *node.expressions]
    return [node.this, node.expression]


def _is_long(name: str) -> bool:
    """Return whether a decimal has more digits than those of which Spark changes the sign exactly."""
    digits = decimal_digits(name)
    return digits is not None and digits[0] > SIGNED_DIGITS


def _data_type(name: str) -> exp.DataType:
    return exp.DataType.build(name, dialect="spark")


def _wrapped(node: exp.Expr) -> exp.Expr:
    return node.copy() if isinstance(node, exp.Column | exp.Literal | exp.Func) else exp.Paren(this=node.copy())


def _number(value: int) -> exp.Expr:
    literal = exp.Literal.number(abs(value))
    return exp.Neg(this=literal) if value < 0 else literal


def one_zero(node: exp.Expr, name: str) -> exp.Expr:
    """Return a float with one zero, by which Spark groups; ``name`` is its type."""
    zero = exp.Literal.number(0)
    is_zero = exp.EQ(this=_wrapped(node), expression=zero)
    case = exp.Case(ifs=[exp.If(this=is_zero, true=exp.cast(zero.copy(), _data_type(name)))], default=node.copy())
    case.meta[_TYPE] = name
    return case


def _cast_to(node: exp.Expr, value: exp.Expr, name: str) -> str:
    return _replace(node, exp.Cast(this=value, to=_data_type(name)), name)


def _cast(node: exp.Expr, name: str) -> str:
    return _replace(node, exp.cast(node.copy(), exp.DataType.build(name, dialect="spark")), name)


def _write(node: exp.Expr, constant: TypedConstant) -> str:
    """Replace an expression by its value: a date, a time in UTC, or a double."""
    value = constant.value
    if isinstance(value, float):
        literal = exp.Literal.number(f"{abs(value):.16e}")  # an exponent makes it a double
        return _replace(node, exp.Neg(this=literal) if value < 0 else literal, "double")
    assert isinstance(value, dt.date), "other constants stay as they are written"
    text = value.isoformat(sep=" ") if isinstance(value, dt.datetime) else value.isoformat()
    literal = exp.Literal.string(text)
    return _replace(node, exp.cast(literal, exp.DataType.build(constant.type, dialect="spark")), constant.type)


def _replace(node: exp.Expr, replacement: exp.Expr, name: str) -> str:
    replacement.meta[_TYPE] = name
    node.replace(replacement)
    return name
