"""``layoutopt plan``: the layout, and the indexes that ``--index`` names or ``--index-budget`` chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import SettingError
from layoutopt.indexes.registry import check_index
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sources.opening import pinned
from layoutopt.spark.core.functions import declared
from layoutopt.spark.planning.automatic import plan_best
from layoutopt.spark.planning.histograms import Progress
from layoutopt.spark.planning.hold_out import EvaluatedPlan
from layoutopt.spark.planning.index_budget import with_indexes_within
from layoutopt.sql.expression import parse_expression


def plan_with_indexes(
    spark: SparkSession,
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
    asked = indexes_asked(settings.index, document, declared(spark))
    settings = settings.model_copy(update={"source": pinned(settings.source)})
    plan = plan_best(spark, settings, document, progress, draw)
    plan = replace(plan, indexes=asked, file_bytes=int(settings.file_bytes))
    if settings.index_budget is None:
        return plan
    say = progress or (lambda sentence: None)
    return with_indexes_within(spark, settings, plan, document, settings.index_budget, say)


def indexes_asked(texts: Sequence[str], document: FeaturesDocument, udfs: Udfs = NO_UDFS) -> tuple[IndexSpec, ...]:
    """The indexes that texts like ``user:bloom``, ``lower(email):ngrams`` or ``user:bloom:0.05`` ask for.

    Raises:
        SettingError: a text is of another form, or no load could build its index.
    """
    found = [_parsed(text, document, udfs) for text in texts]
    for spec in found:
        check_index(spec)
    return tuple(dict.fromkeys(found))


def _parsed(text: str, document: FeaturesDocument, udfs: Udfs) -> IndexSpec:
    subject, _, kind = text.rpartition(":")
    parameter = _number(kind)
    if parameter is not None:
        subject, _, kind = subject.rpartition(":")
    if not subject:
        raise SettingError(f"--index {text!r} names no type; write COLUMN:TYPE, as in user:bloom")
    expression = parse_expression(subject, document.schema, document.features.settings, udfs)
    try:
        return IndexSpec(expression, kind, parameter)
    except ValueError as error:
        raise SettingError(f"--index {text!r}: {error}") from error


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
