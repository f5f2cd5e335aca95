"""Spark's types of expressions, and the expressions that mean the same to DuckDB.

The rules list what is known to mean the same; anything else is refused. Where the engines would coerce differently,
the coercion is written into the tree.
"""

from __future__ import annotations

import datetime as dt
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sqlglot import exp

from layoutopt.errors import QueryError
from layoutopt.model.types import INTEGER_BITS, decimal_digits, nested_parts
from layoutopt.model.udf import Udf, Udfs
from layoutopt.sql import types
from layoutopt.sql.elements import without_lambda
from layoutopt.sql.functions import PARSED
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import (
    arithmetic_type,
    decimal_type,
    has_agreed_offset,
    is_floating,
    is_integer,
    is_number,
    number_type,
    zone_of,
)

# Decimals of up to so many digits become doubles without a second rounding in either engine.
_EXACT_DOUBLE_DIGITS = 15
_SCALARS = frozenset(INTEGER_BITS) | {
    "boolean", "float", "double", "string", "date", "timestamp", "timestamp_ntz", "binary", "void",
}  # fmt: skip


def is_portable(name: str) -> bool:
    """Return whether values of the type mean the same to both engines."""
    return name in _SCALARS or decimal_digits(name) is not None


def common_type(left: str, right: str) -> str | None:
    """Return the type that both engines convert values of two types to; None if uncertain.

    >>> common_type("int", "decimal(15,2)"), common_type("int", "bigint"), common_type("int", "string")
    ('decimal(15,2)', 'bigint', None)
    """
    if left != right and "void" not in (left, right):
        if not (is_number(left) and is_number(right)):
            return None
        floating = is_floating(left) or is_floating(right)
        if floating and any((decimal_digits(name) or (0, 0))[0] > _EXACT_DOUBLE_DIGITS for name in (left, right)):
            return None
    try:
        return types.common_type(left, right)
    except Unusable:
        return None


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


_MAP_PARTS: Final = {"map_keys": 0, "map_values": 1}
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


def element_type(array: str) -> str | None:
    """Return the type of an array's elements, if both engines find and order them alike; None if uncertain.

    >>> element_type("array<string>"), element_type("array<double>"), element_type("string")
    ('string', None, None)
    """
    kind, parts = nested_parts(array)
    is_portable_array = kind == "array" and len(parts) == 1 and (parts[0] == "string" or parts[0] in INTEGER_BITS)
    return parts[0] if is_portable_array else None


def _map_part_type(name: str, map_type: str) -> str | None:
    kind, parts = nested_parts(map_type)
    return f"array<{parts[_MAP_PARTS[name]]}>" if kind == "map" and len(parts) == 2 else None


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


