"""Run the experiments: `python -m jobs.bench VERB` in a checkout, or by `spark-submit` with this file.

Each verb generates data, lays it out in several ways and compares what queries read. Finished steps are used again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from layoutopt.cli.console import Session, run_app

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.bench.experiment import Session as SparkSource
    from jobs.bench.figure import Suite

T = TypeVar("T")
PROGRAM: Final = "python -m jobs.bench"

app = typer.Typer(
    help="Run the experiments of the documentation.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Scale = Annotated[float, typer.Option("--sf", help="the scale factor of TPC-H")]
Folder = Annotated[Path, typer.Option(help="the folder of data and results; finished steps are reused")]
Rows = Annotated[int | None, typer.Option(min=10_000, help="the rows of the synthetic tables", show_default=False)]
Figures = Annotated[
    str, typer.Option(help="only these figures, like 3.6,4.10, or 5 (a chapter); `list` lists them", show_default="all")
]
Results = Annotated[
    Path | None,
    typer.Option(help="the folder for results.json, the page and CSV files", show_default="results next to the data"),
]
Json = Annotated[bool, typer.Option("--json", help="print the result as one JSON value")]

_FOLDER: Final = Path("build/tpch")


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


@app.command()
def tpch(
    sf: Scale = 0.1,
    folder: Folder = _FOLDER,
    figures: Figures = "",
    results: Results = None,
    streams: Annotated[str, typer.Option(help="compare all methods on these query streams instead")] = "",
    readme: Annotated[
        Path | None,
        typer.Option(help="run nothing; update the tables of this Markdown file from the results.json of --results"),
    ] = None,
    json: Json = False,
) -> None:
    """Measure every figure of the thesis, with its numbers.

    Example: python -m jobs.bench tpch --sf 1 --figures 3.5a
    """
    from jobs.bench.chapter5 import tpch_suite
    from jobs.bench.comparison import comparison_report, run_streams
    from jobs.bench.results_report import update_tables

    session = _session(json)
    if streams:
        compared = _run("comparing methods", session, partial(run_streams, sf, root=folder, names=_split(streams)))
        session.show(compared, lambda console: console.print(comparison_report(compared)))
    elif readme is not None:
        changed = update_tables(readme, results)
        session.show({"changed": changed}, f"The tables of {readme} are {'updated' if changed else 'up to date'}.")
    else:
        _run_figures(partial(tpch_suite, sf, folder), figures, results, session)


@app.command()
def bigdata(
    rows: Rows = None, folder: Folder = _FOLDER, figures: Figures = "", results: Results = None, json: Json = False
) -> None:
    """Measure figure 4.7: SOP and GSOP under other workloads, on a table like the Big Data Benchmark's.

    Example: python -m jobs.bench bigdata --rows 200000
    """
    from jobs.bench.bigdata import bigdata_suite

    _run_figures(partial(bigdata_suite, rows, folder), figures, results, _session(json))


@app.command()
def wide(
    rows: Rows = None, folder: Folder = _FOLDER, figures: Figures = "", results: Results = None, json: Json = False
) -> None:
    """Measure figures 3.9, 3.10, 4.12 and 5.10, on synthetic tables of 453 and 104 columns.

    Example: python -m jobs.bench wide --rows 20000
    """
    from jobs.bench.wide import wide_suite

    _run_figures(partial(wide_suite, rows, folder), figures, results, _session(json))


@app.command()
def query(
    sf: Scale = 0.1,
    folder: Folder = _FOLDER,
    streams: Annotated[
        str, typer.Option(help="chapter3, chapter3-by-month, chapter4, weather, movies, trips")
    ] = "chapter3",
    json: Json = False,
) -> None:
    """Time queries in Spark and DuckDB, on plain Parquet and on the optimised table.

    Example: python -m jobs.bench query --sf 1 --streams chapter3,chapter4
    """
    from jobs.bench.query_times import queries_report, run_queries

    session = _session(json)
    timed = _run("timing queries", session, partial(run_queries, sf, root=folder, cases=_split(streams)))
    session.show(timed, lambda console: console.print(queries_report(timed, sf)))


@app.command()
def brushing(
    rows: Rows = None,
    folder: Folder = _FOLDER,
    streams: Annotated[str, typer.Option(help="weather, movies, trips", show_default="all")] = "",
    json: Json = False,
) -> None:
    """Compare all methods on range filters whose constants never recur.

    Example: python -m jobs.bench brushing --streams weather
    """
    from jobs.bench.brushing import ROWS
    from jobs.bench.comparison import comparison_report, run_brushing

    session = _session(json)
    run = partial(run_brushing, rows=rows or ROWS, root=folder / "brushing", names=_split(streams))
    compared = _run("comparing methods", session, run)
    session.show(compared, lambda console: console.print(comparison_report(compared)))


@app.command()
def star(
    rows: Rows = None,
    folder: Folder = _FOLDER,
    count: Annotated[int, typer.Option(min=1, help="queries of each template")] = 2,
    json: Json = False,
) -> None:
    """Time joins with filtered dimensions in Spark, on plain Parquet and on an optimised fact.

    Example: python -m jobs.bench star --rows 2000000
    """
    from jobs.bench.star import ROWS, run_star, star_report

    session = _session(json)
    measured = _run("measuring joins", session, partial(run_star, rows or ROWS, folder, count))
    session.show(measured, lambda console: console.print(star_report(measured)))


@app.command()
def growth(
    folder: Folder = _FOLDER,
    stages: Annotated[str, typer.Option(help="analyze, evaluate, plan, load, verify, append", show_default="all")] = "",
    json: Json = False,
) -> None:
    """Measure each stage by statements, rows, blocks, partitions and columns, and fit exponents.

    Example: python -m jobs.bench growth --stages analyze
    """
    from jobs.bench.growth import growth_report, plot_growth, run_growth

    session = _session(json)
    curves = _run("measuring growth", session, partial(run_growth, folder / "growth", _split(stages)))
    plot = folder / "growth.png"
    plot_growth(curves, plot)

    def show(console: Console) -> None:
        console.print(growth_report(curves))
        console.print(f"Written: {plot}")

    session.show([curve.to_json() for curve in curves], show)


@app.command()
def ablation(
    sf: Scale = 0.1,
    folder: Folder = _FOLDER,
    chapters: Annotated[str, typer.Option(help="chapter3, chapter4, chapter5", show_default="all")] = "",
    json: Json = False,
) -> None:
    """Plan as the thesis's text does, then by one deviation after the other, and measure what queries read.

    Example: python -m jobs.bench ablation --chapters chapter3
    """
    from jobs.bench.ablation import ablation_report, run_ablation

    session = _session(json)
    work = partial(run_ablation, sf, root=folder, chapters=_split(chapters))
    measured = _run("planning by one deviation after the other", session, work)
    session.show(measured, lambda console: console.print(ablation_report(measured)))


def _session(as_json: bool) -> Session:
    return Session(conf=None, json=as_json, progress=True)


def _run(title: str, session: Session, work: Callable[..., T]) -> T:
    with session.working(title) as progress:
        return work(say=progress.say)


def _run_figures(
    make_suite: Callable[[SparkSource], Suite], figures: str, results: Path | None, session: Session
) -> None:
    from jobs.bench.results import run_figures
    from jobs.bench.results_report import figures_table, list_figures, results_report
    from jobs.bench.steps import spark_when_needed

    names = _split(figures)
    if "list" in names:
        with spark_when_needed("layoutopt-figures") as spark:
            known = make_suite(spark).figures
        session.show(list_figures(known), lambda console: console.print(figures_table(known)))
        return
    run = partial(run_figures, make_suite, names=names, results=results)
    folder, document = _run("running the thesis's figures", session, run)
    session.show(document, lambda console: results_report(console, document, folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code, as of `layoutopt`."""
    return run_app(app, arguments, PROGRAM)


if __name__ == "__main__":
    if not __package__:  # by spark-submit, which runs the file alone
        sys.path[0] = str(Path(__file__).parents[2])
    sys.exit(main())
