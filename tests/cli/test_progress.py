"""What long verbs say while they run."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layoutopt.cli import main, progress
from layoutopt.cli.console import INTERRUPTED
from layoutopt.cli.progress import show_progress
from layoutopt.events import EventLog, report_step
from layoutopt.spark.core import sessions


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines come at once, and ten times a second."""
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.1)


def until_written(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Wait until a text is on stderr, for ten seconds at most."""
    said, end = "", time.monotonic() + 10
    while text not in said:
        assert time.monotonic() < end, said
        time.sleep(0.01)
        said += capsys.readouterr().err


@pytest.mark.usefixtures("hurried")
def test_a_file_gets_a_line_a_step_with_the_share_done(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("looking") as work:
        until_written(capsys, "looking: ")
        work.say("counting")
        until_written(capsys, "counting: ")
        report_step(1, 4)  # as tasks do, which know no verb
        until_written(capsys, "counting: 1 of 4 done, about ")
        work.say("writing")
        until_written(capsys, "writing: ")
    report_step(2, 4)
    assert (work.done, work.total) == (0, 0)


def test_short_verbs_write_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("looking") as work:
        work.say("counting")
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("hurried")
def test_what_is_not_wanted_is_in_the_event_log_alone(capsys: pytest.CaptureFixture[str]) -> None:
    events = io.StringIO()
    with show_progress("looking", EventLog(events), shown=False) as work:
        work.step(3, 5)
        end = time.monotonic() + 10
        while not events.getvalue():
            assert time.monotonic() < end
            time.sleep(0.01)
    event = json.loads(events.getvalue().splitlines()[0])
    assert {name: event[name] for name in ("event", "sentence", "done", "total")} == {
        "event": "progress", "sentence": "looking", "done": 3, "total": 5,
    }  # fmt: skip
    assert capsys.readouterr() == ("", "")


_SLEEPING = """
import sys, time
from layoutopt.cli import main
from layoutopt.scan import table
def wait(*_, **__):
    print("begun", flush=True)
    time.sleep(60)
table.open_own_table = wait
sys.exit(main(["status", "there"]))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_verb_that_is_interrupted_ends_with_one_sentence(sent: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SLEEPING],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=dict(os.environ),
    ) as verb:  # fmt: skip
        assert verb.stdout is not None
        assert verb.stdout.readline() == "begun\n"
        verb.send_signal(sent)
        _, said = verb.communicate(timeout=20)
    assert (verb.returncode, said) == (INTERRUPTED, "layoutopt: interrupted\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_what_spark_runs(sent: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[bool] = []
    monkeypatch.setattr(sessions, "cancel_jobs", lambda: cancelled.append(True))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        main(["--help"])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(sent)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert cancelled == [True]
