"""Generated queries over a world's table, called `t`: each gives the same rows however it is run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.hunt.conditions import Conditions, Ref, name_in_sql, parameters, refs_of
from tests.hunt.pieces import Kind, Piece, clause, condition, piece
from tests.hunt.tables import World
from tests.hunt.values import FAMILIES

_ALIASES = ("b", "c", "k", "t", "x", "y", "A1")
_ORDERED = ("tinyint", "smallint", "int", "bigint", "decimal(5,2)", "decimal(18,0)", "string", "digits", "date")
_KEYS = ("int", "tinyint", "string", "digits", "date", "boolean", "timestamp", "decimal(5,2)", "bigint")


@dataclass(frozen=True)
class Ask:
    """A text to ask.

    Attributes:
        number: its place among the texts of a world.
        query: the text.
        flat: it is one SELECT of plain columns, `id` the first, of one mention of the table under one condition.
        columns: the columns that a flat one selects.
    """

    number: int
    query: Piece
    flat: bool = False
    columns: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """The text with literals for its parameters."""
        return str(self.query)


class Queries:
    """Queries over a world.

    Args:
        world: the rows and names.
        known: conditions over plain columns, of which tables have features.
        rng: decides what is drawn.
    """

    def __init__(self, world: World, known: Sequence[str], rng: random.Random) -> None:
        self.world, self.known, self.rng = world, known, rng
        self._prefix, self._plain = "p", False

    def ask(self, number: int) -> Ask:
        """The next text."""
        self._prefix, self._plain = f"p{number}", self.rng.random() < 0.5
        draw = self.rng.random()
        if draw < 0.45:
            return self._flat(number)
        shapes = [
            (self.aggregated, 5), (self.joined, 6), (self.using, 4), (self.subquery, 6), (self.cte, 3), (self.sets, 3),
            (self.windowed, 3), (self.derived, 3), (self.pipes, 2), (self.exploded, 1), (self.values, 2),
            (self.limited, 2), (self.outer_nulls, 2), (self.struct_star, 3),
        ]  # fmt: skip
        shape = self.rng.choices([shape for shape, _ in shapes], [weight for _, weight in shapes])[0]
        return Ask(number, shape())

    # What the shapes are made of.

    def alias(self) -> str:
        """A name for the table: maybe one of a column's or a struct's field's."""
        if not self.world.switches.struct_paths:
            return self.rng.choice(["t", "y", "A1"])
        structs = [given.name for given in self.world.given if given.fields]
        return self.rng.choice(structs if self.rng.random() < 0.3 else _ALIASES)

    def mention(self, alias: str) -> Piece:
        """The table under an alias."""
        table = self.rng.choice(["t", "t", "t", "T", "`t`"])
        if alias == "t" and self.rng.random() < 0.6:
            return piece(table, kind=Kind.RELATION)
        return piece(f"{table} {self.rng.choice(['', 'AS '])}{alias}", kind=Kind.RELATION)

    def refs(self, alias: str, qualified: bool = False) -> list[Ref]:
        """What can be named of the table."""
        return refs_of(self.world, alias, self.rng, qualified)

    def conditions(self, alias: str, qualified: bool = False) -> Conditions:
        """Conditions over the table alone."""
        known = () if qualified else self.known
        make = parameters(self._prefix) if self.rng.random() < 0.3 else None
        self._prefix += "x"
        return Conditions(self.refs(alias, qualified), self.rng, known, make, self._plain)

    def where(self, alias: str, qualified: bool = False) -> Piece:
        """A WHERE clause over the table alone."""
        return clause(" WHERE ", self.conditions(alias, qualified).draw())

    def column(self, families: Sequence[str]) -> str:
        """The name of a column of one of these families, `id` where there is none."""
        nested = ("array<int>", "map<string,int>") if self._plain else ()
        fit = [given.name for given in self.world.given if given.family in families and given.family not in nested]
        return self.rng.choice(fit or ["id"])

    def q(self, name: str) -> str:
        """A name as it may be written."""
        return name_in_sql(name, self.rng)

    def type_of(self, name: str) -> str:
        """The type of a column."""
        return next(given.type for given in self.world.given if given.name == name)

    def _flat(self, number: int) -> Ask:
        nested = "<" if self._plain else "-"  # no type has that
        alias, names = self.alias(), [given.name for given in self.world.given if nested not in given.type]
        chosen = ["id", *self.rng.sample(names[1:], self.rng.randint(0, 4))]
        before = self.rng.choice(["", "", f"{alias}."])
        items = ", ".join(before + self.q(name) for name in chosen)
        types = tuple(map(self.type_of, chosen))
        query = piece(f"SELECT {items} FROM ", self.mention(alias), self.where(alias), kind=Kind.QUERY, types=types)
        return Ask(number, query, True, tuple(chosen))

    # The shapes.

    def aggregated(self) -> Piece:
        """Groups, with a condition before and maybe one after; maybe of several sets of columns."""
        alias, key, other = self.alias(), self.column(_KEYS), self.column(_ORDERED)
        k, o = self.q(key), self.q(other)
        kinds = [f" GROUP BY {k}", f" GROUP BY {k}", f" GROUP BY ROLLUP({k})", f" GROUP BY CUBE({k})",
                 f" GROUP BY GROUPING SETS (({k}), ())", ""]  # fmt: skip
        grouping = self.rng.choice(kinds)
        first = k if grouping else "max(id)"
        having = [" HAVING count(*) > 1", f" HAVING {k} IS NOT NULL", " HAVING max(id) > 100", ""]
        chosen = self.rng.choice(having) if grouping else ""
        value = self.rng.choice(["count(DISTINCT id)", "sum(id)", "avg(id)", "count_if(id > 9)"])
        return piece(
            f"SELECT {first} AS g, count(*) AS n, min({o}), max({o}), {value} AS v FROM ", self.mention(alias),
            self.where(alias), grouping, clause(chosen), kind=Kind.QUERY,
            types=(self.type_of(key) if grouping else "int", "bigint", *[self.type_of(other)] * 2, "bigint"),
        )  # fmt: skip

    def joined(self) -> Piece:
        """The table with itself."""
        left, right = self.rng.sample(_ALIASES, 2)
        kind = self.rng.choice(
            [
                "JOIN",
                "INNER JOIN",
                "LEFT JOIN",
                "RIGHT JOIN",
                "FULL JOIN",
                "LEFT SEMI JOIN",
                "LEFT ANTI JOIN",
                "CROSS JOIN",
            ]
        )
        key, unique = self.column(_KEYS), self.rng.random() < 0.5
        key = "id" if unique else key
        one, two = self.conditions(left, True), self.conditions(right, True)
        only_left = "SEMI" in kind or "ANTI" in kind
        on: Piece = piece("")
        if kind != "CROSS JOIN":
            extra = [clause(" AND ", side.draw(1)) for side in (one, two) if self.rng.random() < 0.6]
            op = self.rng.choice(["=", "=", "=", "<=>"])
            on = piece(f" ON {left}.{self.q(key)} {op} {right}.{self.q(key)}", *extra)
        parts: list[str | Piece] = [one.draw(1)]
        if not only_left and self.rng.random() < 0.6:
            parts += [" AND ", two.draw(1)]
        where = clause(" WHERE ", *parts) if kind == "CROSS JOIN" or self.rng.random() < 0.8 else piece("")
        tables = piece(self.mention_as(left), f" {kind} ", self.mention_as(right), on, kind=Kind.RELATION)
        if unique and kind != "CROSS JOIN":
            name = self.column(tuple(FAMILIES))
            types: tuple[str, ...] = ("int", self.type_of(name))
            items = f"{left}.id, {left}.{self.q(name)}"
            if not only_left:
                items, types = f"{items}, {right}.id AS other", (*types, "int")
        else:
            far = left if only_left else right
            items = f"count(*) AS n, min({left}.id) AS a, max({far}.id) AS z, count(DISTINCT {far}.id) AS d"
            types = ("bigint", "int", "int", "bigint")
        return piece(f"SELECT {items} FROM ", tables, where, kind=Kind.QUERY, types=types)

    def mention_as(self, alias: str) -> Piece:
        """The table, or a query of some of its rows, under an alias that is surely written."""
        if self.rng.random() < 0.15:
            return piece("(SELECT * FROM t", self.where("t"), f") {alias}", kind=Kind.RELATION)
        return piece(f"t {self.rng.choice(['', 'AS '])}{alias}", kind=Kind.RELATION)

    def using(self) -> Piece:
        """A join by names, maybe of columns of other types."""
        key = self.column(_KEYS)
        given = next(given for given in self.world.given if given.name == key)
        k, kind = self.q(key), self.rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN"])
        casts = {"int": ["bigint", "string", "double", "decimal(20,3)", "smallint"], "tinyint": ["int", "double"],
                 "digits": ["string", "int", "double"], "date": ["timestamp", "string", "timestamp_ntz"],
                 "timestamp": ["date", "string"], "decimal(5,2)": ["double", "int"], "bigint": ["double", "int"],
                 "string": ["string"], "boolean": ["boolean", "string"]}  # fmt: skip
        types = casts.get(given.family, [given.type]) if self.world.switches.using_types else [given.type]
        of = f"try_cast({k} AS {self.rng.choice(types)})"
        inner = piece(f"(SELECT DISTINCT {of} AS {k} FROM t", self.where("t"), ") y")
        how = self.rng.choice([f" USING ({k})", f" USING ({k})", ""])
        left, right = (inner, piece("t")) if self.rng.random() < 0.4 and "SEMI" not in kind else (piece("t"), inner)
        tables = piece(left, f" {'NATURAL ' if not how else ''}{kind} ", right, how, kind=Kind.RELATION)
        refs = [Ref(k, given.family, FAMILIES[given.family].literals, given.own)]
        refs += [ref for ref in self.refs("t") if ref.sql.startswith("id")] or [Ref("id", "int", ("1", "150"))]
        where = clause(" WHERE ", Conditions(refs, self.rng).draw(1))
        items = f"SELECT count(*) AS n, min(id) AS a, max(id) AS z, count({k}) AS k1, count(DISTINCT id) AS d FROM "
        return piece(items, tables, where, kind=Kind.QUERY, types=("bigint", "int", "int", "bigint", "bigint"))

    def subquery(self) -> Piece:
        """A condition with a query in it."""
        alias, inner = self.rng.sample(_ALIASES, 2)
        key, name = self.column(_KEYS), self.column(tuple(FAMILIES))
        k, where = self.q(key), self.where(inner, True)
        among = piece(f"SELECT {inner}.{k} FROM t {inner}", where)
        here = [clause(" AND ", self.conditions(alias, True).draw(1)) for _ in range(self.rng.randint(0, 2))]
        correlated = f"{inner}.{k} {self.rng.choice(['=', '=', '<=>'])} {alias}.{k}"
        scalar = f"SELECT {self.rng.choice(['max', 'min'])}({inner}.id) FROM t {inner}"
        tests = [
            piece(f"{alias}.{k} IN (", among, ")"), piece(f"{alias}.{k} NOT IN (", among, ")"),
            piece(f"NOT {alias}.{k} IN (", among, f" AND {inner}.{k} IS NOT NULL" if where.parts else "", ")"),
            piece(f"EXISTS (SELECT 1 FROM t {inner} WHERE {correlated}", self.anded(inner), ")"),
            piece(f"NOT EXISTS (SELECT 1 FROM t {inner} WHERE {correlated}", self.anded(inner), ")"),
            piece(f"{alias}.id <= (", scalar, where, ")"),
            piece(f"{alias}.id = (", scalar, f" WHERE {inner}.{k} = {alias}.{k}", self.anded(inner), ")"),
            piece(f"({alias}.{k} IN (", among, f") OR {alias}.id < 9)"),
        ]  # fmt: skip
        test = condition(self.rng.choice(tests))
        items, types = f"{alias}.id, {alias}.{self.q(name)}", ("int", self.type_of(name))
        return piece(f"SELECT {items} FROM t {alias} WHERE ", test, *here, kind=Kind.QUERY, types=types)

    def anded(self, alias: str) -> Piece:
        """One more condition over the table alone."""
        return clause(" AND ", self.conditions(alias, True).draw(1))

    def cte(self) -> Piece:
        """A query with a name, read once or twice."""
        name, other = self.rng.choice(["c", "t1", "cte"]), self.column(tuple(FAMILIES))
        inner = piece(f"WITH {name} AS (SELECT * FROM t", self.where("t"), ") ")
        conditions = self.conditions(name)
        once = piece(f"SELECT id, {self.q(other)} FROM {name} WHERE ", conditions.draw(1))
        twice = piece(f"SELECT l.id, l.{self.q(other)} FROM {name} l JOIN {name} r ON l.id = r.id WHERE ",
                      self.conditions("r", True).draw(1))  # fmt: skip
        union = piece(f"SELECT id, {self.q(other)} FROM {name} WHERE ", conditions.draw(1),
                      f" UNION ALL SELECT id, {self.q(other)} FROM {name} WHERE ",
                      self.conditions(name).draw(1))  # fmt: skip
        return piece(inner, self.rng.choice([once, twice, union]), kind=Kind.QUERY, types=("int", self.type_of(other)))

    def sets(self) -> Piece:
        """Two queries, together, in common, or one without the other."""
        word = self.rng.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL", "MINUS"])
        name = self.column([family for family in FAMILIES if not family.startswith("map")])
        one, two = (
            piece(f"SELECT id, {self.q(name)} FROM ", self.mention("t"), self.where("t"), kind=Kind.QUERY,
                  types=("int", self.type_of(name))) for _ in range(2)
        )  # fmt: skip
        return piece(one, f" {word} ", two, kind=Kind.QUERY, types=("int", self.type_of(name)))

    def windowed(self) -> Piece:
        """Rows with what stands around them, filtered within and without."""
        key, k2 = self.column(_KEYS), self.rng.choice(["rn", "id"])
        function = self.rng.choice(["row_number()", "rank()", "lag(id)", "sum(id)", "count(*)", "max(id)", "ntile(3)"])
        window = f"{function} OVER (PARTITION BY {self.q(key)} ORDER BY id)"
        inner = piece(
            f"(SELECT *, {window} AS rn FROM t", clause(self.where("t")) if self.rng.random() < 0.5 else "", ") w"
        )
        outer = self.conditions("w").draw(1)
        only = condition(f"{k2} <= {self.rng.choice([1, 2, 40])}")
        return piece(f"SELECT id, {self.q(key)}, rn FROM ", inner, clause(" WHERE ", only, " AND ", outer),
                     kind=Kind.QUERY, types=("int", self.type_of(key), "bigint"))  # fmt: skip

    def derived(self) -> Piece:
        """A query of a query that gives columns other names: maybe those of others."""
        given = [each for each in self.world.given[1:] if each.family in _KEYS][:2]
        names = [each.name for each in given]
        swapped = names[::-1] if len(names) == 2 and self.rng.random() < 0.5 else [f"r{i}" for i in range(len(names))]
        items = ", ".join(
            ["id", *(f"{self.q(old)} AS {name_in_sql(new, self.rng)}" for old, new in zip(names, swapped, strict=True))]
        )
        distinct = self.rng.choice(["", "", "DISTINCT "])
        inner = piece(f"(SELECT {distinct}{items} FROM t", self.where("t"), ") d")
        refs = [Ref("id", "int", ("1", "7", "150"))]
        refs += [
            Ref(self.q(new), each.family, FAMILIES[each.family].literals, each.own)
            for each, new in zip(given, swapped, strict=True)
        ]
        where = clause(" WHERE ", Conditions(refs, self.rng).draw(2))
        return piece("SELECT * FROM ", inner, where, kind=Kind.QUERY, types=("int", *(each.type for each in given)))

    def pipes(self) -> Piece:
        """A query in the order of its steps."""
        name = self.column(_KEYS)
        steps: list[str | Piece] = [clause(" |> WHERE ", self.conditions("t").draw(1))]
        if self.rng.random() < 0.5:
            steps.append(f" |> EXTEND id % 3 AS m3 |> WHERE m3 = {self.rng.randrange(3)}")
        steps.append(clause(" |> WHERE ", self.conditions("t").draw(1)))
        if self.rng.random() < 0.4:
            types: tuple[str, ...] = (self.type_of(name), "bigint", "int")
            end = f" |> AGGREGATE count(*) AS n, max(id) AS z GROUP BY {self.q(name)}"
        else:
            end, types = f" |> SELECT id, {self.q(name)}", ("int", self.type_of(name))
        return piece("FROM t", *steps, end, kind=Kind.QUERY, types=types)

    def exploded(self) -> Piece:
        """A row for each of a list's items."""
        lists = [given.name for given in self.world.given if given.family == "array<int>"]
        of = self.q(lists[0]) if lists else "array(id % 3, 5)"
        outer = self.rng.choice(["", "OUTER "])
        return piece(f"SELECT id, item FROM t LATERAL VIEW {outer}explode({of}) e AS item", self.where("t"),
                     clause(f" AND item {self.rng.choice(['= 5', '> 1', 'IS NULL'])}"), kind=Kind.QUERY,
                     types=("int", "int"))  # fmt: skip

    def values(self) -> Piece:
        """The table beside rows of the text's own."""
        key = self.column(("int", "digits", "string", "date", "bigint", "tinyint"))
        given = next(given for given in self.world.given if given.name == key)
        chosen = [f"({self.rng.choice(given.own)})" for _ in range(3) if given.own] or ["(NULL)"]
        kind = self.rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "LEFT ANTI JOIN"])
        tables = piece(f"t x {kind} (VALUES {', '.join(chosen)}) AS v(w) ON x.{self.q(key)} = v.w")
        return piece("SELECT count(*) AS n, min(x.id) AS a, max(x.id) AS z FROM ", tables, self.where("x", True),
                     kind=Kind.QUERY, types=("bigint", "int", "int"))  # fmt: skip

    def limited(self) -> Piece:
        """The first of a total order."""
        name, order = self.column(_ORDERED), self.rng.choice(["", " DESC", " NULLS LAST"])
        return piece(f"SELECT id, {self.q(name)} FROM t", self.where("t"), f" ORDER BY {self.q(name)}{order}, id",
                     f" LIMIT {self.rng.choice([1, 5, 30])}", kind=Kind.QUERY,
                     types=("int", self.type_of(name)))  # fmt: skip

    def outer_nulls(self) -> Piece:
        """Tests of NULL above an outer join, which mean rows that were not there."""
        kind = self.rng.choice(["LEFT", "RIGHT", "FULL"])
        on = piece("l.id = r.id AND ", self.conditions("r", True).draw(1))
        null, side = self.rng.choice(["IS NULL", "IS NOT NULL", "<=> NULL"]), self.rng.choice(["l", "r"])
        maybe = clause(self.rng.choice([" AND ", " OR "]), self.conditions("l", True).draw(1))
        return piece(f"SELECT l.id, r.id AS other FROM t l {kind} JOIN t r ON ", on, f" WHERE ({side}.id {null}", maybe,
                     ")", kind=Kind.QUERY, types=("int", "int"))  # fmt: skip

    def struct_star(self) -> Piece:
        """Fields of a struct by a star, and a condition on one."""
        structs = [given for given in self.world.given if given.fields]
        if not structs or not self.world.switches.struct_paths:
            return self.aggregated()
        given, alias = self.rng.choice(structs), self.alias()
        before = self.rng.choice(["", f"{alias}."])
        where = clause(f" WHERE {before}{given.name}.{given.fields[0]} = {self.rng.randrange(8)}")
        items = f"{alias}.id, {alias}.{given.name}.{given.fields[1]} AS f, {given.name} IS NULL AS g"
        types = ("int", "int", "boolean")
        return piece(f"SELECT {items} FROM t {alias}", where, kind=Kind.QUERY, types=types)


def with_query(ask: Ask, query: Piece) -> Ask:
    """The same with another text, of which less is known."""
    return replace(ask, query=query, flat=False, columns=())
