"""Define the verb `bench`: the demo, from generated tables to a report, by the verbs that users call.

It generates TPC-H, joins it into one wide table, and draws two logs of the same query templates: one to plan by, and
one of unseen queries to judge by. What an earlier run generated is used again.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.layouts import analyze, load, plan
from layoutopt.cli.questions import evaluate
from layoutopt.cli.up import CollectingSession
from layoutopt.config.fields import VerbSettings, is_positional
from layoutopt.config.files import VERBS, make_settings
from layoutopt.config.settings import BenchSettings
from layoutopt.errors import SettingError, SourceError
from layoutopt.model.methods import DEFAULT_BLOCK_ROWS

verbs = typer.Typer()

# Below this, the generator repeats (part, supplier) pairs, and the join would repeat line items.
MIN_SCALE, MAX_SCALE = 0.01, 1000.0
RAW_TABLES: Final = ("lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region")

# In Spark and in DuckDB. The order of lineitem is the order in which a warehouse would have received the rows.
DENORMALISE: Final = """
    SELECT l.*, o.*, c.*, p.*, ps.*, s.*,
        cn.n_name AS cn_name, cr.r_name AS cr_name, sn.n_name AS sn_name, sr.r_name AS sr_name,
        CAST(year(o.o_orderdate) AS INT) AS o_year,
        CAST(year(o.o_orderdate) * 100 + month(o.o_orderdate) AS INT) AS o_month
    FROM raw_lineitem l
        JOIN raw_orders o ON o.o_orderkey = l.l_orderkey
        JOIN raw_customer c ON c.c_custkey = o.o_custkey
        JOIN raw_part p ON p.p_partkey = l.l_partkey
        JOIN raw_supplier s ON s.s_suppkey = l.l_suppkey
        JOIN raw_partsupp ps ON ps.ps_partkey = l.l_partkey AND ps.ps_suppkey = l.l_suppkey
        JOIN raw_nation cn ON cn.n_nationkey = c.c_nationkey JOIN raw_region cr ON cr.r_regionkey = cn.n_regionkey
        JOIN raw_nation sn ON sn.n_nationkey = s.s_nationkey JOIN raw_region sr ON sr.r_regionkey = sn.n_regionkey
    ORDER BY l.l_orderkey, l.l_linenumber
