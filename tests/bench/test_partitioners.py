"""Every partitioner runs on every segment asked for, and is judged by the same objective; time is not for tests."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from layoutopt.bench.partitioners import THESIS, compared, partitioner_figures, print_partitioners, segment_of
from layoutopt.bench.tpch.data import TpchData
from layoutopt.bench.tpch.experiment import Bench
from layoutopt.errors import SettingError
from layoutopt.partitioning.registry import DEFAULT, WARD


@pytest.mark.long
@pytest.mark.slow
def test_partitioners_are_compared_on_the_vectors_of_a_stream(bench: Bench) -> None:
    said: list[str] = []
    segment = segment_of(bench, "chapter3", said.append)
    assert said[-1] == "chapter3: counting feature vectors"
    figures = list(compared(segment, [WARD, DEFAULT], said.append))
    assert [figure.partitioner for figure in figures] == [THESIS, WARD, DEFAULT]
    by_name = {figure.partitioner: figure for figure in figures}
    assert by_name[DEFAULT].of_full_scan <= by_name[WARD].of_full_scan <= 1
    for figure in figures:
        assert 1 < figure.blocks < figure.vectors
        assert figure.of_full_scan / figure.of_bound == pytest.approx(figures[0].of_full_scan / figures[0].of_bound)
        assert figure.of_bound > 0.9  # a last block may be smaller than the bound takes for granted
    text = io.StringIO()
    print_partitioners(Console(file=text, width=150), figures)
    lines = text.getvalue().splitlines()
    assert lines[0].startswith(f"chapter3: rows that the training queries read, {figures[0].vectors:,} vectors")
    (row,) = [line for line in lines if " ward " in line]
    share = figures[1].of_full_scan / figures[0].of_full_scan
    assert f"{share:.3f}" in row
    assert "1.000" in row


def test_a_stream_that_is_not_known_is_refused_before_anything_is_made(tpch: TpchData) -> None:
    with pytest.raises(SettingError, match="'chapter9'"):
        partitioner_figures(tpch.scale, root=tpch.root, streams=["chapter9"], say=print)
