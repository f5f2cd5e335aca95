"""What of a table's past is kept: vacuums, and notes of what is published."""

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

# ----------------------------------------------------------------------------------------------------
# What of a table is published where: a note for each, so that a vacuum keeps what readers of other formats need.
#
# A publication is noted before it is made ("begun") and afterwards ("done"), each by a small file that is created once
# (SPEC.md, "Publications"). Until a later snapshot is known to be published at the same place, whatever the noted ones
# name is kept: a crash between the two notes leaves both snapshots whole.

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
    """Where a table is shown: as a table of which format, and at which folder, URL or name in a catalog."""

    format: Annotated[str, As(str, _known_format)]
    location: Text
    form: ClassVar = Form(constants={"note": "layoutopt-publication"})

    @property
    def folder(self) -> str:
        """The folder of its notes."""
        digest = hashlib.sha256(f"{self.format}\n{self.location}".encode()).hexdigest()
        return f"{PUBLISHED}/{digest[:16]}"


@dataclass(frozen=True)
class Notes:
    """The notes of one publication.

    Attributes:
        begun: snapshots by number, with the time of the note in seconds since 1970; None where that is not known.
        done: the same of those that were published.
    """

    begun: Mapping[int, float | None]
    done: Mapping[int, float | None]

    def needed(self, horizon: float) -> frozenset[int]:
        """The snapshots that readers of the publication may need.

        The last one that was published, whatever was begun since, and those that were replaced after ``horizon``
        (seconds since 1970): a query may still read them.
        """
        return frozenset(self.begun) - self.given_up(horizon)

    def given_up(self, horizon: float) -> frozenset[int]:
        """The snapshots that were replaced by later ones before ``horizon``."""
        old = [number for number, at in self.done.items() if at is not None and at <= horizon]
        return frozenset(number for number in {*self.begun, *self.done} if old and number < max(old))


def table_id(files: TableFiles) -> str:
    """The name that a table has for others, made when it is first asked for; copies of the folder share it.

    Raises:
        CatalogError: the file that holds it is damaged.
    """
    with suppress(FileExistsError):
        files.write_new(TABLE_ID, json.dumps({"id": str(uuid.uuid4())}).encode())
    where = files.full_path(TABLE_ID)
    found = parse_json(files.read_bytes(TABLE_ID), where).get("id")
    if not isinstance(found, str) or not re.fullmatch(r"[0-9a-f-]{36}", found):
        raise CatalogError(f"{where} holds no table's id; restore it from a copy")
    return found


def note(files: TableFiles, publication: Publication, snapshot: int, stage: Stage) -> None:
    """Write down that a snapshot is about to be published, or was; nothing happens where that is known."""
    with suppress(FileExistsError):
        data = json.dumps(publication.to_json(), sort_keys=True).encode()
        files.write_new(f"{publication.folder}/{snapshot}-{stage}.json", data)


def forget(files: TableFiles, publication: Publication) -> int:
    """Remove every note of a publication: a vacuum keeps nothing for it any more. How many there were."""
    names = files.list(publication.folder)
    for name in names:
        files.delete(f"{publication.folder}/{name}")
    files.delete_empty_folders(publication.folder)
    return len(names)


def publications(files: TableFiles) -> tuple[Publication, ...]:
    """Where the table is published, sorted.

    Raises:
        CatalogError: a note is damaged.
    """
    found = set()
    for folder in files.list(PUBLISHED):
        for name in files.list(f"{PUBLISHED}/{folder}")[:1]:
            path = f"{PUBLISHED}/{folder}/{name}"
            where = files.full_path(path)
            try:
                found.add(Publication.from_json(parse_json(files.read_bytes(path), where)))
            except PlanError as error:
                raise CatalogError(f"{where} is damaged ({error}); remove it and publish again") from error
    return tuple(sorted(found, key=lambda one: (one.format, one.location)))


def notes_among(stored: Iterable[StoredFile]) -> dict[str, Notes]:
    """The notes among stored files, by the folder of their publication."""
    found: dict[str, dict[str, dict[int, float | None]]] = defaultdict(lambda: {"begun": {}, "done": {}})
    for file in stored:
        match = _NOTE.fullmatch(file.path)
        if match:
            found[f"{PUBLISHED}/{match[1]}"][match[3]][int(match[2])] = file.modified
    return {folder: Notes(**stages) for folder, stages in found.items()}


def note_paths(folder: str, snapshot: int) -> tuple[str, str]:
    """The files of a snapshot's two notes."""
    return f"{folder}/{snapshot}-begun.json", f"{folder}/{snapshot}-done.json"
