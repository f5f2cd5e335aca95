"""What a planned scan answers, as Iceberg's REST specification has it: files, their deletes, what is left to filter."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from layoutopt.publish.foreign.told import FileTold, SourceTold, Value
from layoutopt.serve.filters import Json, residual_without

_EPOCH: Final = dt.date(1970, 1, 1)


class Answers:
    """The answers about some files; what is said of each is rendered once.

    Args:
        files: groups of files.
        rows: how many each has, deleted ones too.
        source: where somebody else keeps the files, what is told of them.
    """

    def __init__(
        self, files: Sequence[Sequence[FileTold]], rows: Sequence[Sequence[int]], source: SourceTold | None
    ) -> None:
        self._files, self._rows, self._source = files, rows, source

    def body(self, kept: Sequence[Sequence[int]], residual: Json, days: bool) -> bytes:
        """The answer.

        Args:
            kept: of each group the places of the files that are to be read.
            residual: the filter as clients apply it to rows.
            days: whether dates are told as days since 1970, not as texts.
        """
        said = self._days if days else self._texts
        tasks = [said[group][place] for group, places in enumerate(kept) for place in places]
        deletes: list[bytes] = []
        if self._source is None:
            rest = _left(residual)
            listed = (rest + b",").join(tasks) + (rest if tasks else b"")
        else:
            files = [self._files[group][place] for group, places in enumerate(kept) for place in places]
            used = sorted({place for file in files for place in file.deletes})
            deletes = [self._deletes[place] for place in used]
            listed = b",".join(_with_rests(tasks, files, residual, {place: n for n, place in enumerate(used)}))
        body = b'{"status":"completed","plan-tasks":[],"delete-files":[' + b",".join(deletes)
        return body + b'],"file-scan-tasks":[' + listed + b"]}"

    @cached_property
    def _texts(self) -> list[list[bytes]]:
        return self._said(days=False)

    @cached_property
    def _days(self) -> list[list[bytes]]:
        dated = self._source is not None and any(column.type == "date" for column in self._source.constants)
        return self._said(days=True) if dated else self._texts

    def _said(self, *, days: bool) -> list[list[bytes]]:
        return [
            [_data_file(file, count, days) for file, count in zip(files, rows, strict=True)]
            for files, rows in zip(self._files, self._rows, strict=True)
        ]

    @cached_property
    def _deletes(self) -> list[bytes]:
        assert self._source is not None, "own tables have no files of deletes"
        return [
            json.dumps(_content("position-deletes", one.path, one.size, one.rows, one.spec)).encode()
            for one in self._source.deletes
        ]


def _data_file(file: FileTold, rows: int, days: bool) -> bytes:
    said = _content("data", file.path, file.size, rows, file.spec)
    said["partition"] = [_told(value, days) for value in file.partition]
    return b'{"data-file":' + json.dumps(said).encode()


def _content(kind: str, path: str, size: int, rows: int, spec: int) -> dict[str, Json]:
    return {
        "spec-id": spec,
        "partition": [],
        "content": kind,
        "file-path": path,
        "file-format": "parquet",
        "file-size-in-bytes": size,
        "record-count": rows,
    }


def _told(value: Value, days: bool) -> Json:
    if isinstance(value, dt.date):
        return (value - _EPOCH).days if days else value.isoformat()
    return value


def _left(residual: Json) -> bytes:
    return b',"residual-filter":' + json.dumps(residual).encode() + b"}"


def _with_rests(
    tasks: Sequence[bytes], files: Sequence[FileTold], residual: Json, places: dict[int, int]
) -> list[bytes]:
    """Each file's task, with its deletes by their places in the answer, and with the filter that is left for it."""
    rests: dict[frozenset[str], bytes] = {}
    found = []
    for task, file in zip(tasks, files, strict=True):
        if file.constants not in rests:
            lacking = frozenset(name.lower() for name in file.constants)
            rests[file.constants] = _left(residual_without(residual, lacking))
        held = [places[place] for place in file.deletes]
        refers = b',"delete-file-references":' + json.dumps(held).encode() if held else b""
        found.append(task + refers + rests[file.constants])
    return found
