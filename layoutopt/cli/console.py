"""Make verbs of the command line: flags from settings, results as JSON or tables, progress, errors and exit codes."""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
import signal
import sys
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Protocol, TypeVar

import typer

from layoutopt.cli.help import EXPERT, OPTIONS, TUNING, Verb
from layoutopt.cli.progress import Progress, show_progress
from layoutopt.config.fields import VerbSettings, has_commas, is_positional, key_of
from layoutopt.config.files import make_settings, read_functions, read_key, read_spark_properties, read_values
from layoutopt.encryption.references import use_reference
from layoutopt.errors import LayoutoptError, decode_error, expected_names, find_interrupt
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.extensions import missing_library
from layoutopt.report.texts import printable

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import Console

    from layoutopt.model.udf import Udf

DONE: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
INTERRUPTED: Final = 130

Settings = TypeVar("Settings", bound=VerbSettings)
VerbArgument = TypeVar("VerbArgument", bound=VerbSettings, contravariant=True)


@dataclass(frozen=True)
class Session:
    """The options that all verbs share.

    Attributes:
        conf: the configuration file.
        json: whether the result is printed as one JSON value.
        progress: whether progress is shown on stderr.
        debug: whether the logs of Spark and Java are shown on stderr.
        functions: the values of `--udf`.
    """

    conf: Path | None
    json: bool
    progress: bool
    debug: bool = False
    functions: tuple[str, ...] = ()

    def show(self, value: object | Callable[[], object], human: str | Callable[[Console], None]) -> None:
        """Print a result on stdout: as JSON `value`, or what it returns, else a text or what a function prints."""
        if self.json:
            result = _to_json(value() if callable(value) else value)
            sys.stdout.write(json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
            return
        if isinstance(human, str):
            sys.stdout.write(printable(human) + "\n")
            return
        from rich.console import Console

        # Tables in files and pipes are not cut to a terminal's width. Names and values like `[red]` are no markup.
        width = None if sys.stdout.isatty() else 160
        human(Console(highlight=False, markup=False, emoji=False, width=width))

    def spark_properties(self) -> dict[str, str]:
        """Return the configuration file's properties of the Spark session."""
        return read_spark_properties(self.conf) if self.conf else {}

    def udfs(self) -> tuple[Udf, ...]:
        """Return the user-defined functions; flags override the configuration file."""
        from layoutopt.config.files import import_udfs

        flags = import_udfs(self.functions)
        names = {udf.name for udf in flags}
        in_file = read_functions(self.conf) if self.conf else ()
        return (*flags, *(udf for udf in import_udfs(in_file) if udf.name not in names))

    def working(self, title: str, log: EventLog = NO_EVENTS) -> AbstractContextManager[Progress]:
        """Show progress while the block runs, unless it is off."""
        return show_progress(title, log, shown=self.progress)


def _to_json(value: object) -> object:
    """Convert a value for JSON; dates, decimals, NaN and bytes become text."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


class _InterruptedError(Exception):
    """An interrupt by Ctrl-C; its text says what the verb had done."""


def describe_interrupt(error: KeyboardInterrupt) -> str:
    """Return the message of an interrupt, including what had been done, if known."""
    return ": ".join(["interrupted", *map(str, error.args)])


class Body(Protocol[VerbArgument]):
    """The function of a verb."""

    __name__: str
    __doc__: str | None

    def __call__(self, settings: VerbArgument, session: Session, /) -> None:
        """Run the verb."""


def add_verb(
    app: typer.Typer, kind: type[Settings], *, example: str, by_place: bool = True
) -> Callable[[Body[Settings]], Body[Settings]]:
    """Return a decorator that makes a function a verb of its name, with a flag for every setting of `kind`.

    Every verb also has ``--udf``, ``--key``, ``--conf``, ``--json``, ``--progress`` and ``--debug``. A setting without
    a flag comes from the configuration file, else from its default.

    Args:
        app: the command line.
        kind: the verb's settings.
        example: a command line, shown below the help.
        by_place: whether there are positional arguments; otherwise these are flags too.
    """

    def register(body: Body[Settings]) -> Body[Settings]:
        def run(**flags: Any) -> None:
            conf, as_json, progress = flags.pop("conf"), flags.pop("json"), flags.pop("progress")
            debug, functions, key = flags.pop("debug"), tuple(flags.pop("udf") or ()), flags.pop("key")
            given = {name: value for name, value in flags.items() if value is not None and value != []}
            values = {**(read_values(conf, kind) if conf else {}), **given}
            reference = key or (read_key(conf) if conf else None)
            try:
                with use_reference(reference):
                    body(make_settings(kind, values), Session(conf, as_json, progress, debug, functions))
            except (LayoutoptError, typer.Exit):
                raise
            except (Exception, KeyboardInterrupt) as error:
                interrupt = find_interrupt(error)
                if interrupt is None:
                    raise
                # typer would end a KeyboardInterrupt without a message.
                raise _InterruptedError(describe_interrupt(interrupt)) from error

        parameters = [_make_flag(kind, name, by_place) for name in kind.model_fields]
        run.__signature__ = inspect.Signature([*parameters, *_make_common_flags()])  # type: ignore[attr-defined]  # read by typer
        name, epilog = body.__name__.replace("_", "-"), f"\b\nExample:\n  {example}"
        app.command(name, cls=Verb, help=inspect.getdoc(body), epilog=epilog)(run)
        return body

    return register


def _make_flag(kind: type[VerbSettings], name: str, by_place: bool) -> inspect.Parameter:
    field = kind.model_fields[name]
    key, panel = key_of(name, field), EXPERT if name in kind.expert else TUNING if name in kind.tuning else OPTIONS
    text = f"{field.description}{_format_default(field)}"
    info: Any
    if by_place and is_positional(field):
        info = typer.Argument(help=text, metavar=key.upper().replace("-", "_"), show_default=False)
    elif _cli_type(field) is bool:
        info = typer.Option(f"--{key}/--no-{key}", help=text, show_default=False, rich_help_panel=panel)
    else:
        short = ("-o",) if key == "output" else ()
        info = typer.Option(
            f"--{key}", *short, help=text, metavar=_metavar(field), show_default=False, rich_help_panel=panel
        )
    return _keyword(name, Annotated[_cli_type(field) | None, info], None)


def _make_common_flags() -> list[inspect.Parameter]:
    functions = typer.Option(
        "--udf",
        metavar="MODULE:FUNCTION",
        help="a deterministic Python function that queries use; may be given several times",
    )
    key = typer.Option(
        "--key",
        metavar="REFERENCE",
        help="the key of an encrypted table: env:NAME or command:WORDS [default: the reference in the table]",
    )
    conf = typer.Option(
        "--conf", metavar="FILE", help="a TOML file with settings, in a table named after the verb; flags override it"
    )
    as_json = typer.Option("--json", help="print the result as one JSON value")
    progress = typer.Option("--progress/--no-progress", help="show progress on stderr [default: yes]")
    debug = typer.Option("--debug", help="show tracebacks of errors and the logs of Spark")
    return [
        _keyword("udf", Annotated[list[str] | None, functions], None),
        _keyword("key", Annotated[str | None, key], None),
        _keyword("conf", Annotated[Path | None, conf], None),
        _keyword("json", Annotated[bool, as_json], False),
        _keyword("progress", Annotated[bool, progress], True),
        _keyword("debug", Annotated[bool, debug], False),
    ]


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _strip_annotation(annotation: Any) -> Any:
    """Return the type inside `X | None` and `Annotated`."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated or type(None) in parts:
        return _strip_annotation(next(part for part in parts if part is not type(None)))
    return annotation


def _cli_type(field: FieldInfo) -> Any:
    """Return the type that typer parses; the settings validate all other types from text."""
    kind = _strip_annotation(field.annotation)
    if typing.get_origin(kind) is tuple:
        return list[str]
    return bool if kind is bool else str


def _metavar(field: FieldInfo) -> str:
    """Return the help's placeholder of a value: the choices, or a kind of value."""
    kind = _strip_annotation(field.annotation)
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(typing.get_args(kind))
    if typing.get_origin(kind) is tuple and has_commas(field):
        return "A,B,..."
    return {int: "N", float: "X", Path: "FILE"}.get(kind, "TEXT")


def _format_default(field: FieldInfo) -> str:
    if field.is_required() or field.default in (None, ()) or isinstance(field.default, bool):
        return " [default: yes]" if field.default is True else ""
    if isinstance(field.default, tuple):
        return f" [default: {','.join(map(str, field.default))}]"
    return f" [default: {field.default}]"


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None, program: str = "layoutopt") -> int:
    """Run the command line and return its exit code, see :data:`~layoutopt.errors.EXIT_CODES`.

    An error is printed as one sentence on stderr.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with suppress(ValueError):  # outside the main thread
        for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C, and how schedulers end verbs
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _interrupt)
    if "--debug" not in words and not logging.root.handlers:
        # Silence libraries that log tracebacks of errors; each is printed as one sentence here.
        logging.root.addHandler(logging.NullHandler())
        if logging.lastResort is not None:  # but keep warnings about reading query logs
            logging.getLogger("layoutopt.workload").addHandler(logging.lastResort)
    try:
        code = app(args=words, prog_name=program, standalone_mode=False)
    except Exception as error:
        if "--debug" in words:
            traceback.print_exc()
        return _report_error(error)
    except KeyboardInterrupt:
        return _print_error("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else DONE


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Interrupt the verb, and the Spark jobs that it waits for."""
    sessions = sys.modules.get("layoutopt.spark.core.sessions")
    if sessions is not None:
        sessions.cancel_jobs()
    raise KeyboardInterrupt


