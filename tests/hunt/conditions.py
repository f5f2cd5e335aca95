"""Generated conditions over what a text can name at one place, in Spark's SQL that hardly any row makes fail."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.hunt.pieces import Kind, Piece, condition, piece
from tests.hunt.tables import World
from tests.hunt.values import FAMILIES, PREFIX

_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z]*")
_RESERVED = {"order", "date", "value"}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_INTEGERS, "float", "double", "decimal(5,2)", "decimal(18,0)", "decimal(38,18)")
_PARAMETERS = ("int", "string", "boolean", "date", "double")
_PLAIN = (*_INTEGERS, "decimal(5,2)", "decimal(18,0)", "string", "digits", "date", "timestamp_ntz", "boolean", "double")
_OPERATORS = ("=", "=", "=", "<", "<=", ">", ">=", "<>", "<=>", "!=")
_PATTERNS = ("'a%'", "'%b'", "'%é%'", "'_'", "'50\\\\%'", "'x%x'", "'%'", "''", "'ab'", f"'{PREFIX}%'", "'z%'", "'it%'")


@dataclass(frozen=True)
class Ref:
    """Something with a value in each row, and literals that it may be compared with."""

    sql: str
    family: str
    literals: Sequence[str]
    own: Sequence[str] = ()
    in_struct: bool = False
    beyond: Sequence[str] = ()


def name_in_sql(name: str, rng: random.Random) -> str:
    """A column's name as somebody may write it: in quotes where needed, in another case now and then."""
    if not _PLAIN_NAME.fullmatch(name) or name in _RESERVED:
        return "`" + name.replace("`", "``") + "`"
    return rng.choice([name, name, name, f"`{name}`", name.upper()])


def refs_of(world: World, alias: str, rng: random.Random, qualified: bool) -> list[Ref]:
    """The columns of the table under an alias, and fields of its structs."""
    found = []
    for given in world.given:
        before = f"{alias}." if qualified or rng.random() < 0.2 else ""
        name = before + name_in_sql(given.name, rng)
        if given.fields:
            if world.switches.struct_paths:
                ints = FAMILIES["int"]
                own = tuple("01234567")
                found += [Ref(f"{name}.{field}", "int", ints.literals, own, True) for field in given.fields]
        else:
            family = FAMILIES[given.family]
            beyond = family.beyond if world.switches.beyond else ()
            found.append(Ref(name, given.family, family.literals, given.own, beyond=beyond))
    return found


