"""Trials on a sample side by side: each is work of one core for seconds, so each is a task of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.workers import each_in_workers
from layoutopt.spark.planning.hold_out import EvaluatedPlan, HoldOutEvaluation


def score_all(
    spark: SparkSession, evaluation: HoldOutEvaluation, asked: Sequence[PlanSettings], threshold: int
) -> list[EvaluatedPlan | None]:
    """Score settings as :meth:`~layoutopt.spark.planning.hold_out.HoldOutEvaluation.score` does, in any order.

    Those that can be planned are among what the evaluation has evaluated then, in the order given.

    Args:
        spark: the session.
        evaluation: its sample goes to every task.
        asked: what to plan by; what takes longest is best named first.
        threshold: T of the features.

    Returns:
        The trial of each; None where the method can't plan.
    """
    alone = evaluation.on_sample_alone()
    with translate_spark_errors("the sample"):
        trials = each_in_workers(spark, len(asked), partial(_score, alone, tuple(asked), threshold))
    evaluation.evaluated += [trial for trial in trials if trial is not None]
    return trials


def _score(
    evaluation: HoldOutEvaluation, asked: Sequence[PlanSettings], threshold: int, number: int
) -> EvaluatedPlan | None:
    """One trial, in a task."""
    try:
        evaluation.score(asked[number], threshold)
    except PlanError:
        return None
    return evaluation.evaluated[-1]
