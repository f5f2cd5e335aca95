"""Spark's types of expressions, and which expressions mean the same to DuckDB.

The rules are a list of what is known to mean the same; anything else is refused. Where the engines would coerce
differently, the coercion is written into the tree.
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
from layoutopt.sql import types as rules
from layoutopt.sql.elements import without_lambda
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import (
    arithmetic_type,
    decimal_type,
    is_agreed,
    is_floating,
    is_integer,
    is_number,
    number_type,
    zone_of,
)

# ----------------------------------------------------------------------------------------------------
# The types whose values mean the same to DuckDB as to Spark, by Spark's names.

_EXACT_DOUBLE_DIGITS = 15
"""Decimals of so many digits become doubles without a second rounding in either engine."""
_SCALARS = frozenset(INTEGER_BITS) | {
    "boolean", "float", "double", "string", "date", "timestamp", "timestamp_ntz", "binary", "void",
}  # fmt: skip


def is_portable(name: str) -> bool:
    """Whether values of the type mean the same to both engines."""
    return name in _SCALARS or decimal_digits(name) is not None


def common_type(left: str, right: str) -> str | None:
    """The type that both engines compare, or choose between, values of these two types in; None in doubt.

    >>> common_type("int", "decimal(15,2)"), common_type("int", "bigint"), common_type("int", "string")
    ('decimal(15,2)', 'bigint', None)
    """
    if left != right and "void" not in (left, right):
        if not (rules.is_number(left) and rules.is_number(right)):
            return None
        floating = rules.is_floating(left) or rules.is_floating(right)
        if floating and any((decimal_digits(name) or (0, 0))[0] > _EXACT_DOUBLE_DIGITS for name in (left, right)):
            return None
    try:
        return rules.common_type(left, right)
    except Unusable:
        return None


def sum_type(argument: str) -> str | None:
    """Spark's type of ``sum`` over a column of that type, or None in doubt."""
    if rules.is_integer(argument):
        return "bigint"
    digits = decimal_digits(argument)
    if digits is not None:
        return f"decimal({min(38, digits[0] + 10)},{digits[1]})"
    return argument if argument == "double" else None


# ----------------------------------------------------------------------------------------------------
# Functions of the user's in DuckDB: each by a name that nothing else has, with the types that a text gives it.

