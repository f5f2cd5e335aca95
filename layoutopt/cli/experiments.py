"""The experiments: `bench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.config.benching import BenchSettings
from layoutopt.config.settings import AnalyzeSettings
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console, RenderableType

    from layoutopt.bench.thesis.figure import B, Figure
    from layoutopt.bench.thesis.suite import Suite

verbs = typer.Typer()


@add_verb(verbs, BenchSettings, example="layoutopt bench demo --sf 0.1")
def bench(settings: BenchSettings, session: Session) -> None:
    """Run an experiment: generate its data, lay it out in several ways, and compare what queries scan."""
    _EXPERIMENTS[settings.experiment](settings, session)


def _demo(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.tpch.demo import run_demo

    run_demo(settings.sf, root=settings.folder)


def _tpch(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.thesis.readme import run_readme
    from layoutopt.bench.thesis.registry import FIGURES, tpch_suite
    from layoutopt.bench.tpch.runner import run_tpch

    if settings.streams:
        results = run_tpch(settings.sf, root=settings.folder, streams=settings.streams)
        session.show({"results": str(results)}, f"Written: {results}")
    elif settings.readme is not None:
        changed = run_readme(settings.readme, settings.results)
        said = "written anew" if changed else "as the results have them"
        session.show({"changed": changed}, f"The tables of {settings.readme} are {said}.")
    else:
        _figures(settings, session, FIGURES, partial(tpch_suite, settings.sf, settings.folder))


def _figures(
    settings: BenchSettings,
    session: Session,
    figures: Mapping[str, Figure[B]],
    suite_with: Callable[[Callable[[], SparkSession]], Suite[B]],
) -> None:
    from layoutopt.bench.thesis.run import run_figures
    from layoutopt.bench.thesis.tell import figures_table, figures_there, results_report

    if "list" in settings.figures:
        session.show(figures_there(figures), lambda console: console.print(figures_table(figures)))
        return
    with session.working("running the thesis's figures") as work:
        folder, document = run_figures(suite_with, names=settings.figures, results=settings.results, say=work.say)
    session.show(document, lambda console: results_report(console, document, folder))


def _bigdata(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.generated.sensitivity import FIGURES, bigdata_suite

    _figures(settings, session, FIGURES, partial(bigdata_suite, settings.rows, settings.folder))


def _query(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.queries import queries_report, run_queries
    from layoutopt.config.documents import read_calibration
    from layoutopt.model.engine_costs import BUILT_IN

    with session.working("timing queries") as work:
        cases = settings.streams or ("chapter3",)
        costs = read_calibration(settings.calibration) if settings.calibration else BUILT_IN
        timed = run_queries(settings.sf, root=settings.folder, cases=cases, calibration=costs, say=work.say)
    session.show(timed, lambda console: console.print(queries_report(timed, settings.sf)))


def _brushing(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.brushing.experiment import ROWS, run_brushing
    from layoutopt.bench.compared.report import brushing_report

    with session.working("comparing methods") as work:
        root = settings.folder / "brushing"
        found = run_brushing(rows=settings.rows or ROWS, root=root, names=settings.streams, say=work.say)
    session.show(found, lambda console: console.print(brushing_report(found)))


def _micro(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.figures import run_micro

    run_micro(settings.sf, root=settings.folder)


def _wide(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.generated.wide_figures import FIGURES, wide_suite
    from layoutopt.bench.wide import print_wide, wide_result

    if settings.figures:
        _figures(settings, session, FIGURES, partial(wide_suite, settings.rows, settings.folder))
        return
    with session.working("planning a synthetic wide table"):
        result = wide_result()
    session.show(result.to_json(), lambda console: print_wide(console, result))


def _scaling(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.scaling import plot_scaling, run_scaling, scaling_report

    with session.working("running all stages") as work:
        found = run_scaling(settings.sf, root=settings.folder, streams=settings.streams, say=work.say)
    picture = settings.folder / "scaling.png"
    plot_scaling(found, picture)
    session.show(found, partial(_report_and_file, scaling_report(found), picture))


def _drift(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.drift.experiment import run_drift
    from layoutopt.bench.drift.report import drift_report, plot_drift

    with session.working("simulating") as work:
        figures = run_drift(settings.seed, say=work.say)
    picture = settings.folder / "drift.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    plot_drift(figures, picture)
    session.show([figure.to_json() for figure in figures], partial(_report_and_file, drift_report(figures), picture))


def _reorganise(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.tpch.reorganised import SHARES, plot_reorganised, reorganised_figures, reorganised_report

    with session.working("reorganising") as work:
        figures = reorganised_figures(
            settings.sf,
            root=settings.folder,
            shares=settings.shares or SHARES,
            halves=settings.streams,
            say=work.say,
        )
    picture = settings.folder / "reorganised.png"
    plot_reorganised(figures, picture)
    report = reorganised_report(figures, settings.sf)
    session.show([vars(figure) for figure in figures], partial(_report_and_file, report, picture))


def _report_and_file(report: RenderableType, written: Path, console: Console) -> None:
    console.print(report)
    console.print(f"Written: {written}")


_EXPERIMENTS: Final[Mapping[str, Callable[[BenchSettings, Session], None]]] = MappingProxyType(
    {
        "demo": _demo,
        "tpch": _tpch,
        "bigdata": _bigdata,
        "query": _query,
        "brushing": _brushing,
        "micro": _micro,
        "wide": _wide,
        "scaling": _scaling,
        "drift": _drift,
        "reorganise": _reorganise,
    }
)
