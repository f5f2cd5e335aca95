"""Write docs/reference/commands.md from the settings of the commands, and the tables of exit codes from errors.py.

Usage: `python docs/commands.py`
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Final

import typer

from layoutopt.cli.app import app
from layoutopt.errors import EXIT_CODES

DOCS: Final = Path(__file__).parent
PAGE: Final = DOCS / "reference" / "commands.md"
# The pages with a table of exit codes, which begins with its heading.
CODE_PAGES: Final = (DOCS.parent / "README.md", DOCS / "reference" / "errors.md", DOCS / "guides" / "nightly.md")
_CODE_TABLE: Final = re.compile(r"^\| exit code \|.*\n(?:\|.*\n)+", re.MULTILINE)
# The parameters that every command has besides its own settings.
COMMON: Final = ("udf", "key", "conf", "json", "progress", "debug")
HEAD: Final = """\
# Commands

<!-- Written by docs/commands.py from the settings of the commands: run `make readme`. -->

`layoutopt COMMAND --help` prints the same. A [configuration file](file-formats.md#configuration) can hold every
setting, also those in capitals. [Errors and exit codes](errors.md) are the same for all commands.
"""


def commands_page() -> str:
    """Return the whole page."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group: it has several commands
    common = [parameter for parameter in next(iter(commands.values())).params if parameter.name in COMMON]
    every = f"## Every command\n\n{_table(common)}"
    return "\n".join([HEAD, every, *(_section(name, command) for name, command in commands.items())])


def with_exit_codes(page: str) -> str:
    """Return a page with its table of exit codes written again."""
    rows = [("exit code", "meaning", "what a scheduler should do"), ("---",) * 3]
    rows += [(str(code), *texts) for code, texts in EXIT_CODES.items()]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    text, count = _CODE_TABLE.subn(lambda _: table, page)
    if count != 1:
        raise ValueError(f"the page has {count} tables that begin with '| exit code |'; write one")
    return text


def _section(name: str, command: Any) -> str:
    """Return the section of a command: its help, its usage, its settings and an example."""
    parameters = [parameter for parameter in command.params if parameter.name not in COMMON]
    places = [_place(parameter) for parameter in parameters if parameter.param_type_name == "argument"]
    usage = " ".join(["layoutopt", name, *places, "[OPTIONS]"])
    example = command.epilog.partition("Example:")[2].strip()
    help_text = inspect.cleandoc(command.help)
    return (
        f"## layoutopt {name}\n\n{help_text}\n\n```text\n{usage}\n```\n\n{_table(parameters)}\nExample: `{example}`\n"
    )


def _place(parameter: Any) -> str:
    return f"{parameter.metavar} ..." if parameter.multiple or parameter.nargs == -1 else str(parameter.metavar)


def _table(parameters: list[Any]) -> str:
    rows = [_row(parameter) for parameter in parameters]
    return "".join(f"| {' | '.join(row)} |\n" for row in (("setting", "meaning", "default"), ("---",) * 3, *rows))


def _row(parameter: Any) -> tuple[str, str, str]:
    meaning, default = re.fullmatch(r"(.*?)(?: \[default: (.*)\])?", parameter.help, re.DOTALL).groups()  # type: ignore[union-attr]
    return _flag(parameter), _cell(meaning), _cell(default or "")


def _flag(parameter: Any) -> str:
    """Return how a setting is written: its place, or its flags with what stands for the value."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    flags = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag or not parameter.metavar else f" {parameter.metavar}"
    return _cell(f"`{', '.join(flags)}{value}`")


def _cell(text: str) -> str:
    """Return a text as a cell of a table: on one line, with the bars of choices escaped."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
    for page in CODE_PAGES:
        page.write_text(with_exit_codes(page.read_text(encoding="utf-8")), encoding="utf-8")
