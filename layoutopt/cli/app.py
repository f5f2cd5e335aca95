"""The command line: the verbs of each subject put together. What a verb calls is imported when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from layoutopt.cli import changes, engines, experiments, layouts, questions
from layoutopt.cli.console import run_app

app = typer.Typer(
    help="Rewrites date-partitioned Parquet tables into blocks that the queries of a log can skip.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from layoutopt import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def layoutopt(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Take what is said before the verb."""


for subject in (layouts, changes, questions, engines, experiments):
    app.add_typer(subject.verbs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code of :func:`layoutopt.cli.console.run_app`."""
    return run_app(app, arguments)
