"""Fixtures that every test may use; nothing here imports pyspark until a test asks for `spark`."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from layoutopt.catalog import manifest_writing
from layoutopt.cli import progress
from layoutopt.scan.check_switch import FILTERS_ONLY, SWITCH, TALLY
from tests.effort import PROCESSES, draws_same_examples, examples, long_too
from tests.versions import add_newer_methods

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How fixtures were made: run by the code of the commits that made them, not by this.
collect_ignore_glob = ["fixtures/older/*.py"]

# Shared machines make single examples slow now and then: a deadline would test the machine.
# With fewer examples they are the same ones each time: new ones are drawn where all are tried.
settings.register_profile(
    "layoutopt",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=draws_same_examples(),
)
settings.load_profile("layoutopt")

# Tests spend Java's time in compiling what runs once: the quick compiler alone, and no collector's threads. By default
# it has 48 MB for its code, which Spark fills in minutes: what was compiled is then thrown away and compiled again.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"

SPARK_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


# Programs that tests start have sessions of their own, which are to be quick too.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "fixtures" / "spark"))

# Several processes of tests share the cores already: what plans by processes of its own starts none, but where a test
# is about them.
os.environ.setdefault(PROCESSES, "1")

# On a busy machine any verb may take long; what it says then would be among what tests expect.
setattr(progress, "QUIET", 3600.0)  # noqa: B010 - it is final elsewhere

# Every test evaluates the filters of its queries on what they skip, unless it is marked `unshadowed`. Tests marked
# `checks_texts` evaluate the texts too, as all do where the variable is set to 1.
os.environ.setdefault(SWITCH, FILTERS_ONLY)
_CHECKED: Counter[str] = Counter()


@pytest.fixture
def with_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the smallest snapshot have manifests."""
    monkeypatch.setattr(manifest_writing, "MOST_BOUNDS", -1)


@pytest.fixture(scope="module", params=[False, True], ids=["one-file", "manifests"])
def has_manifests(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Run a module's tests twice: small snapshots have their entries in their own file, then in manifests."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setattr(manifest_writing, "MOST_BOUNDS", -1)
        yield request.param


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Switch the shadow check off or to texts for a test that is marked so."""
    before = os.environ[SWITCH]
    if item.get_closest_marker("unshadowed"):
        os.environ[SWITCH] = "0"
    elif before == FILTERS_ONLY and item.get_closest_marker("checks_texts"):
        os.environ[SWITCH] = "1"
    try:
        return (yield)
    finally:
        os.environ[SWITCH] = before


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands what this process checked to the one that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        _CHECKED.update(TALLY)
    else:
        output["checked"] = dict(TALLY)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds what one of several processes checked."""
    _CHECKED.update(getattr(node, "workeroutput", {}).get("checked", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how much of what was skipped was read again."""
    listed = ", ".join(f"{count:,} {name}" for name, count in sorted(_CHECKED.items()) if count)
    if listed:
        terminalreporter.write_line(f"skipping checked: {listed}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes, two share the files whose tests need Spark, and the others go to who is free.

    Which Spark files go together is fixed, so that what they leave in their session is the same in each run.
    """
    from xdist.scheduler import LoadScopeScheduling

    class BySession(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return _spark_scope(path) if _needs_spark(config.rootpath / path) else path

        def _assign_work_unit(self, node: Any) -> None:
            for scope in reversed(BEGUN_FIRST):
                if scope in self.workqueue:
                    self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return BySession(config, log)


SPARK_SCOPES = ("spark-a", "spark-b")
BEGUN_FIRST = (*SPARK_SCOPES, "tests/scan/test_lives.py", "tests/cli/test_startup.py", "tests/catalog/test_crash.py")
"""What takes long: one process would be left alone with it at the end."""


def _spark_scope(path: str) -> str:
    return SPARK_SCOPES[crc32(path.encode()) % len(SPARK_SCOPES)]


@cache
def _needs_spark(file: Path) -> bool:
    return file.name.startswith("test_") and "mark.spark" in file.read_text(encoding="utf-8")


_SHARED: pytest.StashKey[SparkSession] = pytest.StashKey()


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark session on two cores, in UTC, for all tests; stopped at the end."""
    os.environ.setdefault("TZ", "UTC")
    # Workers are started by name otherwise, and may be another Python without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    add_newer_methods()
    builder = SparkSession.builder.master("local[2]").appName("layoutopt-tests")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    request.config.stash[_SHARED] = session
    yield session
    del request.config.stash[_SHARED]
    session.stop()


@pytest.fixture(autouse=True, scope="module")
def _shared_session_is_active(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leaves no session of a file's tests as the thread's active one, which the verbs of others' would take.

    It may have another time zone, or other settings in which a plan means something else.
    """
    yield
    session: Any = request.config.stash.get(_SHARED, None)
    if session is not None:
        from layoutopt.spark.core.versions import java_class

        kind = type(session)
        java_class(session, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session._jsparkSession)
        kind._activeSession = session  # which is what Python goes by


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's tasks read small scans, as they read large ones."""
    monkeypatch.setattr("layoutopt.spark.session.readers._MOST_VALUES", -1)


@pytest.fixture
def by_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver read small scans of one layout too, as it reads a few of very many row groups."""
    monkeypatch.setattr("layoutopt.spark.session.readers.are_tasks_sooner", lambda *_: True)


@pytest.fixture(params=["by_tasks", *long_too("by_driver")])
def each_reader(request: pytest.FixtureRequest) -> None:
    """Run a test once for each of Spark's readers of small scans."""
    request.getfixturevalue(request.param)
