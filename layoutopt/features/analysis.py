"""Analyse a workload, from a log to the features document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layoutopt.config.fields import parse_age
from layoutopt.errors import LogError
from layoutopt.features.selection import default_excluded, default_threshold, mine_all
from layoutopt.features.stability import Curve, commonality, stability
from layoutopt.model.feature import SessionSettings
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.query import Query, weight_of
from layoutopt.model.requests import AnalyzeRequest
from layoutopt.model.schema import Schema
from layoutopt.model.summary import Summarised
from layoutopt.model.udf import Udf, by_name
from layoutopt.workload.analyze import Analysis, analyze, skip_reasons
from layoutopt.workload.log import decay_weights, read_log
from layoutopt.workload.served import split_served


@dataclass(frozen=True, eq=False, repr=False)
class Features(Summarised):
    """The features of a log for a table, and how they were found.

    Attributes:
        document: the contents of `features.json`.
        counts: how many statements were ``used`` and ``skipped``, and more; see ``workload.analyze.Analysis``.
        threshold: T, as given or by default.
        commonality: figure 3.2(a) of this log.
        stability: figure 3.2(b) of this log.
    """

    document: FeaturesDocument
    counts: Mapping[str, int]
    threshold: int
    commonality: Curve
    stability: Curve

    @property
    def reasons(self) -> dict[str, int]:
        """Return why statements were skipped: reason code -> how many, the most frequent first."""
        return skip_reasons(self.counts)

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        used, skipped = self.counts["used"], self.counts["skipped"]
        return {
            "table": self.document.table,
            "statements_used": used,
            "statements_skipped": skipped,
            "features": len(self.document.features),
        }

    def save(self, path: str | Path) -> None:
        """Write the features file that `layoutopt plan` reads.

        Raises:
            OSError: the file can't be written.
        """
        self.document.save(path)


def analyze_log(request: AnalyzeRequest, schema: Schema, udfs: Sequence[Udf] = ()) -> Features:
    """Read a log, analyse its queries, and find the features that would help them (3.3).

    Raises:
        LogError: the log is unreadable or empty, no statement is usable, or no predicate set reaches T.
        SchemaError: an excluded column is not in the table's schema.
        SettingError: an unknown dialect or time zone, or two functions of one name.
    """
    _find_excluded(request, schema)  # reports a wrong name before the work
    return find_features(request, schema, read_queries(request, schema, udfs))


def read_queries(request: AnalyzeRequest, schema: Schema, udfs: Sequence[Udf] = ()) -> Analysis:
    """Return the queries of a log; raises as :func:`analyze_log`."""
    entries = read_log(
        request.log, column=request.column, dialect=request.dialect, system=request.system, weigh=request.weigh
    )
    analysis = analyze(
        entries, schema, request.table, request.dialect, _session_settings(request), by_name(udfs), request.sample
    )
    analysis = replace(analysis, queries=split_served(analysis.queries, request.served))
    if request.half_life is None:
        return analysis
    return replace(analysis, queries=decay_weights(analysis.queries, parse_age(request.half_life), request.time_zone))


def find_features(request: AnalyzeRequest, schema: Schema, analysis: Analysis) -> Features:
    """Return the features that would help a log's queries; raises as :func:`analyze_log`."""
    excluded = _find_excluded(request, schema)
    threshold = request.threshold or default_threshold(analysis.queries)
    features = mine_all(
        analysis.queries,
        schema,
        threshold=threshold,
        num_features=request.num_features,
        date_features=request.date_features,
        exclude_columns=None if request.exclude_columns is None else excluded,
        max_set=request.max_set,
        settings=_session_settings(request),
    )
    if not len(features):
        raise LogError(_explain_no_feature(request, analysis.queries, threshold))
    return Features(
        FeaturesDocument(
            table=analysis.table,
            schema=schema,
            features=features,
            queries=analysis.queries,
            skipped=analysis.skipped,
            exclude_columns=excluded,
        ),
        analysis.counts,
        threshold,
        commonality(analysis.queries),
        stability(analysis.queries),
    )


def _session_settings(request: AnalyzeRequest) -> SessionSettings:
    return SessionSettings(time_zone=request.time_zone, ansi=request.ansi)


def _find_excluded(request: AnalyzeRequest, schema: Schema) -> tuple[str, ...]:
    if request.exclude_columns is None:
        return default_excluded(schema)
    return tuple(schema.find(name).name for name in request.exclude_columns)


def _explain_no_feature(request: AnalyzeRequest, queries: Sequence[Query], threshold: int) -> str:
    weight = weight_of(queries)
    return (
        f"no predicate helps T = {threshold} of the {weight:g} usable queries of {request.log!r}: "
        "lower --threshold, or name fewer --exclude-columns"
    )
