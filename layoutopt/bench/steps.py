"""Steps of an experiment: each makes one JSON file, and is done when that file is there."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Mapping[str, object]


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
        content = json.dumps(step.make(), indent=1, sort_keys=True)
        step.product.parent.mkdir(parents=True, exist_ok=True)
        unfinished = step.product.with_suffix(f".{os.getpid()}.unfinished")
        unfinished.write_text(content + "\n", encoding="utf-8")
        unfinished.rename(step.product)
    product: dict[str, Any] = json.loads(step.product.read_text(encoding="utf-8"))
    return product


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
