"""Regret: what is lost by not laying a table out anew for the queries of late, in bytes that they read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from layoutopt.evolve.sampled import Interval, ratio_interval
from layoutopt.inspect.entry_bytes import EntryBytes
from layoutopt.model.arrays import Floats


@dataclass(frozen=True)
class Regret:
    """What a log's queries read of a table as it is, beside what they would read of one that is planned for them.

    All bytes are sums over the log's statements.

    Attributes:
        plan: the digest of the plan that was made for these queries.
        full: bytes of full scans.
        read: bytes read of the table as it is.
        fresh: bytes read if all of it were loaded by the fresh plan, as rehearsed.
        share: of what the fresh plan would save of full scans, the share that is lost now; negative where the table is
            better as it is.
        interval: in which that share lies for all that is asked, of which the log is a sample. The error of the
            rehearsal comes on top, some percent of the bytes.
    """

    plan: str
    full: float
    read: float
    fresh: float
    share: float
    interval: Interval

    def to_json(self) -> dict[str, Any]:
        """The regret as JSON."""
        return asdict(self)


def regret_of(reads: EntryBytes, shares: Floats, plan: str) -> Regret:
    """The regret of a table, by what the queries read of it.

    Args:
        reads: of the table as it is.
        shares: what each query would read of what it reaches by the fresh plan, ``float64[n_queries]``.
        plan: the fresh plan's digest.
    """
    read, full = reads.read.sum(axis=1), reads.full.sum(axis=1)
    fresh = reads.expected(shares).sum(axis=1)
    weights = reads.weights
    lost, saved = float(weights @ (read - fresh)), float(weights @ (full - fresh))
    return Regret(
        plan,
        full=float(weights @ full),
        read=float(weights @ read),
        fresh=float(weights @ fresh),
        share=lost / saved if saved > 0 else 0.0,
        interval=ratio_interval(read - fresh, full - fresh, weights),
    )