_DATE_UNITS = frozenset({"DAY", "WEEK", "MONTH", "YEAR"})
# Every whole number of so many digits is a BIGINT.
_BIGINT_DIGITS = 18
_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_TIMES = ("date", "timestamp", "timestamp_ntz")


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
        self._time_zone = time_zone
        self._udfs = udfs
        self.functions: dict[str, PortableFunction] = {}
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], str | None]] = {
            exp.Column: self._type_column, exp.Literal: self._type_literal, exp.Boolean: lambda _: "boolean",
            exp.Null: lambda _: "void", exp.Paren: lambda e: self.type_of(e.this), exp.Neg: self._type_negation,
            exp.Abs: self._type_number, exp.Cast: self._type_cast, exp.TsOrDsToDate: self._type_to_date,
            exp.And: self._type_logic, exp.Or: self._type_logic, exp.Not: self._type_logic,
            exp.Add: self._type_arithmetic, exp.Sub: self._type_arithmetic, exp.Mul: self._type_arithmetic,
            exp.Div: self._type_division, exp.EQ: self._type_comparison, exp.NEQ: self._type_comparison,
            exp.GT: self._type_comparison, exp.GTE: self._type_comparison, exp.LT: self._type_comparison,
            exp.LTE: self._type_comparison, exp.NullSafeEQ: self._type_comparison, exp.Between: self._type_comparison,
            exp.In: self._type_comparison, exp.Is: self._type_is, exp.Like: self._type_like,
            exp.Case: self._type_case, exp.If: self._type_case, exp.Coalesce: self._type_case,
            **{kind: self._type_date_part for kind, function in PARSED.items() if function.is_portable},
            exp.Substring: self._type_substring, exp.DPipe: self._type_concat,
            exp.Count: self._type_count, exp.Sum: lambda e: _sum_type(self.type_of(e.this)),
            exp.Avg: self._type_average, exp.Min: self._type_extreme, exp.Max: self._type_extreme,
            exp.Exists: self._type_exists,
            exp.Subquery: self._type_subquery, exp.Anonymous: self._type_named_function,
            exp.MapKeys: lambda e: _map_part_type("map_keys", self.type_of(e.this)),
            exp.ArrayContains: lambda e: self._type_containment(e.this, e.expression),
        }  # fmt: skip

    def type_of(self, node: exp.Expr) -> str:
        """Return Spark's type of one expression.

        Raises:
            QueryError: it might mean something else to DuckDB.
        """
        rule = self._rules.get(type(node))
        try:
            name = None if rule is None else rule(node)
        except Unusable:
            name = None
        if name is None:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return name

    @abstractmethod
    def _type_column(self, node: exp.Expr) -> str:
        """Return the type of a column."""

    @abstractmethod
    def _type_subquery(self, node: exp.Expr) -> str:
        """Return the type of the one column that a subquery returns."""

    def _type_literal(self, node: exp.Expr) -> str:
        number = _number_text(node)
        return "string" if number is None else number_type(number)

    def _type_negation(self, node: exp.Expr) -> str | None:
        return self._type_number(node) if _number_text(node) is None else self._type_literal(node)

    def _type_cast(self, node: exp.Expr) -> str | None:
        target = _spark_type(node.args["to"])
        if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
            if self._is_temporal(node.this.name, target):
                return target
        else:
            source = self.type_of(node.this)
            if source != "void" and common_type(source, target) == target:
                return target
        return None

    def _type_logic(self, node: exp.Expr) -> str:
        for child in node.iter_expressions():
            self._check_type(child, lambda name: name in ("boolean", "void"))
        return "boolean"

    def _type_number(self, node: exp.Expr) -> str:
        return self._check_type(node.this, is_number)

    def _check_type(self, node: exp.Expr, accepts: Callable[[str], bool]) -> str:
        name = self.type_of(node)
        if not accepts(name):
            raise refuse(f"{short(node.sql(dialect='spark'))!r} as an operand")
        return name

    def _type_arithmetic(self, node: exp.Expr) -> str | None:
        if isinstance(node.expression, exp.Interval):
            return self._type_shifted_date(node)
        operands = (node.this, node.expression)
        left, right = (self._operand_type(operand, operands) for operand in operands)
        if not (is_number(left) and is_number(right)) or "float" in (left, right):
            return None
        if "double" in (left, right):
            return common_type(left, right)
        name = arithmetic_type(_SIGNS[type(node)], left, right)
        for operand in operands:
            if is_integer(name) and self.type_of(operand) != name:
                _wrap(operand, name)
        return name

    def _operand_type(self, operand: exp.Expr, operands: Sequence[exp.Expr]) -> str:
        """Return an operand's type; beside a decimal, an integer literal has only its own digits."""
        name = self.type_of(operand)
        beside_decimal = any(decimal_digits(self.type_of(side)) for side in operands)
        number = _number_text(operand)
        if number is not None and is_integer(name) and beside_decimal:
            return decimal_type(len(number.removeprefix("-")), 0)
        return name

    def _type_shifted_date(self, node: exp.Expr) -> str | None:
        interval = node.expression
        amount = interval.this
        simple = isinstance(amount, exp.Literal) and re.fullmatch(r"\d{1,6}", amount.name) is not None
        if self.type_of(node.this) != "date" or not simple or interval.text("unit").upper() not in _DATE_UNITS:
            return None
        if not isinstance(node.parent, exp.Cast):
            _wrap(node, "date")
        return "date"

    def _type_division(self, node: exp.Expr) -> str:
        divisor = node.expression
        names = self.type_of(node.this), self.type_of(divisor)
        is_nonzero = isinstance(divisor, exp.Literal) and re.search(r"[1-9]", divisor.name) is not None
        if not is_nonzero or not all(is_integer(name) or name == "double" for name in names):
            raise refuse(f"the division {short(node.sql(dialect='spark'))!r}")
        return "double"

    def _type_comparison(self, node: exp.Expr) -> str:
        names = [self.type_of(operand) for operand in _operands(node)]
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            names.append(self._type_subquery(node.args["query"]))
            if names[-1] == "float" != names[0]:
                raise refuse(f"comparing a {names[0]} with a float of a subquery")
        for operand in _operands(node):
            self._coerce_operand(operand, names)
        common = "void"
        for name in [self.type_of(operand) for operand in _operands(node)] + names[len(_operands(node)) :]:
            unified = common_type(common, name)
            if unified is None or not is_portable(unified):
                raise refuse(f"comparing a {common} with a {name}")
            common = unified
        if isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
            self._check_range(_operands(node))
        return "boolean"

    def _check_range(self, operands: Sequence[exp.Expr]) -> None:
        """Refuse to order whole numbers and a decimal that may be beyond BIGINT (see ``constant_result``)."""
        has_integer = any(is_integer(self.type_of(operand)) for operand in operands)
        for operand in operands:
            digits = decimal_digits(self.type_of(operand)) if has_integer and not operand.find(exp.Column) else None
            if digits is not None and digits[0] - digits[1] > _BIGINT_DIGITS:
                raise refuse(f"comparing a whole number with {short(operand.sql(dialect='spark'))}")

    def _coerce_operand(self, operand: exp.Expr, names: Sequence[str]) -> None:
        """Write Spark's cast of a text beside a date or time, or of a number beside a double."""
        own = self.type_of(operand)
        temporal = next((name for name in names if name in ("date", "timestamp")), None)
        if own == "string" and temporal is not None:
            if not isinstance(operand, exp.Literal) or not self._is_temporal(operand.name, temporal):
                raise refuse(f"comparing {short(operand.sql(dialect='spark'))!r} with a {temporal}")
            _wrap(operand, temporal)
        elif own == "float" and any(name != "float" for name in names):
            _wrap(operand, "double")
        elif decimal_digits(own) is not None and any(map(is_floating, names)):
            self._write_double(operand)

    def _write_double(self, operand: exp.Expr) -> None:
        """Write a decimal literal as the nearest double, as Spark rounds it; DuckDB would round twice."""
        text = _number_text(operand)
        if text is not None:
            literal = exp.Literal.number(f"{float(text.removeprefix('-')):.16e}")  # an exponent makes it a double
            operand.replace(exp.Neg(this=literal) if text.startswith("-") else literal)

    def _is_temporal(self, text: str, type_name: str) -> bool:
        """Return whether both engines read a text as the same date or time."""
        if not _has_plain_form(text, type_name):
            return False
        return type_name == "date" or is_one_instant(dt.datetime.fromisoformat(text), self._time_zone)

    def _type_is(self, node: exp.Expr) -> str | None:
        self.type_of(node.this)
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            return None
        return "boolean"

    def _type_like(self, node: exp.Expr) -> str:
        self._check_type(node.this, lambda name: name == "string")
        if not (isinstance(node.expression, exp.Literal) and node.expression.is_string):
            raise refuse("LIKE with a computed pattern")
        return "boolean"

    def _type_case(self, node: exp.Expr) -> str | None:
        values: list[exp.Expr] = []
        if isinstance(node, exp.Coalesce):
            values = [node.this, *node.expressions]
        for branch in [node] if isinstance(node, exp.If) else node.args.get("ifs") or []:
            if node.args.get("this") is not None and isinstance(node, exp.Case):
                raise refuse("CASE with a value")
            self._check_type(branch.this, lambda name: name in ("boolean", "void"))
            values.append(branch.args["true"])
        values += [value for value in (node.args.get("default"), node.args.get("false")) if value is not None]
        common = "void"
        for value in values:
            unified = common_type(common, self.type_of(value))
            if unified is None:
                return None
            common = unified
        if common != "float" and any(self.type_of(value) == "float" for value in values):
            return None  # DuckDB takes them all in single precision
        return common

    def _type_to_date(self, node: exp.Expr) -> str:
        return self._check_type(node.this, lambda name: name in _TIMES) and "date"

    def _type_date_part(self, node: exp.Expr) -> str:
        return self._check_type(node.this, lambda name: name in _TIMES) and "int"

    def _type_substring(self, node: exp.Expr) -> str | None:
        bounds = [node.args.get("start"), node.args.get("length")]
        constant = all(isinstance(b, exp.Literal) and re.fullmatch(r"\d+", b.name) for b in bounds if b is not None)
        if not constant or bounds[0] is None or bounds[0].name == "0":
            return None
        return self._check_type(node.this, lambda name: name == "string")

    def _type_concat(self, node: exp.Expr) -> str:
        self._check_type(node.this, lambda name: name == "string")
        return self._check_type(node.expression, lambda name: name == "string")

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
        if self.type_of(node.this) not in ("tinyint", "smallint", "int", "double"):
            return None
        return "double"

    def _type_extreme(self, node: exp.Expr) -> str | None:
        if node.expressions:
            return None
        return self._check_type(node.this, is_portable)

    def _type_containment(self, array: exp.Expr, constant: exp.Expr) -> str | None:
        """Return ``boolean`` if the constant has exactly the type of the array's elements."""
        kind, digits = element_type(self.type_of(array)), _number_text(constant)
        if kind is None:
            return None
        if kind == "string":
            return "boolean" if isinstance(constant, exp.Literal) and constant.is_string else None
        half = 1 << (INTEGER_BITS[kind] - 1)
        fits = digits is not None and digits.removeprefix("-").isdecimal() and -half <= int(digits) < half
        return "boolean" if fits else None

    def _type_exists(self, node: exp.Expr) -> str | None:
        if not isinstance(node.expression, exp.Lambda):
            return "boolean"  # a subquery
        comparison = _compare_end(node)
        return None if comparison is None else self._type_containment(node.this, comparison.expression)

    def _type_named_function(self, node: exp.Expr) -> str | None:
        name = node.name.casefold()
        if name == "map_values" and name not in self._udfs and len(node.expressions) == 1:
            return _map_part_type(name, self.type_of(node.expressions[0]))
        typed = self.functions.get(node.name)
        if typed is not None:  # a tree is typed more than once
            return typed.udf.returns
        udf = self._udfs.get(name)
        if udf is None:
            return None
        function = portable_function(udf, [self.type_of(argument) for argument in node.expressions])
        if function is None:
            return None
        self.functions[function.name] = function
        node.set("this", function.name)
        return function.udf.returns


