"""Define the verb `shell`: queries of a table one after the other, typed or from a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.inputs import answer_scan, open_at, open_further
from layoutopt.config.settings import ShellSettings
from layoutopt.errors import LayoutoptError, UnknownTableError
from layoutopt.extensions import require
from layoutopt.model.types import unquote_name

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.scan.table import Table

verbs = typer.Typer()

# Where typed statements are kept, in the home folder.
HISTORY: Final = ".layoutopt_history"
# The words of SQL that are completed, besides names of tables and columns.
_WORDS: Final = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "JOIN", "LEFT",
    "USING", "ON", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "WITH", "UNION", "ALL", "CASE", "WHEN", "THEN", "ELSE",
    "END", "count", "sum", "avg", "min", "max", "DATE", "EXPLAIN", "DESCRIBE", "SHOW", "TABLES", "EXIT",
)  # fmt: skip
_EXPLAIN: Final = re.compile(r"EXPLAIN\s+", re.IGNORECASE)
_DESCRIBE: Final = re.compile(r"DESC(?:RIBE)?\s+(?:TABLE\s+)?(`(?:[^`]|``)+`|\w+)\s*$", re.IGNORECASE)
_SHOW: Final = re.compile(r"SHOW\s+TABLES\s*$", re.IGNORECASE)
_EXIT: Final = re.compile(r"\s*(?:EXIT|QUIT)\s*;?\s*$", re.IGNORECASE)


@add_verb(verbs, ShellSettings, example="layoutopt shell tables/events --with users=users.csv")
def shell(settings: ShellSettings, session: Session) -> None:
    """Ask queries one after the other.

    Each statement ends with a semicolon: a query, EXPLAIN of a query, DESCRIBE of a table, or SHOW TABLES. EXIT or
    Ctrl-D ends. Lines are kept in a history and completed by Tab. Statements that come from a file or pipe are run
    until one fails.
    """
    table = open_at(session, settings.table_path, settings, indexed=True)
    shell = _Shell(session, settings, table, open_further(session, settings.further))
    if not sys.stdin.isatty():
        from layoutopt.sql.dialect import split_statements

        for statement in split_statements(sys.stdin.read()):
            if _EXIT.match(statement):
                return
            shell.run(statement)
        return
    for statement in _read_statements(shell.named):
        try:
            shell.run(statement)
        except LayoutoptError as error:
            sys.stderr.write(f"layoutopt: {' '.join(str(error).split())}\n")


@dataclass(frozen=True)
class _Shell:
    session: Session
    settings: ShellSettings
    table: Table
    further: Mapping[str, Table]

    @property
    def named(self) -> dict[str, Table]:
        return {self.table.name: self.table, **self.further}

    def run(self, statement: str) -> None:
        """Run one statement and print its answer."""
        described = _DESCRIBE.match(statement)
        if _SHOW.match(statement):
            rows = {name: f"{table.rows:,} rows" for name, table in self.named.items()}
            self.session.show(rows, "\n".join(f"{name}: {text}" for name, text in rows.items()))
        elif described is not None:
            name = unquote_name(described[1])
            table = {name.lower(): table for name, table in self.named.items()}.get(name.lower())
            if table is None:
                raise UnknownTableError(f"there is no table {name!r}; SHOW TABLES lists them", name)
            columns = {column.name: column.type for column in table.schema.columns}
            self.session.show(columns, "\n".join(f"{name} {type}" for name, type in columns.items()))
        elif explained := _EXPLAIN.match(statement):
            explanation = self.table.scan(statement[explained.end() :], tables=self.further).explain()
            self.session.show(explanation.to_json(), str(explanation))
        else:
            self._answer(statement)

    def _answer(self, sql: str) -> None:
        from layoutopt.inspect.cost import dry_run
        from layoutopt.report.answers import answer_report, describe_read, print_answer

        scan = self.table.scan(sql, tables=self.further, max_bytes=self.settings.max_bytes)
        with self.session.working("reading"):
            answer = answer_scan(scan, self.settings, self.session)
        read = dry_run(scan)

        def show(console: Console) -> None:
            print_answer(console, answer, self.settings.limit)
            console.print(describe_read(read))

        self.session.show({**answer_report(answer, self.settings.limit), "read": read.to_json()}, show)


def list_words(named: Mapping[str, Table]) -> list[str]:
    """Return the words that are completed: those of SQL, and the names of tables and columns."""
    return [*_WORDS, *sorted({*named, *(name for table in named.values() for name in table.schema.names)})]


def _read_statements(named: Mapping[str, Table]) -> Iterator[str]:
    """Yield the statements that are typed, with history and completion."""
    from layoutopt.sql.dialect import split_statements

    toolkit = require("prompt_toolkit", "shell")
    completion, history = require("prompt_toolkit.completion", "shell"), require("prompt_toolkit.history", "shell")
    prompt = toolkit.PromptSession(
        history=history.FileHistory(str(Path.home() / HISTORY)),
        completer=completion.WordCompleter(list_words(named), ignore_case=True),
    )
    typed = ""
    while True:
        try:
            typed += prompt.prompt("... " if typed else "layoutopt> ") + "\n"
        except KeyboardInterrupt:  # as in other shells, it gives up the statement
            typed = ""
            continue
        except EOFError:
            return
        if _EXIT.match(typed):
            return
        if typed.rstrip().endswith(";"):
            yield from split_statements(typed)
            typed = ""
