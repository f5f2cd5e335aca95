"""Snapshots round-trip, and no damaged, foreign or contradictory file is taken for one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.partition_entry import Bounds, PartitionEntry
from layoutopt.catalog.paths import FileDigest
from layoutopt.catalog.snapshot import Snapshot, check_version, dumps, loads, version_state
from layoutopt.errors import CatalogError
from layoutopt.model.schema import Column, Schema

BLOCKS, PLAN = "_layoutopt/blocks/l1.parquet", "_layoutopt/plans/abc123.json"
SCHEMA = Schema((Column("n", "int"), Column("s", "string"), Column("b", "binary", False), Column("d", "decimal(38,0)")))
ENTRY = PartitionEntry(
    key="1994",
    value=1994,
    plan="abc123",
    load_id="l1",
    blocks_file=BLOCKS,
    rows=4,
    bounds={
        "n": Bounds(-(2**63), 2**63 - 1, 0),
        "s": Bounds("", "\U0010ffff", None),
        "b": Bounds(b"\x00", b"\xff", 1),
        "d": Bounds(-(10**38) + 1, 10**38 - 1, 0),
    },
    checksums={"n": 2**40, "s": 0},
    bytes=1000,
)
SNAPSHOT = Snapshot(
    number=3,
    parent=1,
    created_at="2024-05-31T12:00:00.000000+00:00",
    operation="load",
    load_id="l1",
    schema=SCHEMA,
    partition_by="n",
    partitions=(ENTRY, replace(ENTRY, key="__null__", value=None, bounds={})),
    files={BLOCKS: FileDigest(10, "ab" * 32), PLAN: FileDigest(10, "cd" * 32)},
)


def test_a_snapshot_comes_back_as_it_was() -> None:
    assert loads(dumps(SNAPSHOT), "3.json") == SNAPSHOT


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    content = bytearray(dumps(SNAPSHOT))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CatalogError, match=r"3\.json"):
        loads(bytes(content), "3.json")


@given(st.integers(0, len(dumps(SNAPSHOT)) - 1))
def test_a_cut_file_is_noticed(length: int) -> None:
    with pytest.raises(CatalogError, match=r"3\.json"):
        loads(dumps(SNAPSHOT)[:length], "3.json")


def resealed(change: dict[str, Any]) -> bytes:
    """The snapshot's file with other fields and a checksum that fits: written by a faulty or hostile program."""
    content = {**json.loads(dumps(SNAPSHOT)), **change}
    content.pop("checksum")
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return json.dumps({**content, "checksum": hashlib.sha256(text.encode()).hexdigest()}).encode()


def partition(**change: Any) -> dict[str, Any]:
    return {"partitions": [{**json.loads(dumps(SNAPSHOT))["partitions"][0], **change}]}


def test_resealing_without_a_change_is_accepted() -> None:
    assert loads(resealed({}), "3.json") == SNAPSHOT
    assert loads(resealed(partition()), "3.json").partitions == (ENTRY,)


@pytest.mark.parametrize(
    "change",
    [
        {"number": -1},
        {"number": "3"},
        {"number": True},
        {"number": 2**63},
        {"number": 3.0},
        {"parent": 3},
        {"created_at": "yesterday"},
        {"created_at": "x" * 5000},
        {"created_at": "2024-05-31T12:00:00"},
        {"created_at": "2024-05-31T12:00:00+02:00"},
        {"operation": None},
        {"load_id": "../x"},
        {"load_id": "L1"},
        {"schema": [{"name": "n"}]},
        {"schema": {}},
        {"partition_by": "zzz"},
        {"partitions": {}},
        {"partitions": [7]},
        {"files": {}},
        {"files": {"../../etc/passwd": {"size": 1, "sha256": "ab"}}},
        {"files": {BLOCKS: {"size": 1, "sha256": "xyz"}, PLAN: {"size": 1, "sha256": "ab"}}},
        partition(key="a/b"),
        partition(key=".."),
        partition(key="o_year=1994"),
        partition(value=[1]),
        partition(plan="../x"),
        partition(blocks_file="/etc/passwd"),
        partition(blocks_file="s3://other/bucket"),
        partition(blocks_file="_layoutopt/../../x"),
        partition(blocks_file="_layoutopt/blocks/unknown.parquet"),
        partition(rows=-1),
        partition(rows=None),
        partition(rows=1.5),
        partition(bytes="10"),
        partition(bounds={"zzz": [1, 2, 0]}),
        partition(bounds={"n": [1, 2]}),
        partition(bounds={"n": [2, 1, 0]}),
        partition(bounds={"n": [None, 1, 0]}),
        partition(bounds={"n": ["1", "2", 0]}),
        partition(bounds={"n": [True, True, 0]}),
        partition(bounds={"n": [1, 2, -1]}),
        partition(bounds={"n": [1, 2**63, 0]}),
        partition(bounds={"n": [-(2**63) - 1, 1, 0]}),
        partition(bounds={"d": [0, 10**38, 0]}),
        partition(blocks_file="x" * 5000),
        partition(bounds={"b": ["?", "?", 0]}),
        partition(bounds={"s": [1, 2, 0]}),
        partition(checksums={"n": -1}),
        partition(checksums={"zzz": 1}),
        {"partitions": partition()["partitions"] * 2},
    ],
)
def test_impossible_content_is_refused_with_the_files_name(change: dict[str, Any]) -> None:
    with pytest.raises(CatalogError, match=r"3\.json") as caught:
        loads(resealed(change), "3.json")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", sorted(set(json.loads(dumps(SNAPSHOT))) - {"parent", "partition_by"}))
def test_a_missing_field_is_refused(name: str) -> None:
    content = json.loads(resealed({}))
    del content[name]
    with pytest.raises(CatalogError, match=r"3\.json"):
        loads(json.dumps(content).encode(), "3.json")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"7", b'"x"', b"{", b"\xff", b'{"format": "delta"}', b"[" * 9999]
)
def test_other_json_is_refused(content: bytes) -> None:
    with pytest.raises(CatalogError, match=r"3\.json"):
        loads(content, "3.json")


def test_versions_have_four_states() -> None:
    states = ["unsupported", "supported", "supported", "current", "too new"]
    assert [version_state(v, current=5, oldest=3) for v in range(2, 7)] == states
    for readable in (3, 5):
        check_version(readable, "3.json", current=5, oldest=3)
    newer = json.dumps({**json.loads(dumps(SNAPSHOT)), "version": 99}).encode()  # whatever its checksum
    with pytest.raises(CatalogError, match=r"3\.json has format version 99, newer.*install"):
        loads(newer, "3.json")
    with pytest.raises(CatalogError, match="older than 1; load the table again"):
        loads(resealed({"version": 0}), "3.json")


def test_content_of_which_no_checksum_can_be_made_has_none_that_fits() -> None:
    with pytest.raises(CatalogError, match=r"3\.json is damaged"):
        loads(
            dumps(SNAPSHOT).replace(b'"rows":4', b'"rows":NaN').replace(b'"checksum":"', b'"checksum":"","x":"'),
            "3.json",
        )
