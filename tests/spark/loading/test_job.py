"""What a load does around its job: files of one that failed are removed, whatever became of the session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layoutopt.catalog.paths import load_folder
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.spark.loading.job import discard_files_after
from layoutopt.writer.load_ids import ANY_FAILURE


@pytest.mark.parametrize("stopped", [SimpleNamespace(_jsc=None), SimpleNamespace()])
def test_files_go_and_the_first_failure_comes_out_where_the_session_was_stopped(tmp_path: Path, stopped: Any) -> None:
    files = TableFiles(str(tmp_path))
    written = Path(files.full_path(load_folder("p", "one"))) / "0.parquet"
    written.parent.mkdir(parents=True)
    written.touch()
    session: Any = SimpleNamespace(sparkContext=stopped)
    with pytest.raises(RuntimeError, match="the first"), discard_files_after(ANY_FAILURE, session, files, "one", ["p"]):
        raise RuntimeError("the first failure")
    assert not written.exists()
