"""Plans and blocks of each format of sources, byte for byte: do loads still write what an earlier commit wrote?

    python -m tests.same_blocks            compares with tests/fixtures/older/blocks.json; some minutes
    python -m tests.same_blocks --local    compares what needs no Spark, in seconds
    python -m tests.same_blocks --record   writes that file anew; say in the changelog why blocks change

Sources are those of ``tests/spark/loading/test_source_formats.py``, and larger ones of several files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.cli.app import main as run_verb
from layoutopt.errors import SettingError
from tests.same_plans import differences
from tests.spark.loading.test_source_formats import FORMATS, plan_for, rows_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED: Final = Path(__file__).parent / "fixtures" / "older" / "blocks.json"
EXECUTORS: Final = ("local", "spark")
REFUSED: Final = "refused"


def write_files(spark: SparkSession, folder: Path, rows: pa.Table) -> str:
    """Write rows to three files of Parquet, whose sizes rise."""
    folder.mkdir()
    for number, (start, stop) in enumerate(((0, 5), (5, 20), (20, rows.num_rows))):
        pq.write_table(rows.slice(start, stop - start), folder / f"{number}.parquet", row_group_size=7)
    return str(folder)


def write_many(spark: SparkSession, folder: Path, rows: pa.Table) -> str:
    """Write so many rows to three files that Spark's tasks read them by Arrow."""
    folder.mkdir()
    places = np.arange(240_000) * 7919 % rows.num_rows
    for number, part in enumerate(np.array_split(places, 3)):
        pq.write_table(rows.take(pa.array(part)), folder / f"{number}.parquet", row_group_size=20_000)
    return str(folder)


SOURCES: Final = {**FORMATS, "files": write_files, "many rows": write_many}


@contextmanager
def numbered_loads() -> Iterator[None]:
    """Name loads by numbers, so that the same loads write the same bytes."""
    numbers = count()
    with patch("layoutopt.writer.load_ids.new_load_id", lambda: f"20260101t000000z-{next(numbers):016}"):
        yield


def digest_data(table: Path) -> str:
    """Return a digest of the names and bytes of a table's data files; a name's end is a task's attempt."""
    digest = hashlib.sha256()
    for file in sorted((table / "data").rglob("*")):
        if file.is_file():
            name = file.relative_to(table).as_posix().rpartition("-")[0]
            digest.update(f"{name}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def load_and_digest(source: str, plan: Path, table: Path, executor: str) -> str:
    """Return the digest of the blocks that a load of a whole source writes."""
    with numbered_loads():
        code = run_verb(["load", source, str(table), "--plan", str(plan), "--executor", executor])
    if code == SettingError.exit_code:
        return REFUSED
    assert code == 0, (source, executor, code)
    return digest_data(table)


def make(spark: Any, folder: Path, executors: Sequence[str], say: Callable[[str], None]) -> dict[str, str]:
    """Plan and load each source by each executor; the digest of each plan and of each load's files by its name.

    Without the executor ``spark``, sources that only Spark writes are left out.
    """
    digests = {}
    for name, write in SOURCES.items():
        if "orc" in name and "spark" not in executors:
            continue
        place = folder / name.replace(" ", "-")
        place.mkdir()
        source = write(spark, place / "rows", rows_from(0))
        plan = plan_for(source, place)
        digests[f"plan of {name}"] = hashlib.sha256(plan.read_bytes()).hexdigest()
        for executor in executors:
            digests[f"{name}, {executor}"] = load_and_digest(source, plan, place / executor, executor)
            say(f"{digests[f'{name}, {executor}'][:12]} {name}, {executor}")
    return digests


def main() -> int:
    """Make, then compare or record; exit code 1 where a digest differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the digests instead of comparing")
    parser.add_argument("--local", action="store_true", help="leave out what needs Spark")
    given = parser.parse_args()
    executors = EXECUTORS[: 1 if given.local else 2]
    from jobs.bench.steps import spark_when_needed

    with spark_when_needed("same-blocks") as spark, TemporaryDirectory() as folder:
        session = None if given.local else spark()
        made = make(session, Path(folder), executors, lambda text: print(text, flush=True))  # noqa: T201
    if given.record:
        RECORDED.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        return 0
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    wrong = differences(made, {name: recorded[name] for name in made if name in recorded} if given.local else recorded)
    print(f"{len(made) - len(wrong)} of {len(made)} plans and loads are the same bytes", *wrong, sep="\n  ")  # noqa: T201
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
