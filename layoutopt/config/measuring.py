"""Define the settings of `calibrate` and `mine`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from layoutopt.config.fields import Names, NewFile, Text, VerbSettings
from layoutopt.config.settings import BlockRows, Log, PartitionBy, Source
from layoutopt.model.methods import COMPARED, DEFAULT_BLOCK_ROWS


class CalibrateSettings(VerbSettings):
    """Settings of `calibrate`."""

    output: NewFile = Field(Path("calibration.json"), description="the file to write, for --calibration")


class MineSettings(VerbSettings):
    """Settings of `mine`: a comparison of methods on a table and a log."""

    source: Source
    log: Log
    table: Text | None = Field(None, description="the table's name in the log [default: the only one]")
    methods: Names = Field(
        (), description=f"the methods to compare, as in `plan --method` [default: {','.join(COMPARED)}]"
    )
    partition_by: PartitionBy = None
    block_rows: BlockRows = DEFAULT_BLOCK_ROWS
    folder: Path = Field(
        Path("build/mine"), description="the folder of plans and tables; results of an earlier run are reused"
    )
