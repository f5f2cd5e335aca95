"""Mistakes of users, over all verbs, and the files that they name."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import DONE

# Settings by which a session is started though no row needs it.
SPARK = ("SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR")
KEY = "00112233445566778899aabbccddeeff"
LOG = """
SELECT product FROM sales WHERE product = 'shoes';
SELECT product FROM sales WHERE product = 'shoes' AND revenue > 90;
SELECT revenue FROM sales WHERE product = 'hats';
SELECT revenue FROM sales WHERE product = 'hats' AND day = DATE '2026-01-02';
"""
ROWS = 300


def rows(number: int = ROWS) -> pa.Table:
    places = range(number)
    return pa.table(
        {
            "day": pa.array([dt.date(2026, 1, 1 + place % 3) for place in places], pa.date32()),
            "product": [("shoes", "hats", "coats", "bags")[place % 4] for place in places],
            "revenue": pa.array(places, pa.int64()),
        }
    )


def make_shop(folder: Path) -> None:
    """Write the files that mistakes name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SHOP_KEY", KEY)
        for name in SPARK:
            patch.delenv(name, raising=False)
        pq.write_table(rows(), "rows.parquet")
        pq.write_table(rows().rename_columns(["tag", "word", "size"]), "other.parquet")
        pq.write_table(rows().append_column("colour", rows()["product"]), "wider.parquet")
        pq.write_table(rows().set_column(2, "revenue", rows()["product"]), "retyped.parquet")
        for name, text in _TEXTS.items():
            Path(name).write_text(text, encoding="utf-8")
        for name in ("empty", "there", "there/data", "cut"):
            Path(name).mkdir()
        pq.write_table(rows(), "cut/1.parquet")
        Path("cut/2.parquet").write_bytes(Path("rows.parquet").read_bytes()[:-100])
        for day in (1, 2):  # the second is damaged
            path = Path(f"days/day=2026-01-0{day}/1.parquet")
            path.parent.mkdir(parents=True)
            pq.write_table(rows().drop_columns(["day"]), path)
        path.write_bytes(path.read_bytes()[:-100])
        Path("there/thesis.txt").write_text("mine", encoding="utf-8")
        for words in _SETUP:
            assert main(shlex.split(words)) == DONE, words
        assert main(["load", "rows.parquet", "secret", "--executor", "local", "--encrypt", "env:SHOP_KEY"]) == DONE


_TEXTS = {
    "log.sql": LOG,
    "other.sql": "SELECT word FROM others WHERE word = 'a';\nSELECT word FROM others WHERE word = 'a';",
    "empty.sql": "",
    "tsql.sql": "SELECT TOP 5 [product] FROM [dbo].[sales] WHERE [product] = 'shoes';\n" * 3,
    "query.jsonl": "".join(json.dumps({"query": text}) + "\n" for text in LOG.strip().splitlines()),
    "query.csv": "who,text\nann,SELECT product FROM sales\n",
    "broken.sql": "SELEC product FRM sales WHERE;\n" * 3,
    "log.txt": LOG,
    "no.json": "{]",
    "key.toml": "[analyze]\nnum-feature = 3\n",
    "section.toml": "[analyse]\nnum-features = 3\n",
    "type.toml": "[analyze]\nnum-features = 'many'\n",
    "broken.toml": "[analyze\n",
    "flat.toml": "num-features = 3\n",
    "no.parquet": "day,product\n",
    "tokens": "",
}
_SETUP = (
    "analyze log.sql --schema rows.parquet",
    "plan rows.parquet --method input-order --row-order none --partition-by day --block-rows 10",
    "load rows.parquet table --executor local",
    "analyze other.sql --schema other.parquet -o other.json",
    "plan other.parquet --features other.json --method input-order --row-order none -o otherplan.json",
)

