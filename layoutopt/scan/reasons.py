"""Why a part of a filter skipped no more: stable codes, each with its sentence.

Tools may rely on the codes; the sentences are for people and may change.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """What became of one conjunct of a filter (after Hyperspace's ``whyNot``)."""

    SKIPS = "skips"
    NOTHING_LEFT = "nothing-left"
    UNUSABLE = "unusable"
    OTHER_SETTINGS = "other-settings"
    NO_FEATURE = "no-feature"
    FEATURE_EVERYWHERE = "feature-everywhere"
    STATISTICS_OVERLAP = "statistics-overlap"

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.SKIPS: "it proves of some blocks that no row matches",
    Reason.NOTHING_LEFT: "the table has no blocks",
    Reason.UNUSABLE: "its form can't be used for skipping; the engine applies it",
    Reason.OTHER_SETTINGS: "the features were measured under another time zone, ANSI mode or case sensitivity",
    Reason.NO_FEATURE: "no feature of the plan follows from it, and min/max of every block allow a match",
    Reason.FEATURE_EVERYWHERE: "features follow from it, but every block has rows that they may hold for",
    Reason.STATISTICS_OVERLAP: "the plan has no features, and min/max of every block allow a match",
}
