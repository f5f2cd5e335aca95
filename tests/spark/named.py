"""Generated texts in which columns, fields of structs, aliases, common tables and keys share a handful of names."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, field

import pyarrow as pa

from layoutopt.model.schema import Column, Schema

NAMES = ("a", "b", "c", "k")
ROWS = 48

_B = pa.struct([("a", pa.int32()), ("b", pa.int32()), ("c", pa.int32()), ("k", pa.string())])
_A = pa.struct([("b", pa.int32()), ("c", pa.int32())])
ARROW = {
    "t": pa.schema([("a", pa.int32()), ("b", _B), ("c", pa.int32()), ("k", pa.date32()), ("id", pa.int32())]),
    "u": pa.schema([("c", pa.int32()), ("k", pa.date32()), ("a", _A), ("b", pa.int32()), ("id", pa.int32())]),
    "v": pa.schema([("k", pa.string()), ("b", _A), ("a", pa.string()), ("c", pa.int64())]),
}
"""t and u are laid out; v is a view that is not, with keys of other types than theirs."""
_STRUCTS = {"struct<a:int,b:int,c:int,k:string>": _B, "struct<b:int,c:int>": _A}
_TYPES = {pa.int32(): "int", pa.date32(): "date", **{kind: name for name, kind in _STRUCTS.items()}}
SCHEMAS = {name: Schema(tuple(Column(each.name, _TYPES[each.type]) for each in ARROW[name])) for name in ("t", "u")}


def named_rows(name: str) -> pa.Table:
    """Few values, in order, so that blocks of neighbours can be skipped; struct fields have them in another order."""
    rows = ROWS if name != "v" else 8
    rng = random.Random(name)

    def value(kind: pa.DataType, row: int) -> object:
        number = row * 8 // rows
        if rng.random() < 0.05:
            return None
        if pa.types.is_struct(kind):
            return {each.name: value(each.type, (row * 5 + 11) % rows) for each in kind}
        if pa.types.is_date(kind):
            return dt.date(2020, 1 + number // 2, 1 + number % 2 * 10)
        return number

    def text(column: str, row: int) -> str:
        number = row % 8
        if column == "a":
            return rng.choice(["{}", "0{}", " {}"]).format(number)
        day = dt.date(2020, 1 + number // 2, 1 + number % 2 * 10)
        return rng.choice([str(day), f"{day.year}-{day.month}-{day.day}"])

    columns = {
        each.name: [
            row
            if each.name == "id"
            else text(each.name, row)
            if pa.types.is_string(each.type)
            else value(each.type, row)
            for row in range(rows)
        ]
        for each in ARROW[name]
    }
    for each in columns.get("b", ()):
        if isinstance(each, dict) and isinstance(each.get("k"), int):
            each["k"] = text("k", each["k"])
    return pa.table({key: pa.array(columns[key], ARROW[name].field(key).type) for key in columns})


Kind = str | dict[str, "Kind"]
"""number, text (of a number) or day; or the fields of a struct."""
Scope = list[tuple[str, dict[str, Kind]]]
"""The sources of a FROM clause by their aliases, each with its columns."""

_STRUCT_A: dict[str, Kind] = {"b": "number", "c": "number"}
_STRUCT_B: dict[str, Kind] = {"a": "number", "b": "number", "c": "number", "k": "day"}
_COLUMNS: dict[str, dict[str, Kind]] = {
    "t": {"a": "number", "b": _STRUCT_B, "c": "number", "k": "day", "id": "number"},
    "u": {"c": "number", "k": "day", "a": _STRUCT_A, "b": "number", "id": "number"},
    "v": {"k": "day", "b": _STRUCT_A, "a": "text", "c": "number"},
}
_DAYS = [f"'2020-0{month}{day}'" for month in (1, 2, 3, 4) for day in ("", "-01", "-11", "-1")]
_JOINS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")


@dataclass
class Texts:
    """Makes texts. Spark refuses some of them: a name is ambiguous, or a number has no fields."""

    rng: random.Random
    common: dict[str, dict[str, Kind]] = field(default_factory=dict)

    def text(self) -> str:
        """One SELECT statement."""
        self.common = {}
        if not self._once_in(5):
            return self._select(2)[0]
        name = self.rng.choice(NAMES)
        text, columns = self._select(1)
        given, columns = self._renamed(columns)
        self.common = {name: columns}
        return f"WITH {name}{given} AS ({text}) {self._select(1)[0]}"

    def _once_in(self, times: int) -> bool:
        return self.rng.randrange(times) == 0

    def _renamed(self, columns: dict[str, Kind]) -> tuple[str, dict[str, Kind]]:
        """Names that a text gives to the columns of a derived table, now and then."""
        if not self._once_in(5):
            return "", columns
        names = self.rng.sample([*NAMES, "id", "x", "y", "z"], min(len(columns), 8))
        return f"({', '.join(names)})", dict(zip(names, columns.values(), strict=False))

    def _select(self, depth: int) -> tuple[str, dict[str, Kind]]:
        source, scope = self._from(depth)
        if self._once_in(15):
            alias, name = self.rng.choice(NAMES), self.rng.choice(NAMES)
            source += f" LATERAL VIEW explode(array(1, 2)) {alias} AS {name}"
            scope = [*scope, (alias, {name: "number"})]
        items, columns = self._items(scope)
        where = "" if self._once_in(10) else f" WHERE {self._where(scope, depth)}"
        return f"SELECT {items} FROM {source}{where}", columns

    def _items(self, scope: Scope) -> tuple[str, dict[str, Kind]]:
        shape = self.rng.randrange(10)
        if shape < 4:
            return "*", {name: kind for _, columns in reversed(scope) for name, kind in columns.items()}
        if shape < 6:
            alias, columns = self.rng.choice(scope)
            return f"{alias}.*", columns
        found = {name: self._name(scope, whole=True) for name in self.rng.sample(NAMES, self.rng.randint(1, 3))}
        return ", ".join(f"{text} AS {name}" for name, (text, _) in found.items()), {
            n: k for n, (_, k) in found.items()
        }

    def _from(self, depth: int) -> tuple[str, Scope]:
        source, scope = self._source(depth, [])
        for _ in range(self.rng.choice([0, 0, 1, 1, 1, 2])):
            source, scope = self._joined(source, scope, depth)
        return source, scope

    def _joined(self, left: str, scope: Scope, depth: int) -> tuple[str, Scope]:
        kind, shape = self.rng.choice(_JOINS), self.rng.randrange(20)
        if shape == 0:
            alias, name = self.rng.choice(NAMES), self.rng.choice(NAMES)
            inner, its = self._name(scope, whole=True)
            return f"{left}, LATERAL (SELECT {inner} AS {name}) {alias}", [*scope, (alias, {name: its})]
        right, (its_scope,) = self._source(depth, scope)
        both = [*scope, its_scope]
        keys = [name for name in its_scope[1] if any(name in columns for _, columns in scope)]
        if shape == 1:
            return f"{left}, {right}", both
        if shape < 5 and "SEMI" not in kind and "ANTI" not in kind:
            joined = f"{left} NATURAL {kind} {right}"
        elif shape < 13 and keys:
            chosen = self.rng.sample(keys, 2 if len(keys) > 1 and self._once_in(4) else 1)
            joined = f"{left} {kind} {right} USING ({', '.join(chosen)})"
        else:
            (name, its), equal = self._name([its_scope], whole=True), ""
            if isinstance(its, str) and self.rng.random() < 0.7:
                equal = f"{name} = {self._name(scope, of=its)[0]} AND "
            joined = f"{left} {kind} {right} ON {equal}{self._test(both)}"
        return joined, scope if "SEMI" in kind or "ANTI" in kind else both

    def _source(self, depth: int, left: Scope) -> tuple[str, Scope]:
        taken = {alias for alias, _ in left}
        aliases = [name for name in (*NAMES, *NAMES, "x") if name not in taken or self._once_in(15)]
        alias, shape = self.rng.choice(aliases), self.rng.randrange(20)
        if depth and shape < 5:
            text, columns = self._select(depth - 1)
            if self._once_in(4):
                text += f" UNION ALL {text if self._once_in(2) else self._select(depth - 1)[0]}"
            given, columns = self._renamed(columns)
            return f"({text}) {alias}{given}", [(alias, columns)]
        if self.common and shape < 12:
            ((name, columns),) = self.common.items()
            return self.rng.choice([(name, [(name, columns)]), (f"{name} {alias}", [(alias, columns)])])
        if shape == 12:
            name = self.rng.choice("abc")
            text = f"VALUES ('2020-1-1', 1), ('2020-02-11', 3) {alias}(k, {name})"
            return text, [(alias, {"k": "day", name: "number"})]
        table = self.rng.choice("tttuuv")
        if self._once_in(3):
            alias = "a" if table == "u" else "b"  # as a struct of its own
        elif self._once_in(5) and table not in taken:
            alias = table
        return table if alias == table else f"{table} {alias}", [(alias, _COLUMNS[table])]

    def _name(self, scope: Scope, whole: bool = False, of: str | None = None) -> tuple[str, Kind]:
        """A name of one to three parts, most often of a column or field there is; ``whole``: it may be a struct."""
        for _ in range(20):
            alias, columns = self.rng.choice(scope)
            parts = [alias, self.rng.choice(list(columns) or ["a"])]
            kind = columns.get(parts[1], "number")
            while isinstance(kind, dict) and not (whole and self._once_in(2)):
                parts.append(self.rng.choice(list(kind)))
                kind = kind[parts[-1]]
            if of is None or kind == of:
                break
        unique = sum(parts[1] in columns for _, columns in scope) == 1
        if self.rng.random() < (0.5 if unique else 0.04):
            parts = parts[1:]
        if self._once_in(25):
            parts = [self.rng.choice(NAMES), *parts[1:]]
        return ".".join(part.upper() if self._once_in(12) else part for part in parts), kind

    def _test(self, scope: Scope) -> str:
        name, kind = self._name(scope)
        values = _DAYS if kind == "day" else [str(number) for number in range(8)]
        shape = self.rng.randrange(20)
        if shape == 0:
            return f"{name} IS {self.rng.choice(['', 'NOT '])}NULL"
        if shape < 4:
            return f"{name} IN ({', '.join(self.rng.sample(values, 2))})"
        return f"{name} {self.rng.choice(['=', '=', '<', '<', '>=', '<>', '<=>'])} {self.rng.choice(values)}"

    def _where(self, scope: Scope, depth: int) -> str:
        tests = [self._test(scope) for _ in range(self.rng.choice([1, 1, 2]))]
        if depth and self._once_in(4):
            tests.append(self._subquery(scope))
        return self.rng.choice([" AND ", " AND ", " AND ", " OR "]).join(tests)

    def _subquery(self, scope: Scope) -> str:
        source, inside = self._source(0, [])
        name, kind = self._name(inside)
        test = self._test(inside if self._once_in(2) else [*inside, *scope])
        given, negated = self._name(scope, of=str(kind))[0], self.rng.choice(["", "", "NOT "])
        if self._once_in(2):
            return f"{given} {negated}IN (SELECT {name} FROM {source} WHERE {test})"
        return f"{negated}EXISTS (SELECT 1 FROM {source} WHERE {name} = {given} AND {test})"
