"""The micro benchmarks run and name what they measured; how long they take is not for tests."""

from __future__ import annotations

from layoutopt.bench.micro import catalog_figures, ward_figure


def test_ward_is_measured_on_the_vectors_asked_for() -> None:
    figure = ward_figure(40, 8, target=1.0)
    assert figure.name == "ward, 40 vectors x 8 features"
    assert figure.seconds > 0


def test_the_catalog_check_is_measured_for_narrow_and_wide_filters() -> None:
    figures = catalog_figures(n_blocks=100, n_features=64)
    assert [figure.name.split(", ")[-1] for figure in figures] == [
        "an AND of 4 tests",
        "an AND of 50 tests",
        "an IN list of 50 values",
    ]
    assert all(figure.seconds > 0 for figure in figures)
