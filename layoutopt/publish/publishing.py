"""Publish the newest snapshot in another format: one commit of the changed files, without rewriting data.

Every crash is harmless. First the snapshot is noted in our table, so that vacuum keeps its files. Then the location
gets its one commit, which records the snapshot. Last, that is noted too. After a crash, the next run reads the
location's state and completes the missing steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from layoutopt.catalog.file_sizes import describe_file_sizes
from layoutopt.catalog.optimistic_commit import Change, check_no_tombstone, names_of, snapshots_since
from layoutopt.catalog.publications import FORMATS, Publication, forget, note, publications, table_id
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.table_root import check_is_table
from layoutopt.errors import CatalogError, CommitConflictError, PublicationError, SettingError
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.extensions import require
from layoutopt.model.summary import Report
from layoutopt.publish.contents import IN_CATALOG, DataFile, View, find_sizes, find_views, list_files
from layoutopt.publish.table_format import DesiredState, NewFile, PlaceState, PublishHook, Target

# The steps of each published table at which the hook is called.
PUBLISH_POINTS = ("noted", "committed", "finished")
_LIBRARIES: Final = {"delta": ("deltalake", "delta"), "iceberg": ("pyiceberg", "iceberg")}


@dataclass(frozen=True)
class PublishedTable:
    """The result of publishing one table.

    Attributes:
        location: where it is.
        layout: its layout; None for one with every column.
        columns: how many it has.
        version: the location's newest version.
        files, rows: how many it names now.
        added, removed: how many data files this commit added and removed.
        committed: whether there was anything to commit.
    """

    location: str
    layout: int | None
    columns: int
    version: int
    files: int
    rows: int
    added: int
    removed: int
    committed: bool


@dataclass(frozen=True)
class PublishReport(Report):
    """The result of a publication.

    Attributes:
        table, format: the table and the format.
        snapshot: the published snapshot.
        shown: one published table, or one for each layout.
        notes: remarks for the user.
    """

    table: str
    format: str
    snapshot: int
    shown: tuple[PublishedTable, ...]
    notes: tuple[str, ...] = ()


def publish(root: str, publication: Publication, at: PublishHook = lambda point: None) -> PublishReport:
    """Publish a table's newest snapshot in another format over the same data files.

    Args:
        root: the table.
        publication: the format, and the folder, URL or name in a catalog.
        at: called at each of PUBLISH_POINTS, for tests.

    Raises:
        PublicationError: the location holds something else or was changed by another writer, or the format does not
            support a column.
        CommitConflictError: another process publishes there, or vacuum removed the snapshot.
        SettingError: the format's library is not installed.
        CatalogError: the table's catalog is damaged.
    """
    catalog = Catalog.open(root)
    views = find_views(catalog)
    _check_no_other_tables(catalog, publication, views)
    shown = tuple(_show(catalog, publication, view, at) for view in views)
    sizes = describe_file_sizes(catalog)
    notes = (*_describe_views(views), *([] if sizes is None else [sizes]))
    return PublishReport(root, publication.format, catalog.snapshot.number, shown, notes)


def publication(root: str, format: str, location: str | None = None) -> Publication:
    """Return a publication at an absolute location, by default the table's own folder."""
    place = location or root
    if place.startswith(IN_CATALOG) and format != "iceberg":
        raise PublicationError(f"{place!r} is a place in an Iceberg catalog, not for {format}; give a folder or URL")
    whole = place if place.startswith(IN_CATALOG) else TableFiles(place).full_path("").rstrip("/")
    return Publication(format, whole)


def parse_publications(root: str, places: Iterable[str]) -> tuple[Publication, ...]:
    """Return the publications of settings of the form ``FORMAT`` or ``FORMAT=PLACE``.

    Raises:
        SettingError: a format is unknown, or its library is not installed.
        EncryptedTableError: the table is encrypted.
    """
    result = []
    if places:
        TableFiles(root).check_plain()
    for text in places:
        format, _, location = text.partition("=")
        if format not in FORMATS:
            raise SettingError(f"{text!r} names no place to publish to; write {' or '.join(FORMATS)}, or FORMAT=PLACE")
        require(*_LIBRARIES[format])
        result.append(publication(root, format, location or None))
    return tuple(result)


def publish_all(
    root: str, places: Iterable[str], say: Callable[[str], None], log: EventLog = NO_EVENTS
) -> tuple[PublishReport, ...]:
    """Publish a table to each of these places, and complete publications that a crash interrupted.

    Args:
        root: the table.
        places: as for :func:`parse_publications`.
        say: receives progress messages.
        log: gets an event ``publish`` for each.

    Raises:
        LayoutoptError: as :func:`publish`.
    """
    reports = []
    for place in parse_publications(root, places):
        say(f"publishing to {place.location} as {place.format}")
        reports.append(publish(root, place))
        log.write("publish", **reports[-1].to_json())
    return tuple(reports)


@contextmanager
def publish_after(
    root: str, places: Sequence[str], say: Callable[[str], None], log: EventLog = NO_EVENTS
) -> Iterator[None]:
    """Check the places, run the block, then publish as :func:`publish_all`."""
    parse_publications(root, places)
    yield
    publish_all(root, places, say, log)


def stop_publishing(root: str, publication: Publication) -> int:
    """Forget a publication, keep what it shows until its files are removed, and return the number of deleted notes."""
    files = TableFiles(root)
    check_is_table(files)
    return sum(forget(files, table) for table in _find_tables(files, publication))


