"""What is left of a table whose catalog is damaged: every damaged file by name, and the partitions that can be read.

A reader stops at the first damaged file, since it could only guess from there on. ``verify`` goes on, so that whoever
restores files knows them all at once.
"""

from __future__ import annotations

from dataclasses import replace

from layoutopt.catalog.paths import plan_path, snapshot_path
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.snapshots import check_is_table, read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog, chosen_snapshot, read_plan
from layoutopt.errors import CatalogError
from layoutopt.inspect.verify import FileChecker, Problem, Progress, VerifyReport, verify
from layoutopt.scan.table import Table


def verify_path(
    path: str,
    sample: float = 1.0,
    progress: Progress | None = None,
    *,
    snapshot: int | None = None,
    as_of: str | None = None,
    checker: FileChecker | None = None,
) -> VerifyReport:
    """Every damaged file of a table, of its catalog too; see :func:`layoutopt.inspect.verify.verify`.

    Raises:
        NotATableError, CatalogError, SettingError: as :func:`open_intact`.
    """
    table, damaged = open_intact(path, snapshot=snapshot, as_of=as_of)
    report = verify(table, sample, progress=progress, checker=checker)
    return replace(report, problems=(*damaged, *report.problems))


def open_intact(
    path: str, *, snapshot: int | None = None, as_of: str | None = None
) -> tuple[Table, tuple[Problem, ...]]:
    """A table with the partitions whose catalog files are whole, and what is wrong with the other files.

    Every snapshot is looked at, and the plans and blocks that the chosen one names.

    Raises:
        NotATableError: the path holds no table.
        CatalogError: the chosen snapshot itself is damaged: nobody knows what the table should hold.
        SettingError: as :func:`layoutopt.scan.table.open_table`.
    """
    files = TableFiles(path, fresh=True)
    check_is_table(files)
    chosen = chosen_snapshot(files, snapshot, as_of)
    damaged = _damaged_snapshots(files, chosen.number)
    plans = {}
    for digest in chosen.plans_read:
        try:
            plans[digest] = read_plan(files, chosen, digest)
        except CatalogError as error:
            damaged[plan_path(digest)] = str(error)
    catalog = Catalog(files, chosen, plans)
    whole: list[PartitionEntry] = []
    for entry in chosen.partitions:
        if entry.plan not in plans or not damaged.keys().isdisjoint(entry.catalog_files):
            continue
        try:
            catalog.blocks(entry)
            whole.append(entry)
        except CatalogError as error:
            named = [path for path in entry.catalog_files if files.full_path(path) in str(error)]
            damaged[named[-1] if named else entry.blocks_file] = str(error)
    used = {entry.plan: plans[entry.plan] for entry in whole} if chosen.partitions else plans
    left = Catalog(files, replace(chosen, partitions=tuple(whole)), used)
    return Table(left), tuple(Problem("catalog", path, message) for path, message in damaged.items())


def _damaged_snapshots(files: TableFiles, chosen: int) -> dict[str, str]:
    found = {}
    for number in snapshot_numbers(files):
        try:
            if number != chosen:
                read_snapshot(files, number)
        except CatalogError as error:
            found[snapshot_path(number)] = str(error)
    return found
