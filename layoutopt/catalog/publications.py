"""Notes of where a table is published, so that vacuums keep what those readers need (SPEC.md, "Publications").

Each publication is noted before it is made ("begun") and afterwards ("done"), by small files that are created once. The
files of noted snapshots are kept until a later snapshot is published at the same place. So a crash between the two
notes leaves both snapshots whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from layoutopt.catalog.paths import CATALOG, Text
from layoutopt.catalog.snapshot import parse_json
from layoutopt.catalog.storage.filesystem import StoredFile, TableFiles
from layoutopt.errors import CatalogError, PlanError
from layoutopt.model.records import As, Form, Record

PUBLISHED: Final = f"{CATALOG}/published"
TABLE_ID: Final = f"{CATALOG}/id.json"
FORMATS: Final = ("delta", "iceberg")

Stage = Literal["begun", "done"]
_NOTE: Final = re.compile(PUBLISHED + r"/([0-9a-f]{16})/(0|[1-9][0-9]{0,17})-(begun|done)\.json")


def _known_format(text: str) -> str:
    if text not in FORMATS:
        raise ValueError(f"it should be one of {', '.join(FORMATS)}")
    return text


@dataclass(frozen=True)
class Publication(Record):
    """A place where a table is published: a format, and a folder, URL or catalog name."""

    format: Annotated[str, As(str, _known_format)]
    location: Text
    form: ClassVar = Form(constants={"note": "layoutopt-publication"})

    @property
    def folder(self) -> str:
        """Return the folder of its notes."""
        digest = hashlib.sha256(f"{self.format}\n{self.location}".encode()).hexdigest()
        return f"{PUBLISHED}/{digest[:16]}"


@dataclass(frozen=True)
class Notes:
    """The notes of one publication: numbers of snapshots, with the time of the note in seconds since 1970, if known."""

    begun: Mapping[int, float | None]
    done: Mapping[int, float | None]

    def needed(self, horizon: float) -> frozenset[int]:
        """Return the last published snapshot, all begun later, and those replaced after a time (in s since 1970)."""
        return frozenset(self.begun) - self.given_up(horizon)

    def given_up(self, horizon: float) -> frozenset[int]:
        """Return the snapshots that later ones replaced before ``horizon``."""
        old = [number for number, time in self.done.items() if time is not None and time <= horizon]
        return frozenset(number for number in {*self.begun, *self.done} if old and number < max(old))


def table_id(files: TableFiles) -> str:
    """Return the table's public id, created on first use; copies of the folder share it."""
    with suppress(FileExistsError):
        files.write_new(TABLE_ID, json.dumps({"id": str(uuid.uuid4())}).encode())
    where = files.full_path(TABLE_ID)
    identifier = parse_json(files.read_bytes(TABLE_ID), where).get("id")
    if not isinstance(identifier, str) or not re.fullmatch(r"[0-9a-f-]{36}", identifier):
        raise CatalogError(f"{where} holds no table id; restore it from a copy")
    return identifier


def note(files: TableFiles, publication: Publication, snapshot: int, stage: Stage) -> None:
    """Record that a snapshot is about to be published, or was; a no-op if it is recorded."""
    with suppress(FileExistsError):
        data = json.dumps(publication.to_json(), sort_keys=True).encode()
        files.write_new(f"{publication.folder}/{snapshot}-{stage}.json", data)


def forget(files: TableFiles, publication: Publication) -> int:
    """Remove every note of a publication, so that a vacuum keeps nothing for it; return their number."""
    names = files.list(publication.folder)
    for name in names:
        files.delete(f"{publication.folder}/{name}")
    files.delete_empty_folders(publication.folder)
    return len(names)


def publications(files: TableFiles) -> tuple[Publication, ...]:
    """Return where the table is published, sorted; raise CatalogError if a note is damaged."""
    places = set()
    for folder in files.list(PUBLISHED):
        for name in files.list(f"{PUBLISHED}/{folder}")[:1]:
            path = f"{PUBLISHED}/{folder}/{name}"
            where = files.full_path(path)
            try:
                places.add(Publication.from_json(parse_json(files.read_bytes(path), where)))
            except PlanError as error:
                raise CatalogError(f"{where} is damaged ({error}); remove it and publish again") from error
    return tuple(sorted(places, key=lambda place: (place.format, place.location)))


def group_notes(stored: Iterable[StoredFile]) -> dict[str, Notes]:
    """Return the notes among stored files, by the folder of their publication."""
    times: dict[str, dict[str, dict[int, float | None]]] = defaultdict(lambda: {"begun": {}, "done": {}})
    for file in stored:
        match = _NOTE.fullmatch(file.path)
        if match:
            times[f"{PUBLISHED}/{match[1]}"][match[3]][int(match[2])] = file.modified
    return {folder: Notes(**stages) for folder, stages in times.items()}


def note_paths(folder: str, snapshot: int) -> tuple[str, str]:
    """Return the files of a snapshot's two notes."""
    return f"{folder}/{snapshot}-begun.json", f"{folder}/{snapshot}-done.json"
