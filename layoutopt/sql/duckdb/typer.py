"""Spark's types of a whole query, found expression by expression.

The rules are a list of what is known to mean the same to DuckDB; anything else is refused. Where the engines would
coerce differently, the coercion is written into the tree.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from zoneinfo import ZoneInfo

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from layoutopt.errors import QueryError
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.duckdb import types

_DATE_UNITS = frozenset({"DAY", "WEEK", "MONTH", "YEAR"})
_JOINS = frozenset({"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"})
_BIGINT_DIGITS = 18
"""Every whole number of so many digits is a BIGINT."""
_SELECT_PARTS = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"}
)


MERGED = "merged"
"""Marks a join by USING, whose keys the parser has written as ON and coalesce."""


def refuse(what: str) -> QueryError:
    """The error for something that DuckDB might do otherwise than Spark."""
    return QueryError(f"{what} might mean something else to DuckDB than to Spark; run the query with --engine spark")


def short(text: str, limit: int = 80) -> str:
    """A text for a message: on one line, cut to ``limit`` characters."""
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"


class Typer:
    """Finds Spark's type of every expression of a qualified tree, refusing what is not known to be portable.

    It makes coercions explicit in the tree where DuckDB would coerce otherwise (a float beside a number, a text
    beside a date).
    """

    def __init__(self, tables: Mapping[str, Schema], time_zone: str = "UTC") -> None:
        self._tables = tables
        self._time_zone = time_zone
        self._outputs: dict[int, list[Column]] = {}
        self._scope: Scope | None = None
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], str]] = {
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
            exp.Max: self._extreme, exp.Exists: lambda _: "boolean", exp.Subquery: self._scalar_subquery,
        }  # fmt: skip

    def check(self, tree: exp.Expr) -> list[Column]:
        """The columns of the answer."""
        for scope in traverse_scope(tree):
            self._scope = scope
            outputs = self._set_operation(scope) if scope.set_operation_scopes else self._select(scope)
            self._outputs[id(scope.expression)] = outputs
        return self._outputs[id(tree)]

    def type_of(self, node: exp.Expr) -> str:
        """Spark's type of one expression."""
        rule = self._rules.get(type(node))
        if rule is None:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return rule(node)

    # Statements

    def _select(self, scope: Scope) -> list[Column]:
        select = scope.expression
        if not isinstance(select, exp.Select):
            raise refuse(f"{short(select.sql(dialect='spark'))!r}")
        self._check_parts(select)
        for source in scope.sources.values():
            self._check_source(source)
        seen = {select.args["from_"].this.alias_or_name} if select.args.get("from_") is not None else set()
        for join in select.args.get("joins") or []:
            seen.add(join.this.alias_or_name)
            self._join(join, seen)
        for part in ("where", "having"):
            if select.args.get(part) is not None:
                self.type_of(select.args[part].this)
        self._grouping(select)
        outputs = [Column(item.alias_or_name, self.type_of(item.unalias())) for item in select.selects]
        if select.args.get("distinct") is not None:
            self._check_groups([column.type for column in outputs])
        self._ordering(select, outputs)
        return outputs

    def _check_source(self, source: exp.Expr | Scope) -> None:
        if isinstance(source, Scope):
            return
        present = {name for name, value in source.args.items() if value} - {"this", "alias"}
        if present or (source.args.get("alias") is not None and source.args["alias"].columns):
            raise refuse(f"{short(source.sql(dialect='spark'))!r}")

    def _check_parts(self, select: exp.Select) -> None:
        present = {name for name, value in select.args.items() if value}
        if present - _SELECT_PARTS:
            raise refuse(f"the clause {sorted(present - _SELECT_PARTS)[0].strip('_')!r}")
        if select.args.get("with_") is not None and select.args["with_"].args.get("recursive"):
            raise refuse("a recursive WITH")
        if select.args.get("distinct") is not None and select.args["distinct"].args.get("on"):
            raise refuse("DISTINCT ON")
        for part in ("limit", "offset"):
            value = select.args.get(part)
            if value is not None and not isinstance(value.expression, exp.Literal):
                raise refuse(f"a computed {part.upper()}")

    def _join(self, join: exp.Join, seen: set[str]) -> None:
        if (join.kind or "") not in _JOINS or join.args.get("using") or join.args.get("method"):
            raise refuse(f"the join {short(join.sql(dialect='spark'))!r}")
        on = join.args.get("on")
        if on is None:
            return
        for column in on.find_all(exp.Column):
            # What stands further right can't be meant; Spark may find a struct of that name.
            if column.table in self._sources() and column.table not in seen:
                raise refuse(f"the column {short(column.sql(dialect='spark'))!r}")
        self.type_of(on)
        for key in on.find_all(exp.EQ) if join.meta.get(MERGED) else ():
            names = {self.type_of(key.this), self.type_of(key.expression)}
            if len(names) > 1 or any(types.is_floating(name) for name in names):
                raise refuse(f"joining by USING on a {' and a '.join(sorted(names))}")

    def _sources(self) -> Mapping[str, exp.Expr | Scope]:
        return self._scope.sources if self._scope is not None else {}

    def _grouping(self, select: exp.Select) -> None:
        group = select.args.get("group")
        if group is None:
            return
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise refuse(f"{short(group.sql(dialect='spark'))!r}")
        self._check_groups([self.type_of(item) for item in group.expressions])

    def _check_groups(self, names: Sequence[str]) -> None:
        for name in names:
            if types.is_floating(name) or not types.is_portable(name):
                raise refuse(f"grouping by a {name}")

    def _ordering(self, select: exp.Expr, outputs: Sequence[Column]) -> None:
        order, named = select.args.get("order"), {column.name.lower(): column.type for column in outputs}
        for item in order.expressions if order is not None else []:
            key = item.this
            is_output = isinstance(key, exp.Column) and not key.table and key.name.lower() in named
            name = named[key.name.lower()] if is_output else self.type_of(key)
            if not types.is_portable(name):
                raise refuse(f"ordering by a {name}")

    def _set_operation(self, scope: Scope) -> list[Column]:
        node = scope.expression
        sides = [self._outputs[id(side.expression)] for side in scope.set_operation_scopes]
        present = {name for name, value in node.args.items() if value}
        unknown = present - {"this", "expression", "distinct", "with_", "order", "limit", "offset"}
        if unknown or len(sides) != 2 or [c.type for c in sides[0]] != [c.type for c in sides[1]]:
            raise refuse("a set operation over columns of different types")
        if node.args.get("distinct") or not isinstance(node, exp.Union):
            self._check_groups([column.type for column in sides[0]])
        self._ordering(node, sides[0])
        return sides[0]

    # Names and constants

    def _column(self, node: exp.Expr) -> str:
        qualifier, scope = node.text("table"), self._scope
        while scope is not None and not node.args.get("db"):
            source = scope.sources.get(qualifier)
            if source is not None:
                return self._source_type(source, node.name)
            if any(qualifier.lower() in self._columns_of(each) for each in scope.sources.values()):
                break  # to Spark it is a field of that struct, not an outer query's column
            scope = scope.parent
        raise refuse(f"the column {node.name!r}")

    def _columns_of(self, source: exp.Expr | Scope) -> set[str]:
        """The folded names of a source's columns."""
        if isinstance(source, Scope):
            return {column.name.lower() for column in self._outputs.get(id(source.expression), ())}
        schema = self._tables.get(source.name.lower())
        return {name.lower() for name in schema.names} if schema is not None else set()

    def _source_type(self, source: exp.Expr | Scope, name: str) -> str:
        if isinstance(source, Scope):
            columns: Sequence[Column] = self._outputs[id(source.expression)]
        else:
            schema = self._tables.get(source.name.lower())
            if schema is None:
                raise QueryError(f"there is no table {source.name!r}; the query can read {', '.join(self._tables)}")
            columns = schema.columns
        found = [column.type for column in columns if column.name.lower() == name.lower()]
        if len(found) != 1:
            raise refuse(f"the column {name!r}")
        return found[0]

    def _literal(self, node: exp.Expr) -> str:
        number = _number_text(node)
        name = "string" if number is None else types.literal_type(number)
        if name is None:
            raise refuse(f"the number {number}")
        return name

    def _negative(self, node: exp.Expr) -> str:
        return self._number(node) if _number_text(node) is None else self._literal(node)

    def _cast(self, node: exp.Expr) -> str:
        target = _spark_type(node.args["to"])
        if type(node) is exp.Cast and isinstance(node.this, exp.Literal) and node.this.is_string:
            if self._is_temporal(node.this.name, target):
                return target
        else:
            source = self.type_of(node.this)
            if source != "void" and types.common_type(source, target) == target:
                return target
        raise refuse(f"{short(node.sql(dialect='spark'))!r}")

    # Operators

    def _booleans(self, node: exp.Expr) -> str:
        for child in node.iter_expressions():
            self._expect(child, lambda name: name in ("boolean", "void"))
        return "boolean"

    def _number(self, node: exp.Expr) -> str:
        return self._expect(node.this, types.is_number)

    def _expect(self, node: exp.Expr, accepts: Callable[[str], bool]) -> str:
        name = self.type_of(node)
        if not accepts(name):
            raise refuse(f"{short(node.sql(dialect='spark'))!r} as an operand")
        return name

    def _arithmetic(self, node: exp.Expr) -> str:
        if isinstance(node.expression, exp.Interval):
            return self._shifted_date(node)
        operands = (node.this, node.expression)
        left, right = (self._operand_type(operand, operands) for operand in operands)
        op = "+" if isinstance(node, exp.Add) else "-" if isinstance(node, exp.Sub) else "*"
        name = types.arithmetic_type(op, left, right)
        if name is None:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        for operand in operands:
            if types.is_integer(name) and self.type_of(operand) != name:
                _wrap(operand, name)
        return name

    def _operand_type(self, operand: exp.Expr, operands: Sequence[exp.Expr]) -> str:
        """An operand's type; Spark gives a whole number beside a decimal only the digits that it has."""
        name = self.type_of(operand)
        beside_decimal = any(types.is_decimal(self.type_of(other)) for other in operands)
        number = _number_text(operand)
        if number is not None and types.is_integer(name) and beside_decimal:
            return types.decimal(len(number.removeprefix("-")), 0) or name
        return name

    def _shifted_date(self, node: exp.Expr) -> str:
        interval = node.expression
        amount = interval.this
        simple = isinstance(amount, exp.Literal) and re.fullmatch(r"\d{1,6}", amount.name) is not None
        if self.type_of(node.this) != "date" or not simple or interval.text("unit").upper() not in _DATE_UNITS:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        if not isinstance(node.parent, exp.Cast):
            _wrap(node, "date")
        return "date"

    def _division(self, node: exp.Expr) -> str:
        divisor = node.expression
        names = self.type_of(node.this), self.type_of(divisor)
        known = isinstance(divisor, exp.Literal) and re.search(r"[1-9]", divisor.name) is not None
        if not known or not all(types.is_integer(name) or name == "double" for name in names):
            raise refuse(f"the division {short(node.sql(dialect='spark'))!r}")
        return "double"

    def _compare(self, node: exp.Expr) -> str:
        names = [self.type_of(operand) for operand in _operands(node)]
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            names.append(self._subquery_type(node.args["query"]))
        for operand in _operands(node):
            self._coerce(operand, names)
        common = "void"
        for name in [self.type_of(operand) for operand in _operands(node)] + names[len(_operands(node)) :]:
            unified = types.common_type(common, name)
            if unified is None or not types.is_portable(unified):
                raise refuse(f"comparing a {common} with a {name}")
            common = unified
        if isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
            self._check_range(_operands(node))
        return "boolean"

    def _check_range(self, operands: Sequence[exp.Expr]) -> None:
        """Refuses an order of whole numbers and a decimal that may be beyond BIGINT (:mod:`.beyond_bigint`)."""
        whole = any(types.is_integer(self.type_of(operand)) for operand in operands)
        for operand in operands:
            parts = types.decimal_parts(self.type_of(operand)) if whole and not operand.find(exp.Column) else None
            if parts is not None and types.is_decimal(self.type_of(operand)) and parts[0] - parts[1] > _BIGINT_DIGITS:
                raise refuse(f"comparing a whole number with {short(operand.sql(dialect='spark'))}")

    def _coerce(self, operand: exp.Expr, names: Sequence[str]) -> None:
        """Makes explicit what Spark does with a text beside a date or time, and with a float beside another number."""
        own = self.type_of(operand)
        temporal = next((name for name in names if name in ("date", "timestamp")), None)
        if own == "string" and temporal is not None:
            if not isinstance(operand, exp.Literal) or not self._is_temporal(operand.name, temporal):
                raise refuse(f"comparing {short(operand.sql(dialect='spark'))!r} with a {temporal}")
            _wrap(operand, temporal)
        elif own == "float" and any(name != "float" for name in names):
            _wrap(operand, "double")

    def _is_temporal(self, text: str, type_name: str) -> bool:
        """Whether a text is the plain form of a date or time that both engines read alike."""
        if not _is_plain(text, type_name):
            return False
        return type_name == "date" or is_one_instant(dt.datetime.fromisoformat(text), self._time_zone)

    def _is(self, node: exp.Expr) -> str:
        self.type_of(node.this)
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return "boolean"

    def _like(self, node: exp.Expr) -> str:
        self._expect(node.this, lambda name: name == "string")
        if not (isinstance(node.expression, exp.Literal) and node.expression.is_string):
            raise refuse("LIKE with a computed pattern")
        return "boolean"

    def _case(self, node: exp.Expr) -> str:
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
            unified = types.common_type(common, self.type_of(value))
            if unified is None:
                raise refuse(f"{short(node.sql(dialect='spark'))!r}")
            common = unified
        return common

    # Functions

    def _as_date(self, node: exp.Expr) -> str:
        return self._expect(node.this, lambda name: name in ("date", "timestamp", "timestamp_ntz")) and "date"

    def _date_part(self, node: exp.Expr) -> str:
        return self._expect(node.this, lambda name: name in ("date", "timestamp", "timestamp_ntz")) and "int"

    def _substring(self, node: exp.Expr) -> str:
        bounds = [node.args.get("start"), node.args.get("length")]
        whole = all(isinstance(b, exp.Literal) and re.fullmatch(r"\d+", b.name) for b in bounds if b is not None)
        if not whole or bounds[0] is None or bounds[0].name == "0":
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return self._expect(node.this, lambda name: name == "string")

    def _concatenation(self, node: exp.Expr) -> str:
        self._expect(node.this, lambda name: name == "string")
        return self._expect(node.expression, lambda name: name == "string")

    def _count(self, node: exp.Expr) -> str:
        argument = node.this
        if node.expressions or (isinstance(argument, exp.Distinct) and len(argument.expressions) != 1):
            raise refuse("count over several expressions")
        if isinstance(argument, exp.Distinct):
            self._check_groups([self.type_of(argument.expressions[0])])
        elif not isinstance(argument, exp.Star):
            self.type_of(argument)
        return "bigint"

    def _sum(self, node: exp.Expr) -> str:
        name = types.sum_type(self.type_of(node.this))
        if name is None:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return name

    def _average(self, node: exp.Expr) -> str:
        if self.type_of(node.this) not in ("tinyint", "smallint", "int", "double"):
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return "double"

    def _extreme(self, node: exp.Expr) -> str:
        if node.expressions:
            raise refuse(f"{short(node.sql(dialect='spark'))!r}")
        return self._expect(node.this, types.is_portable)

    def _scalar_subquery(self, node: exp.Expr) -> str:
        return self._subquery_type(node)

    def _subquery_type(self, node: exp.Expr) -> str:
        outputs = self._outputs.get(id(node.unnest()), [])
        if len(outputs) != 1:
            raise refuse(f"the subquery {short(node.sql(dialect='spark'))!r}")
        return outputs[0].type


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
    if time_zone == "UTC":
        return True
    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, OSError, ValueError):
        return False
    return local.replace(tzinfo=zone).utcoffset() == local.replace(tzinfo=zone, fold=1).utcoffset()