def _report_error(error: Exception) -> int:
    """Print an error and return its exit code."""
    if isinstance(error, LayoutoptError):
        return _print_error(str(error), error.exit_code)
    original = decode_error(str(error))
    if original is not None:  # raised in a Spark worker
        return _print_error(str(original), original.exit_code)
    if isinstance(error, _USAGE_ERROR):
        return _print_error(f"{_describe_usage(error)}; see --help", BAD_USAGE)
    if isinstance(error, _InterruptedError | typer.Abort):
        return _print_error(str(error) or "interrupted", INTERRUPTED)
    if isinstance(error, ModuleNotFoundError) and (library := str(error.name).partition(".")[0]) in _OPTIONAL:
        missing = missing_library(library, _OPTIONAL[library], error)
        return _print_error(str(missing), missing.exit_code)
    if isinstance(error, BrokenPipeError):
        # The reader of the output (`| head`) has ended; flushing buffers at exit must not fail again.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123
        return FAILED
    if isinstance(error, ConnectionError) or type(error).__name__ in _LOST_CONNECTIONS:
        reason = str(error)[:200]
        return _print_error(f"lost the connection to Spark or a store ({reason}); check it and try again", FAILED)
    if isinstance(error, OSError):
        return _print_error(
            f"{error.filename or 'a file'}: {error.strerror or error}; check the path and the disk", FAILED
        )
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        from layoutopt.spark.core.failures import plain_message

        reason = f"Spark failed: {plain_message(error)}"
    else:
        reason = f"unexpected {type(error).__name__}: {error}"
    return _print_error(f"{reason}; run again with --debug for the traceback", FAILED)


