"""Format the help: verbs in groups, and a verb's options in panels, the most needed first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

OPTIONS, TUNING, EXPERT, COMMON = "Options", "Tuning", "Expert options", "Options of all commands"

GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Start here": ("up", "advise"),
        "From a log to a table": ("analyze", "plan", "load", "reload", "append"),
        "Ask": ("query", "shell", "explain", "files"),
        "Check": ("status", "evaluate", "drift", "verify", "history"),
        "Change rows": ("delete", "update", "merge"),
        "Maintain": ("optimize", "expire", "vacuum", "restore"),
        "Other formats and engines": ("index", "refresh", "publish", "serve"),
        "Try": ("bench",),
    }
)


class VerbGroup(TyperGroup):
    """The command line, whose help lists the verbs in :data:`GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        widest = max(map(len, self.commands))
        for title, verbs in GROUPS.items():
            lines = [
                (verb.ljust(widest), self.commands[verb].get_short_help_str(formatter.width))
                for verb in verbs
                if verb in self.commands
            ]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class Verb(TyperCommand):
    """A verb, whose help lists its options in panels and does not show Python types of arguments."""

    def get_help(self, ctx: Any) -> str:
        """Return the help text."""
        return super().get_help(ctx).replace(" <str>", "").replace(" <list[str]>", "")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel."""
        panels: dict[str, list[Any]] = {panel: [] for panel in ("Arguments", OPTIONS, TUNING, EXPERT, COMMON)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                named = getattr(parameter, "rich_help_panel", None) or COMMON  # `--help` itself has none
                panels["Arguments" if parameter.param_type_name == "argument" else named].append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
