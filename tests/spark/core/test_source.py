"""What is refused of a source before Spark is asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layoutopt.errors import SourceError
from layoutopt.spark.core.source import open_source


@pytest.mark.parametrize("name", ["run[1]", "a{1,2}", "a*", "what?"])
def test_a_name_that_spark_would_take_for_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    """Rows of the folder `run1` came for those of `run[1]`."""
    (tmp_path / name).mkdir()
    no_session: Any = None
    with pytest.raises(SourceError, match="as a pattern, which may mean other files; rename it"):
        open_source(no_session, str(tmp_path / name))


def test_a_file_without_a_byte_is_no_file_without_rows(tmp_path: Path) -> None:
    """Spark reads past it, so that a batch whose copy died would count as appended."""
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "b.parquet").touch()
    no_session: Any = None
    with pytest.raises(SourceError, match=r"b\.parquet is truncated"):
        open_source(no_session, str(tmp_path))