# The command, its exit code, and words of the sentence.
MISTAKES: list[tuple[str, int, tuple[str, ...]]] = [
    # The command line.
    ("anlyze log.sql --schema rows.parquet", 2, ("'anlyze'", "did you mean 'analyze'")),
    ("analyze log.sql --shema rows.parquet", 2, ("--shema", "--schema")),
    ("analyze log.sql", 2, ("schema", "missing")),
    ("analyze", 2, ("log", "missing")),
    ("history table more", 2, ("'more'",)),
    ("query table", 2, ("sql", "missing")),
    ("status table --colour", 2, ("--colour",)),
    ("plan rows.parquet --method gospel", 2, ("method", "'gospel'", "did you mean 'gsop'")),
    ("plan rows.parquet --budget-unit byte", 2, ("budget-unit", "'byte'", "did you mean 'bytes'")),
    ("plan rows.parquet --block-rows many", 2, ("block-rows", "'many'", "whole number")),
    ("plan rows.parquet --block-rows 0", 2, ("block-rows", "'0'", "at least 1")),
    ("plan rows.parquet --file-bytes 12XB", 2, ("file-bytes", "'12XB'")),
    ("plan rows.parquet --index-budget 200%", 2, ("index-budget", "at most 1")),
    ("query table 'SELECT 1 FROM sales' --engine duckdbb", 2, ("engine", "'duckdbb'", "did you mean 'duckdb'")),
    ("query table 'SELECT 1 FROM sales' --limit 0", 2, ("limit", "'0'")),
    ("load rows.parquet table --executor loca", 2, ("executor", "'loca'", "did you mean 'local'")),
    ("expire table", 2, ("--before", "exactly one")),
    ("expire table --keep 0d", 2, ("keep", "'0d'")),
    ("vacuum table --older-than yesterday", 2, ("older-than", "'yesterday'", "7d")),
    ("vacuum table --retain-snapshots 0", 2, ("retain-snapshots", "'0'")),
    ("publish table --as hudi", 2, ("as", "'hudi'", "delta", "iceberg")),
    ("publish table", 2, ("--as", "missing")),
    ("serve table --port 99999", 2, ("port", "'99999'", "65535")),
    ("bench demos", 2, ("experiment", "'demos'", "did you mean 'demo'")),
    ("optimize table --budget-share 5", 2, ("budget-share", "'5'")),
    # The configuration.
    ("analyze log.sql --schema rows.parquet --conf key.toml", 2, ("'num-feature'", "did you mean 'num-features'")),
    ("analyze log.sql --schema rows.parquet --conf section.toml", 2, ("'analyse'", "did you mean 'analyze'")),
    ("analyze log.sql --schema rows.parquet --conf type.toml", 2, ("num-features", "'many'", "type.toml")),
    ("analyze log.sql --schema rows.parquet --conf broken.toml", 2, ("broken.toml", "not TOML")),
    ("analyze log.sql --schema rows.parquet --conf flat.toml", 2, ("'num-features'", "flat.toml")),
    ("analyze log.sql --schema rows.parquet --conf nowhere.toml", 2, ("nowhere.toml",)),
    ("delete table --where 'revenue = 1' --udf functions:f", 2, ("functions:f",)),
    # Logs.
    ("analyze nowhere.sql --schema rows.parquet", 2, ("nowhere.sql",)),
    ("analyze log.txt --schema rows.parquet", 2, ("log.txt", ".sql")),
    ("analyze empty --schema rows.parquet", 2, ("'empty'", "folder")),
    ("analyze empty.sql --schema rows.parquet", 2, ("empty.sql",)),
    ("analyze tsql.sql --schema rows.parquet", 2, ("spark", "--dialect tsql")),
    ("analyze broken.sql --schema rows.parquet", 2, ("spark", "--dialect")),
    ("analyze log.sql --schema rows.parquet --dialect sprak", 2, ("'sprak'", "did you mean 'spark'")),
    ("analyze query.jsonl --schema rows.parquet", 2, ("'sql'", "query", "--column query")),
    ("analyze query.jsonl --schema rows.parquet --table sales --column qery", 2, ("'qery'", "--column query")),
    ("analyze query.csv --schema rows.parquet", 2, ("query.csv", "'sql'", "--column")),
    ("analyze other.sql --schema rows.parquet --table sales", 2, ("'sales'", "others")),
    ("analyze other.sql --schema rows.parquet", 2, ("word",)),
    ("analyze log.sql --schema rows.parquet --exclude-columns produkt", 2, ("'produkt'", "did you mean 'product'")),
    ("analyze log.sql --schema rows.parquet -o there/nowhere/x.json", 2, ("there/nowhere/x.json", "create")),
    ("analyze log.sql --schema rows.parquet -o there", 2, ("'there'", "folder")),
    ("analyze log.sql --schema rows.parquet --time-zone Europe/Pragu", 2, ("'Europe/Pragu'",)),
    ("analyze log.sql --schema rows.parquet --half-life 30d", 2, ("timestamp", "--half-life")),
    ("evaluate table query.jsonl", 2, ("'sql'", "--column query")),
    ("evaluate table other.sql", 2, ("'sales'", "others")),
    ("evaluate table tsql.sql", 2, ("--dialect tsql",)),
    ("drift table nowhere.sql", 2, ("nowhere.sql",)),
    ("verify table --queries other.sql", 2, ("'sales'", "others")),
    ("advise rows.parquet query.jsonl", 2, ("--column query",)),
    ("advise rows.parquet log.sql --engine snowflak", 2, ("'snowflak'", "did you mean 'snowflake'")),
    ("advise rows.parquet log.sql --partition-by dya", 2, ("'dya'", "did you mean 'day'")),
    ("advise nowhere.parquet log.sql", 2, ("nowhere.parquet",)),
    # Sources.
    ("analyze log.sql --schema nowhere.parquet", 2, ("nowhere.parquet",)),
    ("analyze log.sql --schema empty", 2, ("'empty'", "Parquet")),
    ("analyze log.sql --schema no.parquet", 2, ("no.parquet", "Parquet")),
    ("plan nowhere.parquet", 2, ("nowhere.parquet",)),
    ("plan empty", 2, ("'empty'",)),
    ("plan no.parquet", 2, ("no.parquet",)),
    ("plan other.parquet", 2, ("other.parquet", "'day'", "features file")),
    ("plan retyped.parquet", 2, ("'revenue'", "string", "bigint")),
    ("load nowhere.parquet table", 2, ("nowhere.parquet",)),
    ("load empty table", 2, ("'empty'",)),
    ("load no.parquet table", 2, ("no.parquet",)),
    ("load other.parquet table", 2, ("other.parquet", "'day'")),
    ("load wider.parquet table", 2, ("'colour'",)),
    ("load cut table --executor spark", 2, ("cut/2.parquet", "can't be read as Parquet")),
    ("load days table --partition day=2026-01-02 --executor spark", 2, ("day=2026-01-02/1.parquet", "as Parquet")),
    ("load delta:nowhere table", 2, ("nowhere",)),
    ("load delt:nowhere table", 2, ("delt:nowhere", "did you mean 'delta'")),
    ("append table nowhere.parquet", 2, ("nowhere.parquet",)),
    ("append table other.parquet", 2, ("other.parquet", "'day'")),
    ("append table wider.parquet", 2, ("'colour'",)),
    ("append table retyped.parquet", 2, ("'revenue'", "string", "bigint")),
    ("merge table nowhere.parquet --on revenue", 2, ("nowhere.parquet",)),
    ("merge table other.parquet --on revenue", 2, ("other.parquet", "'day'")),
    ("verify table --source nowhere.parquet", 2, ("nowhere.parquet",)),
    ("verify table --source other.parquet", 2, ("other.parquet", "'day'")),
    ("index nowhere --into indexes --index product:bloom", 2, ("nowhere",)),
    ("index empty --into indexes --index product:bloom", 2, ("empty",)),
    ("index rows.parquet --into indexes --index produkt:bloom", 2, ("'produkt'", "did you mean 'product'")),
    ("index rows.parquet --into indexes --index product:blom", 2, ("'blom'", "did you mean 'bloom'")),
    ("index rows.parquet --into indexes --index product", 2, ("'product'", "COLUMN:TYPE")),
    ("index rows.parquet --into indexes --index-budget 2%", 2, ("--log",)),
    ("refresh table", 2, ("'table'",)),
    ("refresh nowhere", 2, ("nowhere",)),
    # Documents.
    ("plan rows.parquet --features nowhere.json", 2, ("nowhere.json", "layoutopt analyze")),
    ("plan rows.parquet --features plan.json", 2, ("plan.json", "a plan", "layoutopt analyze")),
    ("plan rows.parquet --features no.json", 2, ("no.json",)),
    ("plan rows.parquet --features other.json", 2, ("rows.parquet", "'tag'", "features file")),
    ("load rows.parquet table --plan nowhere.json", 2, ("nowhere.json", "layoutopt plan")),
    ("load rows.parquet table --plan features.json", 2, ("features.json", "a features file")),
    ("load rows.parquet table --plan otherplan.json", 2, ("'others'", "'sales'")),
    ("plan rows.parquet --partition-by dya", 2, ("'dya'", "did you mean 'day'")),
    ("plan rows.parquet --method sort --by revnue", 2, ("'revnue'", "did you mean 'revenue'")),
    ("plan rows.parquet --row-order revnue", 2, ("'revnue'", "did you mean 'revenue'")),
    ("plan rows.parquet --index produkt:bloom", 2, ("'produkt'", "did you mean 'product'")),
    ("plan rows.parquet --index product:blom", 2, ("'blom'", "did you mean 'bloom'")),
    ("plan rows.parquet --index product:bloom:x", 2, ("type of index", "'x'")),
    ("plan rows.parquet -o nowhere/plan.json", 2, ("nowhere/plan.json",)),
    # Partitions.
    ("load rows.parquet table --partition dya=2026-01-01", 2, ("'dya'", "day")),
    ("load rows.parquet table --partition day=2026-13-01", 2, ("'2026-13-01'", "date", "2026-01-31")),
    ("load rows.parquet table --partition day=tomorrow", 2, ("'tomorrow'", "date")),
    ("load rows.parquet table --partition day=2026-01-09 --executor spark", 4, ("day=2026-01-09", "no rows")),
    ("load days table --from 2026-02-01 --to 2026-02-03 --executor spark", 4, ("2026-02-01", "2026-02-03", "no rows")),
    ("load rows.parquet table --from 2026-01-03 --to 2026-01-01", 2, ("--from", "--to", "2026-01-03")),
    ("load rows.parquet table --from tomorrow", 2, ("'tomorrow'", "date")),
    ("load rows.parquet table --partition day=2026-01-01 --from 2026-01-01", 2, ("--partition", "--from")),
    ("load other.parquet new --plan otherplan.json --partition day=1", 2, ("partitions", "--partition")),
    ("reload table rows.parquet", 2, ("--partition",)),
    ("reload table rows.parquet --partition day=2026-13-01", 2, ("'2026-13-01'", "date")),
    ("optimize table --partition day=2026-01-09", 2, ("day=2026-01-09", "status")),
    ("optimize table --budget-bytes 1 --budget-share 0.1", 2, ("--budget-bytes", "--budget-share")),
    ("optimize table --auto", 2, ("--log",)),
    ("optimize table --plan features.json", 2, ("features.json", "a features file")),
    ("optimize table --plan otherplan.json", 2, ("otherplan.json", "other columns")),
    ("optimize table --log query.jsonl", 2, ("--column query",)),
    # Tables.
    ("query nowhere 'SELECT 1 FROM sales'", 2, ("'nowhere'",)),
    ("query there 'SELECT 1 FROM sales'", 2, ("'there'",)),
    ("query rows.parquet 'SELECT 1 FROM sales'", 2, ("'rows.parquet'",)),
    ("query table 'SELECT 1 FROM sales' --engine spark --snapshot 7", 2, ("7", "history")),
    ("query table 'SELECT 1 FROM sales' --snapshot 7", 2, ("7", "history")),
    ("query table 'SELECT 1 FROM sales' --as-of yesterday", 2, ("'yesterday'", "2024-05-31T12:00")),
    ("query table 'SELECT 1 FROM sales' --as-of 1999-01-01", 2, ("1999-01-01",)),
    ("query table 'SELECT 1 FROM sales' --as-of 2026-01-01 --snapshot 0", 2, ("2026-01-01", "snapshot")),
    ("restore table --snapshot 7", 2, ("7",)),
    ("restore table --snapshot latest", 2, ("snapshot", "'latest'")),
    ("files table --layout 7", 2, ("7",)),
    ("load rows.parquet there", 2, ("'there'",)),
    ("load rows.parquet rows.parquet/new --plan plan.json --executor spark", 1, ("rows.parquet", "not a directory")),
    ("append nowhere rows.parquet", 2, ("nowhere",)),
    ("delete nowhere --where 'revenue = 1'", 2, ("nowhere",)),
    ("update nowhere --set 'revenue = 1' --where 'revenue = 1'", 2, ("nowhere",)),
    ("merge nowhere rows.parquet --on revenue", 2, ("nowhere",)),
    ("optimize nowhere", 2, ("nowhere",)),
    ("vacuum nowhere", 2, ("nowhere",)),
    ("publish nowhere --as delta", 2, ("nowhere",)),
    ("publish table --as delta --to iceberg:prod/web.sales", 2, ("iceberg:prod/web.sales",)),
    ("load rows.parquet table --replace --publish hudi", 2, ("'hudi'", "delta")),
    ("delete table --where 'revenue = 1' --publish hudi", 2, ("'hudi'", "delta")),
    ("serve nowhere", 2, ("nowhere",)),
    ("serve", 2, ("table", "--root")),
    ("serve table --host 0.0.0.0", 2, ("--token-file",)),
    ("serve table --token-file nowhere", 2, ("nowhere",)),
    ("serve table --token-file tokens", 2, ("tokens",)),
    ("serve table --port PORT", 2, ("PORT",)),
    # Queries and conditions.
    ("query table 'SELECT 1 FROM sales' --with shops", 2, ("'shops'", "NAME=PATH")),
    ("query table 'SELECT 1 FROM sales' --with shops=nowhere", 2, ("nowhere",)),
    ("query table 'SELECT 1 FROM sales' --with shops=nowhere.csv", 2, ("'nowhere.csv'",)),
    ("query table 'SELECT 1 FROM sales' --with shops=s3://b/shops.csv", 2, ("'s3://b/shops.csv'", "copy the file")),
    ("query table 'SELECT 1 FROM sales' --with shops=delta:there/shops.csv", 2, ("there/shops.csv", "Delta")),
    ("query table 'SELECT 1 FROM sales' --with shops=table/data", 2, ("table'", "is a layoutopt table")),
    ("query table 'SELECT 1 FROM sales' --with shops=there", 2, ("there",)),
    ("query table 'SELECT 1 FROM sales' --with a=rows.parquet --with A=rows.parquet", 2, ("'A' twice",)),
    ("query table 'SELECT 1 FROM sales' --with sales=rows.parquet", 2, ("'sales'", "another name")),
    ("query table 'SELECT 1 FROM sales JOIN shops ON true'", 2, ("'shops'", "read sales; add it by --with shops=PATH")),
    ("explain table 'revenue > 3' --with shops=rows.parquet", 2, ("'revenue > 3'", "leave out --with")),
    ("query table 'SELECT 1 FORM sales'", 2, ("FORM sales",)),
    ("query table 'SELECT (1 FROM sales'", 2, ("(1 FROM",)),
    ("query table 'SELECT colour FROM sales'", 2, ("colour", "expected one of day, product")),
    ("query table 'SELECT produkt FROM sales'", 2, ("produkt", "did you mean 'product'")),
    ("query table 'SELECT 1 FROM sails'", 2, ("sails", "sales")),
    ("query table 'DELETE FROM sales'", 2, ("DELETE", "layoutopt delete")),
    ("query table 'SELECT fst(product) FROM sales'", 2, ("fst",)),
    ("explain table 'revenue >'", 2, ("revenue >",)),
    ("explain table 'revnue > 3'", 2, ("revnue", "did you mean 'revenue'")),
    ("explain table 'revenue > 3' --predicate --bytes", 2, ("--predicate", "--bytes")),
    ("delete table --where 'revenue >'", 2, ("--where", "'revenue >'")),
    ("delete table --where 'revnue > 3'", 2, ("--where", "revnue", "did you mean 'revenue'")),
    ("delete table --where 'revenue'", 2, ("--where", "'revenue'", "condition", "bigint")),
    ("delete table --where ''", 2, ("where", "empty")),
    ("delete table --where 'revenue = 1) OR (1 = 1'", 2, ("--where",)),
    ("update table --set 'revenue' --where 'revenue = 1'", 2, ("--set", "'revenue'", "column = expression")),
    ("update table --set 'revnue = 1' --where 'revenue = 1'", 2, ("--set", "'revnue'", "did you mean 'revenue'")),
    ("update table --set 'revenue = revnue' --where 'revenue = 1'", 2, ("--set", "revnue", "did you mean 'revenue'")),
    ("update table --set 'revenue = (1' --where 'revenue = 1'", 2, ("--set", "revenue = (1")),
    ("update table --set 'revenue = 1' --set 'revenue = 2' --where 'revenue = 1'", 2, ("'revenue'", "twice")),
    ("update table --set \"day = DATE '2026-01-01'\" --where 'revenue = 1'", 2, ("'day'", "layoutopt merge")),
    ("update table --set 'revenue = 1' --where 'revnue = 1'", 2, ("--where", "revnue", "did you mean 'revenue'")),
    ("merge table rows.parquet --on revnue", 2, ("--on", "'revnue'", "did you mean 'revenue'")),
    ("merge table rows.parquet --on revenue --delete-when 'op ='", 2, ("--delete-when", "'op ='")),
    ("merge table rows.parquet --on revenue --delete-when \"op = 'D'\"", 2, ("--delete-when", "op")),
    # Keys.
    ("query secret 'SELECT 1 FROM sales'", 2, ("SHOP_KEY",)),
    ("query secret 'SELECT 1 FROM sales' --key env:OTHER_KEY", 2, ("OTHER_KEY",)),
    ("query secret 'SELECT 1 FROM sales' --key OTHER_KEY", 2, ("env:", "command:")),
    ("delete secret --where 'revenue = 1'", 2, ("SHOP_KEY",)),
    ("load rows.parquet new --encrypt env:OTHER_KEY", 2, ("OTHER_KEY",)),
    ("publish secret --as delta", 2, ("SHOP_KEY",)),
    # `up`.
    ("up nowhere.parquet log.sql", 2, ("nowhere.parquet",)),
    ("up rows.parquet nowhere.sql", 2, ("nowhere.sql",)),
    ("up rows.parquet log.sql --partition-by dya", 2, ("'dya'", "did you mean 'day'")),
    ("up rows.parquet log.sql --into rows.parquet/x", 2, ("--into",)),
    ("up rows.parquet query.jsonl", 2, ("--column query",)),
    ("up rows.parquet other.sql --table sales", 2, ("'sales'", "others")),
    ("up log.sql rows.parquet", 2, ("log.sql", "Parquet")),
    ("up rows.parquet", 2, ("log", "missing")),
]

# Only Spark knows: what parses differently in its SQL, what a condition computes, and which rows a source has.
BY_SPARK: list[tuple[str, int, tuple[str, ...]]] = [
    ("delete table --where \"day = '2026-13-01'\"", 2, ("--where", "2026-13-01")),
    ("delete table --where 'rand() < 0.5'", 2, ("--where", "deterministic")),
    ("delete table --where 'revenue revenue'", 2, ("--where", "'revenue revenue'")),
    ("delete table --where 'fst(product)'", 2, ("--where", "fst")),
    ("delete table --where 'revenue = day'", 2, ("--where", "'revenue = day'")),
    ("delete table --where 'CAST(product AS INT) = 1'", 2, ("--where", "CAST(product AS INT) = 1", "cannot be cast")),
    ("update table --set 'revenue = array(1)' --where 'revenue = 1'", 2, ("--set", "revenue = array(1)")),
    ("merge table rows.parquet --on product", 2, ("rows.parquet", "product")),
]
