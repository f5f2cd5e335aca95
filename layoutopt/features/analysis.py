"""Analyse a workload, from a log to the features document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layoutopt.config.fields import parse_age
from layoutopt.config.settings import AnalyzeSettings
from layoutopt.errors import LogError
from layoutopt.features.selection import default_excluded, default_threshold, mine_all
from layoutopt.features.stability import Curve, commonality, stability
from layoutopt.model.feature import SessionSettings
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.query import Query, weight_of
from layoutopt.model.schema import Schema
from layoutopt.model.summary import Summarised
from layoutopt.model.udf import Udf, by_name
from layoutopt.sql.schema import schema_from
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


def analyze_log(settings: AnalyzeSettings, udfs: Sequence[Udf] = (), *, schema: Schema | None = None) -> Features:
    """Read a log, analyse its queries, and find the features that would help them (3.3).

    ``schema`` is the table's, if known; else the one that the settings name is read.

    Raises:
        LogError: the log is unreadable or empty, no statement is usable, or no predicate set reaches T.
        SchemaError: the schema can't be read, or an excluded column is not in it.
        SettingError: an unknown dialect or time zone, or two functions of one name.
    """
    schema = schema or schema_from(settings.schema_source, table=settings.table)
    _find_excluded(settings, schema)  # reports a wrong name before the work
    return find_features(settings, schema, read_queries(settings, schema, udfs))


def read_queries(settings: AnalyzeSettings, schema: Schema, udfs: Sequence[Udf] = ()) -> Analysis:
    """Return the queries of a log; raises as :func:`analyze_log`."""
    entries = read_log(
        settings.log, column=settings.column, dialect=settings.dialect, system=settings.system, weigh=settings.weigh
    )
    analysis = analyze(
        entries, schema, settings.table, settings.dialect, _session_settings(settings), by_name(udfs), settings.sample
    )
    analysis = replace(analysis, queries=split_served(analysis.queries, settings.served))
    if settings.half_life is None:
        return analysis
    return replace(analysis, queries=decay_weights(analysis.queries, parse_age(settings.half_life), settings.time_zone))


def find_features(settings: AnalyzeSettings, schema: Schema, analysis: Analysis) -> Features:
    """Return the features that would help a log's queries; raises as :func:`analyze_log`."""
    excluded = _find_excluded(settings, schema)
    threshold = settings.threshold or default_threshold(analysis.queries)
    features = mine_all(
        analysis.queries,
        schema,
        threshold=threshold,
        num_features=settings.num_features,
        date_features=settings.date_features,
        exclude_columns=None if settings.exclude_columns is None else excluded,
        max_set=settings.max_set,
        settings=_session_settings(settings),
    )
    if not len(features):
        raise LogError(_explain_no_feature(settings, analysis.queries, threshold))
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


def _session_settings(settings: AnalyzeSettings) -> SessionSettings:
    return SessionSettings(time_zone=settings.time_zone, ansi=settings.ansi)


def _find_excluded(settings: AnalyzeSettings, schema: Schema) -> tuple[str, ...]:
    if settings.exclude_columns is None:
        return default_excluded(schema)
    return tuple(schema.find(name).name for name in settings.exclude_columns)


def _explain_no_feature(settings: AnalyzeSettings, queries: Sequence[Query], threshold: int) -> str:
    weight = weight_of(queries)
    return (
        f"no predicate helps T = {threshold} of the {weight:g} usable queries of {settings.log!r}: "
        "lower --threshold, or name fewer --exclude-columns"
    )
