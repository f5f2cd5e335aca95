"""Why a part of a filter skipped no more: stable codes, each with its sentence.

Tools may rely on the codes; the sentences are for people and may change. They are documented in ``REASONS.md`` beside
this file; a test holds the two together.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """What became of one conjunct of a filter (after Hyperspace's ``whyNot``)."""

    SKIPS = "skips"
    NOTHING_LEFT = "nothing-left"
    UNUSABLE = "unusable"
    FUNCTION = "function-on-column"
    TYPE_MISMATCH = "type-mismatch"
    OTHER_SETTINGS = "other-settings"
    FEATURE_EVERYWHERE = "feature-everywhere"
    OR_TOO_WIDE = "or-too-wide"
    INDEX_EVERYWHERE = "index-everywhere"
    NO_STATISTICS = "no-statistics"
    NO_FEATURE = "no-feature"
    STATISTICS_OVERLAP = "statistics-overlap"

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.SKIPS: "it proves of some blocks that no row matches",
    Reason.NOTHING_LEFT: "the table has no blocks",
    Reason.UNUSABLE: "its form can't be used for skipping; the engine applies it",
    Reason.FUNCTION: "it is about a function of a column: blocks have no min/max of it, and no feature follows",
    Reason.TYPE_MISMATCH: "it compares a column in another type than its own, in which blocks have no min/max",
    Reason.OTHER_SETTINGS: "the features were measured under another time zone, ANSI mode or case sensitivity",
    Reason.FEATURE_EVERYWHERE: "features follow from it, but every block has rows that they may hold for",
    Reason.OR_TOO_WIDE: "some of its alternatives skip blocks, but in each of these another one may match",
    Reason.INDEX_EVERYWHERE: "an index is of its column or function, but allows a match in every block",
    Reason.NO_STATISTICS: "no feature follows from it, and blocks have no min/max of its column",
    Reason.NO_FEATURE: "no feature follows from it, and min/max of every block allow a match",
    Reason.STATISTICS_OVERLAP: "the plan has no features, and min/max of every block allow a match",
}

_OF_PROBLEMS = {
    "can-fail": Reason.FUNCTION,
    "unsupported-function": Reason.FUNCTION,
    "coercion": Reason.TYPE_MISMATCH,
    "unordered-type": Reason.TYPE_MISMATCH,
}


def reason_of_problem(code: str) -> Reason:
    """The reason for a condition that the analyser had to leave out of the filter, by the analyser's code."""
    return _OF_PROBLEMS.get(code, Reason.UNUSABLE)
