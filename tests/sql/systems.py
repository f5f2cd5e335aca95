"""Systems that tests ask what a condition of their own SQL means: DuckDB, ClickHouse and PostgreSQL."""

from __future__ import annotations

import csv
import datetime as dt
import importlib
import io
import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from tests.duck import connection

TYPES: Final = {
    "id": "int", "i": "int", "j": "int", "b": "bigint", "d": "date", "e": "date", "ts": "timestamp", "s": "string",
    "u": "string", "g": "double", "p": "decimal(15,2)", "js": "string", "arr": "array<string>",
}  # fmt: skip
Row = tuple[object, ...]
_DAYS: Final = [
    "1969-12-28", "1970-01-01", "2019-12-29", "2019-12-30", "2020-02-28", "2020-02-29", "2020-12-27", "2020-12-31",
    "2021-01-01", "2021-01-03", "2021-01-04", "2023-01-01", "2023-01-07", "2023-01-08", "2023-12-31", "2024-01-01",
    "2024-01-07", "2024-01-31", "2024-02-29", "2024-03-10", "2024-12-29", "2024-12-30", "2024-12-31", "2025-10-26",
]  # fmt: skip
_TEXTS: Final = [
    "", "a", "A", "ab", "AB", "Ab", "abc", "xab", "ab\n", "a\nb", "ab\r", "ABx", "abx\ny", "10", "10%", "10\\%",
    "10\\", "10\\x", "10x", "1_0", "[Aa]x", "a-b-c", "-a-", "-", " a ", "\tb", "é", "É", "straße", "b", "5", "-5",
]  # fmt: skip


def make_rows() -> list[Row]:
    """Return rows of every kind: each value of a column stands in some row, beside some of the others."""
    whole = [None, 0, 1, 2, 3, 5, 6, 7, -1, -2, -3, -5, -7, 8, 1000, -1000, 2147483000]
    doubles = [None, 0.0, -0.0, 0.1, 0.5, 2.5, -2.5, 5.0, 1e10, float("nan"), float("inf"), float("-inf"), 3.0]
    decimals = [
        None,
        *map(Decimal, ["0.00", "0.05", "0.15", "-0.05", "2.45", "2.55", "-2.55", "7.00", "3.99", "-3.99"]),
    ]
    jsons = [None, '{"a":"x"}', '{"a":5}', '{"a":null}', "{}", '{"a":{"b":"x"}}', '{"a":"X","c":[1]}', '{"a":true}']
    arrays: list[list[str | None] | None] = [None, [], ["k"], ["a", "k"], ["a"], [None], [None, "k"], ["K"]]
    days = [None, *map(dt.date.fromisoformat, _DAYS)]
    texts = [None, *_TEXTS]
    rows: list[Row] = []
    for number in range(400):
        day = days[number % len(days)]
        clock = dt.time((number * 7) % 24, (number * 13) % 60, number % 60) if number % 3 else dt.time()
        rows.append(
            (
                number, whole[number % 17], whole[number * 5 % 17], whole[number * 3 % 17], day,
                days[number * 7 % len(days)], None if day is None else dt.datetime.combine(day, clock),
                texts[number % len(texts)], texts[number * 5 % len(texts)], doubles[number % 13],
                decimals[number % 11], jsons[number % 8], arrays[number % 7],
            )
        )  # fmt: skip
    return rows


class System(ABC):
    """A system that has the rows as its table ``t``."""

    @abstractmethod
    def ask(self, expressions: Sequence[str]) -> list[list[Any] | str]:
        """Return the values of each expression of the rows, by ``id``; the message of an expression that fails."""


class DuckDb(System):
    """DuckDB of the environment."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._connection = connection()
        types = {"string": "varchar", "array<string>": "varchar[]"}
        columns = ", ".join(f"{name} {types.get(type, type)}" for name, type in TYPES.items())
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE t ({columns})")
        self._connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(TYPES))})", rows)

    def ask(self, expressions: Sequence[str]) -> list[list[Any] | str]:
        return [self._ask(expression) for expression in expressions]

    def _ask(self, expression: str) -> list[Any] | str:
        try:
            return [
                value for (value,) in self._connection.execute(f"SELECT {expression} FROM t ORDER BY id").fetchall()
            ]
        except Exception as error:
            return str(error)


class ClickHouse(System):
    """ClickHouse within the process, by ``chdb``."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._session = importlib.import_module("chdb.session").Session()
        types = {
            "int": "Int32", "bigint": "Int64", "date": "Date32", "timestamp": "DateTime64(6, 'UTC')",
            "string": "String", "double": "Float64", "decimal(15,2)": "Decimal(15, 2)",
        }  # fmt: skip
        columns = [
            f"{name} {'Array(Nullable(String))' if type[0] == 'a' else f'Nullable({types[type]})'}"
            for name, type in TYPES.items()
        ]
        self._session.query(f"CREATE TABLE t ({', '.join(columns)}) ENGINE = Memory")
        lines = (", ".join(_literal(value, "\\") for value in row) for row in rows)
        self._session.query(f"INSERT INTO t VALUES {', '.join(f'({line})' for line in lines)}")

    def ask(self, expressions: Sequence[str]) -> list[list[Any] | str]:
        return [self._ask(expression) for expression in expressions]

    def _ask(self, expression: str) -> list[Any] | str:
        try:
            text = str(self._session.query(f"SELECT toString({expression}) FROM t ORDER BY id", "TabSeparated"))
        except Exception as error:
            return str(error)
        return [None if line == "\\N" else line for line in text.splitlines()]


