"""The plumbing of the command line: flags from settings, results as JSON or tables, progress, and errors."""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
import sys
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import typer
from typer.core import TyperCommand

from layoutopt.config.fields import VerbSettings, has_commas, is_positional, key_of
from layoutopt.config.files import make_settings, read_functions, read_key, read_spark_properties, read_values
from layoutopt.encryption.references import giving
from layoutopt.errors import LayoutoptError, interrupt_behind, recovered
from layoutopt.report.texts import printable

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import Console

    from layoutopt.model.udf import Udf

DONE: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
INTERRUPTED: Final = 130

Verb = TypeVar("Verb", bound=VerbSettings)
Taken = TypeVar("Taken", bound=VerbSettings, contravariant=True)


@dataclass(frozen=True)
class Work:
    """What a piece of work tells whoever waits for it.

    Attributes:
        step: how far it has come: (done, of how many).
        say: what it does now, in a short sentence.
    """

    step: Callable[[int, int], None]
    say: Callable[[str], None]


@dataclass(frozen=True)
class Session:
    """What every verb is told besides its settings.

    Attributes:
        conf: the configuration file, for `[spark]` properties.
        json: whether the result is printed as one JSON value.
        progress: whether progress is shown on stderr.
        debug: whether Spark and Java may say on stderr what they like.
        functions: what `--udf` names.
    """

    conf: Path | None
    json: bool
    progress: bool
    debug: bool = False
    functions: tuple[str, ...] = ()

    def show(self, value: object, human: str | Callable[[Console], None]) -> None:
        """Print a result on stdout: the JSON of `value`, or for people a text or what a function writes."""
        if self.json:
            sys.stdout.write(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False) + "\n")
            return
        if isinstance(human, str):
            sys.stdout.write(printable(human) + "\n")
            return
        from rich.console import Console

        # Tables that go into a file or a pipe are not cut to a terminal's width.
        # Names and values are text: `[red]` and `:heart:` mean nothing here.
        width = None if sys.stdout.isatty() else 160
        human(Console(highlight=False, markup=False, emoji=False, width=width))

    def spark_properties(self) -> dict[str, str]:
        """The configuration file's properties for the Spark session, none without a file."""
        return read_spark_properties(self.conf) if self.conf else {}

    def udfs(self) -> tuple[Udf, ...]:
        """The functions of the user's, of the flags and of the configuration file; flags win."""
        from layoutopt.config.files import find_udfs

        flags = find_udfs(self.functions)
        named = {udf.name for udf in flags}
        in_file = read_functions(self.conf) if self.conf else ()
        return (*flags, *(udf for udf in find_udfs(in_file) if udf.name not in named))

    @contextmanager
    def working(self, what: str) -> Iterator[Work]:
        """Show progress on stderr while the block runs, if it is wanted; yields what tells of it."""
        if not self.progress:
            yield Work(lambda done, total: None, lambda sentence: None)
            return
        from rich.console import Console
        from rich.progress import Progress

        stderr = Console(stderr=True)
        # On a terminal the finished bar goes away; a log keeps its last state.
        with Progress(console=stderr, transient=stderr.is_terminal) as bar:
            task = bar.add_task(what, total=None)
            yield Work(
                step=lambda done, total: bar.update(task, completed=done, total=total),
                say=lambda sentence: bar.update(task, description=sentence),
            )


