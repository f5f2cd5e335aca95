"""Files that were damaged, or made to do harm: a clear error refuses each, or the answer is right all the same."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog import snapshot as snapshot_json
from layoutopt.catalog.manifests import encode_manifest
from layoutopt.catalog.paths import FileDigest
from layoutopt.catalog.storage.footers import footer_at_end
from layoutopt.errors import CatalogError, LayoutoptError, PlanError
from layoutopt.model.documents import canonical_bytes
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Constant, Filter
from layoutopt.model.records import to_json
from layoutopt.scan.table import Table, open_table
from tests.scan.builder import build, building
from tests.scan.corruptions import corrupted, hostile_like, with_hostile_value
from tests.scan.layouts import OVERLAPPING
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

pytestmark = pytest.mark.checks_texts

ROWS = some_rows(60).sort_by("id")
QUERIES = ("kind = 'air'", "id BETWEEN 12 AND 17 AND kind LIKE 's%'", "id >= 0")
SNAPSHOT = "_layoutopt/snapshots/0.json"
LONG = pytest.mark.long


@dataclass(frozen=True)
class Victim:
    """A table on disk, its files as they should be, and which ids each query should find."""

    root: Path
    files: Mapping[str, bytes]
    matching: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, table: Table) -> Victim:
        root = Path(table.catalog.files.root)
        files = {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
        answers = {query: table.sql(f"SELECT id FROM t WHERE {query}")["id"].to_pylist() for query in QUERIES}
        return cls(root, files, {query: frozenset(ids) for query, ids in answers.items()})

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.files if name.startswith(prefix)]

    def answer(self) -> None:
        """Ask every query, of a table that is opened anew: every row that matches is read once, with its values."""
        table = open_table(str(self.root))
        for query in QUERIES:
            (read,) = table.scan(columns=SCHEMA.names, where=query).reads
            found = pa.Table.from_batches(list(read.batches()), read.arrow_schema()).sort_by("id")
            ids = found["id"].to_pylist()
            assert len(set(ids)) == len(ids)
            assert self.matching[query] <= set(ids)
            # As texts: NaN is what NaN was, and -0.0 is not 0.0.
            assert list(map(str, found.to_pylist())) == list(map(str, ROWS.take(pa.array(ids)).to_pylist()))

    def read(self) -> None:
        """Read what a query asks for, whatever it may be."""
        (read,) = open_table(str(self.root)).scan(columns=SCHEMA.names, where=QUERIES[0]).reads
        list(read.batches())


@dataclass(frozen=True)
class Damage:
    """Files that are replaced, and what an error must name."""

    files: Mapping[str, bytes]
    named: str = ""


Target = Callable[[Victim, random.Random], Damage]


def catalog_file(victim: Victim, rng: random.Random) -> Damage:
    """A corrupted file of the catalog: table.json, a snapshot, a plan, or blocks."""
    name = rng.choice(victim.names("_layoutopt/"))
    return Damage({name: corrupted(victim.files[name], rng)}, Path(name).name)


def footer(victim: Victim, rng: random.Random) -> Damage:
    """A data file whose footer is corrupted."""
    name = rng.choice(victim.names("data/"))
    data = victim.files[name]
    end = footer_at_end(data)
    return Damage({name: data[: len(data) - len(end)] + corrupted(end, rng)}, Path(name).name)


def page(victim: Victim, rng: random.Random) -> Damage:
    """A data file in one of whose pages a byte is wrong, not in the page's header, of which there is no checksum."""
    name = rng.choice(victim.names("data/"))
    data = bytearray(victim.files[name])
    metadata = pq.read_metadata(pa.BufferReader(bytes(data)))
    chunks = [
        g.column(i) for g in map(metadata.row_group, range(metadata.num_row_groups)) for i in range(g.num_columns)
    ]
    chunk = rng.choice([chunk for chunk in chunks if not chunk.path_in_schema.startswith("_block")])
    end = chunk.data_page_offset + chunk.total_compressed_size
    if chunk.dictionary_page_offset is not None:
        end = chunk.dictionary_page_offset + chunk.total_compressed_size
    data[end - 1 - rng.randrange(4)] ^= 1 << rng.randrange(8)
    return Damage({name: bytes(data)}, Path(name).name)


def forged_snapshot(victim: Victim, rng: random.Random) -> Damage:
    """A snapshot in which one value is hostile, and whose checksum fits."""
    content = with_hostile_value(json.loads(victim.files[SNAPSHOT]), rng)
    content.pop("checksum", None)
    try:
        return Damage({SNAPSHOT: canonical_bytes({**content, "checksum": snapshot_json._checksum(content)})})
    except ValueError:  # JSON has no word for it
        return forged_snapshot(victim, rng)