def clickhouse_value(type: str, value: object) -> object:
    """The value of a row: there is no array that is NULL, and functions of days know none before 1970."""
    if value is None and type == "array<string>":
        return []
    return None if isinstance(value, dt.date) and value.year < 1971 else value


def _literal(value: object, escape: str) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_literal(item, escape) for item in value)}]"
    if value is None:
        return "NULL"
    if isinstance(value, int | float | Decimal):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\" if escape else "\\").replace("'", "''") + "'"


_FOLDERS: Final = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt/postgresql")


def find_postgres() -> Path | None:
    """Return the folder of a PostgreSQL server's programs; None if there is none."""
    path = shutil.which("initdb")
    if path:
        return Path(path).resolve().parent
    programs = [program for folder in _FOLDERS for program in Path(folder).glob("**/bin/initdb")]
    return max(programs).parent if programs else None


class Postgres(System):
    """A PostgreSQL server of its own, in a new folder."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder

    def start(self) -> None:
        user = ["--username=tester", "--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--no-sync"]
        self._run("initdb", "--pgdata", f"{self._folder}/data", *user)
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder} -c TimeZone=UTC -c fsync=off"
        self._run(
            "pg_ctl", "--pgdata", f"{self._folder}/data", "-w", "-l", f"{self._folder}/log", "-o", options, "start"
        )

    def stop(self) -> None:
        self._run("pg_ctl", "--pgdata", f"{self._folder}/data", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str, input: str = "") -> str:
        # The server refuses to run as root.
        owner = (
            {"user": self._folder.owner(), "group": self._folder.group(), "extra_groups": []}
            if os.geteuid() == 0
            else {}
        )
        done = subprocess.run(
            [self._programs / program, *arguments], input=input, capture_output=True, text=True, cwd=self._folder,
            check=False, **owner,
        )  # type: ignore[call-overload]  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def _query(self, script: str) -> str:
        arguments = ["-h", str(self._folder), "-U", "tester", "-d", "postgres", "-q", "-X", "-v", "ON_ERROR_STOP=0"]
        return self._run("psql", *arguments, "-f", "-", input=script)

    def load(self, rows: Sequence[Row]) -> None:
        types = {"string": "text", "array<string>": "text[]", "double": "double precision", "timestamp": "timestamptz"}
        columns = ", ".join(
            f"{name} {'jsonb' if name == 'js' else types.get(type, type)}" for name, type in TYPES.items()
        )
        lines = ", ".join(f"({', '.join(map(self._to_sql, row))})" for row in rows)
        self._query(f"CREATE TABLE t ({columns}); INSERT INTO t VALUES {lines};")

    def _to_sql(self, value: object) -> str:
        if isinstance(value, list):
            return f"ARRAY[{', '.join(_literal(item, '') for item in value)}]::text[]"
        return f"'{value}'" if isinstance(value, float) else _literal(value, "")

    def ask(self, expressions: Sequence[str]) -> list[list[Any] | str]:
        rest = "ORDER BY id) TO STDOUT (FORMAT csv, NULL '\\N', FORCE_QUOTE *);"
        script = "".join(f"\\echo ==start\nCOPY (SELECT {expression} FROM t {rest}\n" for expression in expressions)
        texts = self._query(f"\\set VERBOSITY terse\n{script}").split("==start\n")[1:]
        return [self._parse(text) for text in texts]

    def _parse(self, text: str) -> list[Any] | str:
        rows = list(csv.reader(io.StringIO(text.replace("\\N", "\0")), strict=True))
        return [None if row == ["\0"] else row[0] for row in rows] or "it failed"


@contextmanager
def start_postgres(rows: Sequence[Row]) -> Iterator[System]:
    """Start a server with the rows, and stop it."""
    programs = find_postgres()
    assert programs is not None
    with tempfile.TemporaryDirectory(
        dir="/tmp", prefix="pg", ignore_cleanup_errors=True
    ) as name:  # sockets have short paths
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        system = Postgres(programs, folder)
        system.start()
        try:
            system.load(rows)
            yield system
        finally:
            system.stop()
