"""Figures 3.9, 3.10, 4.12 and 5.10, on the synthetic tables of :mod:`layoutopt.bench.wide_workloads`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from layoutopt.bench.chapter3 import MATCHING
from layoutopt.bench.chapter4 import GROUPINGS
from layoutopt.bench.cold_times import FULL_SCAN
from layoutopt.bench.experiment import (
    UNSORTED,
    Evaluated,
    Experiment,
    Session,
    Variant,
    full_scan,
    generated_source,
    mean_seconds,
    scanned,
    table_details,
    without_templates,
)
from layoutopt.bench.figure import Measure, Measured, Point, Suite, measure_tables, read_figures
from layoutopt.bench.wide_workloads import (
    CUSTOMER,
    DAY,
    DAYS,
    SESSIONS,
    STAR,
    session_texts,
    star_texts,
    write_sessions,
    write_star,
)

DEFAULT_ROWS: Final = 20_000

# The access log has so many times the rows, since it has a quarter of the columns.
TIMES: Final = 4
BLOCKS: Final = 100
BLOCKS_A_DAY: Final = 150
NUMBERS_OF_FEATURES: Final = (2, 5, 10, 20, 40)
BUDGETS: Final = (1.5, 2.0)
PAR: Final = "PAR"


@dataclass(frozen=True)
class Wide:
    """Both tables at one size: the rows of the star table."""

    rows: int
    root: Path
    spark: Session

    @property
    def folder(self) -> Path:
        """The folder of all products."""
        return self.root / "wide" / str(self.rows)

    @property
    def star(self) -> Experiment:
        """The table of SDSS's shape."""
        source = generated_source(STAR, self.rows, self.folder / STAR, write_star)
        return Experiment(STAR, source, partial(without_templates, star_texts), self.spark, counts_rows=True)

    @property
    def sessions(self) -> Experiment:
        """The table of Conviva's shape."""
        source = generated_source(SESSIONS, TIMES * self.rows, self.folder / SESSIONS, write_sessions)
        return Experiment(SESSIONS, source, partial(without_templates, session_texts), self.spark, counts_rows=True)

    def star_variants(self) -> tuple[Variant, ...]:
        """Return what figure 4.12 compares."""
        rows = max(1, self.rows // BLOCKS)
        plain = Variant(PAR, "input-order", None, rows, features=False)
        return (plain, *(Variant(label, method, None, rows, **UNSORTED) for label, method in GROUPINGS.items()))

    def copies(self) -> tuple[Variant, ...]:
        """Return what figure 5.10 compares."""
        (gsop,) = (variant for variant in self.star_variants() if variant.label == "GSOP")
        copies = (replace(gsop, label=f"GSOP-R {budget:g}", method="gsop-r", budget=budget) for budget in BUDGETS)
        return (gsop, *copies)

    def _sop(self, count: int) -> Variant:
        rows = max(1, TIMES * self.rows // DAYS // BLOCKS_A_DAY)
        return Variant(f"SOP, {count} features", "sop", DAY, rows, num_features=count, **UNSORTED)

    def session_variants(self) -> tuple[Variant, ...]:
        """Return what figure 3.9 compares: ranges of a day's customers, and SOP with 3.7.4's 40 features."""
        sop = self._sop(40)
        return (Variant("range", "range", DAY, sop.block_rows, (CUSTOMER,), features=False), sop)

    def measures(self) -> dict[str, Measure]:
        """Return the measures of all figures."""
        return {
            "3.9a": self._session_rows(),
            "3.9c": self._seconds(self.sessions, self.session_variants()),
            "3.10a": self._numbers_of_features(),
            "3.10b": self._vectors(),
            "4.12": self._cells(self.star_variants()),
            "4.12-groups": self._groups(),
            "4.12-loading": self._loading(),
            "4.12-seconds": self._seconds(self.star, self.star_variants()),
            "5.10": self._cells(self.copies()),
            "5.10-seconds": self._seconds(self.star, self.copies()),
        }

    def _cells(self, variants: Sequence[Variant]) -> Measure:
        """Measure cells and tids as shares of a full scan."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point(unit, label, 100 * scanned(table, unit) / full_scan(table, "cells"))
                for label, table in evaluated.items()
                for unit in ("cells", "tids")
            ]
            return Measured(points, self._settings(evaluated), _details(evaluated))

        return measure_tables(self.star.tables(variants), read)

    def _groups(self) -> Measure:
        """Measure how many layouts the unseen queries read, by grouping method."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point("column groups", label, float(table["layouts"]))
                for label, table in evaluated.items()
                if label not in (PAR, "SOP")
            ]
            return Measured(points, self._settings(evaluated))

        return measure_tables(self.star.tables(self.star_variants()), read)

    def _loading(self) -> Measure:
        """Measure seconds of planning and loading, and what was stored."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point(phase, label, table[f"{phase}_seconds"])
                for label, table in evaluated.items()
                for phase in ("planning", "loading")
            ]
            return Measured(points, self._settings(evaluated), _details(evaluated))

        return measure_tables(self.star.tables(self.star_variants()), read)

    def _seconds(self, experiment: Experiment, variants: Sequence[Variant]) -> Measure:
        """Measure an average query's milliseconds, and its memory."""
        step = experiment.reading(variants)

        def read() -> Measured:
            product = step.read()
            points, details = [], []
            for label, read in ((variant.label, product[variant.label]) for variant in variants):
                points.append(Point("mean of the queries", label, 1000 * mean_seconds(read["seconds"])))
                details.append(
                    {
                        "method": label,
                        "memory, mean, MB": round(read["mean"] / 1e6, 3),
                        "memory, most, MB": round(read["most"] / 1e6, 3),
                        "queries that read several layouts": read["assembled"],
                    }
                )
            engine = "layoutopt's own reader, with DuckDB; files in the system's memory"
            return Measured(points, {"rows of the smaller table": self.rows, "engine": engine}, details)

        return Measure([step], read)

    def _session_rows(self) -> Measure:
        """Measure rows scanned as shares of a full scan, beside those that match."""

        def read(evaluated: Evaluated) -> Measured:
            by_range = evaluated["range"]
            whole = full_scan(by_range, "rows")
            points = [
                Point("rows", FULL_SCAN, 100.0),
                *(Point("rows", label, 100 * scanned(table, "rows") / whole) for label, table in evaluated.items()),
                Point("rows", MATCHING, 100 * by_range["matching"] / whole),
            ]
            return Measured(points, self._settings(evaluated), _details(evaluated))

        return measure_tables(self.sessions.tables(self.session_variants()), read)

    def _numbers_of_features(self) -> Measure:
        """Measure rows scanned over those that match, by the number of features."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point("SOP", float(count), scanned(table, "rows") / table["matching"])
                for count, table in zip(NUMBERS_OF_FEATURES, evaluated.values(), strict=True)
            ]
            return Measured(points, self._settings(evaluated))

        return measure_tables(self.sessions.tables([self._sop(count) for count in NUMBERS_OF_FEATURES]), read)

    def _vectors(self) -> Measure:
        step = self.sessions.vectors(NUMBERS_OF_FEATURES, DAY)

        def read() -> Measured:
            product = step.read()
            points = [Point("SOP", float(count), product[str(count)]["mean"]) for count in NUMBERS_OF_FEATURES]
            return Measured(points, {"partitions": DAY})

        return Measure([step], read)

    def _settings(self, evaluated: Evaluated) -> dict[str, object]:
        (queries,) = {table["queries"] for table in evaluated.values()}
        return {"rows of the smaller table": self.rows, "unseen queries": queries}


def _details(evaluated: Evaluated) -> tuple[dict[str, object], ...]:
    return tuple(
        {
            **line,
            "loading, s": round(table["loading_seconds"], 1),
            "stored, MB": round(table["storage_bytes"] / 1e6, 3),
            "layouts read": table["layouts"],
            "features": table["features"],
            "planner's memory so far, MB": round(table["peak_bytes"] / 1e6),
        }
        for line, table in zip(table_details(evaluated), evaluated.values(), strict=True)
    )


def wide_suite(rows: int | None, root: Path, spark: Session) -> Suite:
    """Return the figures on tables of so many rows, the access log of four times as many."""
    wide = Wide(DEFAULT_ROWS if rows is None else rows, root, spark)
    return Suite(
        name="wide",
        title="The wide tables of Sun 2017, measured by layoutopt on synthetic ones",
        about=f"Synthetic tables of the stated shapes of SDSS ({wide.rows:,} rows) and Conviva "
        f"({TIMES * wide.rows:,}), unseen queries; the thesis had 260 and 680 million rows of the real ones.",
        command=f"layoutopt bench wide --rows {wide.rows}",
        size=wide.rows,
        figures=read_figures("wide", blocks=BLOCKS),
        measures=wide.measures,
        folder=wide.folder / "results",
    )