def forged_blocks(victim: Victim, rng: random.Random) -> Damage:
    """A blocks file in which one value is hostile, and of which the snapshot has the right digest."""
    (name,) = victim.names("_layoutopt/blocks/")
    blocks = pq.read_table(pa.BufferReader(victim.files[name]))
    rows, row = blocks.to_pylist(), rng.randrange(blocks.num_rows)
    column = rng.choice(blocks.column_names)
    rows[row][column] = hostile_like(rows[row][column], rng)
    schema = pa.schema([field.with_nullable(True) for field in blocks.schema], metadata=blocks.schema.metadata)
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    except pa.ArrowException:  # of another type, where it was null
        return forged_blocks(victim, rng)
    return with_digest(victim, name, sink.getvalue().to_pybytes())


def with_digest(victim: Victim, name: str, data: bytes) -> Damage:
    """Another content of a file, of which the snapshot, or its manifest, has the right digest."""
    snapshot = snapshot_json.loads(victim.files[SNAPSHOT], SNAPSHOT)
    digests, files = {**snapshot.files}, {name: data}
    if name in digests:
        digests[name] = FileDigest.of(data)
    else:
        (manifest,) = victim.names("_layoutopt/manifests/")
        digest, stored = FileDigest.of(data), pq.read_table(pa.BufferReader(victim.files[manifest]))
        for column, value in (("blocks_size", digest.size), ("blocks_sha256", digest.sha256)):
            place = stored.schema.get_field_index(column)
            field = stored.schema.field(place)
            stored = stored.set_column(place, field, pa.array([value] * stored.num_rows, field.type))
        files[manifest] = encode_manifest(stored, ())
        digests[manifest] = FileDigest.of(files[manifest])
    return Damage({**files, SNAPSHOT: snapshot_json.dumps(replace(snapshot, files=digests))})


def forged_manifest(victim: Victim, rng: random.Random) -> Damage:
    """A manifest in which one value is hostile, and of which the snapshot has the right digest."""
    (name,) = victim.names("_layoutopt/manifests/") or pytest.skip("entries stand in the snapshot")
    stored = pq.read_table(pa.BufferReader(victim.files[name]))
    rows, row = stored.to_pylist(), rng.randrange(stored.num_rows)
    column = rng.choice(stored.column_names)
    value = rows[row][column]
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        hostile = (
            rng.choice([None, b"", b"\xff", b"1e9"]) if column.endswith("key") else hostile_like(value[place], rng)
        )
        rows[row][column] = [*value[:place], hostile, *value[place + 1 :]]
    else:
        rows[row][column] = hostile_like(value, rng)
    removed = with_hostile_value([["1999"]], rng)[:1] if rng.random() < 0.1 else []
    try:
        data = encode_manifest(pa.Table.from_pylist(rows, stored.schema), removed[0] if removed else ())
    except (pa.ArrowException, TypeError, ValueError):  # of another type, where it was null
        return forged_manifest(victim, rng)
    return with_digest(victim, name, data)


def forged_plan(victim: Victim, rng: random.Random) -> Damage:
    """A plan in which one value is hostile, and of which the snapshot has the right digest."""
    (name,) = victim.names("_layoutopt/plans/")
    try:
        data = canonical_bytes(with_hostile_value(json.loads(victim.files[name]), rng))
    except ValueError:  # JSON has no word for it
        return forged_plan(victim, rng)
    return with_digest(victim, name, data)


def outcome(damage: Damage, ask: Callable[[], None]) -> str:
    """What becomes of queries; anything but an end or a clear error of ours, which names the file, fails."""
    try:
        ask()
    except LayoutoptError as error:
        said = str(error)
        assert damage.named in said
        assert said.isprintable()
        assert len(said) < 1000
        return "refused"
    return "right"


def corrupt(victim: Victim, target: Target, ask: Callable[[], None], times: int, seed: int) -> Counter[str]:
    """Damage files again and again, and ask: how often the outcome was which."""
    found: Counter[str] = Counter()
    for number in range(times):
        damage = target(victim, random.Random(f"{seed} {number}"))
        for name, data in damage.files.items():
            (victim.root / name).write_bytes(data)
        try:
            found[outcome(damage, ask)] += 1
        except BaseException as error:
            error.add_note(f"number {number} of seed {seed}: {list(damage.files)}")
            raise
        finally:
            for name in damage.files:
                (victim.root / name).write_bytes(victim.files[name])
    print(dict(found))  # noqa: T201 - what the long run reports
    return found


