"""Bad input through the command line: one clear sentence, exit 2 or 1, and the table as it was before."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE, FAILED
from layoutopt.loading.load import load
from layoutopt.scan.table import open_table
from tests.effort import long_too
from tests.external.odd_files import shorten_row_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LOG = """
SELECT product FROM sales WHERE product = 'shoes';
SELECT product FROM sales WHERE product = 'shoes' AND revenue > 90;
SELECT revenue FROM sales WHERE product = 'hats';
SELECT revenue FROM sales WHERE product = 'hats' AND day = 2;
"""
ROWS = 300
Say = Callable[..., str]


def rows(number: int = ROWS) -> pa.Table:
    places = list(range(number))
    return pa.table(
        {
            "day": pa.array([1 + place % 3 for place in places], pa.int32()),
            "product": [("shoes", "hats", "coats", "bags")[place % 4] for place in places],
            "revenue": places,
        }
    )


def write_source(folder: Path, content: pa.Table) -> Path:
    """Two Parquet files, since Spark asks one of them for the schema."""
    folder.mkdir()
    half = content.num_rows // 2
    pq.write_table(content.slice(0, half), folder / "a.parquet")
    pq.write_table(content.slice(half), folder / "b.parquet")
    return folder


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source, a log, and what the verbs make of them, the loaded table included."""
    place = tmp_path_factory.mktemp("shop")
    (place / "log.sql").write_text(LOG, encoding="utf-8")
    source = str(write_source(place / "source", rows()))
    features, plan = str(place / "features.json"), str(place / "plan.json")
    flags = ["--method", "sop", "--partition-by", "day", "--block-rows", "10"]
    assert main(["analyze", str(place / "log.sql"), "--schema", source, "--table", "sales", "-o", features]) == DONE
    assert main(["plan", source, "--features", features, *flags, "-o", plan]) == DONE
    assert main(["load", source, str(place / "table"), "--plan", plan]) == DONE
    return place


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command that must fail; returns the one sentence that it says."""

    def run(code: int, *words: str | Path) -> str:
        capsys.readouterr()
        assert main([*map(str, words), "--no-progress"]) == code
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("layoutopt: ")
        assert said.err.count("\n") == 1
        assert "Error" not in said.err  # no class names
        return said.err

    return run


def visible(table: Path) -> dict[str, object]:
    """What a reader sees of a table, and what lies in its folder."""
    opened = open_table(str(table))
    return {
        "snapshot": opened.catalog.snapshot,
        "answer": opened.sql("SELECT * FROM sales").sort_by("revenue"),
        "files": sorted(str(path.relative_to(table)) for path in table.rglob("*") if path.is_file()),
    }


@contextmanager
def unchanged(table: Path) -> Iterator[None]:
    """The block leaves the table as it was: its snapshot, its rows, and no leftover."""
    before = visible(table)
    assert pc.sum(before["answer"]["revenue"]).as_py() == sum(range(ROWS))  # type: ignore[index]  # an Arrow table
    yield
    assert visible(table) == before


class TestLogs:
    @pytest.mark.parametrize(("name", "text"), [("e.sql", ""), *long_too(("e.sql", "-- nothing\n"), ("e.jsonl", "\n"))])
    def test_an_empty_log(self, shop: Path, refused: Say, tmp_path: Path, name: str, text: str) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        target = tmp_path / "features.json"
        said = refused(BAD_USAGE, "analyze", tmp_path / name, "--schema", shop / "source", "-o", target)
        assert name in said
        assert not target.exists()

    def test_an_unknown_column_is_counted_and_does_not_stop_anything(
        self, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = tmp_path / "log.sql"
        log.write_text(LOG + "SELECT colour FROM sales;", encoding="utf-8")
        flags = ["--schema", str(shop / "source"), "--table", "sales", "-o", str(tmp_path / "features.json")]
        assert main(["analyze", str(log), *flags]) == DONE
        assert "4 of 5 statements used" in capsys.readouterr().out
        assert main(["evaluate", str(shop / "table"), str(log), "--json"]) == DONE
        printed = capsys.readouterr().out
        assert '"reason": "unknown-column"' in printed
        assert "colour" in printed

    def test_no_feature_reaches_t(self, shop: Path, refused: Say, tmp_path: Path) -> None:
        flags = ["--schema", shop / "source", "--threshold", "9", "-o", tmp_path / "features.json"]
        assert "T = 9" in refused(BAD_USAGE, "analyze", shop / "log.sql", *flags)
        assert not (tmp_path / "features.json").exists()

    def test_a_query_for_an_unknown_column(self, shop: Path, refused: Say) -> None:
        for engine in ("duckdb", "spark"):
            assert "colour" in refused(
                BAD_USAGE, "query", shop / "table", "SELECT colour FROM sales", "--engine", engine
            )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.drop_columns("product"), "lacks the column 'product'"),
        (lambda t: t.append_column("more", t["day"]), "'more'"),
        (lambda t: t.set_column(2, "revenue", t["revenue"].cast(pa.string())), "'revenue' is string"),
    ],
    ids=["lost", "new", "retyped"],
)
def test_a_source_of_another_schema(
    shop: Path, refused: Say, tmp_path: Path, change: Callable[[pa.Table], pa.Table], named: str
) -> None:
    source = write_source(tmp_path / "other", change(rows()))
    with unchanged(shop / "table"):
        assert named in refused(BAD_USAGE, "load", source, shop / "table", "--plan", shop / "plan.json")
    target = tmp_path / "plan.json"
    assert named in refused(BAD_USAGE, "plan", source, "--features", shop / "features.json", "-o", target)
    assert not target.exists()


class TestPathsOfSomethingElse:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "mine"
        path.mkdir()
        (path / "thesis.txt").write_text("mine", encoding="utf-8")
        return path

    def test_nothing_is_loaded_into_it(self, shop: Path, refused: Say, path: Path) -> None:
        for target in (path, path / "thesis.txt"):
            said = refused(BAD_USAGE, "load", shop / "source", target, "--plan", shop / "plan.json")
            assert str(target) in said
        assert [each.name for each in path.iterdir()] == ["thesis.txt"]
        assert (path / "thesis.txt").read_text(encoding="utf-8") == "mine"

    @pytest.mark.parametrize(
        "words",
        [("query", "SELECT 1 FROM sales"), ("explain", "SELECT 1 FROM sales"), ("verify",), ("files",), ("history",)],
        ids=lambda words: words[0],
    )
    def test_nothing_is_read_from_it(self, refused: Say, path: Path, words: tuple[str, ...]) -> None:
        for target in (path, path / "thesis.txt", path / "nowhere"):
            assert str(target) in refused(BAD_USAGE, words[0], target, *words[1:])


@pytest.mark.parametrize("verb", ["append", "load"])
def test_a_folder_whose_rows_have_not_come(shop: Path, refused: Say, tmp_path: Path, verb: str) -> None:
    (tmp_path / "late").mkdir()
    plan = ["--plan", str(shop / "plan.json")] if verb == "load" else []
    words = (shop / "table", tmp_path / "late") if verb == "append" else (tmp_path / "late", shop / "table", *plan)
    with unchanged(shop / "table"):
        said = refused(BAD_USAGE, verb, *words)
    assert str(tmp_path / "late") in said
    assert "no file with columns" in said


class TestTruncatedSources:
    @pytest.fixture(params=["footer", "page"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """A source whose second file lacks its end, or is whole but for bytes in its middle."""
        victim = write_source(tmp_path / "cut", rows()) / "b.parquet"
        data = victim.read_bytes()
        middle = bytes(len(data) // 4)
        damaged = {"footer": data[: len(data) // 2], "page": data[:4] + middle + data[4 + len(middle) :]}
        victim.write_bytes(damaged[request.param])
        return victim.parent

    def test_it_is_named(self, shop: Path, refused: Say, source: Path, tmp_path: Path) -> None:
        with unchanged(shop / "table"):
            said = refused(BAD_USAGE, "load", source, shop / "table", "--plan", shop / "plan.json")
        assert str(source / "b.parquet") in said
        target = tmp_path / "plan.json"
        said = refused(BAD_USAGE, "plan", source, "--features", shop / "features.json", "-o", target)
        assert str(source / "b.parquet") in said
        assert not target.exists()

    def test_a_new_table_is_no_table_yet(self, shop: Path, refused: Say, source: Path, tmp_path: Path) -> None:
        refused(BAD_USAGE, "load", source, tmp_path / "table", "--plan", shop / "plan.json")
        assert not list((tmp_path / "table").rglob("*.parquet"))
        refused(BAD_USAGE, "query", tmp_path / "table", "SELECT 1 FROM sales")


def flip_page(path: Path) -> None:
    """Flip a bit of an uncompressed page."""
    pq.write_table(pq.read_table(path), path, compression="none", use_dictionary=False, write_page_checksum=True)
    column = pq.read_metadata(path).row_group(0).column(2)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 1
    path.write_bytes(data)


def enlarge_row_group(path: Path) -> None:
    """Let the footer say that the row group's middle lies behind the end of the file."""
    data = bytearray(path.read_bytes())
    place = data.rindex(b"\x26\x08\x16") + 3  # Thrift's fields: file_offset 4, total_compressed_size
    while data[place] & 0x80:
        place += 1
    data[place] |= 0x40
    path.write_bytes(data)


