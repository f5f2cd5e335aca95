"""Tables in object stores: the same answers as from a disk, by few requests, and none for what is known."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import fsspec
import polars as pl
import pytest

from layoutopt.catalog.storage import filesystem
from layoutopt.catalog.storage.ranges import chunk_ranges, coalesce
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.errors import DataFileError
from layoutopt.inspect.status import verify_path
from layoutopt.inspect.verify import verify
from layoutopt.scan import files as data_files
from layoutopt.scan.table import Table, open_table
from tests.effort import long_too
from tests.scan.builder import build, building, by_position
from tests.scan.deleting import delete_ids, kept
from tests.scan.layouts import SCHEMES
from tests.scan.stores import REQUESTS, noting_store, put
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

__all__ = ["noting_store"]

ROWS = some_rows(240)
SQL = ["SELECT id, price FROM t WHERE kind = 'air' AND price > 60", "SELECT * FROM t", "SELECT sum(id) FROM t"]
pytestmark = pytest.mark.usefixtures("noting_store")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a table of many small blocks; each is built once."""

    def make(scheme: str = "sop", footers: bool = True) -> Path:
        how = building(
            SCHEMA, CONDITIONS, layouts=SCHEMES[scheme], partition_by="year", footers=footers, blocking=by_position(8)
        )
        folder = tmp_path_factory.mktemp(scheme) / "table"
        build(folder, ROWS, how)
        return folder

    return cache(make)


@pytest.fixture
def stored(made: Callable[..., Path], tmp_path: Path) -> Callable[..., str]:
    """Puts such a table into the store, and gives its URL."""
    return lambda *how: put(made(*how), f"noting://{tmp_path.name}")


def data_requests() -> list[tuple[str, int, int]]:
    """Readings of parts of data files, footers apart."""
    parts = [(path, start, end) for path, start, end in REQUESTS if path.endswith(".parquet") and "/data/" in path]
    return [(path, start, end) for path, start, end in parts if start is not None and end is not None]


def runs(table: Table, sql: str) -> int:
    """The runs of column chunks without a gap that a text reads."""
    found = 0
    for read in table.scan(sql).reads:
        for file in (file for segment in read.segments for layout in segment.layouts for file in layout.files):
            metadata = data_files._metadata(table.catalog.files, file.path, file.footer or "", remember=True)
            names = [column.name for column in read.columns]
            ranges = [each for group in file.row_groups for each in chunk_ranges(metadata, group, names)]
            found += len(coalesce(ranges, 0, 1 << 30))
    return found


@pytest.mark.parametrize(
    ("scheme", "footers"),
    [("sop", True), ("gsop-r", True), ("sop", False), *long_too(("gsop", True), ("gsop-r", False))],
)
def test_answers_are_those_of_a_disk(stored: Callable[..., str], scheme: str, footers: bool) -> None:
    table = open_table(stored(scheme, footers))
    for sql in SQL[:2]:
        assert same(table.sql(sql).to_pylist(), expected(sql, ROWS))
    report = verify(table)
    assert (report.ok, report.unchecked) == (True, ())


def test_chunks_side_by_side_are_one_request_and_footers_are_read_once(stored: Callable[..., str]) -> None:
    table = open_table(stored())
    for sql in SQL:
        table.sql(sql)  # reads footers
        REQUESTS.clear()
        before = table.catalog.files.traffic.so_far
        table.sql(sql)
        asked, counted = data_requests(), table.catalog.files.traffic.so_far - before
        assert len(REQUESTS) == len(asked) == counted.requests
        assert counted.bytes == sum(end - start for _, start, end in asked)
        assert 0 < len(asked) <= 1.3 * runs(table, sql)


def test_gaps_are_read_through_up_to_the_setting(stored: Callable[..., str]) -> None:
    url = stored()
    asked = {}
    for gap in (0, 100_000):
        table = open_table(url, read_through=gap)
        table.sql("SELECT id, score FROM t")  # columns apart, in all blocks
        REQUESTS.clear()
        table.sql("SELECT id, score FROM t")
        asked[gap] = len(data_requests())
    assert asked[100_000] == len(open_table(url).files()) < asked[0] == runs(open_table(url), "SELECT id, score FROM t")