@pytest.fixture(scope="module", params=["sop", "gsop-r"])
def victim(has_manifests: bool, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Victim:
    layouts = OVERLAPPING if request.param == "gsop-r" else None
    made = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", footers=True)
    victim = Victim.of(build(tmp_path_factory.mktemp("fuzzed"), ROWS, made))
    victim.answer()
    return victim


def often(few: int, many: int) -> pytest.MarkDecorator:
    """Few times in every run of the tests, many in the long one."""
    return pytest.mark.parametrize(("times", "seed"), [(few, 0), pytest.param(many, 1, marks=LONG)])


@often(30, 1500)
def test_corrupted_catalog_files(victim: Victim, times: int, seed: int) -> None:
    found = corrupt(victim, catalog_file, victim.answer, times, seed)
    assert found["refused"] > times / 2


@often(10, 1500)
def test_corrupted_footers(victim: Victim, times: int, seed: int) -> None:
    assert corrupt(victim, footer, victim.answer, times, seed) == {"refused": times}


@often(5, 500)
def test_corrupted_pages(victim: Victim, times: int, seed: int) -> None:
    assert corrupt(victim, page, victim.answer, times, seed) == {"refused": times}


@often(10, 750)
@pytest.mark.parametrize("target", [forged_snapshot, forged_manifest, forged_plan, forged_blocks])
def test_forged_catalogs(victim: Victim, target: Target, times: int, seed: int) -> None:
    """Who can write a table can make it lie about its rows, but not make a reader fail in an unclear way."""
    assert corrupt(victim, target, victim.read, times, seed)["refused"] > 0


@cache
def documents() -> tuple[tuple[Any, bytes], ...]:
    """A plan and a features document as `layoutopt` writes them."""
    made = building(SCHEMA, CONDITIONS, layouts=OVERLAPPING, partition_by="year").plan
    features = FeaturesDocument("t", SCHEMA, made.features, made.queries)
    return (Plan, made.dumps()), (FeaturesDocument, features.dumps())


@often(200, 2500)
def test_corrupted_plans_and_features(times: int, seed: int) -> None:
    """Either no document, or another document, whose own bytes say the same again."""
    found: Counter[str] = Counter()
    for number in range(times):
        kind, data = documents()[number % 2]
        rng = random.Random(f"{seed} {number}")
        changed = corrupted(data, rng) if rng.random() < 0.5 else hostile_document(data, rng)
        found[read_document(kind, changed)] += 1
    print(dict(found))  # noqa: T201 - what the long run reports
    assert min(found["refused"], found["another"]) > 0


BOMBS = {
    "lists in lists": b"[" * 100_000,
    "just not too deep to read": b'{"x":' + b"[" * 985 + b"]" * 985 + b"}",
    "a number of many digits": b'{"format": "layoutopt-plan", "version": ' + b"9" * 10_000 + b"}",
    "no number": b'{"format": "layoutopt-plan", "version": 1, "block_rows": 1e999}',
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_documents_made_to_break_their_readers_are_refused(bomb: bytes) -> None:
    with pytest.raises(PlanError):
        Plan.loads(bomb)
    with pytest.raises(PlanError):
        FeaturesDocument.loads(bomb)
    for depth in (800, 960, 975, 985, 990):  # where reading still works, and writing no more
        nested = b'{"format":"layoutopt-table","version":1,"checksum":"ab","x":' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(CatalogError):
            snapshot_json.loads(nested, "0.json")
    with pytest.raises(CatalogError):
        snapshot_json.loads(bomb, "0.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_rows", 10**30),
        ("segment_rows", 2**62),
        ("seed", -1),
        ("predicted", {"cells": float("inf")}),
        ("max_vectors", float("inf")),
    ],
)
def test_numbers_of_plans_are_those_that_a_load_can_take(name: str, value: object) -> None:
    document = json.loads(documents()[0][1])
    with pytest.raises(PlanError):
        Plan.loads(json.dumps({**document, name: value}))


@given(st.sampled_from(["max_clauses", "max_literals"]), st.integers(1025, 2**80))
def test_a_filters_normal_form_is_bounded_whatever_the_document_says(name: str, bound: int) -> None:
    """Else twenty clauses of two parts each would become a million."""
    value: Any = to_json(Filter.of(Constant(True)))
    with pytest.raises(PlanError, match="bounds"):
        Filter.from_json({**value, name: bound})


def hostile_document(data: bytes, rng: random.Random) -> bytes:
    try:
        return canonical_bytes(with_hostile_value(json.loads(data), rng))
    except ValueError:  # JSON has no word for it
        return hostile_document(data, rng)


def read_document(kind: Any, data: bytes) -> str:
    try:
        read = kind.loads(data)
    except LayoutoptError as error:
        return "refused" if str(error).isprintable() else str(error)
    assert kind.loads(read.dumps()) == read
    return "another"
