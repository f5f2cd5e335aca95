"""Define the verb `bench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.config.benching import BenchSettings

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from layoutopt.bench.experiment import Session as SparkSource
    from layoutopt.bench.figure import Suite

verbs = typer.Typer()


@add_verb(verbs, BenchSettings, example="layoutopt bench demo --sf 0.1")
def bench(settings: BenchSettings, session: Session) -> None:
    """Run an experiment.

    Generates data, lays it out in several ways, and compares what queries read.
    """
    _EXPERIMENTS[settings.experiment](settings, session)


def _run_demo(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.demo import run_demo

    run_demo(settings.sf, root=settings.folder)


def _run_tpch(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.chapter5 import tpch_suite
    from layoutopt.bench.comparison import comparison_report, run_streams
    from layoutopt.bench.results_report import update_tables

    if settings.streams:
        with session.working("comparing methods") as work:
            compared = run_streams(settings.sf, root=settings.folder, names=settings.streams, say=work.say)
        session.show(compared, lambda console: console.print(comparison_report(compared)))
    elif settings.readme is not None:
        changed = update_tables(settings.readme, settings.results)
        state = "updated" if changed else "up to date"
        session.show({"changed": changed}, f"The tables of {settings.readme} are {state}.")
    else:
        _run_figures(settings, session, partial(tpch_suite, settings.sf, settings.folder))


def _run_bigdata(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.bigdata import bigdata_suite

    _run_figures(settings, session, partial(bigdata_suite, settings.rows, settings.folder))


def _run_wide(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.wide import wide_suite

    _run_figures(settings, session, partial(wide_suite, settings.rows, settings.folder))


def _run_figures(settings: BenchSettings, session: Session, make_suite: Callable[[SparkSource], Suite]) -> None:
    from layoutopt.bench.results import run_figures
    from layoutopt.bench.results_report import figures_table, list_figures, results_report
    from layoutopt.bench.steps import spark_when_needed

    if "list" in settings.figures:
        with spark_when_needed("layoutopt-figures") as spark:
            figures = make_suite(spark).figures
        session.show(list_figures(figures), lambda console: console.print(figures_table(figures)))
        return
    with session.working("running the thesis's figures") as work:
        folder, document = run_figures(make_suite, names=settings.figures, results=settings.results, say=work.say)
    session.show(document, lambda console: results_report(console, document, folder))


def _run_query(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.query_times import queries_report, run_queries
    from layoutopt.config.documents import read_calibration
    from layoutopt.model.engine_costs import BUILT_IN

    with session.working("timing queries") as work:
        cases = settings.streams or ("chapter3",)
        costs = read_calibration(settings.calibration) if settings.calibration else BUILT_IN
        timed = run_queries(settings.sf, root=settings.folder, cases=cases, calibration=costs, say=work.say)
    session.show(timed, lambda console: console.print(queries_report(timed, settings.sf)))


def _run_brushing(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.brushing import ROWS
    from layoutopt.bench.comparison import comparison_report, run_brushing

    with session.working("comparing methods") as work:
        root = settings.folder / "brushing"
        compared = run_brushing(rows=settings.rows or ROWS, root=root, names=settings.streams, say=work.say)
    session.show(compared, lambda console: console.print(comparison_report(compared)))


def _run_micro(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.micro import run_micro

    run_micro(settings.sf, root=settings.folder)


def _run_scaling(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.scaling import plot_scaling, run_scaling, scaling_report

    with session.working("running all stages") as work:
        costs = run_scaling(settings.sf, root=settings.folder, streams=settings.streams, say=work.say)
    plot = settings.folder / "scaling.png"
    plot_scaling(costs, plot)
    session.show(costs, partial(_print_report, scaling_report(costs), plot))


def _run_growth(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.growth import growth_report, plot_growth, run_growth

    with session.working("measuring growth") as work:
        curves = run_growth(settings.folder / "growth", settings.streams, work.say)
    plot = settings.folder / "growth.png"
    plot_growth(curves, plot)
    session.show([curve.to_json() for curve in curves], partial(_print_report, growth_report(curves), plot))


def _run_drift(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.drift import drift_report, plot_drift, run_drift

    with session.working("simulating") as work:
        figures = run_drift(settings.seed, say=work.say)
    plot = settings.folder / "drift.png"
    plot_drift(figures, plot)
    session.show([figure.to_json() for figure in figures], partial(_print_report, drift_report(figures), plot))


def _run_reorganise(settings: BenchSettings, session: Session) -> None:
    from layoutopt.bench.reorganise import SHARES, plot_reorganised, reorganised_figures, reorganised_report

    shares = settings.shares or SHARES
    with session.working("reorganising") as work:
        figures = reorganised_figures(
            settings.sf, root=settings.folder, shares=shares, halves=settings.streams, say=work.say
        )
    plot = settings.folder / "reorganised.png"
    plot_reorganised(figures, plot)
    report = reorganised_report(figures, settings.sf)
    session.show([vars(figure) for figure in figures], partial(_print_report, report, plot))


def _print_report(report: RenderableType, file: Path, console: Console) -> None:
    console.print(report)
    console.print(f"Written: {file}")


_EXPERIMENTS: Final[Mapping[str, Callable[[BenchSettings, Session], None]]] = {
    "demo": _run_demo,
    "tpch": _run_tpch,
    "bigdata": _run_bigdata,
    "query": _run_query,
    "brushing": _run_brushing,
    "micro": _run_micro,
    "wide": _run_wide,
    "scaling": _run_scaling,
    "growth": _run_growth,
    "drift": _run_drift,
    "reorganise": _run_reorganise,
}
