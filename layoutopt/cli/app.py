"""Assemble the command line from the verbs of each module; a verb imports what it calls when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from layoutopt.cli import changes, demo, engines, layouts, questions, shell, up
from layoutopt.cli.console import run_app
from layoutopt.cli.help import VerbGroup

app = typer.Typer(
    cls=VerbGroup,
    help="Rewrite date-partitioned Parquet tables into blocks that the queries of a log can skip.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from layoutopt import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def layoutopt(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Handle the options before the verb."""


for module in (up, layouts, changes, questions, shell, engines, demo):
    app.add_typer(module.verbs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default the help, and return the exit code of :func:`run_app`."""
    return run_app(app, (sys.argv[1:] if arguments is None else arguments) or ["--help"])
