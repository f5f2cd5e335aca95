"""``layoutopt plan``: the layout, and the indexes that ``--index`` names or ``--index-budget`` chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from layoutopt.config.settings import PlanSettings
from layoutopt.events import Progress
from layoutopt.indexes.asking import indexes_asked
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.sources.opening import pinned
from layoutopt.spark.core.functions import declared
from layoutopt.spark.core.sessions import AnySession, started
from layoutopt.spark.planning.automatic import plan_best
from layoutopt.spark.planning.hold_out import EvaluatedPlan
from layoutopt.spark.planning.index_budget import with_indexes_within


def plan_with_indexes(
    spark: AnySession,
    settings: PlanSettings,
    document: FeaturesDocument,
    progress: Progress | None = None,
    draw: Callable[[Sequence[EvaluatedPlan], Path], None] | None = None,
) -> Plan:
    """Plan as :func:`~layoutopt.spark.planning.automatic.plan_best` does, with the indexes that the settings ask for.

    Raises:
        SettingError: an index that no load could build; as that function.
        PlanError: as that function.
    """
    # Before the work: a bad one should not wait for it.
    functions = {} if callable(spark) else declared(spark)
    asked = indexes_asked(settings.index, document.schema, document.features.settings, functions)
    settings = settings.model_copy(update={"source": pinned(settings.source)})
    plan = plan_best(spark, settings, document, progress, draw)
    plan = replace(
        plan, indexes=asked, file_bytes=int(settings.file_bytes), parquet_indexes=tuple(sorted(settings.parquet_index))
    )
    if settings.index_budget is None:
        return plan
    say = progress or (lambda sentence: None)
    return with_indexes_within(started(spark), settings, plan, document, settings.index_budget, say)
