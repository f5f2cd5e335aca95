"""A session of ours starts without a word of Java or Spark, and what keeps it from starting is said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import QUICK_JAVA

pytestmark = pytest.mark.spark

START = """
import sys
from layoutopt.spark.core.sessions import spark_session
conf = {"spark.driver.memory": sys.argv[2], "spark.driver.extraJavaOptions": sys.argv[3]}
print(len(spark_session("test", sys.argv[1] == "debug", **conf).range(0, 3, 1, 1).collect()))
"""


def started(mode: str, memory: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", START, mode, memory, QUICK_JAVA]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_session_starts_without_a_word() -> None:
    quiet = started("quiet", "1g")
    assert (quiet.stdout, quiet.stderr) == ("3\n", "")


@pytest.mark.long
def test_a_session_that_is_to_tell_tells() -> None:
    assert "WARN" in started("debug", "1g").stderr


def test_why_java_does_not_start_is_said() -> None:
    failed = started("quiet", "nonsense")
    assert failed.returncode != 0
    assert "nonsense" in failed.stderr.partition("Traceback")[0]
