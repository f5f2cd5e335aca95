"""`layoutopt bench tuning`: parameters chosen by cross-validation beside the best by the unseen queries (3.6).

``plan --tune`` knows the training queries alone. Here all of its parameters are tried, each with each, by plans of the
whole training log and by the test queries, in the bytes that they read of a sample, the catalog's included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench, data_step, read_features, read_test_queries, source_rows
from layoutopt.bench.tpch.queries import chosen_streams
from layoutopt.bench.tpch.variants import YEAR_BLOCK_ROWS
from layoutopt.config.settings import PlanSettings
from layoutopt.features.selection import default_threshold, mined_from
from layoutopt.model.documents import FeaturesDocument

if TYPE_CHECKING:
    from layoutopt.spark.planning.hold_out import EvaluatedPlan

PARTITION_BY: Final = "o_year"
STREAMS: Final = ("chapter3", "chapter4")
SEVERAL_LAYOUTS: Final = "chapter4"  # where streams begin whose queries read different columns
GOAL: Final = 1.1  # times the best of the sweep


@dataclass(frozen=True)
class TuningFigure:
    """What tuning chose for a stream, and what it could have chosen.

    Attributes:
        stream: of queries.
        method: that was tuned.
        default: the settings without tuning.
        chosen: those that cross-validation picked.
        unseen: by settings, the share of a full scan's bytes that the test queries read, of the whole sweep.
    """

    stream: str
    method: str
    default: str
    chosen: str
    unseen: Mapping[str, float]

    @property
    def best(self) -> str:
        """The settings by which the test queries read least."""
        return min(self.unseen, key=lambda label: self.unseen[label])

    @property
    def over_best(self) -> float:
        """How much more is read by the settings chosen, times."""
        return self.unseen[self.chosen] / self.unseen[self.best]


def tuning_figures(
    scale: float = 0.1, *, root: Path = DEFAULT_ROOT, streams: Sequence[str] = (), say: Callable[[str], None]
) -> tuple[TuningFigure, ...]:
    """Tune for each stream, and sweep: SOP for the streams of chapter 3, GSOP for the others, in partitions of a year.

    Args:
        scale: the scale factor.
        root: the folder of all experiments; features that were found there are used again.
        streams: their names; chapters 3 and 4 when empty.
        say: told each stage.

    Raises:
        SettingError: a scale factor that can't be generated, or a stream that is not known.
    """
    asked = chosen_streams(streams or STREAMS)
    with spark_when_needed("layoutopt-tuning") as spark:
        bench = Bench(TpchData(scale, root), spark)
        run(data_step(bench), say)
        return tuple(tuning_figure(bench, stream, say) for stream in asked)


def tuning_figure(bench: Bench, stream: str, say: Callable[[str], None]) -> TuningFigure:
    """Tune for one stream, and sweep."""
    from layoutopt.spark.planning.automatic import THRESHOLDS, label_of, tune
    from layoutopt.spark.planning.hold_out import EvaluatedPlan, Fold, evaluation_on, start_evaluation

    document = read_features(bench, stream, say)
    settings, default = settings_for(bench, stream), default_threshold(document.queries)
    thresholds = [factor * default for factor in THRESHOLDS]
    say(f"{stream}: tuning")
    chosen = tune(start_evaluation(bench.spark(), settings, document, thresholds, say), settings, thresholds)
    say(f"{stream}: sweeping")
    rows = source_rows(bench, document.schema)
    documents = {each: mined_from(document, document.queries, threshold=each) for each in thresholds}
    sweeping = evaluation_on(rows, settings, [Fold(documents, read_test_queries(bench, stream))], say)
    untuned = EvaluatedPlan(settings, default, 0.0)
    for each in (untuned, chosen, *grid(documents, settings)):
        sweeping.score(each.settings, each.threshold)
    unseen = {label_of(trial): trial.score for trial in sweeping.evaluated}
    return TuningFigure(stream, settings.method, label_of(untuned), label_of(chosen), unseen)


def settings_for(bench: Bench, stream: str) -> PlanSettings:
    """SOP or GSOP, with as many blocks in a segment as scale factor 1 has in blocks of 10,000 rows."""
    return PlanSettings(
        source=str(bench.data.denormalised),
        method="gsop" if stream >= SEVERAL_LAYOUTS else "sop",
        partition_by=PARTITION_BY,
        block_rows=round(YEAR_BLOCK_ROWS * min(1.0, bench.data.scale)),
    )


def grid(documents: Mapping[int, FeaturesDocument], settings: PlanSettings) -> Iterator[EvaluatedPlan]:
    """Each T with each number of features with each block size, of those that tuning tries; not scored yet."""
    from layoutopt.spark.planning.automatic import BLOCK_ROWS, numbers_of_features
    from layoutopt.spark.planning.hold_out import EvaluatedPlan

    for threshold, document in documents.items():
        for count, factor in product(numbers_of_features(settings, len(document.features)), (1.0, *BLOCK_ROWS)):
            rows = max(1, round(factor * settings.block_rows))
            yield EvaluatedPlan(settings.model_copy(update={"num_features": count, "block_rows": rows}), threshold, 0.0)


def print_tuning(console: Console, figures: Sequence[TuningFigure]) -> None:
    """Print a table a stream: what was chosen, the settings without tuning, and the best and worst of the sweep."""
    for figure in figures:
        title = f"{figure.stream}, {figure.method}: bytes that unseen queries read; goal {GOAL}x of the best"
        table = Table("", title=title, title_justify="left")
        for name in ("settings", "of a full scan", "of the best"):
            table.add_column(name, justify="right")
        worst = max(figure.unseen, key=lambda label: figure.unseen[label])
        rows = {"tuned": figure.chosen, "not tuned": figure.default, "best": figure.best, "worst": worst}
        for name, label in rows.items():
            share = figure.unseen[label]
            table.add_row(name, label, f"{share:.2%}", f"{share / figure.unseen[figure.best]:.3f}x")
        console.print(table)
        console.print(f"{len(figure.unseen)} settings were tried.")
