"""Steps of an experiment: each makes one JSON file, and is done when that file is there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

Json = Mapping[str, object]
UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class Step:
    """One step: what it is called, the file that it makes, and how.

    Attributes:
        name: said when the step starts.
        product: the JSON file; where it exists, the step is not run again.
        make: computes the product's content. It finds what earlier steps left by their products.
        needs: steps to run first.
    """

    name: str
    product: Path
    make: Callable[[], Json]
    needs: tuple[Step, ...] = ()


def run(step: Step, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a step after those that it needs, unless its product is there, and return the product.

    A product is renamed into place when it is complete, so a run that stopped anywhere is taken up at that step.
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
    product: dict[str, Any] = json.loads(step.product.read_text(encoding="utf-8"))
    return product


def _write(path: Path, content: Json) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    unfinished.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    unfinished.rename(path)


def _record_of(product: Path) -> Path:
    return product.with_name(f".{product.name}.made")


@dataclass(frozen=True)
class Made:
    """How a step's product came about.

    Attributes:
        product: the file.
        seconds: that the step took, without those that it needs; 0 where nobody noted it.
        code: the version of layoutopt that ran it, :data:`UNKNOWN` where nobody noted it.
        load: how many processes wanted the machine when it ended, in the minute before: more than its cores, and
            seconds count for little. None where nobody noted it.
    """

    product: Path
    seconds: float
    code: str
    load: float | None = None


def how_made(steps: Iterable[Step]) -> tuple[Made, ...]:
    """How the products of some steps and of all that these need came about, each once, in the order of running."""
    found: dict[Path, Made] = {}

    def visit(step: Step) -> None:
        if step.product in found:
            return
        for needed in step.needs:
            visit(needed)
        record = _record_of(step.product)
        noted: dict[str, Any] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
        found[step.product] = Made(
            step.product, noted.get("seconds", 0.0), noted.get("code", UNKNOWN), noted.get("load")
        )

    for step in steps:
        visit(step)
    return tuple(found.values())


def _load() -> float | None:
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


@cache
def code_version() -> str:
    """Which layoutopt this is: its version, and of a checkout the commit, with a plus where the package was changed.

    An example is ``2.0.0 at 1a2b3c4+``.
    """
    package = Path(__file__).parent.parent
    said = version("layoutopt")
    commit = _git(package, "rev-parse", "--short=7", "HEAD")
    if not commit:
        return said
    return f"{said} at {commit}{'+' if _git(package, 'status', '--porcelain', '--', '.') else ''}"


def _git(folder: Path, *words: str) -> str:
    """What git prints, nothing where there is no git or no checkout."""
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
