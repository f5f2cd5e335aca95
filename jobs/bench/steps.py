"""Steps of an experiment: each makes one JSON file, and is finished when that file is there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Json = Mapping[str, object]
Say = Callable[[str], None]
UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class Step:
    """A step: its name, the file that it makes, and how.

    Attributes:
        name: reported when the step starts.
        product: the JSON file; where it exists, the step is not run again.
        make: computes the product's content. It reads the products of earlier steps.
        needs: steps to run first.
    """

    name: str
    product: Path
    make: Callable[[], Json]
    needs: tuple[Step, ...] = ()

    def read(self) -> dict[str, Any]:
        """Return the product, which must be there."""
        product: dict[str, Any] = json.loads(self.product.read_text(encoding="utf-8"))
        return product


def run(step: Step, say: Say) -> dict[str, Any]:
    """Run a step after those that it needs, unless its product is there; return the product.

    A product is renamed into place when it is complete, so a run that stopped anywhere resumes at that step.
    """
    if not step.product.exists():
        for needed in step.needs:
            run(needed, say)
        say(step.name)
        started = time.perf_counter()
        content = step.make()
        made = {"seconds": round(time.perf_counter() - started, 3), "code": code_version(), "load": _load()}
        step.product.parent.mkdir(parents=True, exist_ok=True)
        _write(_record_of(step.product), made)
        _write(step.product, content)
    return step.read()


def _write(path: Path, content: Json) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    unfinished.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    unfinished.rename(path)


def _record_of(product: Path) -> Path:
    return product.with_name(f".{product.name}.made")


@dataclass(frozen=True)
class Made:
    """How a step's product was made.

    Attributes:
        product: the file.
        seconds: the step's time, without that of the steps that it needs; 0 where it is unknown.
        code: the version of layoutopt that ran it, or :data:`UNKNOWN`.
        load: the system's load average of the minute before the step ended; above the number of cores, seconds are
            not reliable. None where it is unknown.
    """

    product: Path
    seconds: float
    code: str
    load: float | None = None


def how_made(steps: Iterable[Step]) -> tuple[Made, ...]:
    """Return how the products of steps, and of all steps that these need, were made: each once, in running order."""
    made: dict[Path, Made] = {}

    def visit(step: Step) -> None:
        if step.product in made:
            return
        for needed in step.needs:
            visit(needed)
        record = _record_of(step.product)
        noted: dict[str, Any] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
        made[step.product] = Made(
            step.product, noted.get("seconds", 0.0), noted.get("code", UNKNOWN), noted.get("load")
        )

    for step in steps:
        visit(step)
    return tuple(made.values())


def _load() -> float | None:
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


@cache
def code_version() -> str:
    """Return the version of layoutopt, with the commit of a checkout and a plus for uncommitted changes.

    An example is ``2.0.0 at 1a2b3c4+``.
    """
    checkout = Path(__file__).parents[2]
    released = version("layoutopt")
    commit = _git(checkout, "rev-parse", "--short=7", "HEAD")
    if not commit:
        return released
    return f"{released} at {commit}{'+' if _git(checkout, 'status', '--porcelain', '--', 'layoutopt', 'jobs') else ''}"


def _git(folder: Path, *words: str) -> str:
    """Return what git prints; nothing without git or a checkout."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def key_of(name: str, parameters: Mapping[str, object]) -> str:
    """Name a folder for a step's products: readable, and different for different parameters.

    >>> key_of("range l_quantity", {"block_rows": 700}) == key_of("range l_quantity", {"block_rows": 701})
    False
    >>> key_of("sop", {"a": 1, "b": 2}) == key_of("sop", {"b": 2, "a": 1})
    True
    """
    canonical = json.dumps(parameters, sort_keys=True, default=str)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:10]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + "-" + digest


@contextmanager
def spark_when_needed(app: str) -> Iterator[Callable[[], SparkSession]]:
    """Yield a function that starts one Spark session when it is first called; stop the session at the end.

    Args:
        app: the application's name.
    """
    started: list[SparkSession] = []

    @cache
    def session() -> SparkSession:
        from layoutopt.spark.core.sessions import spark_session

        started.append(spark_session(app))
        return started[0]

    try:
        yield session
    finally:
        for spark in started:
            spark.stop()
