"""Delta and Iceberg tables with what makes reading them hard, written by their libraries or byte by byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType
from pyroaring import BitMap64

_PATH_ID = 2_147_483_546  # of the column with the path, in files of deletes
_MAGIC = 1_681_511_377
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(positions: list[int]) -> dict[str, Any]:
    """An inline deletion vector, as Delta's protocol lays it out."""
    data = struct.pack("<I", _MAGIC) + BitMap64(positions).serialize()
    padded = data + b"\0" * (-len(data) % 4)
    text = ""
    for (value,) in struct.iter_unpack(">I", padded):
        text += "".join(_Z85[value // 85**place % 85] for place in range(4, -1, -1))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(positions)}


def delta_table(root: Path, nested: bool = True) -> str:
    """Ten rows in two partitions, a blank and a percent sign in a name: renamed columns, and four rows deleted.

    ``nested``: whether there is a struct whose field is renamed, too.
    """
    fields = [("id", "phys-1", "long"), ("p", "phys-2", "string"), ("inner", "phys-3", None)]
    inner = {"type": "struct", "fields": [_delta_field("a", "phys-4", 4, "integer")]}
    schema = {
        "type": "struct",
        "fields": [
            _delta_field(name, of, n + 1, type or inner) for n, (name, of, type) in enumerate(fields[: 2 + nested])
        ],
    }
    features = ["deletionVectors", "columnMapping"]
    actions: list[dict[str, Any]] = [
        {"protocol": {
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
        }},
        {"metaData": {
            "id": "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema), "partitionColumns": ["p"], "createdTime": 0,
            "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"},
        }},
    ]  # fmt: skip
    for path, said, value, ids, gone in [
        ("p=a b/x 1%.parquet", "p=a%20b/x%201%25.parquet", "a b", range(6), [1, 3, 5]),
        ("p=__HIVE_DEFAULT_PARTITION__/y.parquet", "p=__HIVE_DEFAULT_PARTITION__/y.parquet", None, range(6, 10), [0]),
    ]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        inside = pa.array([None if i % 4 == 3 else {"phys-4": i} for i in ids], pa.struct([("phys-4", pa.int32())]))
        pq.write_table(pa.table({"phys-1": list(ids), "phys-3": inside}), root / path)
        added = {
            "path": said, "partitionValues": {"phys-2": value}, "size": (root / path).stat().st_size,
            "modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": len(ids)}),
            "deletionVector": deletion_vector(gone),
        }  # fmt: skip
        actions.append({"add": added})
    (root / "_delta_log").mkdir()
    (root / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return str(root)


def _delta_field(name: str, physical: str, number: int, type: object) -> dict[str, object]:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": type, "nullable": True, "metadata": metadata}


def delta_rows(root: str) -> list[dict[str, Any]]:
    """What the library's own engine reads."""
    found = QueryBuilder().register("t", DeltaTable(root)).execute("SELECT * FROM t").read_all()
    return by_id(pa.table(found))


def iceberg_table(root: Path) -> Table:
    """A partitioned table whose columns were renamed, dropped and widened, with rows deleted by position."""
    catalog = InMemoryCatalog("c", warehouse=str(root))
    catalog.create_namespace("n")
    first = pa.table({
        "id": pa.array(range(6), pa.int32()), "p": ["x", "x", "x", "y", "y", None], "old": list("abcdef"),
        "gone": list("uvwxyz"),
    })  # fmt: skip
    table = catalog.create_table("n.t", first.schema, properties={"format-version": "2"})
    table.append(first)
    with table.update_spec() as spec:
        spec.add_field("p", IdentityTransform(), "p")
    with table.update_schema() as update:
        update.rename_column("old", "new")
        update.update_column("id", LongType())
        update.delete_column("gone")
    with table.update_schema() as update:
        update.add_column("gone", StringType())  # another column of the same name
    second = pa.table({
        "id": pa.array(range(6, 10), pa.int64()), "p": ["x", "y", None, "z"], "new": list("ghij"), "gone": list("1234"),
    })  # fmt: skip
    table.append(second)
    delete_positions(table, first_file(table), [0, 4])
    return table


def first_file(table: Table) -> str:
    """The file with the row of id 0."""
    return next(
        task.file.file_path
        for task in table.scan().plan_files()
        if 0 in pq.read_table(task.file.file_path)["id"].to_pylist()
    )


def hinted(table: Table) -> str:
    """The table as a source whose newest version is what its folder says."""
    folder = Path(table.location().removeprefix("file://"))
    (folder / "metadata" / "version-hint.text").write_text(Path(table.metadata_location).name)
    return f"iceberg:{folder}"


def delete_positions(table: Table, path: str, positions: list[int], equality: bool = False) -> None:
    """Commit a file of deletes, which the library reads but does not write."""
    place = Path(table.location()) / "data" / f"deletes-{len(positions)}.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    columns = [pa.field("file_path", pa.string(), False), pa.field("pos", pa.int64(), False)]
    pq.write_table(pa.table([[path] * len(positions), positions], pa.schema(columns)), place)
    data = next(task.file for task in table.scan().plan_files() if task.file.file_path == path)
    with table.transaction() as transaction:
        change = transaction.update_snapshot().fast_append()
        change.append_data_file(
            DataFile.from_args(
                content=DataFileContent.EQUALITY_DELETES if equality else DataFileContent.POSITION_DELETES,
                file_path=str(place), file_format=FileFormat.PARQUET,
                partition=Record(*[None for _ in table.spec().fields]),
                record_count=len(positions), file_size_in_bytes=place.stat().st_size, spec_id=data.spec_id,
                equality_ids=[1] if equality else None,
                lower_bounds={_PATH_ID: path.encode()}, upper_bounds={_PATH_ID: path.encode()},
            )
        )  # fmt: skip
        change.commit()


def iceberg_rows(location: str) -> list[dict[str, Any]]:
    """What the library itself reads of a metadata file."""
    return by_id(StaticTable.from_metadata(location).scan().to_arrow())


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in the order of their ids."""
    return sorted(table.to_pylist(), key=lambda row: row["id"])
