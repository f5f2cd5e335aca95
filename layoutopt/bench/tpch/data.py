"""TPC-H data at a scale factor: the generator's tables, and the one denormalised onto lineitem."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from layoutopt.errors import SettingError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_ROOT: Final = Path("build/tpch")
MIN_SCALE: Final = 0.01  # below, the generator repeats (part, supplier) pairs, and the join would repeat line items
MAX_SCALE: Final = 1000.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class TpchData:
    """Where the data of one scale factor lies.

    Attributes:
        scale: the TPC-H scale factor; 1 is 6 million line items.
        root: the folder of all experiments.

    >>> TpchData(0.1, Path("build/tpch")).denormalised.as_posix()
    'build/tpch/sf0.1/denorm'
    """

    scale: float
    root: Path = DEFAULT_ROOT

    def __post_init__(self) -> None:
        """Refuse a scale factor that the generator can't make.

        Raises:
            SettingError: outside of [0.01, 1000].
        """
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise SettingError(f"scale factor {self.scale:g} is not from {MIN_SCALE:g} to {MAX_SCALE:g}: try --sf 0.1")

    @property
    def folder(self) -> Path:
        """Everything of this scale factor."""
        return self.root / f"sf{self.scale:g}"

    @property
    def raw(self) -> Path:
        """The generator's eight tables, one Parquet file each."""
        return self.folder / "raw"

    @property
    def denormalised(self) -> Path:
        """The wide table, a folder of Parquet files in lineitem's order."""
        return self.folder / "denorm"


def _generator() -> str:
    """Find `tpchgen-cli`: beside this Python first, so that the pinned one is used."""
    found = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
    if found is None:
        raise SettingError("tpchgen-cli is not installed: run `make install`, or pip install 'layoutopt[bench]'")
    return found


def generate(data: TpchData) -> None:
    """Generate the eight TPC-H tables into `data.raw`, unless they are there; the folder appears only when complete.

    Raises:
        SettingError: the generator is not installed.
        SourceError: the generator failed; its own words are in the message.
    """
    if data.raw.exists():
        return
    unfinished = data.raw.with_name("raw.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command = [_generator(), "parquet", "-s", f"{data.scale:g}", "--output-dir", str(unfinished), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SourceError(f"tpchgen-cli failed at scale factor {data.scale:g}: {done.stderr.strip()[-300:]}")
    unfinished.rename(data.raw)


def denormalise(spark: SparkSession, data: TpchData) -> None:
    """Join the generated tables onto lineitem into `data.denormalised`, unless that is there."""
    from layoutopt.bench.tpch.denormalise import write_denormalised

    if not data.denormalised.exists():
        write_denormalised(spark, data.raw, data.denormalised)


def prepare(spark: SparkSession, data: TpchData, say: Say) -> None:
    """Generate and denormalise what is not there yet, saying what is done."""
    if not data.raw.exists():
        say(f"generating TPC-H at scale factor {data.scale:g}")
        generate(data)
    if not data.denormalised.exists():
        say("denormalising onto lineitem with Spark")
        denormalise(spark, data)