_NAMES: Final = {"boolean": "BOOLEAN", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE"}


@dataclass(frozen=True)
class PortableFunction:
    """A function of the user's as a DuckDB text calls it.

    Attributes:
        name: in DuckDB.
        udf: the function.
        parameters: DuckDB's types of its arguments.
        returns: DuckDB's type of its result.
    """

    name: str
    udf: Udf
    parameters: tuple[str, ...]
    returns: str


def portable_function(udf: Udf, parameters: Sequence[str]) -> PortableFunction | None:
    """The function for arguments of these Spark types; None where Python would get other values than from Spark.

    >>> length = Udf("length", "int", len, ("text",), {}, "00")
    >>> portable_function(length, ["string"]).parameters, portable_function(length, ["timestamp"])
    (('VARCHAR',), None)
    """
    found = [_type_name(each) for each in (*parameters, udf.returns)]
    if None in found or (not parameters and udf.returns in ("float", "double")):  # which might be NaN
        return None
    *taken, returns = map(str, found)
    signature = sha256(" ".join(taken).encode()).hexdigest()[:8]
    return PortableFunction(f"{udf.measured_name}_{signature}", udf, tuple(taken), returns)


def _type_name(spark: str) -> str | None:
    """DuckDB's type whose values Python sees as Spark's Python functions see them."""
    if spark in INTEGER_BITS:
        return spark.upper()
    digits = decimal_digits(spark)
    return _NAMES.get(spark) if digits is None else f"DECIMAL({digits[0]},{digits[1]})"


# ----------------------------------------------------------------------------------------------------
# Conditions on elements of arrays, and on keys and values of maps, as DuckDB has them.
#
# Where no element is known to meet a condition and one is NULL, Spark's answer is NULL; DuckDB's functions say FALSE.
# So
# each becomes a CASE that counts the elements that are not NULL.

MAP_PARTS: Final = {"map_keys": 0, "map_values": 1}
_LAMBDA_FREE: Final = (exp.ArrayContains, exp.Or)
_ENDS: Final[dict[type[exp.Expr], str]] = {
    exp.GT: "list_max", exp.GTE: "list_max", exp.LT: "list_min", exp.LTE: "list_min"
}  # fmt: skip


def with_plain_arrays(tree: exp.Expr, udfs: Udfs) -> None:
    """Write what says whether an array has an element as ``array_contains``, in the tree.

    Other conditions of elements stay as they are.
    """
    for node in list(tree.find_all(exp.MapContainsKey, exp.Exists, exp.Anonymous)):
        if isinstance(node, exp.Anonymous) and node.name.casefold() in udfs:
            continue
        plain = _plain(node)
        if plain is not None:
            node.replace(exp.Paren(this=plain))


def _plain(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.MapContainsKey):
        keys = exp.MapKeys(this=node.this.copy())
        return exp.ArrayContains(this=keys, expression=node.args["key"].copy())
    try:
        found = without_lambda(node, truth=True)
    except Unusable:
        return None
    return found if isinstance(found, _LAMBDA_FREE) else None  # others are TRUE of the same rows, but not FALSE


def compared_end(node: exp.Expr) -> exp.Expr | None:
    """``exists(xs, x -> x > 5)`` as a comparison of the largest (smallest) element; None of another condition."""
    try:
        found = without_lambda(node, truth=True)
    except Unusable:
        return None
    return found if type(found) in _ENDS else None


def element_type(array: str) -> str | None:
    """The type of an array's elements, if both engines find and order them alike; None in doubt.

    >>> element_type("array<string>"), element_type("array<double>"), element_type("string")
    ('string', None, None)
    """
    kind, parts = nested_parts(array)
    known = kind == "array" and len(parts) == 1 and (parts[0] == "string" or parts[0] in INTEGER_BITS)
    return parts[0] if known else None


def part_of_map(name: str, of_map: str) -> str | None:
    """The type of a map's keys or values as an array; None of another type."""
    kind, parts = nested_parts(of_map)
    return f"array<{parts[MAP_PARTS[name]]}>" if kind == "map" and len(parts) == 2 else None


def fits(text: str, type: str) -> bool:
    """Whether digits, with or without a sign, are a value of a whole-number type."""
    half = 1 << (INTEGER_BITS[type] - 1)
    return text.removeprefix("-").isdecimal() and -half <= int(text) < half


def with_duckdb_arrays(tree: exp.Expr) -> exp.Expr:
    """A tree that was found to mean the same, with DuckDB's functions in place of Spark's."""
    return tree.transform(_for_duckdb, copy=False)


def _for_duckdb(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.ArrayContains):
        return _known(_call("list_contains", node.this, node.expression), node.this)
    if isinstance(node, exp.Exists):
        compared = compared_end(node)
        if compared is not None:
            largest = _call(_ENDS[type(compared)], node.this)
            return _known(type(compared)(this=largest, expression=compared.expression), node.this)
    return node


def _known(met: exp.Expr, array: exp.Expr) -> exp.Expr:
    """TRUE where an element is known to meet a condition, FALSE where all are known not to."""
    without_null = exp.EQ(this=_call("list_count", array), expression=_call("len", array))
    branches = [exp.If(this=met, true=exp.true()), exp.If(this=without_null, true=exp.false())]
    return exp.Case(ifs=branches)


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[each.copy() for each in arguments])


_DATE_UNITS = frozenset({"DAY", "WEEK", "MONTH", "YEAR"})
_BIGINT_DIGITS = 18
"""Every whole number of so many digits is a BIGINT."""
_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_TIMES = ("date", "timestamp", "timestamp_ntz")


def refuse(what: str) -> QueryError:
    """The error for something that DuckDB might do otherwise than Spark."""
    return QueryError(f"{what} might mean something else to DuckDB than to Spark; run the query with --engine spark")


def short(text: str, limit: int = 80) -> str:
    """A text for a message: on one line, cut to ``limit`` characters."""
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"


def check_groups(names: Sequence[str]) -> None:
    """Refuse types by whose values the engines group differently (NaN and -0.0), or of which that is unknown."""
    for name in names:
        if is_floating(name) or not is_portable(name):
            raise refuse(f"grouping by a {name}")


