"""``verify`` on tables as users make them, by SOP and by GSOP: what was damaged behind the catalog's back is found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import FAILED
from layoutopt.errors import CatalogError, DataFileError
from layoutopt.features.analysis import analyze_log
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import ByVectors, Layout, Scheme
from layoutopt.model.requests import AnalyzeRequest
from layoutopt.scan.table import open_table
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.verify import spark_file_checker
from layoutopt.sql.schema import schema_from
from tests.effort import long_too
from tests.spark.rewriting import found, recommit, rewrite
from tests.spark.tables import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module", params=["gsop", *long_too("sop")])
def loaded(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample in two segments, laid out by the features of its log."""
    source = str(DATA / "tpch_sample.parquet")
    analysis = AnalyzeRequest(log=str(DATA / "tpch_queries.sql"), num_features=8)
    document = analyze_log(analysis, schema_from(source)).document
    names = document.schema.names
    groups = Scheme(tuple(Layout(names[k::3], tuple(range(8))[k::3], names[k::3], ByVectors()) for k in range(3)))
    scheme = groups if request.param == "gsop" else None
    plan = plan_of(document, scheme=scheme, block_rows=40, segment_rows=1_000)
    path = tmp_path_factory.mktemp(request.param) / "table"
    load(spark, source, path, plan)
    return path


@pytest.fixture
def table(loaded: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(loaded, tmp_path / "table"))


def victim(table: Path) -> Path:
    """A data file of several blocks."""
    return Path(next(file for file in open_table(str(table)).files() if pq.read_metadata(file).num_row_groups > 2))


def test_what_was_just_loaded_is_as_it_should_be(table: Path) -> None:
    report = verify(open_table(str(table)))
    assert report.ok, report.problems
    assert report.rows == 1564 * len(next(iter(open_table(str(table)).catalog.plans.values())).scheme.layouts)
    assert report.unchecked == ()


def test_spark_reads_the_same_in_tasks(spark: SparkSession, table: Path) -> None:
    steps: list[tuple[int, int]] = []
    opened = open_table(str(table))
    report = verify(opened, progress=lambda *step: steps.append(step), checker=spark_file_checker(spark))
    assert report == verify(opened)
    done, tasks = steps[-1]
    assert 1 < done == tasks <= report.files
    sampled = verify(opened, 0.5, seed=3, checker=spark_file_checker(spark))
    assert sampled == verify(opened, 0.5, seed=3)
    assert 0 < sampled.files < report.files


def test_spark_reads_what_a_damaged_catalog_leaves(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = (table / "_layoutopt/blocks").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert main(["verify", str(table), "--engine", "spark"]) == FAILED
    said = capsys.readouterr()
    assert file.name in said.out
    assert said.err.count("\n") == 1


def test_a_flipped_byte_is_found(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = victim(table)
    group = pq.read_metadata(file).row_group(1)
    chunk = max((group.column(i) for i in range(group.num_columns)), key=lambda chunk: chunk.total_compressed_size)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    place, data = start + chunk.total_compressed_size * 3 // 4, bytearray(file.read_bytes())
    data[place] ^= 0x10
    file.write_bytes(data)
    problems = found(table)
    assert {name for _, name in problems} == {file.name}
    assert {check for check, _ in problems} & {"file", "checksum"}
    for engine in ("local", "spark"):
        assert main(["verify", str(table), "--engine", engine]) == FAILED
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert file.name in said.out


def test_a_changed_footer_is_found(table: Path) -> None:
    file = victim(table)
    data = bytearray(file.read_bytes())
    data[data.rindex(b"parquet-cpp-arrow")] ^= 0x01  # the name of the program that wrote it: no reader minds
    file.write_bytes(data)
    assert pq.read_table(file).num_rows
    assert found(table) == {("file", file.name)}
    with pytest.raises(DataFileError, match="footer"):
        list(open_table(str(table)).scan(columns=pq.read_schema(file).names[:1]).reads[0].batches())


def test_pages_have_checksums(table: Path) -> None:
    """A changed byte of an uncompressed page would else be found by `verify` alone."""
    file = victim(table)
    group = pq.read_metadata(file).row_group(0)
    for chunk in map(group.column, range(group.num_columns)):
        data = bytearray(file.read_bytes())
        data[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1] ^= 0x01
        file.write_bytes(data)
        with pytest.raises(OSError, match=r"(?i)crc checksum"):
            pq.ParquetFile(file, page_checksum_verification=True).read(columns=[chunk.path_in_schema])


def test_spark_answers_from_no_changed_page_either(spark: SparkSession, table: Path) -> None:
    chunk = pq.read_metadata(victim(table)).row_group(0).column(0)
    for file in map(Path, open_table(str(table)).files()):
        data = bytearray(file.read_bytes())
        first = pq.read_metadata(file).row_group(0).column(0)
        data[(first.dictionary_page_offset or first.data_page_offset) + first.total_compressed_size - 1] ^= 0x01
        file.write_bytes(data)
    with pytest.raises(Exception, match=r"(?i)crc checksum|is damaged"):
        open_table(str(table)).scan(columns=[chunk.path_in_schema]).to_spark(spark).collect()


def test_a_missing_file_is_found(table: Path) -> None:
    file = victim(table)
    file.unlink()
    assert found(table) == {("file", file.name)}


def test_blocks_that_changed_places_are_found(table: Path) -> None:
    file = victim(table)

    def swap(content: pa.Table, sizes: list[int]) -> pa.Table:
        first, second = content.slice(0, sizes[0]), content.slice(sizes[0], sizes[1])
        return pa.concat_tables([second, first, content.slice(sizes[0] + sizes[1])])

    rewrite(file, swap)
    assert ("block-column", file.name) in found(table)


@pytest.mark.long
def test_blocks_that_changed_places_under_their_numbers_are_found(table: Path) -> None:
    file = victim(table)

    def swap(content: pa.Table, sizes: list[int]) -> pa.Table:
        order = list(range(content.num_rows))
        order[0], order[sizes[0]] = order[sizes[0]], order[0]
        swapped = content.take(pa.array(order))
        return swapped.set_column(content.column_names.index("_block"), "_block", content["_block"])

    rewrite(file, swap)
    assert {("checksum", file.name)} <= found(table)


def test_tids_that_changed_places_are_found(table: Path) -> None:
    file = victim(table)
    if "_tid" not in pq.read_schema(file).names:
        pytest.skip("one layout has no tids")

    def swap(content: pa.Table, sizes: list[int]) -> pa.Table:
        tids = content["_tid"].to_pylist()
        tids[0], tids[1] = tids[1], tids[0]
        place = content.column_names.index("_tid")
        return content.set_column(place, content.schema.field("_tid"), pa.array(tids, content["_tid"].type))

    rewrite(file, swap)
    assert {name for _, name in found(table)} == {file.name}


def without_bits(blocks: pa.Table) -> pa.Table:
    """Blocks that claim that no row has any feature."""
    place = blocks.column_names.index("words")
    words = [[0] * len(each) for each in blocks["words"].to_pylist()]
    return blocks.set_column(place, blocks.schema.field("words"), pa.array(words, blocks["words"].type))


def test_wrong_union_vectors_are_found(table: Path) -> None:
    recommit(table, without_bits)
    assert {check for check, _ in found(table)} == {"union-vector"}


def test_a_changed_blocks_file_is_refused(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = (table / "_layoutopt/blocks").iterdir()
    pq.write_table(without_bits(pq.read_table(file)), file)
    with pytest.raises(CatalogError, match=file.name):
        verify(open_table(str(table)))
    assert main(["verify", str(table)]) == FAILED
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert file.name in said.out
