"""The verbs of the command line that take settings."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from layoutopt.config.advising import AdviseSettings
from layoutopt.config.benching import BenchSettings
from layoutopt.config.changing import (
    AppendSettings,
    DeleteSettings,
    MergeSettings,
    OptimizeSettings,
    UpdateSettings,
)
from layoutopt.config.fields import VerbSettings
from layoutopt.config.indexing import IndexSettings, RefreshSettings
from layoutopt.config.keeping import (
    DriftSettings,
    FilesSettings,
    HistorySettings,
    PublishSettings,
    RestoreSettings,
    StatusSettings,
    VacuumSettings,
)
from layoutopt.config.measuring import CalibrateSettings, MineSettings
from layoutopt.config.serving import ServeSettings
from layoutopt.config.settings import (
    AnalyzeSettings,
    EvaluateSettings,
    ExplainSettings,
    LoadSettings,
    PlanSettings,
    QuerySettings,
    ReloadSettings,
    VerifySettings,
)

_KINDS: Final[tuple[type[VerbSettings], ...]] = (
    AnalyzeSettings, AdviseSettings, PlanSettings, LoadSettings, ReloadSettings, AppendSettings, DeleteSettings,
    UpdateSettings, MergeSettings, OptimizeSettings, StatusSettings, DriftSettings, QuerySettings, ExplainSettings,
    EvaluateSettings, VerifySettings, FilesSettings, HistorySettings, VacuumSettings, RestoreSettings, PublishSettings,
    IndexSettings, RefreshSettings, ServeSettings, CalibrateSettings, MineSettings, BenchSettings,
)  # fmt: skip
VERBS: Final = MappingProxyType({kind.__name__.removesuffix("Settings").lower(): kind for kind in _KINDS})
"""The verbs that take settings, by the names of the command line."""
