"""Advice comes in estimates, of which the last is complete; an interrupt leaves the one before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import DONE, INTERRUPTED
from layoutopt.errors import NeedsSparkError
from layoutopt.external.external_tables import read_schema
from layoutopt.model.requests import AdviseRequest
from layoutopt.planning import advise as advising
from layoutopt.planning.advise import advise
from layoutopt.planning.hold_out import HoldOutEvaluation
from layoutopt.sql.order_statements import SORT
from tests.cli.mistakes import SPARK

if TYPE_CHECKING:
    from layoutopt.advice import Advice

ROWS, KINDS = 1_600, 8


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advising, "LOAD_METHODS", ("cuts", "predicate-sort"))
    monkeypatch.setattr(advising, "ORDERS", (SORT,))
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    for name in SPARK:  # a session of other tests sets some
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ids = np.arange(ROWS)
    columns = {"id": ids, "kind": ids * 7919 % KINDS, "price": np.random.default_rng(0).integers(0, 1_000, ROWS)}
    pq.write_table(pa.table(columns), "events.parquet")
    write_log(40)
    return tmp_path


def write_log(count: int) -> None:
    filters = (f"kind = {i % KINDS}" if i % 3 else f"price < {10 + i}" for i in range(count))
    Path("log.sql").write_text("".join(f"SELECT id, price FROM events WHERE {where};\n" for where in filters))


def refuse(source: str) -> NoReturn:
    pytest.fail("Spark is started")


def request(**values: Any) -> AdviseRequest:
    return replace(AdviseRequest(source="events.parquet", log="log.sql", block_rows=200), **values)


@pytest.mark.parametrize("count", [40, 600], ids=["five folds", "one fold"])
def test_estimates_are_told_before_more_is_tried(here: Path, count: int) -> None:
    write_log(count)
    said: list[str | Advice] = []
    last = advise(refuse, request(), said.append, (), said.append)
    first_words = [text.split()[0] if isinstance(text, str) else text for text in said]
    estimates = [(place, entry) for place, entry in enumerate(said) if not isinstance(entry, str)]
    tries = [place for place, word in enumerate(first_words) if word == "trying"]
    (bare, now), *others = estimates
    assert bare < said.index("drawing rows to try plans on")
    assert (now.layouts, now.recommended, now.statements) == ((), None, ())
    assert len(others) == len(tries) - 1  # one after each of the trials but the last
    assert all(before < place < after for before, (place, _), after in zip(tries, others, tries[1:], strict=False))
    assert [estimate.is_complete for _, estimate in estimates] == [False] * len(estimates)
    for _, estimate in others:
        assert not any(layout.rehearsed for layout in estimate.layouts)
        assert {layout.method for layout in estimate.layouts} == {layout.method for layout in last.layouts}
        assert estimate.now == last.now
    assert last.is_complete
    assert last.recommended is not None
    assert last.recommended.rehearsed
    assert [layout.reads.share for layout in last.layouts] == sorted(layout.reads.share for layout in last.layouts)


def test_methods_without_hope_are_dropped_after_the_first_fold(here: Path) -> None:
    said: list[str] = []
    advice = advise(refuse, request(), said.append)
    tried = [set(text.removeprefix("trying ").split(", ")) for text in said if text.startswith("trying ")]
    shares = {layout.method: layout.reads.share for layout in advice.layouts}
    assert tried[1] < tried[0]
    assert all(share > min(shares.values()) for method, share in shares.items() if method not in tried[1])


def interrupt(*arguments: Any) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_prints_what_is_known(
    here: Path, as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HoldOutEvaluation, "score_again", interrupt)
    words = ["advise", "events.parquet", "log.sql", "--block-rows", "200", "--no-progress", "--html", "page.html"]
    assert main([*words, *(["--json"] if as_json else [])]) == INTERRUPTED
    out, err = capsys.readouterr()
    assert err == ("layoutopt: interrupted: what is printed is a first estimate; run it again for the whole advice\n")
    assert "first estimate" in Path("page.html").read_text()
    if as_json:
        value = json.loads(out)
        assert (value["is_complete"], bool(value["recommended"])) == (False, True)
    else:
        assert out.startswith("First estimate: queries read ")
        assert "Recommended by a first estimate: " in out


def test_an_interrupt_before_any_trial_prints_what_is_read_now(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advising, "draw_evaluation", interrupt)
    assert main(["advise", "events.parquet", "log.sql", "--no-progress"]) == INTERRUPTED
    out, _ = capsys.readouterr()
    assert "They now read " in out
    assert "No layout has been tried yet." in out


@pytest.mark.slow
def test_people_get_an_estimate_first_and_programs_one_value(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "events.parquet", "log.sql", "--block-rows", "200", "--no-progress"]) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("First estimate: ")
    assert sum(line.startswith("Recommended: ") for line in lines) == 1
    assert main(["advise", "events.parquet", "log.sql", "--block-rows", "200", "--no-progress", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["is_complete"]


def test_spark_goes_on_where_arrow_does_not(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    plain = advising._open_plain_source(request(), read_schema("events.parquet"), include_small=True)
    assert plain is not None

    def open_by_spark(source: str) -> advising.AdvisedSource:
        opened.append(source)
        return plain

    def refuse_plain(*arguments: object) -> NoReturn:
        raise NeedsSparkError("the files are odd")

    monkeypatch.setattr(advising, "_open_plain_source", refuse_plain)
    said: list[str] = []
    assert advise(open_by_spark, request(), said.append).is_complete
    assert opened == ["events.parquet"]
    assert "reading by Spark: the files are odd" in said