"""

# Queries of TPC-H as scans of the wide table, and the values of their parameters.
_TEMPLATES: Final = (
    "SELECT l_orderkey, l_extendedprice, l_discount, o_orderdate FROM tpch WHERE c_mktsegment = '{segment}'"
    " AND o_orderdate < DATE '1995-03-{day:02}' AND l_shipdate > DATE '1995-03-{day:02}'",
    "SELECT sn_name, l_extendedprice, l_discount FROM tpch WHERE c_nationkey = s_nationkey AND sr_name = '{region}'"
    " AND o_orderdate >= DATE '{year}-01-01' AND o_orderdate < DATE '{year}-01-01' + INTERVAL '1' YEAR",
    "SELECT l_extendedprice, l_discount FROM tpch WHERE l_shipdate >= DATE '{year}-01-01'"
    " AND l_shipdate < DATE '{year}-01-01' + INTERVAL '1' YEAR"
    " AND l_discount BETWEEN 0.0{percent} - 0.01 AND 0.0{percent} + 0.01 AND l_quantity < {quantity}",
    "SELECT c_custkey, c_name, l_extendedprice, l_discount FROM tpch WHERE o_orderdate >= DATE '{year}-{month:02}-01'"
    " AND o_orderdate < DATE '{year}-{month:02}-01' + INTERVAL '3' MONTH AND l_returnflag = 'R'",
    "SELECT l_shipmode, o_orderpriority FROM tpch WHERE l_shipmode IN ('{mode}', 'MAIL')"
    " AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate"
    " AND l_receiptdate >= DATE '{year}-01-01' AND l_receiptdate < DATE '{year}-01-01' + INTERVAL '1' YEAR",
)
_PARAMETERS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "segment": ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"),
        "region": ("AFRICA", "AMERICA", "ASIA", "EUROPE"), "mode": ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "FOB"),
        "year": range(1993, 1998), "month": range(1, 13), "day": range(1, 32),
        "percent": range(2, 10), "quantity": (24, 25),
    }
)  # fmt: skip
_LOGS: Final = MappingProxyType({"train": 200, "test": 50})  # queries of each
# The fewest rows of a block: at small scale factors a table of the default's blocks has few.
_LEAST_BLOCK_ROWS: Final = 1_000

_BODIES: Final = MappingProxyType({"analyze": analyze, "plan": plan, "load": load, "evaluate": evaluate})


@add_verb(verbs, BenchSettings, example="layoutopt bench demo --sf 0.1")
def bench(settings: BenchSettings, session: Session) -> None:
    """Show what layoutopt does, on generated tables.

    Generates TPC-H, and runs `analyze`, `plan`, `load` and `evaluate`. In a checkout, `python -m jobs.bench` runs the
    experiments of the documentation.
    """
    steps, started = CollectingSession(**vars(session)), time.monotonic()

    def tell(sentence: str) -> None:
        steps.tell(f"{time.monotonic() - started:4.0f} s  {sentence}")

    folder = settings.folder / f"sf{settings.sf:g}"
    raw, source, demo = folder / "raw", folder / "denorm", folder / "demo"
    if not raw.exists():
        tell(f"generating TPC-H at scale factor {settings.sf:g} in {raw}")
        generate(settings.sf, raw)
    if not source.exists():
        tell(f"joining its tables in {source}")
        denormalise(raw, source)
    shutil.rmtree(demo, ignore_errors=True)
    demo.mkdir()
    for name in _LOGS:
        (demo / f"{name}.sql").write_text(";\n".join(draw_queries(name)), encoding="utf-8")
    for verb, values in _list_steps(source, demo, settings.sf).items():
        kind = VERBS[verb]
        tell(f"$ layoutopt {verb} {_format_values(kind, values)}")
        tell(steps.run(verb, _BODIES[verb], make_settings(kind, values)))  # type: ignore[arg-type]  # of the same verb
    table, condition = demo / "table", next(draw_queries("test")).partition(" WHERE ")[2]
    tell("the report has a plot of what each query reads; `explain` tells what one skips, and why not more:")
    steps.tell(f'layoutopt explain {table} "SELECT count(*) FROM tpch WHERE {condition}"')
    steps.end({"table": str(table), "report": str(demo / "report.html")})


def _list_steps(source: Path, demo: Path, scale: float) -> dict[str, dict[str, object]]:
    """Return the settings of each verb."""
    names = ("train.sql", "test.sql", "features.json", "plan.json", "table", "report.html")
    train, test, features, planned, table, report = (str(demo / name) for name in names)
    rows = max(_LEAST_BLOCK_ROWS, round(DEFAULT_BLOCK_ROWS * min(1.0, scale)))
    layout = {"partition_by": "o_year", "method": "sop", "guides": "features", "block_rows": rows}
    return {
        "analyze": {"log": train, "schema": str(source), "output": features},
        "plan": {"source": str(source), "features": features, **layout, "output": planned},
        "load": {"source": str(source), "table": table, "plan": planned, "executor": "local"},
        "evaluate": {"table": table, "log": test, "actual": True, "html": report},
    }


def _format_values(kind: type[VerbSettings], values: Mapping[str, object]) -> str:
    """Return settings as the words after a verb."""
    places = {field.alias or name for name, field in kind.model_fields.items() if is_positional(field)}
    flags = {name: name.replace("_", "-") for name in values if name not in places}
    words = [str(values[name]) for name in values if name in places]
    words += [f"--{flag}" if values[name] is True else f"--{flag} {values[name]}" for name, flag in flags.items()]
    return " ".join(words)


def draw_queries(log: str) -> Iterator[str]:
    """Yield the queries of a log, the templates taking turns; always the same."""
    rng = random.Random(log)
    for number in range(_LOGS[log]):
        yield _TEMPLATES[number % len(_TEMPLATES)].format_map(
            {name: rng.choice(values) for name, values in _PARAMETERS.items()}
        )


def check_scale(scale: float) -> float:
    """Return a scale factor that the generator can make.

    Raises:
        SettingError: outside of [0.01, 1000].
    """
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise SettingError(f"scale factor {scale:g} is not from {MIN_SCALE:g} to {MAX_SCALE:g}: try --sf 0.1")
    return scale


def find_generator() -> str:
    """Find `tpchgen-cli`: beside this Python first, so that the pinned one is used."""
    path = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
    if path is None:
        raise SettingError("tpchgen-cli is not installed: run `make install`, or pip install 'layoutopt[bench]'")
    return path


def generate(scale: float, folder: Path) -> None:
    """Generate the eight tables of TPC-H, unless they are there; the folder appears only when complete.

    Raises:
        SettingError: the generator is not installed, or can't make that scale factor.
        SourceError: the generator failed; its own words are in the message.
    """
    if folder.exists():
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [find_generator(), "parquet", "-s", f"{check_scale(scale):g}", "--output-dir", str(unfinished), "--quiet"]
    unfinished.mkdir(parents=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SourceError(f"tpchgen-cli failed at scale factor {scale:g}: {done.stderr.strip()[-300:]}")
    unfinished.rename(folder)


def denormalise(raw: Path, folder: Path) -> None:
    """Join the generated tables onto lineitem by DuckDB; the folder appears only when complete."""
    import duckdb

    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with duckdb.connect() as connection:
        for table in RAW_TABLES:
            connection.execute(f"CREATE VIEW raw_{table} AS FROM read_parquet('{raw / table}.parquet')")
        connection.execute(f"COPY ({DENORMALISE}) TO '{unfinished / 'rows.parquet'}' (COMPRESSION zstd)")
    unfinished.rename(folder)
