"""Features and plans of TPC-H streams, byte for byte: do they still come out as an earlier commit made them?

    python -m tests.same_plans            compares with tests/fixtures/older/digests.json; about ten minutes
    python -m tests.same_plans --record   writes that file anew; say in the changelog why plans change

Everything goes through the command line, so that the same script can ask any commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jobs.bench.experiment import write_log
from jobs.bench.steps import spark_when_needed
from jobs.bench.tpch import TpchData, prepare
from jobs.bench.tpch_queries import STREAMS, TABLE, TRAINING_QUERIES, draw_stream

RECORDED: Final = Path(__file__).parent / "fixtures" / "older" / "digests.json"
SCALE: Final = 0.1
FEATURES: Final = {"chapter3": 64, "chapter3-skewed": 64, "chapter4": 192, "chapter5": 192}
"""How many features of each stream."""

_YEAR: Final = "--partition-by o_year --block-rows 10000"
_MONTH: Final = "--partition-by o_month --block-rows 700"
PLANS: Final = {
    "sop by month": ("chapter3", f"--method sop {_MONTH}"),
    "sop by year": ("chapter3", f"--method sop {_YEAR}"),
    "sop, skewed": ("chapter3-skewed", f"--method sop {_YEAR} --partitioner ward-refined"),
    "qdtree": ("chapter3", f"--method qdtree {_YEAR}"),
    "predicate-sort": ("chapter3", f"--method predicate-sort {_YEAR}"),
    "range": ("chapter3", f"--method range --by o_orderdate {_MONTH}"),
    "hilbert": ("chapter4", f"--method hilbert {_YEAR}"),
    "gsop": ("chapter4", f"--method gsop {_YEAR}"),
    "gsop by bytes": ("chapter4", f"--method gsop --cost bytes {_YEAR}"),
    "gsop-r": ("chapter5", f"--method gsop-r --storage-budget 1.1,1.2 {_YEAR}"),
    "auto": ("chapter3", f"--method auto {_YEAR}"),
    "tuned": ("chapter4", f"--method gsop --tune {_YEAR}"),
}
"""A stream and the flags of ``layoutopt plan``, by a name."""


def layoutopt(*arguments: str) -> None:
    """Run a verb of the command line in a process of its own."""
    command = "import sys; from layoutopt.cli import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", command, *arguments], check=True, stdout=subprocess.DEVNULL)


def make(folder: Path, data: TpchData) -> dict[str, str]:
    """Make every document in a folder; the SHA-256 of each by its name."""
    found = {}
    for stream, count in FEATURES.items():
        log, features = folder / f"{stream}.jsonl", folder / f"{stream}-features.json"
        write_log(draw_stream(STREAMS[stream], "train", TRAINING_QUERIES, 0), log)
        known = ("--schema", str(data.denormalised), "--table", TABLE, "--num-features", str(count))
        layoutopt("analyze", str(log), *known, "-o", str(features))
        found[f"features of {stream}"] = _digest(features)
    for name, (stream, flags) in PLANS.items():
        plan = folder / f"{name.replace(' ', '-')}.json"
        features = folder / f"{stream}-features.json"
        layoutopt("plan", str(data.denormalised), "--features", str(features), *flags.split(), "-o", str(plan))
        found[f"plan: {name}"] = _digest(plan)
        print(found[f"plan: {name}"][:12], name, flush=True)  # noqa: T201
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(made: Mapping[str, str], recorded: Mapping[str, str]) -> list[str]:
    """The names of documents that are not the same.

    >>> differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"})
    ['b', 'c']
    """
    return sorted(name for name in made.keys() | recorded.keys() if made.get(name) != recorded.get(name))


def main() -> int:
    """Make, then compare or record; exit code 1 where a document differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/same-plans"), help="where documents are written")
    parser.add_argument("--record", action="store_true", help="write the digests instead of comparing")
    given = parser.parse_args()
    data = TpchData(SCALE)
    with spark_when_needed("same-plans") as spark:
        if not data.denormalised.exists():
            prepare(spark(), data, print)
    given.folder.mkdir(parents=True, exist_ok=True)
    made = make(given.folder, data)
    if given.record:
        RECORDED.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        return 0
    wrong = differences(made, json.loads(RECORDED.read_text(encoding="utf-8")))
    print(f"{len(made) - len(wrong)} of {len(made)} documents are the same bytes", *wrong, sep="\n  ")  # noqa: T201
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