def test_what_never_changes_is_read_once_in_a_process_but_by_verify(stored: Callable[..., str]) -> None:
    url = stored()
    open_table(url).sql(SQL[0])
    REQUESTS.clear()
    open_table(url).sql(SQL[0])
    again = {path for path, _, _ in REQUESTS}
    assert not [path for path in again if "/blocks/" in path or "/plans/" in path]
    assert all(end is not None for path, _, end in REQUESTS if "/data/" in path), "no footer"
    (blocks,) = fsspec.filesystem("noting").glob(f"{url.removeprefix('noting:/')}/_layoutopt/blocks/*")
    fsspec.filesystem("noting").pipe_file(blocks, b"gone")
    open_table(url).sql(SQL[0])
    assert {problem.check for problem in verify_path(url).problems} == {"catalog"}


def test_damage_is_an_error_and_named(stored: Callable[..., str]) -> None:
    url = stored()
    store = fsspec.filesystem("noting")
    first, second = sorted(store.glob(f"{url.removeprefix('noting:/')}/data/**/*.parquet"))[:2]
    whole = store.cat_file(first)
    store.pipe_file(first, bytes([*whole[:60], whole[60] ^ 1, *whole[61:]]))
    store.rm_file(second)
    for sql in SQL[1:]:
        with pytest.raises(DataFileError, match=r"damaged|missing"):
            open_table(url).sql(sql)
    assert {problem.file.rsplit("/", 1)[-1] for problem in verify(open_table(url)).problems if problem.check == "file"}
    store.pipe_file(first, whole[: len(whole) // 2])
    with pytest.raises(DataFileError, match=r"damaged|missing"):
        open_table(url).sql(SQL[1])


def test_windows_are_read_ahead_and_joined(stored: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutopt.catalog.storage.ranges._WINDOW", 700)
    table = open_table(stored())
    assert same(table.sql(SQL[1]).to_pylist(), expected(SQL[1], ROWS))
    assert len(data_requests()) > len(table.files())


def test_long_footers_take_two_requests_once(stored: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "FIRST_READ", 64)
    files = open_table(stored()).catalog.files
    data = [file.path for file in files.walk("data")]
    REQUESTS.clear()
    for path in data:
        assert files.read_footer(path)[-4:] == b"PAR1"
    assert len(data) < len(REQUESTS) <= len(data) + 2


def test_datasets_ask_for_ranges(stored: Callable[..., str]) -> None:
    table = open_table(stored())
    dataset = table.scan("SELECT id, price FROM t").to_dataset()
    before = table.catalog.files.traffic.so_far
    frame = pl.scan_pyarrow_dataset(dataset).collect()
    assert sorted(frame["id"].to_list()) == sorted(ROWS["id"].to_pylist())
    counted = table.catalog.files.traffic.so_far - before
    # Of each file its size, its end and one range of both columns in all blocks.
    assert counted.requests <= 3 * len(table.files())


def test_stats_say_what_was_asked(
    stored: Callable[..., str], made: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    url = stored()
    assert main(["query", url, SQL[2], "--stats"]) == DONE
    assert " requests, " in capsys.readouterr().out
    assert main(["query", url, SQL[2], "--stats", "--json"]) == DONE
    assert '"traffic"' in capsys.readouterr().out
    assert main(["explain", url, SQL[2]]) == DONE
    assert "the catalog took" in capsys.readouterr().out
    assert main(["query", str(made()), SQL[2], "--stats"]) == DONE
    assert "local disk" in capsys.readouterr().out


@pytest.mark.unshadowed("counts requests")
def test_nothing_is_asked_for_where_no_block_is_left(stored: Callable[..., str]) -> None:
    table = open_table(stored())
    REQUESTS.clear()
    assert table.sql("SELECT id FROM t WHERE id > 10000000").num_rows == 0
    assert not [path for path, _, _ in REQUESTS if "/data/" in path]


@pytest.mark.parametrize("scheme", ["sop", "gsop-r", *long_too("gsop")])
def test_deleted_rows_are_left_out(made: Callable[..., Path], tmp_path: Path, scheme: str) -> None:
    local = shutil.copytree(made(scheme), tmp_path / "table")
    gone = [*range(0, 90, 7), 5]
    delete_ids(str(local), gone)
    table = open_table(put(local, f"noting://{tmp_path.name}"))
    for sql in SQL:
        assert same(table.sql(sql).to_pylist(), expected(sql, kept(ROWS, gone)))
