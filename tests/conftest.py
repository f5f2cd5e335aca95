"""Fixtures that every test may use; nothing here imports pyspark until a test asks for `spark`."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from layoutopt.catalog import manifest_writing
from layoutopt.cli import progress
from layoutopt.scan.check_switch import FILTERS_ONLY, SWITCH, TALLY
from tests.effort import PROCESSES, draws_same_examples, examples, long_too
from tests.schedule import DURATIONS, BySeconds, Draw, InOrder, find_file, write_seconds
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
if draws_same_examples():  # a short run: compiling what runs once, over few rows, takes longer; see `compiled`
    SPARK_SETTINGS |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


# Programs that tests start have sessions of their own, which are to be quick too.
INSTALLATION = Path(__file__).parent / "fixtures" / "spark"
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--properties-file {INSTALLATION / 'spark-defaults.conf'} pyspark-shell")

# Several processes of tests share the cores already: what plans by processes of its own starts none, but where a test
# is about them.
os.environ.setdefault(PROCESSES, "1")

# On a busy machine any verb may take long; what it says then would be among what tests expect.
setattr(progress, "QUIET", 3600.0)  # noqa: B010 - it is final elsewhere

# Every test evaluates the filters of its queries on what they skip, unless it is marked `unshadowed`. Tests marked
# `checks_texts` evaluate the texts too, as all do where the variable is set to 1.
os.environ.setdefault(SWITCH, FILTERS_ONLY)
_CHECKED: Counter[str] = Counter()
_SECONDS: defaultdict[str, float] = defaultdict(float)
_DRAW: pytest.StashKey[Draw] = pytest.StashKey()


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
    """Set the environment of a test: its shadow check and, where it needs Spark, an installation that verbs take."""
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("unshadowed"):
            patch.setenv(SWITCH, "0")
        elif os.environ[SWITCH] == FILTERS_ONLY and item.get_closest_marker("checks_texts"):
            patch.setenv(SWITCH, "1")
        if item.get_closest_marker("spark") and "SPARK_CONF_DIR" not in os.environ:
            patch.setenv("SPARK_CONF_DIR", str(INSTALLATION))
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands what this process checked to the one that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        _CHECKED.update(TALLY)
        if session.config.option.record_seconds:
            write_seconds(_SECONDS)
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of drawn runs, and of the file of durations."""
    group = parser.getgroup("layoutopt")
    group.addoption("--draw", metavar="TEXT", help="run the tests in an order that the text draws")
    group.addoption("--seconds", type=float, default=1500.0, help="what the tests of --draw may take (default: 1500)")
    group.addoption("--record-seconds", action="store_true", help=f"write the seconds of each file to {DURATIONS.name}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin the time of a drawn run."""
    option = session.config.option
    if option.draw and (option.dist == "no" or hasattr(session.config, "workerinput")):
        session.config.stash[_DRAW] = Draw(option.draw, option.seconds)
        session.config.stash[_DRAW].set_alarm()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of a drawn run in order."""
    if _DRAW in config.stash:
        config.stash[_DRAW].sort(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test for which a drawn run has no time."""
    if _DRAW in item.config.stash:
        item.config.stash[_DRAW].begin(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Let what a test made be taken away, however late it is."""
    if _DRAW in item.config.stash:
        item.config.stash[_DRAW].end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report no failure of the test in which a drawn run's time is over."""
    report = yield
    if _DRAW in item.config.stash:
        item.config.stash[_DRAW].correct(report)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the seconds of each file."""
    _SECONDS[find_file(report.nodeid)] += report.duration


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes, each has a part of the files whose tests need Spark, and the others go to who is free."""
    return InOrder(config, log) if config.option.draw else BySeconds(config, log)


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
