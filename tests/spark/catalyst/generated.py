"""Conditions by chance over a table of every type, and rows of every awkward kind."""

from __future__ import annotations

from random import Random

TYPES = {
    "i": "int",
    "b": "bigint",
    "y": "tinyint",
    "sm": "smallint",
    "x": "double",
    "f": "float",
    "p": "decimal(15,2)",
    "q": "decimal(38,18)",
    "w": "decimal(38,0)",
    "s": "string",
    "num": "string",
    "d": "date",
    "ts": "timestamp",
    "n": "timestamp_ntz",
    "flag": "boolean",
    "bin": "binary",
    "arr": "array<int>",
    "xs": "array<string>",
    "dbls": "array<double>",
    "m": "map<string,int>",
    "st": "struct<a:int,b:string>",
}

_NUMBERS = ["0", "1", "-1", "2", "5", "7", "100"]
VALUES = {
    "i": [*_NUMBERS, "2147483647", "-2147483648", "1994"],
    "b": [*_NUMBERS, "9223372036854775807", "-9223372036854775808", "9007199254740993", "-9007199254740993"],
    "y": [*_NUMBERS, "127", "-128"],
    "sm": [*_NUMBERS, "32767", "-32768"],
    "x": [
        "0D",
        "-0D",
        "double('NaN')",
        "double('Infinity')",
        "double('-Infinity')",
        "0.1D",
        "5D",
        "-5.5D",
        "9007199254740992D",
        "1.7976931348623157E308D",
        "4.9E-324D",
        "-1.7976931348623157E308D",
        "9.3E18D",
    ],
    "f": [
        "0F",
        "-0F",
        "float('NaN')",
        "float('Infinity')",
        "float('-Infinity')",
        "0.1F",
        "5F",
        "16777216F",
        "3.4028234663852886E38F",
        "1.4E-45F",
        "-5.5F",
    ],
    "p": ["0", "0.05", "0.06", "-1.50", "5.00", "9999999999999.99", "-9999999999999.99", "0.1", "7"],
    "q": [
        "0",
        "0.1",
        "-1.5",
        "5",
        "0.000000000000000001",
        "99999999999999999999.999999999999999999",
        "-99999999999999999999.999999999999999999",
        "12345678901234567890",
    ],
    "w": ["0", "5", "99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "-1"],
    "s": [
        "''",
        "'a'",
        "'ab'",
        "'A_b'",
        "'50%'",
        "'it\\'s'",
        "'a\\\\b'",
        "'\\u00e9'",
        "'x\\ny'",
        "'\\U0001F600b'",
        "'axy'",
        "repeat('ab', 400)",
        "cast(X'FF' AS string)",
        "cast(X'61FF62' AS string)",
        "'\\ufffd'",
        "' a '",
        "'{\"a\": 5}'",
        "'1994-01-01'",
        "'\\u0130'",
    ],
    "num": ["'5'", "' 5 '", "'05'", "'-1'", "'1994'", "'2147483648'", "'7'", "'0'", "'+5'", "'1e1'", "'a'", "''"],
    "d": [
        "date'1970-01-01'",
        "date'1993-12-31'",
        "date'1994-01-01'",
        "date'1996-02-29'",
        "date'0001-01-01'",
        "date'9999-12-31'",
        "date'1994-06-15'",
        "date'1883-11-18'",
        "date_from_unix_date(2147483647)",
        "date_from_unix_date(-2147483648)",
        "date_from_unix_date(35804357)",
        "date'2020-03-08'",
    ],
    "ts": [
        "timestamp_micros(0)",
        "timestamp_micros(757382399999999)",
        "timestamp_micros(757382400000000)",
        "timestamp_micros(757400400000000)",
        "timestamp_micros(1583650800000000)",
        "timestamp_micros(1604210400000000)",
        "timestamp_micros(9223372036854775807)",
        "timestamp_micros(-9223372036854775808)",
        "timestamp_micros(-1)",
        "timestamp_micros(3093496444800000000)",
        "timestamp_micros(757362600000000)",
    ],
    "n": [
        "timestamp_ntz'1970-01-01'",
        "timestamp_ntz'1993-12-31 23:59:59.999999'",
        "timestamp_ntz'1994-01-01'",
        "timestamp_ntz'2020-03-08 02:30:00'",
        "timestamp_ntz'2020-11-01 01:30:00'",
        "timestamp_ntz'0001-01-01'",
        "timestamp_ntz'9999-12-31 23:59:59'",
        "timestamp_ntz'1994-06-15 12:00:00'",
    ],
    "flag": ["true", "false"],
    "bin": ["X''", "X'61'", "X'00'", "X'FF'", "X'6162'"],
    "arr": ["array()", "array(1)", "array(CAST(NULL AS int))", "array(1, 2, NULL)", "array(5, 7)", "array(-1, 100)"],
    "xs": ["array()", "array('a')", "array('a', NULL, 'axy')", "array('ab', '\\u00e9')", "array('')"],
    "dbls": ["array()", "array(double('NaN'))", "array(1D, -0D)", "array(NULL, 5D)", "array(double('Infinity'), 0D)"],
    "m": ["map()", "map('a', 1)", "map('a', NULL, 'ab', 5)", "map('', 7)"],
    "st": [
        "named_struct('a', 5, 'b', 'a')",
        "named_struct('a', CAST(NULL AS int), 'b', 'ab')",
        "named_struct('a', 7, 'b', CAST(NULL AS string))",
    ],
}
ROWS = 120


def rows_sql(seed: int = 3) -> str:
    """Return a query of the rows: each value beside others of each column, and NULL beside each."""
    random = Random(seed)
    lines = []
    for number in range(ROWS):
        cells = []
        for name, kind in TYPES.items():
            values = [*VALUES[name], "NULL"]
            value = values[(number * (1 + len(name)) + number // len(values)) % len(values)]
            value = random.choice(values) if number >= ROWS // 2 else value
            cells.append(f"CAST({value} AS {kind})")
        lines.append(f"({number}, {', '.join(cells)})")
    return f"SELECT * FROM VALUES {', '.join(lines)} AS rows(id, {', '.join(TYPES)})"


_COMPARED = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_WHOLE = ("i", "b", "y", "sm")
NUMERIC = (*_WHOLE, "x", "f", "p", "q", "w")
TIMES = (
    "d", "d", "ts", "ts", "n", "cast(ts AS date)", "cast(d AS timestamp)", "cast(n AS timestamp)",
    "cast(ts AS timestamp_ntz)", "cast(n AS date)",
)  # fmt: skip
PARTS = ("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekofyear", "hour", "minute", "second")
TEXTS = ("s", "s", "num", "st.b", "xs[0]", "element_at(xs, 1)", "concat(s, num)", "cast(i AS string)")
_SMALL = ("1", "2", "3", "0.5", "1.25", "0.1D", "7L", "-1")
_PATTERNS = (
    "'a%'",
    "'%b'",
    "'%a%'",
    "'_'",
    "'a_%'",
    "'a%b'",
    "'%'",
    "''",
    "'50\\\\%'",
    "'%\\ufffd%'",
    "'\\u00e9%'",
    "'a%x%y'",
)


def usual_conditions() -> list[str]:
    """Return each comparison and test of each column, beside two of its values."""
    columns = [name for name in VALUES if name not in ("flag", "arr", "xs", "dbls", "m", "st")]
    found = ["flag", "flag <=> true", "flag <=> NULL", "isnan(x)", "isnan(f)", "isnan(x) AND isnan(f)"]
    for name in columns:
        first, second = VALUES[name][1], VALUES[name][3]
        found += [f"{name} {sign} {first}" for sign in _COMPARED]
        found += [f"{name} IN ({first}, {second})", f"{name} IN ({first}, NULL)", f"{name} IS NULL"]
    found += [f"s LIKE {pattern}" for pattern in _PATTERNS]
    found += [f"{left} {sign} {right}" for left, right in (("i", "b"), ("s", "num"), ("x", "f")) for sign in _COMPARED]
    found += [
        "s LIKE ANY ('a%b%c', '_b', 'x')",
        "s LIKE ALL ('a%b%', '_b', '%')",
        "s NOT LIKE ALL ('a_', '_b')",
        "s NOT LIKE ANY ('a_', '_b', '%x%y')",
        "s RLIKE '^a'",
        "i > 1 OR s = 'a'",
        "i > 1 AND s = 'a'",
        "CASE WHEN i > 1 THEN s = 'a' WHEN flag THEN x > 1D END",
        "coalesce(flag, i > 1)",
        "(i > 1) = flag",
        "(i > 1) <=> true",
        "array_contains(arr, 1)",
        "exists(arr, e -> e = 1)",
        "arrays_overlap(arr, array(1, 5))",
    ]
    return found


class Conditions:
    """Conditions of Spark's SQL by chance.

    Args:
        seed: equal seeds give equal conditions.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def next(self, depth: int = 2) -> str:
        """Return a condition."""
        choose = self._random.random()
        if depth and choose < 0.45:
            left, right = self.next(depth - 1), self.next(depth - 1)
            return self._one(
                f"({left}) AND ({right})",
                f"({left}) OR ({right})",
                f"NOT ({left})",
                f"NOT (({left}) AND ({right}))",
                f"CASE WHEN {left} THEN {right} ELSE {self._leaf()} END",
                f"if({left}, {right}, {self._leaf()})",
                f"coalesce(({left}), false)",
                f"({left}) IS NULL",
                f"({left}) = ({right})",
                f"({left}) IS NOT TRUE",
            )
        return self._leaf()

    def _one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _value(self, name: str) -> str:
        return self._one(*VALUES[name], *(["NULL"] if self._random.random() < 0.05 else []))

    def _leaf(self) -> str:
        kinds = (
            self._numbers,
            self._numbers,
            self._texts,
            self._texts,
            self._times,
            self._times,
            self._others,
            self._two,
        )
        return self._random.choice(kinds)()

    def _tested(self, left: str, values: tuple[str, ...]) -> str:
        sign, first, second = self._one(*_COMPARED), self._one(*values), self._one(*values)
        many = ", ".join(self._one(*values) for _ in range(self._random.choice((2, 3, 12))))
        return self._one(
            f"{left} {sign} {first}",
            f"{left} {sign} {first}",
            f"NOT {left} {sign} {first}",
            f"{first} {sign} {left}",
            f"{left} IN ({many})",
            f"{left} NOT IN ({many})",
            f"{left} BETWEEN {first} AND {second}",
            f"{left} IS NULL",
            f"{left} IS NOT NULL",
            f"nullif({left}, {first}) {sign} {second}",
            f"coalesce({left}, {first}) {sign} {second}",
            f"greatest({left}, {first}) {sign} {second}",
            f"least({left}, {first}) {sign} {second}",
            f"if(flag, {left}, {first}) {sign} {second}",
            f"CASE WHEN {left} {sign} {first} THEN {left} WHEN flag THEN {second} END {sign} {second}",
        )

    def number(self, name: str) -> str:
        """Return an expression of a column of numbers."""
        other, small = self._one(*NUMERIC), self._one(*_SMALL)
        return self._one(
            name,
            name,
            name,
            f"-{name}",
            f"abs({name})",
            f"{name} + {small}",
            f"{name} - {small}",
            f"{small} - {name}",
            f"{name} * {small}",
            f"{name} / {small}",
            f"{small} / {name}",
            f"{name} % 3",
            f"{name} + {other}",
            f"{name} - {other}",
            f"{name} / {other}",
            f"floor({name})",
            f"ceil({name})",
            f"round({name}, 1)",
            f"round({name})",
            f"cast({name} AS double)",
            f"cast({name} AS bigint)",
            f"cast({name} AS string)",
            f"cast({name} AS decimal(20,3))",
            f"try_cast({name} AS int)",
            f"sqrt({name})",
            f"try_add({name}, {small})",
            f"cast({name} AS boolean)",
            f"cast({name} AS float)",
            f"1 / (-{name})",
            f"floor({name} * 0.5D)",
            f"cast({name} AS bigint) + {other}",
            f"-(-{name})",
            f"try_divide({name}, {other})",
        )

    def _numbers(self) -> str:
        name = self._one(*NUMERIC)
        value, left, small = self._value(name), self.number(name), self._one(*_SMALL)
        values = (value, self._value(name), self._one(*_NUMBERS), small, f"'{self._one(*_NUMBERS)}'")
        if "boolean" in left:
            return self._one(left, f"NOT {left}")
        if "string" in left:
            return self._tested(left, ("'5'", "'0'", "'1.0'", "'-1'", "'NaN'", "'0.05'"))
        if name in ("x", "f") and self._random.random() < 0.1:
            return self._one(f"isnan({left})", f"NOT isnan({left})", f"isnan({left}) IS NULL")
        return self._tested(left, values)

    def text(self, name: str) -> str:
        """Return an expression of a text."""
        return self._one(
            name,
            name,
            f"lower({name})",
            f"upper({name})",
            f"trim({name})",
            f"ltrim({name})",
            f"rtrim({name})",
            f"left({name}, 2)",
            f"right({name}, 1)",
            f"right({name}, 0)",
            f"substring({name}, 2, 2)",
            f"substr({name}, 2)",
            f"substr({name}, -2)",
            f"reverse({name})",
            f"{name} || 'x'",
            f"split_part({name}, 'a', 1)",
            f"split_part({name}, 'b', -1)",
            f"substring_index({name}, 'a', 1)",
            f"regexp_extract({name}, '([a-z])b', 1)",
            f"get_json_object({name}, '$.a')",
            f"lower(right({name}, 2))",
            f"left({name}, -1)",
        )

    def _texts(self) -> str:
        name = self._one(*TEXTS)
        value, pattern, left = self._value("s"), self._one(*_PATTERNS), self.text(name)
        number = self._one(
            f"length({left})",
            f"instr({name}, 'a')",
            f"locate('b', {name})",
            f"levenshtein({name}, 'ab')",
            f"cast({name} AS int)",
            f"try_cast({name} AS int)",
            f"try_cast({name} AS date)",
            "cast(num AS bigint)",
            f"instr({name}, '')",
            f"locate('', {name})",
        )
        third, fourth = self._one(*_PATTERNS), self._one(*_PATTERNS)
        return self._one(
            self._tested(left, (value, self._value("s"), "'a'", "'ab'")),
            f"{left} LIKE {pattern}",
            f"{left} NOT LIKE {pattern}",
            f"{left} ILIKE {pattern}",
            f"{left} LIKE ANY ({pattern}, {third}, {fourth})",
            f"{left} LIKE ALL ({pattern}, {third})",
            f"{left} NOT LIKE ALL ({pattern}, {third})",
            f"{left} NOT LIKE ANY ({pattern}, {third}, {fourth})",
            f"NOT ({left} LIKE ANY ({pattern}, {third}))",
            f"contains({left}, {value})",
            f"startswith({left}, {value})",
            f"NOT endswith({left}, {value})",
            f"{left} RLIKE 'a.*'",
            f"NOT {left} RLIKE '^a|b$'",
            f"{left} LIKE 'a!%%' ESCAPE '!'",
            self._tested(number, ("0", "1", "2", "5")) if "date" not in number else f"{number} = date'1994-01-01'",
            self._tested(number, ("0", "1", "2", "5")) if "date" not in number else f"{number} IS NULL",
        )

    def time(self, name: str) -> str:
        """Return an expression of a date or time."""
        return self._one(
            name,
            name,
            f"to_date({name})",
            f"{name} + INTERVAL 1 DAY",
            f"{name} - INTERVAL 1 MONTH",
            f"{name} + INTERVAL 3 HOURS",
            f"{name} - INTERVAL 2 YEARS",
            f"last_day({name})",
            f"trunc({name}, 'MM')",
            f"date_trunc('month', {name})",
            f"date_trunc('hour', {name})",
            f"date_add({name}, 5)",
            f"date_sub({name}, 1)",
            f"add_months({name}, 2)",
            f"trunc({name}, 'week')",
        )

    def _times(self) -> str:
        name = self._one(*TIMES)
        values = (*(self._value(each) for each in ("d", "ts", "n")), "'1994-01-01'", "'1994'")
        left, part = self.time(name), self._one(*PARTS)
        number = self._one(f"{part}({name})", f"extract(YEAR FROM {name})", f"datediff({name}, d)", f"year({left})")
        return self._one(
            self._tested(left, values),
            self._tested(left, values),
            self._tested(number, ("0", "1", "6", "12", "31", "1994", "1993", "5881580")),
            f"cast({name} AS string) LIKE '1994%'",
        )

    def _others(self) -> str:
        array = self._one("arr", "map_values(m)")
        value, high = self._one(*_NUMBERS), self._one(*_NUMBERS)
        sign, text = self._one(*_COMPARED[:-1]), self._one("'a'", "'ab'", "''", "'axy'")
        return self._one(
            "flag",
            "NOT flag",
            "flag IS NOT FALSE",
            "flag <=> NULL",
            "flag = (i > 1)",
            self._tested("bin", tuple(VALUES["bin"])),
            f"array_contains({array}, {value})",
            f"NOT array_contains({array}, {value})",
            f"exists({array}, e -> e {sign} {value})",
            f"NOT exists({array}, e -> e = {value})",
            f"exists({array}, e -> e BETWEEN {value} AND {high})",
            f"exists({array}, e -> e IN ({value}, {high}) OR e > 6)",
            f"exists({array}, e -> NOT e {sign} {value})",
            f"arrays_overlap({array}, array({value}, {high}))",
            f"NOT arrays_overlap(array({value}, {high}), {array})",
            f"exists(xs, e -> e LIKE 'a%' OR e = {text})",
            f"exists(xs, e -> e > {text} AND e LIKE '%y')",
            "exists(xs, e -> e NOT LIKE 'a%y')",
            f"exists(dbls, e -> e {sign} {value}D)",
            f"array_max({array}) {sign} {value}",
            f"exists(dbls, e -> e <> {value}D)",
            f"NOT exists(dbls, e -> e {sign} {value}D)",
            f"array_min(dbls) {sign} {value}D",
            f"exists(map_keys(m), e -> e {sign} {text})",
            f"m['a'] {sign} {value}",
            f"element_at(m, 'ab') {sign} {value}",
            f"array_contains(map_keys(m), {text})",
            f"st.a {sign} {value}",
            f"get(arr, 0) {sign} {value}",
            f"try_element_at(arr, -1) {sign} {value}",
            "arr[1] IS NULL",
            "exists(xs, e -> e IS NULL)",
            f"exists({array}, e -> e > i)",
            "st IS NULL",
            "xs IS NOT NULL",
        )

    def _two(self) -> str:
        first, second = self._one(*NUMERIC), self._one(*NUMERIC)
        pair = self._one(
            f"{first} ~ {second}",
            "s ~ num",
            "d ~ ts",
            "ts ~ n",
            "d ~ n",
            "num ~ i",
            f"{first} ~ {second} + 1",
            "cast(ts AS date) ~ d",
            "bin ~ bin",
            "lower(s) ~ num",
            "flag ~ flag",
            "d ~ date_add(d, 1)",
        )
        test = pair.replace("~", self._one(*_COMPARED))
        return self._one(test, test, f"NOT ({test})", f"{first} IN ({second}, 5)", f"{first} NOT IN ({second}, 5)")