class ExpressionTyper(ABC):
    """Finds Spark's type of every expression of a qualified tree; statements and their scopes are its subclass's.

    It makes coercions explicit in the tree where DuckDB would coerce otherwise (a float beside a number, a text
    beside a date).
    """

    def __init__(self, time_zone: str, udfs: Udfs) -> None:
        self._time_zone = time_zone
        self._udfs = udfs
        self.functions: dict[str, PortableFunction] = {}
        """The user's functions that the tree calls by now, by their names in DuckDB."""
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], str | None]] = {
            exp.Column: self._column, exp.Literal: self._literal, exp.Boolean: lambda _: "boolean",
            exp.Null: lambda _: "void", exp.Paren: lambda e: self.type_of(e.this), exp.Neg: self._negative,
            exp.Abs: self._number, exp.Cast: self._cast, exp.TsOrDsToDate: self._as_date,
            exp.And: self._booleans, exp.Or: self._booleans, exp.Not: self._booleans,
            exp.Add: self._arithmetic, exp.Sub: self._arithmetic, exp.Mul: self._arithmetic, exp.Div: self._division,
            exp.EQ: self._compare, exp.NEQ: self._compare, exp.GT: self._compare, exp.GTE: self._compare,
            exp.LT: self._compare, exp.LTE: self._compare, exp.NullSafeEQ: self._compare,
            exp.Between: self._compare, exp.In: self._compare, exp.Is: self._is, exp.Like: self._like,
            exp.Case: self._case, exp.If: self._case, exp.Coalesce: self._case,
            exp.Year: self._date_part, exp.Month: self._date_part, exp.Day: self._date_part,
            exp.Quarter: self._date_part, exp.Substring: self._substring, exp.DPipe: self._concatenation,
            exp.Count: self._count, exp.Sum: self._sum, exp.Avg: self._average, exp.Min: self._extreme,
            exp.Max: self._extreme, exp.Exists: self._exists, exp.Subquery: self._subquery,
            exp.Anonymous: self._by_name, exp.MapKeys: self._map_keys, exp.ArrayContains: self._contains,
        }  # fmt: skip

    def type_of(self, node: exp.Expr) -> str:
        """Spark's type of one expression.

        Raises:
            QueryError: it might mean something else to DuckDB.
        """
        rule = self._rules.get(type(node))
        try:
            found = None if rule is None else rule(node)
        except Unusable:
            found = None
        if found is None:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return found

    @abstractmethod
    def _column(self, node: exp.Expr) -> str:
        """The type of a column."""

    @abstractmethod
    def _subquery(self, node: exp.Expr) -> str:
        """The type of the one column that a subquery returns."""

    # Names and constants

    def _literal(self, node: exp.Expr) -> str:
        number = _number_text(node)
        return "string" if number is None else number_type(number)

    def _negative(self, node: exp.Expr) -> str | None:
        return self._number(node) if _number_text(node) is None else self._literal(node)

    def _cast(self, node: exp.Expr) -> str | None:
        target = _spark_type(node.args["to"])
        if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
            if self._is_temporal(node.this.name, target):
                return target
        else:
            source = self.type_of(node.this)
            if source != "void" and common_type(source, target) == target:
                return target
        return None

    # Operators

    def _booleans(self, node: exp.Expr) -> str:
        for child in node.iter_expressions():
            self._expect(child, lambda name: name in ("boolean", "void"))
        return "boolean"

    def _number(self, node: exp.Expr) -> str:
        return self._expect(node.this, is_number)

    def _expect(self, node: exp.Expr, accepts: Callable[[str], bool]) -> str:
        name = self.type_of(node)
        if not accepts(name):
            raise refuse(f"{short(node.sql(dialect='spark'))!r} as an operand")
        return name

    def _arithmetic(self, node: exp.Expr) -> str | None:
        if isinstance(node.expression, exp.Interval):
            return self._shifted_date(node)
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
        """An operand's type; Spark gives a whole number beside a decimal only the digits that it has."""
        name = self.type_of(operand)
        beside_decimal = any(decimal_digits(self.type_of(other)) for other in operands)
        number = _number_text(operand)
        if number is not None and is_integer(name) and beside_decimal:
            return decimal_type(len(number.removeprefix("-")), 0)
        return name

    def _shifted_date(self, node: exp.Expr) -> str | None:
        interval = node.expression
        amount = interval.this
        simple = isinstance(amount, exp.Literal) and re.fullmatch(r"\d{1,6}", amount.name) is not None
        if self.type_of(node.this) != "date" or not simple or interval.text("unit").upper() not in _DATE_UNITS:
            return None
        if not isinstance(node.parent, exp.Cast):
            _wrap(node, "date")
        return "date"

    def _division(self, node: exp.Expr) -> str:
        divisor = node.expression
        names = self.type_of(node.this), self.type_of(divisor)
        known = isinstance(divisor, exp.Literal) and re.search(r"[1-9]", divisor.name) is not None
        if not known or not all(is_integer(name) or name == "double" for name in names):
            raise refuse(f"the division {short(node.sql(dialect='spark'))!r}")
        return "double"

    def _compare(self, node: exp.Expr) -> str:
        names = [self.type_of(operand) for operand in _operands(node)]
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            names.append(self._subquery(node.args["query"]))
            if names[-1] == "float" != names[0]:
                raise refuse(f"comparing a {names[0]} with a float of a subquery")
        for operand in _operands(node):
            self._coerce(operand, names)
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
        """Refuses an order of whole numbers and a decimal that may be beyond BIGINT (see ``outcome_for_all``)."""
        whole = any(is_integer(self.type_of(operand)) for operand in operands)
        for operand in operands:
            digits = decimal_digits(self.type_of(operand)) if whole and not operand.find(exp.Column) else None
            if digits is not None and digits[0] - digits[1] > _BIGINT_DIGITS:
                raise refuse(f"comparing a whole number with {short(operand.sql(dialect='spark'))}")

    def _coerce(self, operand: exp.Expr, names: Sequence[str]) -> None:
        """Makes explicit what Spark does with a text beside a date or time, and with numbers beside a double."""
        own = self.type_of(operand)
        temporal = next((name for name in names if name in ("date", "timestamp")), None)
        if own == "string" and temporal is not None:
            if not isinstance(operand, exp.Literal) or not self._is_temporal(operand.name, temporal):
                raise refuse(f"comparing {short(operand.sql(dialect='spark'))!r} with a {temporal}")
            _wrap(operand, temporal)
        elif own == "float" and any(name != "float" for name in names):
            _wrap(operand, "double")
        elif decimal_digits(own) is not None and any(map(is_floating, names)):
            self._as_double(operand)

    def _as_double(self, operand: exp.Expr) -> None:
        """Writes a literal decimal as the double next to it, as Spark rounds it; DuckDB would round twice."""
        text = _number_text(operand)
        if text is not None:
            literal = exp.Literal.number(f"{float(text.removeprefix('-')):.16e}")  # an exponent makes it a double
            operand.replace(exp.Neg(this=literal) if text.startswith("-") else literal)

    def _is_temporal(self, text: str, type_name: str) -> bool:
        """Whether a text is the plain form of a date or time that both engines read alike."""
        if not _is_plain(text, type_name):
            return False
        return type_name == "date" or is_one_instant(dt.datetime.fromisoformat(text), self._time_zone)

    def _is(self, node: exp.Expr) -> str | None:
        self.type_of(node.this)
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            return None
        return "boolean"

    def _like(self, node: exp.Expr) -> str:
        self._expect(node.this, lambda name: name == "string")
        if not (isinstance(node.expression, exp.Literal) and node.expression.is_string):
            raise refuse("LIKE with a computed pattern")
        return "boolean"

    def _case(self, node: exp.Expr) -> str | None:
        values: list[exp.Expr] = []
        if isinstance(node, exp.Coalesce):
            values = [node.this, *node.expressions]
        for branch in [node] if isinstance(node, exp.If) else node.args.get("ifs") or []:
            if node.args.get("this") is not None and isinstance(node, exp.Case):
                raise refuse("CASE with a value")
            self._expect(branch.this, lambda name: name in ("boolean", "void"))
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

    # Functions

    def _as_date(self, node: exp.Expr) -> str:
        return self._expect(node.this, lambda name: name in _TIMES) and "date"

    def _date_part(self, node: exp.Expr) -> str:
        return self._expect(node.this, lambda name: name in _TIMES) and "int"

    def _substring(self, node: exp.Expr) -> str | None:
        bounds = [node.args.get("start"), node.args.get("length")]
        whole = all(isinstance(b, exp.Literal) and re.fullmatch(r"\d+", b.name) for b in bounds if b is not None)
        if not whole or bounds[0] is None or bounds[0].name == "0":
            return None
        return self._expect(node.this, lambda name: name == "string")

    def _concatenation(self, node: exp.Expr) -> str:
        self._expect(node.this, lambda name: name == "string")
        return self._expect(node.expression, lambda name: name == "string")

    def _count(self, node: exp.Expr) -> str:
        argument = node.this
        if node.expressions or (isinstance(argument, exp.Distinct) and len(argument.expressions) != 1):
            raise refuse("count over several expressions")
        if isinstance(argument, exp.Distinct):
            check_groups([self.type_of(argument.expressions[0])])
        elif not isinstance(argument, exp.Star):
            self.type_of(argument)
        return "bigint"

    def _sum(self, node: exp.Expr) -> str | None:
        return sum_type(self.type_of(node.this))

    def _average(self, node: exp.Expr) -> str | None:
        if self.type_of(node.this) not in ("tinyint", "smallint", "int", "double"):
            return None
        return "double"

    def _extreme(self, node: exp.Expr) -> str | None:
        if node.expressions:
            return None
        return self._expect(node.this, is_portable)

    def _contains(self, node: exp.Expr) -> str | None:
        return self._compared_with(node.this, node.expression)

    def _compared_with(self, array: exp.Expr, constant: exp.Expr) -> str | None:
        """Elements are compared with constants of just their type."""
        of, text = element_type(self.type_of(array)), _number_text(constant)
        is_text = isinstance(constant, exp.Literal) and constant.is_string
        known = is_text if of == "string" else of is not None and text is not None and fits(text, of)
        return "boolean" if known else None

    def _exists(self, node: exp.Expr) -> str | None:
        if not isinstance(node.expression, exp.Lambda):
            return "boolean"  # of a subquery
        compared = compared_end(node)
        return None if compared is None else self._compared_with(node.this, compared.expression)

    def _map_keys(self, node: exp.Expr) -> str | None:
        return part_of_map("map_keys", self.type_of(node.this))

    def _by_name(self, node: exp.Expr) -> str | None:
        name = node.name.casefold()
        if name == "map_values" and name not in self._udfs and len(node.expressions) == 1:
            return part_of_map(name, self.type_of(node.expressions[0]))
        return self._user_defined(node)

    def _user_defined(self, node: exp.Expr) -> str | None:
        known = self.functions.get(node.name)
        if known is not None:  # a tree is typed more than once
            return known.udf.returns
        udf = self._udfs.get(node.name.casefold())
        if udf is None:
            return None
        found = portable_function(udf, [self.type_of(argument) for argument in node.expressions])
        if found is None:
            return None
        self.functions[found.name] = found
        node.set("this", found.name)
        return found.udf.returns


