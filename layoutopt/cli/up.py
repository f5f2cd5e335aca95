"""Define the verb `up`: from a table and its query log to a loaded table and a report, by the other verbs."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from layoutopt.api.up import QUICK, guess_partition_column, list_row_groups
from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.layouts import analyze, load, plan
from layoutopt.cli.questions import evaluate
from layoutopt.config.fields import VerbSettings, key_of
from layoutopt.config.files import make_settings
from layoutopt.config.settings import AnalyzeSettings, EvaluateSettings, LoadSettings, PlanSettings, UpSettings
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.external.listing import Listing
    from layoutopt.model.layout import Plan

verbs = typer.Typer()

# The best method's plan is loaded if held-out queries read at most this share of what they read by the first plan.
WORTH_LOADING: Final = 0.95

Verb = TypeVar("Verb", bound=VerbSettings)


@dataclass(frozen=True)
class CollectingSession(Session):
    """A session that keeps the values that verbs show, by step, instead of printing them."""

    steps: dict[str, Any] = field(default_factory=dict)

    def show(self, value: object, human: str | Callable[[Console], None]) -> None:
        """Keep a value for the last step begun."""
        self.steps[list(self.steps)[-1]] = value() if callable(value) else value

    def run(self, step: str, body: Callable[[Verb, Session], None], settings: Verb) -> str:
        """Run a verb as a step, and return a sentence on its result."""
        self.steps[step] = None
        body(settings, self)
        return f"{step}: {_SENTENCES[type(settings)](self.steps[step])}"

    def tell(self, sentence: str) -> None:
        """Print a sentence, unless the result is JSON."""
        if not self.json:
            super().show(None, sentence)
            sys.stdout.flush()

    def end(self, written: Mapping[str, str]) -> None:
        """Print what was written, by its name, or the results of all steps as JSON."""
        self.steps["written"] = written
        if self.json:
            super().show(self.steps, "")
        for name, path in written.items():
            self.tell(f"{name}: {path}")


@add_verb(verbs, UpSettings, example="layoutopt up events.parquet queries.sql")
def up(settings: UpSettings, session: Session) -> None:
    """Lay out a table for its query log, in one command.

    Runs `analyze`, `plan`, `load` and `evaluate`, and writes a report. A first plan takes seconds. Unless --quick is
    given, all methods are tried then, and the table is loaded again if held-out queries read 5% fewer bytes by the best
    one. The same command continues where an earlier one stopped. layoutopt.toml has the settings for the single verbs.
    """
    _Up(settings, CollectingSession(**vars(session))).run()


@dataclass(frozen=True)
class _Up:
    settings: UpSettings
    session: CollectingSession

    @property
    def folder(self) -> Path:
        """The folder of all results."""
        default = f"layoutopt-{Path(self.settings.source.rstrip('/')).name.partition('.')[0] or 'table'}"
        return Path(self.settings.into or default).absolute()

    @property
    def toml(self) -> Path:
        """The file of the single verbs' settings."""
        return self.folder / "layoutopt.toml"

    @property
    def better(self) -> Path:
        """The file of the best method's plan."""
        return self.folder / "better.json"

    def run(self) -> None:
        """Run all steps that an earlier run has not done, and print where the results are."""
        from layoutopt.external.external_tables import read_schema

        schema = read_schema(self.settings.source, self.settings.table)  # a wrong path fails before a folder is made
        listing = list_row_groups(self.settings.source)
        partition_by = self.settings.partition_by or guess_partition_column(self.settings.source, listing)
        if partition_by is not None:
            schema.find(partition_by)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(
                f"the folder {str(self.folder)!r} can't be made ({error.strerror}); give another by --into"
            ) from error
        values = self._values(partition_by)
        self._write_settings(values)
        source, log = describe_source(self.settings.source, listing), describe_file(self.settings.log)
        self._do("analyze", AnalyzeSettings, values["analyze"], analyze, [source, log])
        planned: list[object] = [source, describe_file(str(self.folder / "features.json"))]
        self._do("plan", PlanSettings, values["plan"] | {"method": QUICK}, plan, planned)
        self._load("load", values["load"], source)
        self._do("evaluate", EvaluateSettings, values["evaluate"], evaluate, None)
        if not self.settings.quick:
            self._improve(values, source, planned)
        written = {"table": values["load"]["table"], "report": values["evaluate"]["html"], "settings": str(self.toml)}
        self.session.end(written)

    def _values(self, partition_by: str | None) -> dict[str, dict[str, Any]]:
        """Return each verb's settings by key."""
        from layoutopt.catalog.storage.filesystem import absolute

        given, source, log_path = self.settings, self.settings.source, self.settings.log
        source = absolute(source) if Path(source).exists() else source  # the file is for other working folders too
        log_path = absolute(log_path) if Path(log_path).exists() else log_path

        def path(name: str) -> str:
            return str(self.folder / name)

        log = {"log": log_path, "dialect": given.dialect, "column": given.column}
        values: dict[str, dict[str, Any]] = {
            "analyze": {**log, "schema": source, "table": given.table, "output": path("features.json")},
            "plan": {
                "source": source,
                "features": path("features.json"),
                "partition-by": partition_by,
                "executor": given.executor,
                "output": path("plan.json"),
            },
            "load": {
                "source": source,
                "table": path("table"),
                "plan": path("plan.json"),
                "executor": given.executor,
            },
            "evaluate": {**log, "table": path("table"), "html": path("report.html")},
        }
        return {verb: {key: value for key, value in of.items() if value is not None} for verb, of in values.items()}

    def _write_settings(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the settings; those of `load` name the plan that the table has, since it refuses others."""
        if self._has_better_plan(values["load"]["table"]):
            values = {**values, "load": {**values["load"], "plan": str(self.better)}}
        self.toml.write_text(to_toml(values), encoding="utf-8")

    def _has_better_plan(self, table: str) -> bool:
        from layoutopt.catalog.paths import MARKER
        from layoutopt.catalog.storage.filesystem import TableFiles
        from layoutopt.config.documents import read_plan
        from layoutopt.inspect.status import current_plan
        from layoutopt.scan.table import open_own_table

        if not self.better.exists() or not TableFiles(table).exists(MARKER):
            return False
        return current_plan(open_own_table(table).catalog).digest == read_plan(self.better).digest

    def _do(
        self, step: str, kind: type[Verb], values: Mapping[str, Any], body: Callable[[Verb, Session], None],
        inputs: object,
    ) -> bool:  # fmt: skip
        """Run a verb unless it was run on the same inputs; without inputs it always runs. Return whether it ran."""
        names = {key_of(name, field): name for name, field in kind.model_fields.items()}
        made = make_settings(kind, {names[key]: value for key, value in values.items()})
        record = self.folder / "up.json"
        done = json.loads(record.read_bytes()) if record.exists() else {}
        state = hashlib.sha256(json.dumps([dict(values), inputs], default=str).encode()).hexdigest()
        if inputs is not None and done.get(step) == state:
            self.session.steps[step] = None
            self.session.tell(f"{step}: done before")
            return False
        self.session.tell(self.session.run(step, body, made))
        if inputs is not None:
            record.write_text(json.dumps({**done, step: state}, indent=1), encoding="utf-8")
        return True

    def _load(self, step: str, values: Mapping[str, Any], source: object) -> bool:
        inputs = [source, describe_file(values["plan"])]
        return self._do(step, LoadSettings, {**values, "replace": True}, load, inputs)

    def _improve(self, values: Mapping[str, Mapping[str, Any]], source: object, planned: object) -> None:
        """Plan by all methods, and load by the best one if it saves enough."""
        from layoutopt.config.documents import read_plan

        self._do("better plan", PlanSettings, {**values["plan"], "output": str(self.better)}, plan, planned)
        best = read_plan(self.better)
        gain = _gain(best)
        text = f"held-out queries read {gain:.0%} fewer bytes by {best.method} than by {QUICK}"
        if gain < 1 - WORTH_LOADING:
            self.session.tell(
                f"{text}: the table stays" if gain > 0 else f"no method is better than {QUICK}: the table stays"
            )
            return
        self.session.tell(text)
        if self._load("better load", {**values["load"], "plan": str(self.better)}, source):
            self._write_settings(values)
            self._do("better evaluate", EvaluateSettings, values["evaluate"], evaluate, None)


def _describe_analysis(value: Mapping[str, Any]) -> str:
    skipped = value["counts"]["skipped"]
    left_out = f", {skipped} left out ({value['skipped'][0]['reason']}, ...)" if skipped else ""
    return f"{len(value['features'])} features of the log's statements on {value['table']}{left_out}"


def _describe_plan(value: Mapping[str, Any]) -> str:
    by = f"partitions by {value['partition_by']}" if value["partition_by"] else "one partition"
    share = value["predicted"].get("bytes_fraction")
    read = "" if share is None else f": the log's queries would read {share:.1%} of the bytes of full scans"
    return f"{value['method']} with {by}, {value['block_rows']:,} rows a block{read}"


def _describe_load(value: Mapping[str, Any]) -> str:
    size = f"{value['rows']:,} rows in {value['blocks']:,} blocks of {len(value['partitions']):,} partitions"
    return f"{size}, {value['bytes'] / 1e6:,.1f} MB"


def _describe_evaluation(value: Mapping[str, Any]) -> str:
    totals = value["totals"]
    skipped = sum(of["bytes"] for of in totals["skipped_by"].values())
    read = totals["bytes_scanned"]
    share = read / (read + skipped) if read + skipped else 1.0
    return (
        f"{totals['queries']:,} queries read {read / 1e6:,.1f} MB, {share:.1%} of their columns, in "
        f"{totals['blocks_scanned']:,} of {totals['blocks_total']:,} blocks"
    )


_SENTENCES: Final[Mapping[type[VerbSettings], Callable[[Mapping[str, Any]], str]]] = MappingProxyType(
    {
        AnalyzeSettings: _describe_analysis,
        PlanSettings: _describe_plan,
        LoadSettings: _describe_load,
        EvaluateSettings: _describe_evaluation,
    }
)


def _gain(plan: Plan) -> float:
    """Return the share of bytes that held-out queries save by a plan over :data:`QUICK`; 0 where it is unknown."""
    from layoutopt.model.predictions import Predictions

    shares = Predictions.parse(plan.predicted).shares
    quick = shares.get(QUICK, 0.0)
    return 1 - min(shares.values()) / quick if quick and plan.method != QUICK else 0.0


def describe_source(source: str, listing: Listing | None) -> object:
    """Return what changes with a source's content, in JSON; ``listing`` is that of its row groups."""
    from layoutopt.external.external_tables import pin_version
    from layoutopt.external.formats import parse_path, parse_table_name
    from layoutopt.external.listing import digest_listing

    if listing is not None:
        return digest_listing(listing)
    return describe_file(parse_path(source).path) if parse_table_name(source) is None else pin_version(source)


def describe_file(path: str) -> object:
    """Return what changes with a file's or folder's content, in JSON; without files, as of a store, the path alone."""
    files = sorted(file for file in (Path(path), *Path(path).rglob("*")) if file.is_file())
    return [path, *([str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files)]


def to_toml(values: Mapping[str, Mapping[str, Any]]) -> str:
    """Return verbs' settings as a configuration file."""
    lines = ["# Written by `layoutopt up`. A verb reads its settings here by --conf; flags override them."]
    for verb, of in values.items():
        lines += ["", f"[{verb}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in of.items())]
    return "\n".join(lines) + "\n"
