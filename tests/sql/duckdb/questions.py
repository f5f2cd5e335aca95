"""Questions by chance over a table of every type, for engines that answer in Spark's place."""

from __future__ import annotations

from random import Random

from tests.spark.catalyst.generated import NUMERIC, PARTS, TEXTS, TIMES, Conditions

_KEYS = ("i", "y", "sm", "b", "p", "w", "s", "num", "d", "ts", "n", "flag", "x", "f", "st.a", "year(d)", "left(s, 1)")
_AGGREGATES = (
    "count(*)", "count({e})", "min({m})", "max({m})", "count(DISTINCT {k})", "sum(i)", "sum(y)", "sum(p)", "avg(i)",
    "avg(p)", "sum(CASE WHEN flag THEN i ELSE 0 END)", "count_if(i > 1)", "avg(y + 1)", "sum(p * 2)", "max(st.a)",
    "sum(if(i > 5, 1, 0))", "count(nullif(i, 5))",
)  # fmt: skip
_VALUES = ("i", "b", "y", "x", "f", "p", "q", "s", "num", "d", "ts", "n", "flag", "bin", "st.a", "st.b")
# Of -0.0 and 0.0, Spark takes that of the first row for the least.
_LEAST = ("i", "b", "y", "abs(x)", "abs(f)", "p", "q", "s", "num", "d", "ts", "n", "flag", "st.a", "year(ts)")
# Values that only Spark has: texts that are no UTF-8, and times outside the years 1 to 9999.
_REPLACED = {
    "cast(X'FF' AS string)": "'\\u00ff'",
    "cast(X'61FF62' AS string)": "'ZZ'",
    "date_from_unix_date(2147483647)": "date'9998-12-31'",
    "date_from_unix_date(-2147483648)": "date'0002-01-01'",
    "date_from_unix_date(35804357)": "date'1582-10-10'",
    "timestamp_micros(9223372036854775807)": "timestamp'9998-12-31 00:00:00'",
    "timestamp_micros(-9223372036854775808)": "timestamp'0002-01-01 00:00:00'",
    "timestamp_micros(3093496444800000000)": "timestamp'1500-02-28 12:00:00'",
}


def in_every_engine(sql: str) -> str:
    """Return a text without the values that only Spark has."""
    for value, other in _REPLACED.items():
        sql = sql.replace(value, other)
    return sql


class Questions:
    """Questions of Spark's SQL by chance.

    Args:
        seed: equal seeds give equal questions.
    """

    def __init__(self, seed: int) -> None:
        self._random, self._conditions = Random(seed), Conditions(seed)

    def next(self) -> str:
        """Return a question."""
        shapes = {self._rows: 6, self._ids: 4, self._groups: 3, self._totals: 2, self._first: 2, self._pairs: 2}
        return in_every_engine(self._random.choices(list(shapes), list(shapes.values()))[0]())

    def _one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _where(self) -> str:
        return f" WHERE {self._conditions.next()}" if self._random.random() < 0.8 else ""

    def _expression(self) -> str:
        name, other = self._one(*_VALUES), self._one(*_VALUES)
        return self._one(
            self._conditions.number(self._one(*NUMERIC)),
            self._conditions.number(self._one(*NUMERIC)),
            self._conditions.text(self._one(*TEXTS)),
            self._conditions.text(self._one(*TEXTS)),
            self._conditions.time(self._one(*TIMES)),
            f"{self._one(*PARTS)}({self._one(*TIMES)})",
            f"coalesce({name}, {name})",
            f"nullif({name}, {name})",
            f"nvl({name}, {name})",
            f"nvl2({other}, {name}, {name})",
            f"ifnull({name}, NULL)",
            f"if({self._conditions.next(0)}, {name}, NULL)",
            f"CASE WHEN {self._conditions.next(0)} THEN {name} ELSE {name} END",
            "CASE i WHEN 1 THEN 'one' WHEN 5 THEN s END",
            "CASE s WHEN 'a' THEN 1 WHEN num THEN 2 ELSE 3 END",
            f"({self._conditions.next(0)})",
            f"cast({name} AS string)" if name not in ("x", "f", "bin") else name,
            f"length({self._one(*TEXTS)})",
            f"concat(cast({self._one('i', 'p', 'd', 'flag')} AS string), '-', s)",
            f"datediff({self._one('d', 'ts', 'n')}, d)",
            f"m['{self._one('a', 'ab', 'b')}']",
            f"{self._one('size(arr)', 'arr[0]', 'get(arr, 1)', 'element_at(xs, 1)', 'array_max(arr)')}",
        )

    def _rows(self) -> str:
        expressions = [self._expression() for _ in range(self._random.randint(1, 3))]
        items = ", ".join(f"{text} AS c{place}" for place, text in enumerate(expressions))
        return f"SELECT id, {items} FROM t{self._where()}"

    def _ids(self) -> str:
        return f"SELECT id FROM t WHERE {self._conditions.next()}"

    def _aggregates(self) -> str:
        chosen = [
            self._one(*_AGGREGATES).format(e=self._one(*_VALUES), m=self._one(*_LEAST), k=self._one(*_KEYS))
            for _ in range(self._random.randint(1, 3))
        ]
        return ", ".join(f"{text} AS a{place}" for place, text in enumerate(chosen))

    def _groups(self) -> str:
        key = self._one(*_KEYS)
        having = self._one("", "", " HAVING count(*) > 1", " HAVING max(id) > 50", f" HAVING {key} IS NOT NULL")
        return f"SELECT {key} AS k, {self._aggregates()} FROM t{self._where()} GROUP BY {key}{having}"

    def _totals(self) -> str:
        return f"SELECT {self._aggregates()} FROM t{self._where()}"

    def _first(self) -> str:
        order = f"{self._one(*_VALUES)}{self._one('', ' DESC', ' NULLS LAST', ' DESC NULLS FIRST')}"
        return f"SELECT id, {self._expression()} AS c FROM t{self._where()} ORDER BY {order}, id LIMIT 7"

    def _pairs(self) -> str:
        kind, key = (
            self._one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"),
            self._one("i", "s", "d", "y", "p", "flag"),
        )
        left = f"(SELECT id, {key} AS k, {self._expression()} AS c FROM t{self._where()})"
        right = f"(SELECT id, {key} AS k FROM t WHERE flag)"
        return f"SELECT a.id, b.id AS other, a.c FROM {left} a {kind} {right} b ON a.k = b.k AND a.id <= b.id"
