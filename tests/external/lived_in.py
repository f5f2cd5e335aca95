"""Delta and Iceberg tables as they are after years: partitioned, columns renamed, rows deleted, every type of value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import IdentityTransform

from tests.external.tables import delete_positions, deletion_vector, first_file
from tests.publish.typed import NESTED, POOLS, typed_rows

REGIONS = ("north", "sou/th=1 %", None)
_DELTA = {"bigint": "long", "tinyint": "byte", "int": "integer"}


def events(n: int, seed: int) -> pa.Table:
    """Rows of every plain type, of regions, with amounts that a log may ask for; runs of rows are alike."""
    rows = typed_rows(n, seed).drop_columns(list(NESTED))
    amounts = [None if i % 11 == 0 else float("nan") if i % 13 == 0 else float(i * 3 % 250) for i in range(n)]
    regions = [REGIONS[3 * i // n] for i in range(n)]
    return rows.append_column("amount", pa.array(amounts, pa.float64())).append_column(
        "region", pa.array(regions, pa.string())
    )


def lived_in_delta(root: Path, rows: pa.Table) -> None:
    """A table by region, two files each; every column has another name in the files, and each file lacks two rows."""
    names = {name: f"col-{i}" for i, name in enumerate(rows.column_names)}
    kinds = {name: _DELTA.get(kind, kind) for name, (kind, *_) in POOLS.items()}
    fields = [
        {
            "name": name, "type": kinds.get(name, "double" if name == "amount" else "string"), "nullable": True,
            "metadata": {"delta.columnMapping.id": i + 1, "delta.columnMapping.physicalName": names[name]},
        }
        for i, name in enumerate(rows.column_names)
    ]  # fmt: skip
    features = ["deletionVectors", "columnMapping", "timestampNtz"]
    actions: list[dict[str, Any]] = [
        {"protocol": {
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
        }},
        {"metaData": {
            "id": "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": ["region"],
            "configuration": {
                "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(fields)),
            },
            "createdTime": 0,
        }},
    ]  # fmt: skip
    root.mkdir()
    for number, (region, part) in enumerate(_halves(rows)):
        path = f"{number}.parquet"
        stored = part.drop_columns(["region"])
        pq.write_table(stored.rename_columns([names[name] for name in stored.column_names]), root / path)
        actions.append({"add": {
            "path": path, "partitionValues": {names["region"]: region}, "size": (root / path).stat().st_size,
            "modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": part.num_rows}),
            "deletionVector": deletion_vector([1, part.num_rows - 1]),
        }})  # fmt: skip
    (root / "_delta_log").mkdir()
    (root / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def lived_in_iceberg(catalog: Catalog, name: str, rows: pa.Table) -> None:
    """A table by region; a column was called otherwise when half of the rows came, and three rows are deleted."""
    rows = rows.set_column(rows.column_names.index("tiny"), "tiny", rows["tiny"].cast(pa.int32()))
    half = rows.num_rows // 2
    older = rows.slice(0, half).rename_columns([{"amount": "old_amount"}.get(c, c) for c in rows.column_names])
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    table = catalog.create_table(name, older.schema, properties={"format-version": "2"})
    with table.update_spec() as spec:
        spec.add_field("region", IdentityTransform(), "region")
    table.append(older)
    with table.update_schema() as update:
        update.rename_column("old_amount", "amount")
    table.append(rows.slice(half))
    delete_positions(table, first_file(table), [0, 3, 7])


def _halves(rows: pa.Table) -> list[tuple[str | None, pa.Table]]:
    found = []
    for region in REGIONS:
        here = rows["region"].is_null() if region is None else pc.equal(rows["region"], region)
        part = rows.filter(here)
        middle = part.num_rows // 2
        found += [(region, part.slice(0, middle)), (region, part.slice(middle))]
    return found
