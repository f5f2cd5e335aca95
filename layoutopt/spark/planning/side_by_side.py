"""Trials on a sample side by side: each is work of one core for seconds, so each is a task of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.planning.hold_out import EvaluatedPlan, HoldOutEvaluation, named


def score_all(
    evaluation: HoldOutEvaluation, asked: Sequence[PlanSettings], threshold: int
) -> list[EvaluatedPlan | PlanError]:
    """Score settings as :meth:`~layoutopt.spark.planning.hold_out.HoldOutEvaluation.score` does, in any order.

    Those that can be planned are among what the evaluation has evaluated then, in the order given.

    Args:
        evaluation: its sample goes to every task; without rows there are no tasks, and settings are scored here.
        asked: what to plan by; what takes longest is best named first.
        threshold: T of the features.

    Returns:
        The trial of each; where the method can't plan, why.
    """
    if not asked:
        return []
    evaluation.say(f"trying {', '.join(dict.fromkeys(map(named, asked)))}")
    alone = evaluation.on_sample_alone(asked)
    if (tasks := evaluation.tasks) is None:
        trials = [_score(alone, asked, threshold, number) for number in range(len(asked))]
    else:
        with translate_spark_errors("the sample"):
            trials = tasks.each(len(asked), partial(_score, alone, tuple(asked), threshold))
    evaluation.evaluated += [trial for trial in trials if isinstance(trial, EvaluatedPlan)]
    return trials


def _score(
    evaluation: HoldOutEvaluation, asked: Sequence[PlanSettings], threshold: int, number: int
) -> EvaluatedPlan | PlanError:
    """One trial, in a task or here."""
    try:
        evaluation.score(asked[number], threshold)
    except PlanError as error:
        return error
    return evaluation.evaluated[-1]
