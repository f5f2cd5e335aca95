"""Pairs in a file: a plan takes them for what it would count, and refuses others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.catalog.partition_names import PartitionNames
from layoutopt.errors import PlanError, SettingError
from layoutopt.methods.interface import PlanRequest
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.planning.pairs import Pairs, read_pairs
from layoutopt.planning.plain_rows import open_plain_rows
from layoutopt.planning.plan import count_pairs, make_plan
from layoutopt.planning.rows import SourceRows
from layoutopt.sources.door import Door
from layoutopt.sources.executor import Processes

LOG = "SELECT id FROM t WHERE kind = 'air';\nSELECT id FROM t WHERE price > 70 AND kind <> 'rail';\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [(i, i % 3 or None, ("air", "rail", None)[i % 3], i * 37 % 100 / 7) for i in range(900)]
    columns = dict(zip(("id", "day", "kind", "price"), map(list, zip(*rows, strict=True)), strict=True))
    types = [("id", pa.int64()), ("day", pa.int32()), ("kind", pa.string()), ("price", pa.float64())]
    path = tmp_path_factory.mktemp("pairs") / "rows.parquet"
    pq.write_table(pa.table(columns, pa.schema(types)), path, row_group_size=100)
    return path


@pytest.fixture(scope="module")
def document(source: Path) -> FeaturesDocument:
    log = source.with_name("log.sql")
    log.write_text(LOG * 5)
    return layoutopt.analyze(log, source, table="t", threshold=1).document


def open_rows(source: Path, document: FeaturesDocument, request: PlanRequest, say: object) -> SourceRows:
    return Door(lambda _: open_plain_rows(str(source), document, request, Processes(1)))


def write(pairs: Pairs, document: FeaturesDocument, path: Path, partition_by: str | None = "day") -> Path:
    pq.write_table(pairs.to_table(PartitionNames.of(document.schema, partition_by)), path)
    return path


@pytest.mark.parametrize("method", ["sop", "gsop"])
@pytest.mark.parametrize("partition_by", ["day", None])
def test_a_plan_of_pairs_is_that_of_the_source(
    source: Path, document: FeaturesDocument, tmp_path: Path, method: str, partition_by: str | None
) -> None:
    request = PlanRequest(method=method, partition_by=partition_by, block_rows=50)
    opened, said = partial(open_rows, source), list[str]()
    path = write(count_pairs(opened, document, request), document, tmp_path / "pairs.parquet", partition_by)
    rows = pq.read_table(path)
    assert sum(rows["count"].to_pylist()) == 900
    assert set(rows["partition"].to_pylist()) == ({None, "1", "2"} if partition_by else {None})
    pairs = read_pairs(path, document, partition_by)

    def plan(request: PlanRequest) -> Plan:
        return make_plan(opened, document, request, said.append)

    expected = plan(request)
    assert "taking the pairs that were counted" not in said
    assert plan(replace(request, pairs=pairs)).dumps() == expected.dumps()
    assert "taking the pairs that were counted" in said


def test_pairs_of_others_are_refused(source: Path, document: FeaturesDocument, tmp_path: Path) -> None:
    request = PlanRequest(method="sop", partition_by="day")
    path = write(count_pairs(partial(open_rows, source), document, request), document, tmp_path / "pairs.parquet")
    with pytest.raises(PlanError, match="of another features file or partition column; write them again"):
        read_pairs(path, replace(document, table="u"), "day")
    with pytest.raises(PlanError, match="of another features file or partition column"):
        read_pairs(path, document, "id")
    with pytest.raises(PlanError, match=r"has no pairs .*jobs/featurize\.py"):
        read_pairs(source, document, "day")
    later = tmp_path / "later.parquet"
    pq.write_table(pq.read_table(source, filters=[("day", "=", 1)]), later)
    with pytest.raises(PlanError, match=r"no longer has the partition '2' of the pairs; count them again"):
        make_plan(partial(open_rows, later), document, replace(request, pairs=read_pairs(path, document, "day")))
    with pytest.raises(SettingError, match="'zorder' counts no feature vectors"):
        count_pairs(partial(open_rows, source), document, PlanRequest(method="zorder"))