def _number_text(node: exp.Expr) -> str | None:
    """Return the digits of a number literal with its sign, as Spark's parser reads it; None for others."""
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    return f"-{literal.name}" if isinstance(node, exp.Neg) else literal.name


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    if isinstance(node, exp.In):
        if node.args.get("unnest") or node.args.get("field"):
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return [node.this, *node.expressions]
    return [node.this, node.expression]


def _wrap(node: exp.Expr, type_name: str) -> None:
    node.replace(exp.cast(node.copy(), exp.DataType.build(type_name, dialect="spark")))


def _spark_type(target: exp.DataType) -> str:
    name = target.sql(dialect="spark").lower().replace(" ", "")
    return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(name, name)


def _has_plain_form(text: str, type_name: str) -> bool:
    shapes = {"date": r"\d{4}-\d\d-\d\d", "timestamp": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?"}
    if type_name not in shapes or re.fullmatch(shapes[type_name], text) is None or text.startswith("0000"):
        return False
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_one_instant(local: dt.datetime, time_zone: str) -> bool:
    """Return whether a local time occurs exactly once; if clocks are set back, Spark takes the first, DuckDB the last.

    >>> [is_one_instant(dt.datetime(2020, 11, 1, hour, 30), "America/New_York") for hour in (0, 1, 2)]
    [True, False, True]
    """
    try:
        zone = zone_of(time_zone)
    except Unusable:
        return False
    if isinstance(zone, dt.timezone):
        return zone == dt.UTC  # DuckDB has no other offsets
    first, last = local.replace(tzinfo=zone), local.replace(tzinfo=zone, fold=1)
    return has_agreed_offset(local, zone) and first.utcoffset() == last.utcoffset()
