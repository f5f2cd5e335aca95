"""The features that some of a log's queries alone would have given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layoutopt.features.choose import default_excluded, mine_all
from layoutopt.features.sharpen import bluntest
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.query import Query


def mined_from(
    document: FeaturesDocument,
    queries: Sequence[Query],
    *,
    threshold: int | None = None,
    num_features: int | None = None,
) -> FeaturesDocument:
    """The document that the analysis of some of its queries alone would have made.

    Args:
        document: of the whole log; it says what columns made no features, and how many features were found.
        queries: some of its.
        threshold: T, in queries; the default of `analyze` when None.
        num_features: the most features but those about dates and stricter ones; as many as the document has when None.
    """
    mined = [document.features[i] for i in bluntest(document.features, document.queries)]
    dates = default_excluded(document.schema)
    by_default = set(document.exclude_columns) == set(dates)
    about_dates = sum(feature.columns <= set(dates) for feature in mined) if by_default else 0
    features = mine_all(
        queries,
        document.schema,
        threshold=threshold,
        num_features=max(1, len(mined) - about_dates if num_features is None else num_features),
        date_features=about_dates,
        exclude_columns=None if by_default else document.exclude_columns,
        settings=document.features.settings,
    )
    return replace(document, features=features, queries=tuple(queries))