def _find_tables(files: TableFiles, publication: Publication) -> list[Publication]:
    """Return the noted publications at a location, or in layout folders below it."""
    layout = f"{publication.location.rstrip('/')}/layout-"
    noted = [table for table in publications(files) if table.format == publication.format]
    pattern = f"{re.escape(layout)}[0-9]+"
    return [table for table in noted if table == publication or re.fullmatch(pattern, table.location)]


def _check_no_other_tables(catalog: Catalog, publication: Publication, views: Sequence[View]) -> None:
    """Raise PublicationError if a table of older column groups would stay at an older snapshot."""
    shown = {view.location(publication.location) for view in views}
    tables = _find_tables(catalog.files, publication)
    stale = [table.location for table in tables if table.location not in shown]
    if stale:
        raise PublicationError(
            f"{stale[0]!r} shows older column groups of the table and would stay behind, since the table's layouts "
            "changed; run once with --forget, drop that table, and publish again"
        )


def _open_target(files: TableFiles, publication: Publication) -> Target:
    require(*_LIBRARIES[publication.format])
    if publication.format == "delta":
        from layoutopt.publish.delta import DeltaTarget

        return DeltaTarget(files, publication.location)
    from layoutopt.publish.iceberg import IcebergTarget

    return IcebergTarget(files, publication.location)


def _describe_views(views: Sequence[View]) -> tuple[str, ...]:
    if len(views) == 1 and views[0].layout is None:
        return ()
    return (
        f"no layout holds every column of every row, so {len(views)} tables are published, each with the columns that "
        "its layout has for every row; a plan of one layout gives one table",
    )


def _show(catalog: Catalog, publication: Publication, view: View, at: PublishHook) -> PublishedTable:
    files, number = catalog.files, catalog.snapshot.number
    place = Publication(publication.format, view.location(publication.location))
    target = _open_target(files, place)
    before = target.read_state()
    layout = "" if view.layout is None else str(view.layout)
    wanted = DesiredState(table_id(files), number, layout, view.columns, view.partition_by, view.hidden)
    wanted = target.adapt(wanted, catalog)
    files_now = list_files(catalog, view)
    _check_place(place, before, wanted)
    added, removed = _compare_files(target, before, wanted, files_now)
    changed = bool(added or removed) or before is None or before.shape != target.shape(wanted)
    if changed:
        if before is not None:
            _check_untouched(catalog, view, place, before)
        note(files, place, number, "begun")
        _check_not_vacuumed(files, catalog.snapshot)
        at("noted")
        sizes = find_sizes(catalog, added)
        new = [NewFile(file, *sizes[path]) for path, file in sorted(added.items())]
        version = target.commit(before, wanted, new, removed)
        at("committed")
    else:
        assert before is not None
        version = before.version
        number = number if before.snapshot is None else before.snapshot
    note(files, place, number, "begun")
    note(files, place, number, "done")
    at("finished")
    columns, rows = len(view.columns.columns), sum(file.rows for file in files_now.values())
    counts = (len(files_now), rows, len(added), len(removed))
    return PublishedTable(place.location, view.layout, columns, version, *counts, changed)


def _check_place(place: Publication, before: PlaceState | None, wanted: DesiredState) -> None:
    if before is None:
        return
    if before.table_id is None:
        raise PublicationError(
            f"{place.location!r} holds a {place.format} table that was not published from here; publish elsewhere"
        )
    if (before.table_id, before.layout) != (wanted.table_id, wanted.layout):
        raise PublicationError(
            f"{place.location!r} shows another layoutopt table or layout ({before.table_id}); publish to another place"
        )
    if before.snapshot is not None and before.snapshot > wanted.snapshot:
        raise PublicationError(
            f"{place.location!r} shows snapshot {before.snapshot}, but the table's newest is {wanted.snapshot}; it may "
            "be an older copy of the table: publish to another place"
        )


def _compare_files(
    target: Target, before: PlaceState | None, wanted: DesiredState, files_now: dict[str, DataFile]
) -> tuple[dict[str, DataFile], list[str]]:
    if before is None:
        return files_now, []
    same = {} if before.partition_by != wanted.partition_by else before.files
    added = {
        path: file
        for path, file in files_now.items()
        if path not in same or same[path] != target.partition_value(wanted, file)
    }
    return added, sorted(path for path in before.files if path not in files_now)


def _check_untouched(catalog: Catalog, view: View, place: Publication, before: PlaceState) -> None:
    """Raise PublicationError if another writer changed the location."""
    published = set(before.files)
    try:
        if before.snapshot is not None:
            old = Catalog.open(catalog.files.root, before.snapshot)
            published = set(list_files(old, view))
    except CatalogError:
        pass  # vacuum removed the snapshot, so its files are unknown
    changes = sorted({*before.strangers, *(published ^ set(before.files))})
    if changes:
        raise PublicationError(
            f"another writer changed the {place.format} table at {place.location!r} after snapshot {before.snapshot} "
            f"was published there (file {changes[0]!r}); undo that, or publish to another place"
        )


def _check_not_vacuumed(files: TableFiles, snapshot: Snapshot) -> None:
    """Raise CommitConflictError if vacuum removed files before the snapshot was noted."""
    named = names_of(snapshot.partitions, ())
    try:
        change = Change("publish", snapshot, named, lambda latest: snapshot)
        check_no_tombstone(files, snapshots_since(files, snapshot), change)
    except CatalogError as error:
        raise CommitConflictError(
            f"snapshot {snapshot.number} of {files.root!r} was removed by vacuum while it was published; publish again"
        ) from error
