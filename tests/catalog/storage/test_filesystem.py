"""Files of a table: exclusive creation on each kind of store, and no way out of the folder."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table_root import ensure_table_root
from layoutopt.errors import CatalogError, SettingError
from tests.catalog.loads import write_at_once


@pytest.fixture(params=["local", "file-url", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TableFiles]:
    roots = {"local": str(tmp_path / "t"), "file-url": f"file://{tmp_path}/t", "memory": f"memory://{tmp_path.name}/t"}
    yield TableFiles(roots[request.param])
    MemoryFileSystem.store.clear()


def test_what_is_written_is_read_and_listed(files: TableFiles) -> None:
    files.write_new("a/b/1.json", b"one")
    assert files.read_bytes("a/b/1.json") == b"one"
    assert files.size("a/b/1.json") == 3
    assert files.list("a/b") == ("1.json",)
    assert files.list("a") == ("b",)
    assert files.list("nowhere") == ()
    assert files.exists("a/b/1.json")
    assert files.is_file("a/b/1.json")
    assert files.exists("a")
    assert not files.exists("a/c")
    with files.open_input("a/b/1.json") as file:
        assert file.read() == b"one"


def test_a_taken_path_is_refused_and_keeps_its_content(files: TableFiles) -> None:
    files.write_new("1.json", b"first")
    with pytest.raises(FileExistsError):
        files.write_new("1.json", b"second")
    assert files.read_bytes("1.json") == b"first"
    assert files.list("") == ("1.json",)


def test_what_is_deleted_or_was_never_there_is_a_file_not_found(files: TableFiles) -> None:
    files.write_new("1.json", b"x")
    for _ in range(2):
        files.delete("1.json")
    assert not files.exists("1.json")
    for read in (files.read_bytes, files.size, files.open_input):
        with pytest.raises(FileNotFoundError):
            read("1.json")


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", "s3://bucket/x", "a//b", "./a", "~/x", "a\\..\\b", "a\nb", "C:x"]
)
def test_paths_that_leave_the_table_are_refused(files: TableFiles, path: str) -> None:
    for use in (files.read_bytes, files.exists, files.list, files.delete, files.open_input, files.full_path):
        with pytest.raises(CatalogError, match="out of the table"):
            use(path)
    with pytest.raises(CatalogError, match="out of the table"):
        files.write_new(path, b"")


def test_of_many_writers_one_succeeds_and_nobody_reads_half(tmp_path: Path) -> None:
    files = TableFiles(str(tmp_path))
    assert write_at_once(files) == [files.read_bytes("f")]
    assert os.listdir(tmp_path) == ["f"]  # noqa: PTH208 - hidden files too


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        TableFiles(str(tmp_path)).write_new("f", b"x")
    assert list(tmp_path.iterdir()) == []


def test_content_and_folders_are_synced_before_the_name_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def traced_fsync(descriptor: int) -> None:
        steps.append("sync " + Path(f"/proc/self/fd/{descriptor}").readlink().name[:5])
        fsync(descriptor)

    def traced_link(source: Path, target: Path) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "link", traced_link)
    root = tmp_path / "root"
    root.mkdir()
    TableFiles(str(root)).write_new("sub/f", b"x")
    assert steps == ["sync root", "sync .tmp-", "link", "sync sub"]


def test_unfinished_files_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-123").write_text("half")
    assert TableFiles(str(tmp_path)).list("") == ()


def test_an_unknown_kind_of_store_is_a_bad_setting() -> None:
    with pytest.raises(SettingError, match="nosuch"):
        TableFiles("nosuch://bucket/t").exists("")


def test_a_file_that_a_vacuum_takes_for_garbage_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    taken: list[Path] = []

    def swept(source: Path, target: Path) -> None:
        if len(taken) < 2:
            taken.append(source)
            source.unlink()
        link(source, target)

    monkeypatch.setattr(os, "link", swept)
    TableFiles(str(tmp_path)).write_new("sub/f", b"x")
    assert len(taken) == 2
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "sub").iterdir()] == [("f", b"x")]
    with pytest.raises(FileExistsError):
        TableFiles(str(tmp_path)).write_new("sub/f", b"y")


def test_a_disk_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(CatalogError, match="no hard links"):
        ensure_table_root(TableFiles(str(tmp_path / "t")))
    assert os.listdir(tmp_path / "t" / "_layoutopt") == []  # noqa: PTH208 - hidden files too


def test_drivers_that_can_not_create_exclusively_or_ignore_the_mode_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_mode(self: MemoryFileSystem, path: str, value: bytes, **kwargs: Any) -> None:
        raise AssertionError("it would overwrite")

    def ignoring(self: MemoryFileSystem, path: str, value: bytes, mode: str = "overwrite") -> None:
        self.store.pop(path, None)
        original(self, path, value)

    original = MemoryFileSystem.pipe_file
    try:
        for pipe_file, message in ((without_mode, "exclusively"), (ignoring, "overwrites")):
            monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
            with pytest.raises(CatalogError, match=message):
                ensure_table_root(TableFiles("memory://t"))
    finally:
        MemoryFileSystem.store.clear()


def test_the_clock_is_the_stores(files: TableFiles) -> None:
    before = time.time()
    assert before - 5 < files.now("a") < before + 60
    assert list(files.walk("")) == []


def test_every_file_below_a_folder_is_listed_with_its_age(files: TableFiles) -> None:
    for path in ("a/b/1.json", "a/.tmp-2", "c"):
        files.write_new(path, b"xyz")
    assert {file.path for file in files.walk("")} == {"a/b/1.json", "a/.tmp-2", "c"}
    found = {file.path: file for file in files.walk("a")}
    assert set(found) == {"a/b/1.json", "a/.tmp-2"}
    assert found["a/b/1.json"].size == 3
    assert abs((found["a/b/1.json"].modified or 0) - time.time()) < 60
    assert list(files.walk("nowhere")) == []


def test_a_link_to_another_folder_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link").symlink_to(outside)
    files = TableFiles(str(tmp_path / "t"))
    assert list(files.walk("")) == []
    files.delete_empty_folders("")
    assert (outside / "mine").exists()


class RenamingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A store that, as HDFS, refuses to rename onto a file."""

    protocol = ("hdfs",)
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own way
    pseudo_dirs = [""]  # noqa: RUF012
    looks_away = False

    def exists(self, path: str, **kwargs: Any) -> bool:
        if self.looks_away and path.endswith("/f"):
            # Another writer comes between the look and the rename: the store's own refusal must count.
            self.looks_away = False
            return False
        return bool(super().exists(path, **kwargs))

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        if self.exists(path2):
            raise OSError("rename: destination exists")
        super().mv(path1, path2, **kwargs)


def test_a_store_with_renames_only_creates_exclusively_too(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RenamingFileSystem()
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (store, "/t"))
    files = TableFiles("hdfs://host/t")
    files.write_new("a/f", b"x")
    with pytest.raises(FileExistsError):
        files.write_new("a/f", b"y")
    store.looks_away = True
    with pytest.raises(FileExistsError):
        files.write_new("a/f", b"z")
    assert files.read_bytes("a/f") == b"x"


def test_a_read_only_mount_is_named_by_its_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object, **more: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    (tmp_path / "a").mkdir()
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only file system") as caught:
        TableFiles(str(tmp_path)).write_new("a/1.json", b"one")
    assert caught.value.filename == str(tmp_path / "a" / "1.json")
