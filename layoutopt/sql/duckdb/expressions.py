"""The expressions that mean the same to DuckDB, in Spark's types.

Operands are typed by the reader of filters, and functions by their records, which say what DuckDB computes alike;
anything else is refused. Where the engines would coerce differently, the coercion is written into the tree. Dates and
times that are constants are written as Spark computes them.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sqlglot import exp

from layoutopt.errors import QueryError, SchemaError
from layoutopt.functions.function import TIMES
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import Call, Col
from layoutopt.model.schema import Column
from layoutopt.model.types import INTEGER_BITS, decimal_digits, nested_parts
from layoutopt.model.udf import Udf, Udfs
from layoutopt.sql.calls import split_branches
from layoutopt.sql.constant_folding import fold
from layoutopt.sql.elements import without_lambda
from layoutopt.sql.expressions import read_subject
from layoutopt.sql.functions import PARSED, TRY_ARITHMETIC, list_arguments
from layoutopt.sql.operands import Context, Operand, Subject
from layoutopt.sql.problems import Unusable
from layoutopt.sql.schema import spark_type
from layoutopt.sql.types import (
    TypedConstant,
    cast_constant,
    common_type,
    is_floating,
    is_integer,
    is_number,
    list_type,
    normal_type,
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
    return not is_rounded and common_type(source, target) == target


def _sum_type(argument: str) -> str | None:
    if is_integer(argument):
        return "bigint"
    digits = decimal_digits(argument)
    if digits is not None:
        return f"decimal({min(38, digits[0] + 10)},{digits[1]})"
    return argument if argument == "double" else None


_DUCKDB_NAMES: Final = {"boolean": "BOOLEAN", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE"}


@dataclass(frozen=True)
class PortableFunction:
    """A UDF as a DuckDB text calls it.

    Attributes:
        name: unique in DuckDB, by the UDF and its argument types.
        udf: the function.
        parameters: the arguments' DuckDB types.
        returns: the result's DuckDB type.
    """

    name: str
    udf: Udf
    parameters: tuple[str, ...]
    returns: str


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
    signature = sha256(" ".join(parameter_names).encode()).hexdigest()[:8]
    return PortableFunction(f"{udf.measured_name}_{signature}", udf, tuple(parameter_names), returns)


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
    """Refuse types that the engines group differently (NaN and -0.0), or may."""
    for name in names:
        if is_floating(name) or not is_portable(name):
            raise refuse(f"grouping by a {name}")


class ExpressionTyper(ABC):
    """Spark's type of every expression of a qualified tree; a subclass adds statements and scopes.

    It writes coercions into the tree where DuckDB would coerce differently (a float beside a number, a text beside
    a date).

    Attributes:
        functions: the UDFs that the tree calls so far, by their names in DuckDB.
    """

    def __init__(self, time_zone: str, udfs: Udfs) -> None:
        settings = SessionSettings(time_zone=time_zone)
        self._context = Context(lambda node: (Column(node.name, self._type_column(node)), ()), settings, udfs)
        self.functions: dict[str, PortableFunction] = {}
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], str | None]] = {
            **dict.fromkeys(PARSED, self._type_call),
            **dict.fromkeys((*TRY_ARITHMETIC, exp.TsOrDsAdd), self._type_arithmetic),
            **dict.fromkeys((exp.Cast, exp.TryCast, exp.TsOrDsToDate), self._type_cast),
            **dict.fromkeys((exp.And, exp.Or, exp.Not), self._type_logic),
            **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), self._type_comparison),
            **dict.fromkeys((exp.NullSafeEQ, exp.Between, exp.In), self._type_comparison),
            **dict.fromkeys((exp.Case, exp.If), self._type_case),
            **dict.fromkeys((exp.Literal, exp.Boolean, exp.Null), lambda e: fold(e, time_zone).type),
            exp.Column: self._type_column, exp.Paren: lambda e: self.type_of(e.this), exp.Neg: self._type_negation,
            exp.Is: self._type_is, exp.Like: self._type_like,
            exp.Count: self._type_count, exp.Sum: lambda e: _sum_type(self.type_of(e.this)),
            exp.Avg: self._type_average, exp.Min: self._type_extreme, exp.Max: self._type_extreme,
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
        return name if constant is None else constant.type

    def _type_cast(self, node: exp.Expr) -> str | None:
        target = "date" if isinstance(node, exp.TsOrDsToDate) else normal_type(spark_type(node.args["to"]))
        is_alike = not node.args.get("format") and _is_cast_alike(self.type_of(node.this), target)
        return target if is_alike else None

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
        subject = self._read(node)
        assert isinstance(subject.expr, Call), "other expressions are not portable"
        for operand, argument in zip(list_arguments(node), subject.expr.args, strict=True):
            self._coerce(operand, argument.type)
        return subject.type

    def _type_arithmetic(self, node: exp.Expr) -> str:
        name = self._read(node).type
        for operand in (node.this, node.expression):
            if is_integer(name) and self.type_of(operand) != name:
                _cast(operand, name)
            elif is_floating(name):
                self._coerce(operand, name)
        return _cast(node, name) if name == "date" else name  # to DuckDB it is a timestamp

    def _coerce(self, operand: exp.Expr, name: str) -> None:
        """Write Spark's cast of an operand, unless DuckDB casts alike; raise Unusable if it casts differently."""
        own = self.type_of(operand)
        if own in (name, "void"):
            return
        constant = self._fold(operand)
        if constant is not None and (name in TIMES or (name == "double" and decimal_digits(own))):
            _write(operand, cast_constant(constant, name, self._context.settings.time_zone))
        elif not _is_cast_alike(own, name):
            raise Unusable("coercion", f"DuckDB may cast {own} to {name} differently")
        elif own == "float" or own in TIMES:
            _cast(operand, name)

    def _type_comparison(self, node: exp.Expr) -> str:
        names, query = [self.type_of(operand) for operand in _operands(node)], node.args.get("query")
        if query is not None:
            names.append(self._type_subquery(query))
        try:
            name = list_type(names, ansi=True)
            if isinstance(node, exp.Between) and any(common_type(names[0], end) != name for end in names[1:]):
                return self._type_split_range(node)
            is_cast = query is not None and (names[-1] == "float" != name or not is_converted_alike(names[-1], name))
            if is_cast or not is_portable(name):
                raise Unusable("coercion", f"DuckDB may compare in another type than {name}")
            for operand in _operands(node):
                self._coerce(operand, name)
        except Unusable as problem:
            raise refuse("comparing " + " with ".join(f"a {name}" for name in dict.fromkeys(names))) from problem
        if isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
            self._check_range(_operands(node))
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
        self._check_type(node.this, lambda name: name == "string")
        if not (isinstance(node.expression, exp.Literal) and node.expression.is_string):
            raise refuse("LIKE with a computed pattern")
        return "boolean"

    def _type_case(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Case) and node.this is not None:
            raise refuse("CASE with a value")
        tests, values = split_branches(node)
        for test in tests:
            self._check_type(test, lambda name: name in ("boolean", "void"))
        name = list_type(map(self.type_of, values), ansi=True)
        for value in split_branches(node)[1]:
            self._coerce(value, name)
        return name

    def _type_count(self, node: exp.Expr) -> str:
        argument = node.this
        if node.expressions or (isinstance(argument, exp.Distinct) and len(argument.expressions) != 1):
            raise refuse("count over several expressions")
        if isinstance(argument, exp.Distinct):
            check_groups([self.type_of(argument.expressions[0])])
        elif not isinstance(argument, exp.Star):
            self.type_of(argument)
        return "bigint"

    def _type_average(self, node: exp.Expr) -> str | None:
        return "double" if self.type_of(node.this) in ("tinyint", "smallint", "int", "double") else None

    def _type_extreme(self, node: exp.Expr) -> str | None:
        return None if node.expressions else self._check_type(node.this, is_portable)

    def _type_containment(self, node: exp.Expr) -> str:
        """Return ``boolean`` if both engines find and order the array's elements alike."""
        kind, parts = nested_parts(self.type_of(node.this))
        if kind != "array" or parts[0] not in ("string", *INTEGER_BITS):
            raise refuse(f"an element of {short(node.this.sql(dialect='spark'))!r}")
        return read_subject(node, self._context, self._read_operand).type

    def _type_exists(self, node: exp.Expr) -> str | None:
        if not isinstance(node.expression, exp.Lambda):
            return "boolean"  # a subquery
        comparison = _compare_end(node)
        if comparison is None:
            return None
        return self.type_of(exp.ArrayContains(this=node.this.copy(), expression=comparison.expression.copy()))

    def _type_map_part(self, node: exp.Expr) -> str:
        return read_subject(node, self._context, self._read_operand).type

    def _type_named_function(self, node: exp.Expr) -> str | None:
        udf = self._context.udfs.get(node.name.casefold())
        if udf is None:
            return self._type_map_part(node) if node.name.casefold() == "map_values" else None
        function = portable_function(udf, [self.type_of(argument) for argument in node.expressions])
        if function is None:
            return None
        self.functions[function.name] = function
        node.set("this", function.name)
        return udf.returns


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    if isinstance(node, exp.In):
        if node.args.get("unnest") or node.args.get("field"):
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return [node.this, *node.expressions]
    return [node.this, node.expression]


def _is_cast_alike(source: str, target: str) -> bool:
    return is_converted_alike(source, target) or (source in TIMES and target == "date")


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
