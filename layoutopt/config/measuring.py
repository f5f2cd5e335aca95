"""The settings of `calibrate` and `mine`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from layoutopt.config.fields import Names, NewFile, Text, VerbSettings
from layoutopt.config.settings import Log, Source
from layoutopt.model.documents import LARGEST_COUNT
from layoutopt.model.methods import COMPARED


class CalibrateSettings(VerbSettings):
    """What engines take for each kind of work on this machine."""

    output: NewFile = Field(Path("calibration.json"), description="the file to write, for --calibration")


class MineSettings(VerbSettings):
    """Methods compared on a table and a log."""

    source: Source
    log: Log
    table: Text | None = Field(None, description="the table's name in the log [default: the only one]")
    methods: Names = Field(
        (), description=f"only these, by the names of `plan --method` [default: {','.join(COMPARED)}]"
    )
    partition_by: Text | None = Field(None, description="the column whose every value is a partition [default: none]")
    block_rows: int = Field(10_000, ge=1, le=LARGEST_COUNT, description="the mean number of rows of a block")
    folder: Path = Field(
        Path("build/mine"), description="where plans and tables go; those that an earlier run finished are used again"
    )
