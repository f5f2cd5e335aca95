"""What tells that a file of a source is as it was when it was measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from layoutopt.foreign.listing import Listed, Listing
from layoutopt.model.schema import Schema


def state_of(listing: Listing) -> str:
    """A digest that is another one once a source has other files, columns or rows.

    Args:
        listing: the source as it is.
    """
    digest = hashlib.sha256(repr(listing.schema).encode())
    for one in listing.files:
        deleted = b"" if one.file.deleted is None else one.file.deleted.tobytes()
        said = json.dumps([one.file.path, one.mark, one.file.stored, sorted(map(str, one.file.constants.items()))])
        digest.update(hashlib.sha256(said.encode() + deleted).digest())
    return digest.hexdigest()


def mark_of(one: Listed, schema: Schema, names: Sequence[str]) -> str:
    """A digest that is another one once a file holds anything else, or holds some columns under other names.

    Args:
        one: the file.
        schema: the source's columns, by whose order the file's names go.
        names: the columns.
    """
    stored = dict(zip(schema.names, one.file.stored, strict=False))
    held = [[name, stored.get(name), str(one.file.constants.get(name, ""))] for name in sorted(names)]
    said = json.dumps([one.file.path, one.mark, held], ensure_ascii=True)
    return hashlib.sha256(said.encode()).hexdigest()