def _plain(value: object) -> object:
    """A value as JSON can hold it: what it can't (dates, decimals, NaN, bytes) as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


class _InterruptedError(Exception):
    """Somebody pressed Ctrl-C; the text says what a verb had done by then."""


def interruption(error: KeyboardInterrupt) -> str:
    """That somebody pressed Ctrl-C, and what had been done by then if the error says so."""
    return ": ".join(["interrupted", *map(str, error.args)])


class Body(Protocol[Taken]):
    """What a verb does: a function of its settings and the session."""

    __name__: str
    __doc__: str | None

    def __call__(self, settings: Taken, session: Session, /) -> None:
        """Do it."""


def add_verb(
    app: typer.Typer, kind: type[Verb], *, example: str, by_place: bool = True
) -> Callable[[Body[Verb]], Body[Verb]]:
    """Make a function a verb of the command line, named after it, with a flag for every setting of `kind`.

    Every verb also has ``--udf``, ``--key``, ``--conf``, ``--json``, ``--progress`` and ``--debug``. What isn't
    given is left to the configuration file, then to the setting's default, so that each default stands in one place.

    Args:
        app: the command line.
        kind: the verb's settings.
        example: a whole command line, shown below the help.
        by_place: whether what a verb is about is taken by its place; else it is a flag too.
    """

    def register(body: Body[Verb]) -> Body[Verb]:
        def run(**given: Any) -> None:
            conf, as_json, progress = given.pop("conf"), given.pop("json"), given.pop("progress")
            debug, functions, key = given.pop("debug"), tuple(given.pop("udf") or ()), given.pop("key")
            values = {**(read_values(conf, kind) if conf else {}), **_given(given)}
            wanted = sys.stderr.isatty() if progress is None else progress
            reference = key or (read_key(conf) if conf else None)
            try:
                with giving(reference):
                    body(make_settings(kind, values), Session(conf, as_json, wanted, debug, functions))
            except (LayoutoptError, typer.Exit):
                raise
            except (Exception, KeyboardInterrupt) as error:
                pressed = interrupt_behind(error)
                if pressed is None:
                    raise
                # Left to typer it would end without a word.
                raise _InterruptedError(interruption(pressed)) from error

        flags = [_flag(name, field, by_place) for name, field in kind.model_fields.items()]
        run.__signature__ = inspect.Signature([*flags, *_common_flags()])  # type: ignore[attr-defined]  # what typer reads
        example_text = f"\b\nExample:\n  {example}"
        name = body.__name__.replace("_", "-")
        app.command(name, cls=_Command, help=inspect.getdoc(body), epilog=example_text)(run)
        return body

    return register


class _Command(TyperCommand):
    """A verb; its help names the places of arguments as it names the values of flags, without their Python types."""

    def get_help(self, ctx: Any) -> str:
        """The help's text."""
        return super().get_help(ctx).replace(" <str>", "").replace(" <list[str]>", "")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}


def _flag(name: str, field: FieldInfo, by_place: bool) -> inspect.Parameter:
    key = key_of(name, field)
    text = f"{field.description}{_default_text(field)}"
    info: Any
    if by_place and is_positional(field):
        info = typer.Argument(help=text, metavar=key.upper().replace("-", "_"), show_default=False)
    elif _type(field) is bool:
        info = typer.Option(f"--{key}/--no-{key}", help=text, show_default=False)
    else:
        short = ("-o",) if key == "output" else ()
        info = typer.Option(f"--{key}", *short, help=text, metavar=_metavar(field), show_default=False)
    return _keyword(name, Annotated[_type(field) | None, info], None)