class TestDamagedSources:
    """Spark reads them without a word: other values, or fewer rows."""

    @pytest.fixture(params=[flip_page, enlarge_row_group, shorten_row_group])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        source = write_source(tmp_path / "damaged", rows())
        request.param(source / "b.parquet")
        return source

    def test_no_row_is_lost(self, shop: Path, refused: Say, source: Path, tmp_path: Path) -> None:
        table, plan = shop / "table", ["--plan", str(shop / "plan.json")]
        commands: list[list[str | Path]] = [["verify", table, "--source", source]]
        if "enlarge" not in str(tmp_path):  # Arrow reads all rows of such a file
            commands += [
                ["merge", table, source, "--on", "revenue"],
                ["append", table, source],
                ["load", source, tmp_path / "table", *plan],
                ["load", source, tmp_path / "table", *plan, "--partition", "day=1"],
            ]
        with unchanged(table):
            for command in commands:
                said = refused(BAD_USAGE, *command)
                assert str(source / "b.parquet") in said
                assert "damaged page" in said or "rows by its footer" in said
        assert not list((tmp_path / "table").rglob("*.parquet"))


class TestTablesOfOtherFormats:
    """Their folders of Parquet hold rows that were deleted."""

    @pytest.fixture(params=["_delta_log/0.json", "metadata/v3.metadata.json", ".hoodie/hoodie.properties"])
    def log(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """What tells a table from a folder of Parquet."""
        log: Path = write_source(tmp_path / "rows", rows()) / request.param
        log.parent.mkdir()
        log.touch()
        return log

    def test_every_verb_refuses_them(self, shop: Path, refused: Say, log: Path, tmp_path: Path) -> None:
        source, table, features = log.parent.parent, shop / "table", shop / "features.json"
        commands: list[list[str | Path]] = [
            ["analyze", shop / "log.sql", "--schema", source, "-o", tmp_path / "features.json"],
            ["plan", source, "--features", features, "-o", tmp_path / "plan.json"],
            ["load", source, tmp_path / "table", "--plan", shop / "plan.json"],
            ["append", table, source],
            ["merge", table, source, "--on", "revenue"],
            ["reload", table, source, "--partition", "day=1"],
            ["verify", table, "--source", source],
            ["advise", source, shop / "log.sql"],
            ["index", source, "--into", tmp_path / "indexes", "--index", "product:bloom"],
        ]
        with unchanged(table):
            said = {refused(BAD_USAGE, *command) for command in commands}
        assert len(said) == 1
        prefixes = {"_delta_log": f"write delta:{source}", "metadata": "write iceberg:", ".hoodie": "export"}
        assert repr(str(source)) in min(said)
        assert prefixes[log.parent.name] in min(said)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rows"]

    def test_a_part_of_one_is_refused(self, shop: Path, refused: Say, log: Path, tmp_path: Path) -> None:
        inside = write_source(log.parent.parent / "day=1", rows())
        for source in (inside, inside / "a.parquet", f"{tmp_path}/r*/day=1"):
            said = refused(BAD_USAGE, "load", source, tmp_path / "table", "--plan", shop / "plan.json")
            assert f"{log.parent.parent}' is a" in said


def raise_disk_full(point: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestFullDisks:
    def test_in_a_task(self, shop: Path, refused: Say, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("layoutopt.loading.load.load", partial(load, in_task=raise_disk_full))
        with unchanged(shop / "table"):
            said = refused(FAILED, "load", shop / "source", shop / "table", "--plan", shop / "plan.json", "--replace")
        assert "No space left on device" in said

    @pytest.mark.parametrize("folder", ["blocks", *long_too("plans", "snapshots")])
    def test_in_the_commit(self, shop: Path, refused: Say, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
        write_new = TableFiles.write_new

        def full(self: TableFiles, path: str, data: bytes) -> None:
            if f"/{folder}/" in path:
                raise_disk_full(path)
            write_new(self, path, data)

        before = visible(shop / "table")
        with monkeypatch.context() as patch:
            patch.setattr(TableFiles, "write_new", full)
            said = refused(FAILED, "load", shop / "source", shop / "table", "--plan", shop / "plan.json", "--replace")
        assert "No space left on device" in said or "disk is full" in said
        after = visible(shop / "table")
        assert (after["snapshot"], after["answer"]) == (before["snapshot"], before["answer"])
        # The next load is not disturbed by what this one left.
        words = [str(shop / "source"), str(shop / "table"), "--plan", str(shop / "plan.json"), "--replace"]
        assert main(["load", *words]) == DONE

    @pytest.mark.long
    def test_of_a_real_one(self, shop: Path, refused: Say, small_disk: Path, tmp_path: Path) -> None:
        table = small_disk / "table"
        shutil.copytree(shop / "table", table)
        # Values that don't compress: more than the disk holds.
        many = rows(60_000).set_column(1, "product", pa.array([os.urandom(32).hex() for _ in range(60_000)]))
        source = write_source(tmp_path / "many", many)
        with unchanged(table):
            said = refused(FAILED, "load", source, table, "--plan", shop / "plan.json", "--replace")
        assert "No space left on device" in said
        assert "nothing was committed" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)
