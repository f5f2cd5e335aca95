"""The code blocks of the documentation, and what their shell lines mean.

A comment before a block says what tests do with it:

``<!-- parse: REASON -->``
    The block needs a service, minutes or a cluster: its commands and flags are parsed only.
``<!-- file: NAME -->``
    The block is the content of a file.
``<!-- served: NAME=FOLDER -->``
    The block runs while `layoutopt serve` serves the folder.
``<!-- run: GROUP -->``, ``<!-- spark session -->``
    Tests of their own run the block.

A block without a comment runs.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from jobs.bench.__main__ import app as experiments
from layoutopt.cli.app import app
from layoutopt.cli.console import add_verb
from layoutopt.cli.jobs import JOBS
from layoutopt.config.fields import VerbSettings
from layoutopt.config.files import VERBS, make_settings

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
GUIDES: Final = sorted((ROOT / "docs" / "guides").glob("*.md"))
PAGES: Final = (README, *GUIDES, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/reference").glob("*.md")))
# Settings of a session, which are not settings of a verb.
SESSION: Final = ("conf", "json", "progress", "debug", "udf", "key")
_BLOCK: Final = re.compile(
    r"(?:^<!-- ([a-z ]+?)(?:: ([^\n]*?))? -->\n+)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
        mark: the word of the comment before it, empty without one.
        argument: what the comment says after the colon.
        language: of the code.
        code: the lines.
    """

    mark: str
    argument: str
    language: str
    code: str

    @property
    def lines(self) -> list[list[str]]:
        """The words of each command of a shell block, without comments."""
        return [words for line in self.code.splitlines() if (words := shlex.split(line, comments=True))]


def blocks_of(page: Path) -> list[Block]:
    """Return the code blocks of a page, in their order."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(mark, argument, language, code) for mark, argument, language, code in found]


def commands() -> dict[str, Any]:
    """Return the commands of the command line by name."""
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # a group: it has several commands


def parse_command(words: list[str]) -> None:
    """Parse the arguments of a `layoutopt` command, and validate them unless a configuration file adds to them."""
    _, name, *arguments = words
    _check(commands()[name], VERBS[name], arguments)


def parse_job(words: list[str]) -> None:
    """Parse the arguments of a `spark-submit jobs/NAME.py` command."""
    (script,) = [word for word in words if word.startswith("jobs/")]
    name, arguments = Path(script).stem, words[words.index(script) + 1 :]
    assert (ROOT / script).exists(), script
    if Path(script).parent.name == "bench":
        verb, *flags_of_verb = arguments
        typer.main.get_command(experiments).commands[verb].make_context(verb, flags_of_verb)  # type: ignore[attr-defined]  # a group
        return

    def job(settings: Any, session: Any) -> None:
        """Stand for the job."""

    flags = typer.Typer()
    kind, _ = JOBS[name]
    add_verb(flags, kind, example="", by_place=False)(job)
    _check(typer.main.get_command(flags), kind, arguments)


def _check(command: Any, kind: type[VerbSettings], arguments: list[str]) -> None:
    given = command.make_context("layoutopt", list(arguments)).params
    if given["conf"] is None:
        values = {key: value for key, value in given.items() if key not in SESSION and value not in (None, [], ())}
        make_settings(kind, values)