def _common_flags() -> list[inspect.Parameter]:
    functions = typer.Option(
        "--udf",
        metavar="MODULE:FUNCTION",
        help="a deterministic Python function that queries call; may be given several times",
    )
    key = typer.Option(
        "--key",
        metavar="REFERENCE",
        help="where the key of an encrypted table is to be had: env:NAME or command:WORDS [default: as the table says]",
    )
    conf = typer.Option(
        "--conf", metavar="FILE", help="a TOML file with any of these settings, in a table named after the verb"
    )
    as_json = typer.Option("--json", help="print the result as one JSON value")
    progress = typer.Option("--progress/--no-progress", help="show progress on stderr [default: on a terminal]")
    debug = typer.Option("--debug", help="show where in the program an error arose, and what Spark logs")
    return [
        _keyword("udf", Annotated[list[str] | None, functions], None),
        _keyword("key", Annotated[str | None, key], None),
        _keyword("conf", Annotated[Path | None, conf], None),
        _keyword("json", Annotated[bool, as_json], False),
        _keyword("progress", Annotated[bool | None, progress], None),
        _keyword("debug", Annotated[bool, debug], False),
    ]


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(annotation: Any) -> Any:
    """The type that a setting may have besides None, out of `X | None` and `Annotated`."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated or type(None) in parts:
        return _kind(next(part for part in parts if part is not type(None)))
    return annotation


def _type(field: FieldInfo) -> Any:
    """The type that the command line parses; everything else is text, which the settings validate."""
    kind = _kind(field.annotation)
    if typing.get_origin(kind) is tuple:
        return list[str]
    return bool if kind is bool else str


def _metavar(field: FieldInfo) -> str:
    """What stands for the value in the help: the choices, or the kind of value."""
    kind = _kind(field.annotation)
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(typing.get_args(kind))
    if typing.get_origin(kind) is tuple and has_commas(field):
        return "A,B,..."
    return {int: "N", float: "X", Path: "FILE"}.get(kind, "TEXT")


def _default_text(field: FieldInfo) -> str:
    if field.is_required() or field.default in (None, ()) or isinstance(field.default, bool):
        return {True: " [default: yes]", False: ""}.get(field.default is True, "")
    if isinstance(field.default, tuple):
        return f" [default: {','.join(map(str, field.default))}]"
    return f" [default: {field.default}]"


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None, program: str = "layoutopt") -> int:
    """Run the command line and return its exit code; every error is one sentence on stderr.

    Returns:
        0 done, 1 failed, 2 bad usage or bad input, 3 somebody else's rows are in the way, 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" not in words and not logging.root.handlers:
        # Libraries log the tracebacks of errors that are told in one sentence here.
        logging.root.addHandler(logging.NullHandler())
        if logging.lastResort is not None:  # how a log was read is told all the same
            logging.getLogger("layoutopt.workload").addHandler(logging.lastResort)
    try:
        code = app(args=words, prog_name=program, standalone_mode=False)
    except Exception as error:
        if "--debug" in words:
            traceback.print_exc()
        return _fail(error)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else DONE


def _fail(error: Exception) -> int:
    if isinstance(error, LayoutoptError):
        return _say(str(error), error.exit_code)
    ours = recovered(str(error))
    if ours is not None:  # said in one of Spark's workers
        return _say(str(ours), ours.exit_code)
    if isinstance(error, _USAGE_ERROR):
        return _say(f"{error.format_message().rstrip('.')}; see --help", BAD_USAGE)
    if isinstance(error, _InterruptedError | typer.Abort):
        return _say(str(error) or "interrupted", INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        # Whoever read our output (`| head`) has gone; what is still buffered must not fail again at exit.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123
        return FAILED
    if isinstance(error, ConnectionError) or type(error).__name__ in _LOST:
        reason = str(error)[:200]
        return _say(
            f"a process that is needed does not answer, Spark's or a store's ({reason}); see why, try again", FAILED
        )
    if isinstance(error, OSError):
        return _say(f"{error.filename or 'a file'}: {error.strerror or error}; check the path and the disk", FAILED)
    said = _STACK.split(str(error), maxsplit=1)[0].strip()
    return _say(f"unexpected {type(error).__name__}: {said}; run again with --debug to see where", FAILED)


# Where Spark's messages go on with what Java did.
_STACK = re.compile(r"\s+at (?=[a-z]+\.)|\s*Driver stacktrace")

# What Spark's Python says where its Java process ended; the words depend on what was asked of it just then.
_LOST = frozenset({"Py4JError", "Py4JNetworkError"})


def _say(sentence: str, code: int) -> int:
    sys.stderr.write(f"layoutopt: {' '.join(sentence.split())}\n")
    return code


_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""The base of typer's own errors about arguments; it has no public name there."""
