"""The guide of publishing, done as it says; readers of the published tables find the rows of the sources."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable
from pyiceberg.utils.config import Config

from layoutopt.cli.app import main
from tests.effort import examples
from tests.external.lived_in import events, lived_in_delta, lived_in_iceberg
from tests.external.tables import delta_rows
from tests.publish.readers import Filter, check_delta, check_iceberg, filters, is_plain
from tests.publish.typed import POOLS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "publishing.md"
BLOCK = re.compile(r"<!-- run: (\w+) -->\s*```(sh|python)\n(.*?)```", re.DOTALL)
COMPARABLE = [name for name in POOLS if name != "raw"]
LOG = (
    """
SELECT id, amount FROM events WHERE region = 'north' AND amount > 100;
SELECT id, s FROM events WHERE s = 'b' AND price < 10;
SELECT count(*) FROM events WHERE at >= TIMESTAMP '2020-01-01 01:00:00' AND flag;
SELECT id, amount FROM events WHERE isnan(amount) OR amount IS NULL;
SELECT id FROM events WHERE day < DATE '2000-01-01';
"""
    * 4
)


@dataclass(frozen=True)
class Walked:
    """What following the page left.

    Attributes:
        text: the page, with paths for the names of folders.
        printed: what the Python of the page printed, by format.
        sources: the rows of each source by its own library, by format.
        files: the data files of the tables that were made, by format.
        delta: where the Delta table that is shown is.
        iceberg: the Iceberg table that is shown.
    """

    text: str
    connection: duckdb.DuckDBPyConnection
    printed: dict[str, str]
    sources: dict[str, pa.Table]
    files: dict[str, list[str]]
    delta: str
    iceberg: StaticTable


def follow(text: str, format: str) -> str:
    """Does what the page's blocks of a format say; returns what its Python printed."""
    printed = StringIO()
    for of, language, code in BLOCK.findall(text):
        if of == format and language == "sh":
            for line in code.strip().splitlines():
                assert main(shlex.split(line)[1:]) == 0, line
        elif of == format:
            with redirect_stdout(printed), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # polars says which planner it has
                exec(compile(code, str(PAGE), "exec"), {})
    return printed.getvalue()


@pytest.fixture(scope="module")
def walked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """The whole page, done."""
    here, text = tmp_path_factory.mktemp("guide"), PAGE.read_text(encoding="utf-8")
    for name in ("events-delta", "events-laid-out", "iceberg-laid-out"):
        text = text.replace(name, str(here / name))  # Java began in another folder
    with pytest.MonkeyPatch.context() as patch, duckdb.connect() as connection:
        patch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
        patch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{here / 'catalog.db'}")
        patch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", str(here / "warehouse"))
        patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which it reads once a process
        patch.setattr("layoutopt.planning.automatic.CANDIDATES", ("input-order", "sop"))  # not all, twice
        patch.setattr("layoutopt.features.cross_validation.FOLDS", 2)  # of a short log; each needs plans of its own
        patch.chdir(here)
        Path("queries.sql").write_text(LOG)
        lived_in_delta(here / "events-delta", events(240, seed=5))
        lived_in_iceberg(load_catalog("prod"), "sales.events", events(240, seed=6))
        printed = {format: follow(text, format) for format in ("delta", "iceberg")}
        shown = load_catalog("prod").load_table("sales.events_laid_out")
        sources = {
            "delta": pa.Table.from_pylist(delta_rows("events-delta"), events(0, seed=5).schema),
            "iceberg": load_catalog("prod").load_table("sales.events").scan().to_arrow(),
        }
        files = {
            format: [str(path) for path in sorted((here / f"{folder}-laid-out" / "data").rglob("*.parquet"))]
            for format, folder in (("delta", "events"), ("iceberg", "iceberg"))
        }
        iceberg = StaticTable.from_metadata(shown.metadata_location)
        yield Walked(text, connection, printed, sources, files, str(here / "events-laid-out"), iceberg)


def by_id(rows: pa.Table, columns: list[str]) -> str:
    return str(rows.select(columns).sort_by("id").to_pydict())


@pytest.mark.long
def test_what_is_shown_has_the_rows_of_the_sources(walked: Walked) -> None:
    shown = {"delta": DeltaTable(walked.delta).to_pyarrow_table(), "iceberg": walked.iceberg.scan().to_arrow()}
    for format, rows in walked.sources.items():
        assert 200 < rows.num_rows < 240
        assert by_id(shown[format], rows.column_names) == by_id(rows, rows.column_names)
        assert "region" in walked.printed[format]


@pytest.mark.long
def test_advice_is_given_for_both(walked: Walked, capsys: pytest.CaptureFixture[str]) -> None:
    follow(walked.text, "advise")
    assert capsys.readouterr().out.count("Recommended: ") == 2
    assert "Recommended" in Path("advice.html").read_text()


@pytest.mark.long
@settings(max_examples=examples(100))
@given(filters(COMPARABLE))
def test_readers_of_delta_answer_as_the_source(walked: Walked, filter: Filter) -> None:
    check_delta(walked.connection, walked.delta, walked.sources["delta"], walked.files["delta"], filter)


@pytest.mark.long
@settings(max_examples=examples(100))
@given(filters(COMPARABLE).filter(is_plain))
def test_readers_of_iceberg_answer_as_the_source(walked: Walked, filter: Filter) -> None:
    check_iceberg(walked.connection, walked.iceberg, walked.sources["iceberg"], walked.files["iceberg"], filter)


@pytest.mark.long
@settings(max_examples=4000)
@given(filters(COMPARABLE))
def test_readers_of_delta_answer_many_filters_as_the_source(walked: Walked, filter: Filter) -> None:
    check_delta(walked.connection, walked.delta, walked.sources["delta"], walked.files["delta"], filter)


@pytest.mark.long
@settings(max_examples=4000)
@given(filters(COMPARABLE).filter(is_plain))
def test_readers_of_iceberg_answer_many_filters_as_the_source(walked: Walked, filter: Filter) -> None:
    check_iceberg(walked.connection, walked.iceberg, walked.sources["iceberg"], walked.files["iceberg"], filter)
