"""What a commit writes of a snapshot's entries: one manifest, or none where the snapshot is small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.manifests import ManifestName, encode_entries, encode_manifest
from layoutopt.catalog.partition_entry import are_same
from layoutopt.catalog.paths import MANIFESTS, FileDigest, manifest_path
from layoutopt.catalog.snapshot import FORMAT_VERSION, OLDEST_SUPPORTED, Snapshot, dumps, read_manifest
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CommitConflictError
from layoutopt.model.schema import Schema

# With more bounds, entries times one more than columns, a snapshot has manifests. Older programs read smaller ones.
MOST_BOUNDS: Final = 4096

_MOST_VERSIONS: Final = 100


def name_manifests(
    files: TableFiles, snapshot: Snapshot, latest: Snapshot | None, load_id: str, *, shares: bool = True
) -> Snapshot:
    """Return a snapshot with the names of its manifests, those of ``latest`` and at most a new one, which is written.

    The new one has the partitions that differ from ``latest``, and those of the newest manifests that are at most twice
    as large; without ``shares`` it has all partitions and is the only one. A small snapshot has none.

    Raises:
        CatalogError: a manifest of ``latest`` is missing or damaged.
        CommitConflictError: the load id was used too often.
        OSError: the store failed.
    """
    own = {path: digest for path, digest in snapshot.files.items() if not path.startswith(f"{MANIFESTS}/")}
    plain = replace(snapshot, manifests=(), files=own, format_version=OLDEST_SUPPORTED)
    if len(snapshot.partitions) * (1 + len(snapshot.schema.columns)) <= MOST_BOUNDS:
        return plain
    is_shared = shares and latest is not None and _is_grown(latest.schema, snapshot.schema)
    names = list(latest.manifests) if latest is not None and is_shared else []
    before = {} if latest is None or not names else latest.by_key
    changed = [key for key, entries in snapshot.by_key.items() if not are_same(before.get(key, ()), entries)]
    removed = before.keys() - snapshot.by_key.keys()
    if changed or removed:
        table = encode_entries([entry for key in changed for entry in snapshot.by_key[key]], snapshot.schema, own)
        if table is None:
            return plain
        later = {*changed, *removed}
        while names and names[-1].entries <= 2 * (table.num_rows + len(removed)):
            older = read_manifest(files, latest or snapshot, names.pop())
            is_kept = pc.invert(pc.is_in(older.table["key"], value_set=pa.array(sorted(later), pa.string())))
            table = pa.concat_tables([older.table.filter(is_kept).replace_schema_metadata(), table])
            removed = removed | (set(older.removed) - later)
            later |= older.keys
        removed = removed if names else set()  # no older manifest has them
        data = encode_manifest(table, sorted(removed))
        path, digest = write_version(files, lambda version: manifest_path(load_id, snapshot.number, version), data)
        names.append(ManifestName(path, table.num_rows + len(removed)))
        own[path] = digest
    known = {} if latest is None else latest.files
    digests = {name.path: own.get(name.path) or known[name.path] for name in names}
    return replace(plain, manifests=tuple(names), files={**plain.files, **digests}, format_version=FORMAT_VERSION)


def _is_grown(before: Schema, after: Schema) -> bool:
    return before.columns == after.columns[: len(before.columns)]


def dumps_with_manifests(snapshot: Snapshot) -> bytes:
    """Return a snapshot's file content: entries and their files stand in the manifests, if there are some."""
    if not snapshot.manifests:
        return dumps(snapshot)
    in_manifests = {path for entry in snapshot.partitions for path in entry.catalog_files}
    files = {path: digest for path, digest in snapshot.files.items() if path not in in_manifests}
    return dumps(replace(snapshot, partitions=(), files=files))


def write_version(files: TableFiles, path_of: Callable[[int], str], data: bytes) -> tuple[str, FileDigest]:
    """Write a file of a load under an unused name; a crashed attempt's stay, since another attempt may still run.

    Raises:
        CommitConflictError: all names are taken.
        OSError: the store failed.
    """
    for version in range(1, _MOST_VERSIONS + 1):
        path = path_of(version)
        try:
            files.write_new(path, data)
        except FileExistsError:
            if files.read_bytes(path) != data:
                continue
        return path, FileDigest.of(data)
    raise CommitConflictError(f"{path_of(1)!r} was written {_MOST_VERSIONS} times; make the change under a new load id")