def _number_text(node: exp.Expr) -> str | None:
    """The digits of what Spark's parser takes for a literal number, its sign included; None for all else."""
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
    """Puts a cast around a node, in its place in the tree."""
    node.replace(exp.cast(node.copy(), exp.DataType.build(type_name, dialect="spark")))


def _spark_type(target: exp.DataType) -> str:
    name = target.sql(dialect="spark").lower().replace(" ", "")
    return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(name, name)


def _is_plain(text: str, type_name: str) -> bool:
    shapes = {"date": r"\d{4}-\d\d-\d\d", "timestamp": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?"}
    if type_name not in shapes or re.fullmatch(shapes[type_name], text) is None or text.startswith("0000"):
        return False
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_one_instant(local: dt.datetime, time_zone: str) -> bool:
    """Whether clocks of a zone show a time just once; where they are set back Spark takes the first, DuckDB the last.

    >>> [is_one_instant(dt.datetime(2020, 11, 1, hour, 30), "America/New_York") for hour in (0, 1, 2)]
    [True, False, True]
    """
    try:
        zone = zone_of(time_zone)
    except Unusable:
        return False
    if isinstance(zone, dt.timezone):
        return zone == dt.UTC  # DuckDB knows no other offsets
    return (
        is_agreed(local, zone)
        and local.replace(tzinfo=zone).utcoffset() == local.replace(tzinfo=zone, fold=1).utcoffset()
    )
