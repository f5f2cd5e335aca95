"""The picture of what is regained."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.errors import SettingError
from layoutopt.report.pages import plot_regained

CURVE = [(0.0, 0.0), (0.2, 0.7), (1.0, 1.0)]


def test_the_suffix_says_which_kind_of_image(tmp_path: Path) -> None:
    plot_regained(CURVE, tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    with pytest.raises(SettingError, match=r"curve\.txt"):
        plot_regained(CURVE, tmp_path / "curve.txt")
