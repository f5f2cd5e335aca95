from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from layoutopt.bench.timing import Timing, Way, WrongAnswerError, check_answers, digest, time_ways

ANSWERS = {"a": pa.table({"x": [1, 2, 2, None]}), "b": pa.table({"x": ["é"], "y": [0.5]})}


def way(name: str, said: list[str], change: Callable[[pa.Table], pa.Table] = lambda answer: answer) -> Way:
    def plan(text: str) -> Callable[[], object]:
        said.append(f"{name} plans {text}")
        return lambda: said.append(f"{name} runs {text}")

    return Way(name, plan, lambda text: change(ANSWERS[text]))


def test_ways_take_turns_and_the_first_round_is_not_measured() -> None:
    said: list[str] = []
    timings = time_ways([way("p", said), way("q", said)], ["a", "b"], repeats=2)
    round_of_p = ["p plans a", "p runs a", "p plans b", "p runs b"]
    round_of_q = [line.replace("p ", "q ", 1) for line in round_of_p]
    assert said == 3 * [*round_of_p, *round_of_q]
    for timing in timings.values():
        assert [len(one) for one in timing.total] == [2, 2]
        assert 0 < timing.planning_seconds <= timing.seconds


def test_totals_are_medians_of_rounds() -> None:
    timing = Timing(planning=[[1, 1], [1, 2], [0, 0]], total=[[2, 2], [9, 9], [3, 4]])
    assert (timing.seconds, timing.planning_seconds, timing.by_query) == (7, 2, [3, 4])


def test_answers_are_the_same_in_any_order_of_rows() -> None:
    reverse = way("q", [], lambda answer: answer.take(list(range(answer.num_rows))[::-1]))
    assert check_answers([way("p", []), reverse], ["a", "b"]) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer.slice(1),
        lambda answer: pa.concat_tables([answer.slice(0, 1), answer.slice(0, answer.num_rows - 1)]),
        lambda answer: pa.table({"x": [1, 1, 2, None]}),
    ],
    ids=["one less", "one for another", "duplicates of another"],
)
def test_a_wrong_answer_is_named(change: Callable[[pa.Table], pa.Table]) -> None:
    with pytest.raises(WrongAnswerError, match="'a'"):
        check_answers([way("p", []), way("q", [], change)], ["a"])


def test_an_empty_answer_has_a_digest() -> None:
    assert digest(ANSWERS["a"].slice(4)) == (0, 0)