def _describe_usage(error: Any) -> str:
    """Return the problem of typer's error about arguments, without its class and in one sentence."""
    message = str(error.format_message()).rstrip(".")
    verb = _UNKNOWN_VERB.match(message)
    if verb is not None:
        return f"unknown verb {verb[1]!r}: {expected_names(verb[1], error.ctx.command.commands)}"
    flag = getattr(error, "option_name", None)
    if flag is not None and message.startswith("No such option"):
        flags = [name for parameter in error.ctx.command.params for name in parameter.opts if name.startswith("--")]
        return f"unknown flag {flag!r}: {expected_names(flag, flags)}"
    extra = _EXTRA_ARGUMENTS.match(message)
    return f"the arguments {extra[1]!r} are too many; leave them out" if extra else message


# The extras of libraries that are imported where they are needed.
_OPTIONAL: Final = {"pyspark": "spark", "py4j": "spark"}

# typer's messages about verbs and arguments.
_UNKNOWN_VERB: Final = re.compile(r"No such command '(.*?)'")
_EXTRA_ARGUMENTS: Final = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)
# PySpark's errors after its Java process ended.
_LOST_CONNECTIONS = frozenset({"Py4JError", "Py4JNetworkError"})


def _print_error(sentence: str, code: int) -> int:
    sys.stderr.write(f"layoutopt: {' '.join(sentence.split())}\n")
    return code


# The base class of typer's errors about arguments, which has no public name.
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
