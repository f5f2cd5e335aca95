"""Keys of tables: what is sealed opens as it was, in its place, unchanged, by its own keys, and not otherwise."""

from __future__ import annotations

import io
import json
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.paths import hides_values, partition_key
from layoutopt.encryption.table_keys import TableKeys, new_encryption, read_keys
from layoutopt.errors import CatalogError, EncryptionKeyError

KEYS, OTHERS = TableKeys(bytes(range(32))), TableKeys(bytes(32))
PLACES = st.text(min_size=1, max_size=20)


@given(PLACES, st.binary(max_size=200))
def test_what_is_sealed_opens_in_its_place(place: str, content: bytes) -> None:
    sealed = KEYS.seal(place, content)
    assert KEYS.unseal(place, sealed) == content
    assert sealed != KEYS.seal(place, content), "a nonce of its own"
    assert len(content) < 8 or content not in sealed


@given(PLACES, PLACES, st.binary(max_size=50), st.data())
def test_nothing_else_opens(place: str, other: str, content: bytes, data: st.DataObject) -> None:
    sealed = KEYS.seal(place, content)
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = [
        bytes([*sealed[:at], sealed[at] ^ data.draw(st.integers(1, 255)), *sealed[at + 1 :]]),
        sealed[:at],
        sealed + b"x",
        content,
        OTHERS.seal(place, content),
    ]
    if other != place:
        changed.append(KEYS.seal(other, content))
    for wrong in changed:
        with pytest.raises(ValueError, match=r"changed|not encrypted"):
            KEYS.unseal(place, wrong)


def test_data_files_open_in_their_place_by_their_keys() -> None:
    rows = pa.table({"hidden_name": ["hidden value"] * 9})
    sink = io.BytesIO()
    pq.write_table(rows, sink, encryption_properties=KEYS.encryption("data/a"))
    data = sink.getvalue()
    assert b"hidden" not in data
    assert pq.read_table(io.BytesIO(data), decryption_properties=KEYS.decryption("data/a")).equals(rows)
    plain = io.BytesIO()
    pq.write_table(rows, plain)
    # A key for each place, and beside it the place itself: either is enough.
    patched = mock.patch.object(TableKeys, "_derive", lambda keys, purpose, of: keys.data_key)
    with patched:
        other = io.BytesIO()
        pq.write_table(rows, other, encryption_properties=KEYS.encryption("data/b"))
        for wrong in (other.getvalue(), plain.getvalue()):
            with pytest.raises(OSError, match=r"ecrypt"):
                pq.read_table(io.BytesIO(wrong), decryption_properties=KEYS.decryption("data/a"))
    for keys, place in ((KEYS, "data/b"), (OTHERS, "data/a")):
        with pytest.raises(OSError, match=r"ecrypt"):
            pq.read_table(io.BytesIO(data), decryption_properties=keys.decryption(place))
    assert KEYS._derive("file", "a") != KEYS._derive("file", "b") != KEYS._derive("name", "b")


def test_names_stand_for_texts_and_stay_as_they_are() -> None:
    name = KEYS.name("FR")
    assert name == KEYS.name("FR") == KEYS.name(name)
    assert name != OTHERS.name("FR")
    assert len({KEYS.name(text) for text in ("FR", "DE", "__null__", "__" + "g" * 32, name[:-1])} | {name}) == 5


def test_keys_are_not_shown() -> None:
    assert str(KEYS.data_key) not in repr(KEYS)
    assert repr(KEYS) == "TableKeys()"


def marker(monkeypatch: pytest.MonkeyPatch, key: bytes = b"k" * 16, reference: str = "env:KEY_HERE") -> bytes:
    monkeypatch.setenv("KEY_HERE", key.hex())
    return json.dumps({"format": "layoutopt-table", "encryption": new_encryption(reference)}).encode()


def test_a_marker_gives_its_keys_to_who_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    of_table = marker(monkeypatch)
    keys = read_keys(of_table, "here")
    assert keys is not None
    assert keys != read_keys(marker(monkeypatch), "here"), "a data key for each table"
    assert b"k" * 16 not in of_table
    assert keys.data_key not in of_table
    monkeypatch.setenv("ELSEWHERE", (b"k" * 16).hex())
    monkeypatch.setenv("KEY_HERE", (b"j" * 16).hex())
    assert read_keys(of_table, "here", "env:ELSEWHERE") == keys
    with pytest.raises(EncryptionKeyError, match=r"not the one that here was encrypted with \('env:KEY_HERE'"):
        read_keys(of_table, "here")
    monkeypatch.delenv("KEY_HERE")
    with pytest.raises(EncryptionKeyError, match="KEY_HERE"):
        read_keys(of_table, "here")
    monkeypatch.setenv("LAYOUTOPT_KEY", "env:ELSEWHERE")
    assert read_keys(of_table, "here") == keys


def test_a_command_that_only_the_table_names_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    of_table = json.loads(marker(monkeypatch))
    of_table["encryption"]["key"] = "command:touch /tmp/somebody-was-here"
    text = json.dumps(of_table).encode()
    with pytest.raises(EncryptionKeyError, match="not run automatically"):
        read_keys(text, "here")
    assert read_keys(text, "here", "env:KEY_HERE") is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("algorithm", "ROT13"),
        ("key", None),
        ("key", "nowhere"),
        ("key_check", None),
        ("data_key", None),
        ("data_key", 7),
        ("data_key", "!"),
        ("data_key", "AAAA"),
    ],
)
def test_a_damaged_marker_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    of_table = json.loads(marker(monkeypatch))
    of_table["encryption"] |= {name: value}
    if value is None:
        del of_table["encryption"][name]
    with pytest.raises(CatalogError, match="here"):
        read_keys(json.dumps(of_table).encode(), "here")
    for text in (b'{"encryption": 1}', b'{"encryption": {}}', b'{"encryption'):
        with pytest.raises(CatalogError, match="here"):
            read_keys(text, "here")
    assert read_keys(b"{}", "here") is None


@given(st.one_of(st.text(), st.from_regex(r"__[0-9a-f]{30,34}", fullmatch=True), st.integers(), st.none()))
def test_no_partition_is_called_as_a_name_that_stands_for_one(value: object) -> None:
    key = partition_key(value)
    name = KEYS.name(key)
    assert name not in (key, str(value))
    assert hides_values(f"data/{name}/l1/layout-0/0-a.parquet")[1] == name == KEYS.name(name)
    assert KEYS.name(key) != KEYS.name(f"{key}x")
