"""What a load says when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.snapshot import Snapshot
from layoutopt.model.layout import Plan
from layoutopt.writer.written import Written


@dataclass(frozen=True)
class LoadReport:
    """What a load did.

    Attributes:
        load_id: its name in the table's files.
        snapshot: the snapshot that it made.
        partitions: the keys of the partitions that it replaced, sorted.
        rows, segments, blocks, files: how many.
        bytes: the compressed column chunks written, over all layouts.
        notes: sentences on what a user should know, such as vectors beyond ``max_vectors``.
        seconds: by stage.
    """

    load_id: str
    snapshot: int
    partitions: tuple[str, ...]
    rows: int
    segments: int
    blocks: int
    files: int
    bytes: int
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def load_report(
    load_id: str,
    snapshot: Snapshot,
    plan: Plan,
    keys: Sequence[str],
    segments: int,
    written: Written,
    seconds: Mapping[str, float],
) -> LoadReport:
    """The report of a load that was committed.

    Args:
        load_id: the load's.
        snapshot: the one that it made.
        plan: what it went by.
        keys: of its partitions.
        segments: how many they were written in.
        written: what was measured.
        seconds: by stage.
    """
    blocks: pa.Table = written.blocks
    notes = [
        f"partition {key} has {count} feature vectors beyond max_vectors={plan.max_vectors}; their rows were put "
        "with the nearest vectors'"
        for key, count in sorted(written.joined.items())
        if count
    ]
    return LoadReport(
        load_id=load_id,
        snapshot=snapshot.number,
        partitions=tuple(sorted(keys)),
        rows=sum(entry.rows for entry in snapshot.partitions if entry.load_id == load_id),
        segments=segments,
        blocks=blocks.num_rows,
        files=len(blocks["file"].unique()),
        bytes=int(pc.sum(blocks["bytes"]).as_py() or 0),
        notes=tuple(notes),
        seconds=dict(seconds),
    )