class Conditions:
    """Conditions over some refs.

    Args:
        refs: what the conditions are about.
        rng: decides what is drawn.
        known: conditions of the workload, whose features tables are built with; written over the plain columns.
        parameter: makes a parameter of a value's literal; None where there are none.
        plain: only comparisons of columns with literals of their own types, which every engine knows.
    """

    def __init__(
        self,
        refs: Sequence[Ref],
        rng: random.Random,
        known: Sequence[str] = (),
        parameter: Callable[[str, object], Piece] | None = None,
        plain: bool = False,
    ) -> None:
        self.refs, self.rng, self.known, self.parameter, self.plain = refs, rng, known, parameter, plain
        if plain:
            self.refs = [ref for ref in refs if ref.family in _PLAIN and not ref.in_struct and '"' not in ref.sql]

    def draw(self, depth: int = 2) -> Piece:
        """A condition; most are conjunctions, which skip more."""
        kind = self.rng.random()
        if depth and kind < 0.30:
            return condition("(", self.draw(depth - 1), " AND ", self.draw(depth - 1), ")")
        if depth and kind < 0.40:
            return condition("(", self.draw(depth - 1), " OR ", self.draw(depth - 1), ")")
        if depth and kind < 0.45:
            return condition("NOT (", self.draw(depth - 1), ")")
        return self.atom()

    def atom(self) -> Piece:
        """One test."""
        if self.known and not self.plain and self.rng.random() < 0.4:
            return condition(self.rng.choice(self.known))
        if self.rng.random() < 0.15:
            return condition(f"{self._id()} BETWEEN {(low := self.rng.randrange(200))} AND {low + 25}")
        ref = self.rng.choice(self.refs)
        return self.rng.choice([self._compared, self._compared, self._listed, self._between, self._about])(ref)

    def _id(self) -> str:
        return next(ref.sql for ref in self.refs if ref.sql.split(".")[-1].strip("`").casefold() == "id")

    def literal(self, ref: Ref) -> Piece:
        """A literal, or a parameter, to compare with."""
        if self.parameter and ref.family in _PARAMETERS and ref.own and self.rng.random() < 0.5:
            text = self.rng.choice(ref.own)
            return self.parameter(text, _value(text, ref.family))
        if ref.beyond and self.rng.random() < 0.15:
            return piece(self.rng.choice(ref.beyond))
        if ref.own and (self.plain or self.rng.random() < 0.6):
            return piece(self.rng.choice(ref.own))
        return piece(self.rng.choice([*ref.literals, "NULL"]) if ref.literals else "NULL")

    def _comparable(self, ref: Ref) -> bool:
        return not ref.family.startswith("map") and bool(ref.literals)

    def _compared(self, ref: Ref) -> Piece:
        if not self._comparable(ref):
            return self._about(ref)
        other, op = self.literal(ref), self.rng.choice(_OPERATORS)
        if self.rng.random() < 0.1:
            return condition(other, f" {op} {ref.sql}")
        if self.rng.random() < 0.1:
            word = self.rng.choice(["IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
            return condition(f"{ref.sql} {word} ", other)
        return condition(f"{ref.sql} {op} ", other)

    def _listed(self, ref: Ref) -> Piece:
        if not self._comparable(ref):
            return self._about(ref)
        values: list[str | Piece] = []
        for _ in range(self.rng.randint(1, 4)):
            values += [", ", self.literal(ref)]
        return condition(f"{ref.sql} {self.rng.choice(['IN', 'IN', 'NOT IN'])} (", *values[1:], ")")

    def _between(self, ref: Ref) -> Piece:
        if not self._comparable(ref):
            return self._about(ref)
        word = self.rng.choice(["BETWEEN", "BETWEEN", "NOT BETWEEN"])
        return condition(f"{ref.sql} {word} ", self.literal(ref), " AND ", self.literal(ref))

    def _about(self, ref: Ref) -> Piece:
        """A test by a function, or of another column."""
        c, rng = ref.sql, self.rng
        if self.plain:
            return condition(f"{c} IS {rng.choice(['', 'NOT '])}NULL")
        some = [f"{c} IS NULL", f"{c} IS NOT NULL"]
        if self._comparable(ref):
            a, b = rng.choice(ref.own or ref.literals), rng.choice(ref.literals)
            some += [f"coalesce({c}, {a}) = {b}", f"nullif({c}, {a}) IS NULL", f"ifnull({c}, {a}) <= {a}"]
            some += [f"CASE WHEN {c} = {a} THEN 1 WHEN {c} IS NULL THEN 2 ELSE 3 END < 3", f"NOT {c} = {a}"]
            some += [f"({c} = {a}) IS NOT TRUE", f"({c} < {a}) IS NULL", f"if({c} = {a}, {c}, {a}) = {a}"]
            some += [f"NOT ({c} IN ({a}, NULL))", f"({c} = {a}) = ({c} = {b})", f"({c}, 1) IN (({a}, 1), ({b}, 2))"]
        some += self._by_type(ref.family, c)
        fit = [other.sql for other in self.refs if other.family == ref.family and other.sql != c]
        if fit and not ref.family.startswith("map"):
            some += [f"{c} {rng.choice(_OPERATORS)} {rng.choice(fit)}"] * 2
        return condition(rng.choice(some))

    def _by_type(self, family: str, c: str) -> list[str]:
        rng = self.rng
        if family in _INTEGERS:
            small = f"{c} IS NOT NULL AND pmod({c}, 7) = {rng.randrange(7)}"
            return [
                f"{c} % 3 = 1",
                small,
                f"cast({c} AS double) > 4.5",
                f"cast({c} AS string) > '2'",
                f"try_add({c}, 1) > 5",
            ]
        if family in _NUMBERS:
            signed = [f"cast({c} AS string) LIKE '%5%'", f"{c} * 1 = {c}", f"try_cast({c} AS int) = 5"]
            return [*signed, f"isnan({c})", f"abs({c}) > 0.1"] if family in ("float", "double") else signed
        if family in ("string", "digits"):
            return [
                f"{c} LIKE {rng.choice(_PATTERNS)}", f"{c} NOT LIKE {rng.choice(_PATTERNS)}", f"{c} ILIKE 'A%'",
                f"length({c}) > {rng.randrange(4)}", f"substring({c}, 1, 1) = 'x'", f"{c} || 'b' = 'ab'",
                f"startswith({c}, 'x')", f"trim({c}) = 'a'", f"upper({c}) = 'É'", f"{c} RLIKE '^a'",
                f"lower({c}) = 'a_b'", f"try_cast({c} AS int) = 5", f"contains({c}, 'a')", f"{c} LIKE ANY ('a%', '%b')",
            ]  # fmt: skip
        if family == "boolean":
            return [c, f"NOT {c}", f"{c} IS NOT TRUE", f"{c} IS FALSE", f"{c} = true"]
        if family in ("date", "timestamp", "timestamp_ntz"):
            return [
                f"year({c}) = 1994", f"month({c}) < 6", f"year({c}) BETWEEN 1970 AND 1994", f"dayofweek({c}) = 5",
                f"date_trunc('month', {c}) = '1994-01-01'", f"trunc({c}, 'year') < '1994-01-01'", f"day({c}) = 31",
                f"cast({c} AS date) = date '1994-01-01'", f"quarter({c}) = 4", f"{c} > date '1990-01-01'",
                f"cast({c} AS string) < '1994'", f"extract(YEAR FROM {c}) = 2021",
            ]  # fmt: skip
        if family == "array<int>":
            return [
                f"array_contains({c}, 5)",
                f"size({c}) > 1",
                f"get({c}, 0) = 5",
                f"{c} = array(5)",
                f"exists({c}, v -> v > 1)",
                f"exists({c}, v -> v BETWEEN 2 AND 5)",
                f"arrays_overlap({c}, array(5, 7))",
            ]
        if family == "map<string,int>":
            return [
                f"{c}['a'] = 1",
                f"size({c}) = 0",
                f"map_contains_key({c}, 'b')",
                f"exists(map_values({c}), v -> v > 1)",
            ]
        return [f"length({c}) > 1", f"hex({c}) LIKE 'F%'"]


def _value(text: str, family: str) -> object:
    """What Python passes for a literal."""
    if family == "boolean":
        return text == "true"
    if family == "int":
        return int(text)
    inner = text.partition("'")[2].rpartition("'")[0]
    if family == "double":
        return float(inner)
    return dt.date.fromisoformat(inner) if family == "date" else inner.replace("\\'", "'")


def parameters(prefix: str) -> Callable[[str, object], Piece]:
    """Makes parameters with names that no other text has."""
    count = 0

    def make(text: str, value: object) -> Piece:
        nonlocal count
        count += 1
        return Piece((text,), Kind.PARAMETER, name=f"{prefix}_{count}", value=value)

    return make
