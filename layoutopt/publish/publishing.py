"""Publishing: a place is made to show the newest snapshot, by one commit of what differs; nothing is rewritten.

The order makes every crash harmless. The snapshot is noted in our table first, so that no vacuum takes its files; then
the place's one commit is made, which says itself what it shows; then that is noted, too. Whoever comes after a crash
looks at what the place shows, and does what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from layoutopt.catalog.optimistic_commit import Change, check_no_tombstone, names_of, snapshots_since
from layoutopt.catalog.publications import FORMATS, Publication, forget, note, publications, table_id
from layoutopt.catalog.snapshot import Snapshot, check_is_table
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, CommitConflictError, PublicationError, SettingError
from layoutopt.events import NO_EVENTS, EventLog
from layoutopt.extensions import require
from layoutopt.publish.contents import IN_CATALOG, DataFile, View, files_of, sizes_of, views_of
from layoutopt.publish.table_format import Added, PublishHook, Shown, Target, Wanted

PUBLISH_POINTS = ("noted", "committed", "finished")
"""Where ``at`` is called for each table that is shown."""

_LIBRARIES: Final = {"delta": ("deltalake", "delta"), "iceberg": ("pyiceberg", "iceberg")}


@dataclass(frozen=True)
class ShownTable:
    """What came of one table that is shown.

    Attributes:
        location: where.
        layout: which layout it has; None for one with every column.
        columns: how many it has.
        version: the place's newest version.
        files, rows: what it names now.
        added, removed: data files that this commit named and took away.
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
class PublishReport:
    """What a publication did.

    Attributes:
        table, format: what is shown, and as what.
        snapshot: the snapshot that is shown now.
        shown: the tables that show it: one, or one for each layout.
        notes: what a user should know.
    """

    table: str
    format: str
    snapshot: int
    shown: tuple[ShownTable, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def publish(root: str, publication: Publication, at: PublishHook = lambda point: None) -> PublishReport:
    """Show a table's newest snapshot at a place as a table of another format, over the same data files.

    Args:
        root: the table.
        publication: the format, and the folder, URL or name in a catalog.
        at: called at each of PUBLISH_POINTS, for tests.

    Raises:
        PublicationError: the place holds something else, or was changed by somebody else; or the format has no way to
            say a column.
        CommitConflictError: somebody else publishes there at this moment, or a vacuum took the snapshot.
        SettingError: the format's library is not installed.
        CatalogError: the table's catalog is damaged.
    """
    catalog = Catalog.open(root)
    views = views_of(catalog)
    _check_no_other_tables(catalog, publication, views)
    shown = tuple(_show(catalog, publication, view, at) for view in views)
    return PublishReport(root, publication.format, catalog.snapshot.number, shown, _notes(views))


def publication(root: str, format: str, location: str | None = None) -> Publication:
    """A place for a table, in its own folder unless it is named; folders by their whole path, so that each is one."""
    place = location or root
    whole = place if place.startswith(IN_CATALOG) else TableFiles(place).full_path("").rstrip("/")
    return Publication(format, whole)


def publications_of(root: str, places: Iterable[str]) -> tuple[Publication, ...]:
    """Places as settings name them: ``FORMAT``, or ``FORMAT=PLACE``.

    Raises:
        SettingError: a format is unknown, or its library is not installed.
        EncryptedTableError: the table is encrypted.
    """
    found = []
    if places:
        TableFiles(root).check_plain()
    for text in places:
        format, _, location = text.partition("=")
        if format not in FORMATS:
            raise SettingError(f"{text!r} names no place to publish to; write {' or '.join(FORMATS)}, or FORMAT=PLACE")
        require(*_LIBRARIES[format])
        found.append(publication(root, format, location or None))
    return tuple(found)


def publish_all(
    root: str, places: Iterable[str], say: Callable[[str], None], log: EventLog = NO_EVENTS
) -> tuple[PublishReport, ...]:
    """Publish a table to each of some places, as settings name them; what was published before a crash is found so.

    Args:
        root: the table.
        places: as for :func:`publications_of`.
        say: told what is done.
        log: gets an event ``publish`` for each.

    Raises:
        LayoutoptError: as :func:`publish`.
    """
    reports = []
    for place in publications_of(root, places):
        say(f"publishing to {place.location} as {place.format}")
        reports.append(publish(root, place))
        log.write("publish", **reports[-1].to_json())
    return tuple(reports)


@contextmanager
def published_after(
    root: str, places: Sequence[str], say: Callable[[str], None], log: EventLog = NO_EVENTS
) -> Iterator[None]:
    """Publish as :func:`publish_all` once the block is done; what could not be published is said before it."""
    publications_of(root, places)
    yield
    publish_all(root, places, say, log)


def stop(root: str, publication: Publication) -> int:
    """Keep nothing for a publication any more; what is shown there stays until its files go. How many notes went."""
    files = TableFiles(root)
    check_is_table(files)
    return sum(forget(files, one) for one in _tables_of(files, publication))


def _tables_of(files: TableFiles, publication: Publication) -> list[Publication]:
    """The tables that show a publication so far, as they were noted: at its place, or one a layout below it."""
    layout = f"{publication.location.rstrip('/')}/layout-"
    noted = [one for one in publications(files) if one.format == publication.format]
    return [one for one in noted if one == publication or re.fullmatch(f"{re.escape(layout)}[0-9]+", one.location)]


def _check_no_other_tables(catalog: Catalog, publication: Publication, views: Sequence[View]) -> None:
    """Refuse to leave tables behind that would show an older snapshot for ever, as where column groups change.

    Raises:
        PublicationError: there would be some.
    """
    shown = {view.location(publication.location) for view in views}
    left = [one.location for one in _tables_of(catalog.files, publication) if one.location not in shown]
    if left:
        raise PublicationError(
            f"{left[0]!r} shows older column groups of the table and would stay behind, now that its layouts "
            "are others; give --forget once, drop what is shown there, and publish again"
        )


def _target(files: TableFiles, publication: Publication) -> Target:
    """The place of a publication; its library is imported only now."""
    require(*_LIBRARIES[publication.format])
    if publication.format == "delta":
        from layoutopt.publish.delta import DeltaTarget

        return DeltaTarget(files, publication.location)
    from layoutopt.publish.iceberg import IcebergTarget

    return IcebergTarget(files, publication.location)


def _notes(views: Sequence[View]) -> tuple[str, ...]:
    if len(views) == 1 and views[0].layout is None:
        return ()
    return (
        f"no layout holds every column of every row, so {len(views)} tables are shown, each with the columns that its "
        "layout has for every row; a plan of one layout would make one table",
    )


def _show(catalog: Catalog, publication: Publication, view: View, at: PublishHook) -> ShownTable:
    files, number = catalog.files, catalog.snapshot.number
    place = Publication(publication.format, view.location(publication.location))
    target = _target(files, place)
    before = target.shown()
    layout = "" if view.layout is None else str(view.layout)
    wanted = Wanted(table_id(files), number, layout, view.columns, view.partition_by, view.hidden)
    wanted = target.adapted(wanted, catalog)
    ours = files_of(catalog, view)
    _check_place(place, before, wanted)
    added, removed = _difference(target, before, wanted, ours)
    changed = bool(added or removed) or before is None or before.shape != target.shape(wanted)
    if changed:
        if before is not None:
            _check_untouched(catalog, view, place, before)
        note(files, place, number, "begun")
        _check_not_given_up(files, catalog.snapshot)
        at("noted")
        sizes = sizes_of(catalog, added)
        new = [Added(file, *sizes[path]) for path, file in sorted(added.items())]
        version = target.commit(before, wanted, new, removed)
        at("committed")
    else:
        assert before is not None
        version = before.version
    _note_done(files, place, before, number, changed)
    at("finished")
    rows = sum(file.rows for file in ours.values())
    count = len(view.columns.columns)
    return ShownTable(place.location, view.layout, count, version, len(ours), rows, len(added), len(removed), changed)


def _note_done(files: TableFiles, place: Publication, before: Shown | None, number: int, changed: bool) -> None:
    """Note what the place shows; where nothing had to change, the snapshot that it was made from stays noted."""
    shown = number if changed or before is None or before.snapshot is None else before.snapshot
    note(files, place, shown, "begun")
    note(files, place, shown, "done")


def _check_place(place: Publication, before: Shown | None, wanted: Wanted) -> None:
    """Refuse a place that shows something else.

    Raises:
        PublicationError: it does.
    """
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


def _difference(
    target: Target, before: Shown | None, wanted: Wanted, ours: dict[str, DataFile]
) -> tuple[dict[str, DataFile], list[str]]:
    """The files to be named, and those to be named no longer."""
    if before is None:
        return ours, []
    same = {} if before.partition_by != wanted.partition_by else before.files
    added = {
        path: file
        for path, file in ours.items()
        if path not in same or same[path] != target.partition_value(wanted, file)
    }
    return added, sorted(path for path in before.files if path not in ours)


def _check_untouched(catalog: Catalog, view: View, place: Publication, before: Shown) -> None:
    """Refuse to overwrite what somebody else did at the place.

    Raises:
        PublicationError: the place names other files than were published there.
    """
    published = set(before.files)
    try:
        if before.snapshot is not None:
            old = Catalog.open(catalog.files.root, before.snapshot)
            published = set(files_of(old, view))
    except CatalogError:
        pass  # a vacuum of an older version took the snapshot: what it had is not known
    others = sorted({*before.strangers, *(published ^ set(before.files))})
    if others:
        raise PublicationError(
            f"somebody else changed the {place.format} table at {place.location!r} since snapshot {before.snapshot} "
            f"was published there (as {others[0]!r} tells); undo that, or publish to another place"
        )


def _check_not_given_up(files: TableFiles, snapshot: Snapshot) -> None:
    """Now that the snapshot is noted, look whether a vacuum came before the note.

    Raises:
        CommitConflictError: one takes some of its files away.
    """
    named = names_of(snapshot.partitions, ())
    try:
        change = Change("publish", snapshot, named, lambda latest: snapshot)
        check_no_tombstone(files, snapshots_since(files, snapshot), change)
    except CatalogError as error:
        raise CommitConflictError(
            f"snapshot {snapshot.number} of {files.root!r} was given up while it was published; publish again"
        ) from error
