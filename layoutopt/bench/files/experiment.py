"""`layoutopt bench files`: what engines that nobody may touch read of files of one size, laid out in several ways."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, run
from layoutopt.bench.tpch import experiment
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import (
    Bench,
    Variant,
    data_step,
    load_table,
    make_plan_file,
    plan_step,
    read_test_queries,
    stream_for_testing,
    table_folder,
    write_stream,
)
from layoutopt.bench.tpch.queries import TABLE
from layoutopt.errors import SettingError
from layoutopt.methods import registry

if TYPE_CHECKING:
    from layoutopt.bench.files.reading import Reading
    from layoutopt.model.predicates import Node
    from layoutopt.model.query import Query
    from layoutopt.scan.table import Table

STREAM: Final = "chapter3"
_SERVED: Final = "-served"
SOP_SERVED: Final = f"sop{_SERVED}"
"""`sop` for what arrives of the training queries at `serve`."""
METHODS: Final = ("sop", SOP_SERVED, "zorder", "sort")
MANY: Final = 10_000
SIZES: Final = (4_000_000, 16_000_000, 64_000_000)
"""Of files that blocks are grouped into on the catalog alone."""
OURS: Final = "our reader"
OUR_FILES: Final = "our reader, whole files"
OURS_ASKED: Final = "our reader, asked in Iceberg's words"
SERVED: Final = "pyiceberg through serve"
ICEBERG: Final = "pyiceberg"
DELTA: Final = "deltalake"
DUCKDB: Final = "duckdb"


@dataclass(frozen=True)
class Case:
    """A table in files of a size.

    Attributes:
        method: as `--method` takes it, or :data:`SOP_SERVED`. Peers know of no features, so that whoever reads them
            skips by minima and maxima.
        block_rows: the rows of a block.
        file_bytes: how large its files may grow.
    """

    method: str
    block_rows: int
    file_bytes: int

    @property
    def served(self) -> float:
        """What `analyze --served` is told."""
        return 1.0 if self.method == SOP_SERVED else 0.0

    @property
    def variant(self) -> Variant:
        """How it is planned."""
        method = self.method.removesuffix(_SERVED)
        return Variant(f"{self.method} by year", method, "o_year", self.block_rows, features=method == "sop")

    def planned(self, bench: Bench) -> Path:
        """Where its plan goes."""
        return table_folder(bench, STREAM, self.variant)

    def folder(self, bench: Bench) -> Path:
        """Where its other products go."""
        return self.planned(bench) / f"files-{self.file_bytes}"


def case_plan_step(bench: Bench, case: Case) -> Step:
    """Plan a case."""
    if not case.served:
        return plan_step(bench, STREAM, case.variant)
    folder, product = case.planned(bench), case.planned(bench) / "features.json"

    def analyse() -> Json:
        from layoutopt.config.settings import AnalyzeSettings
        from layoutopt.features.analysis import analyze_log

        log, source = str(write_stream(bench, STREAM, "train")), str(bench.data.denormalised)
        settings = AnalyzeSettings(
            log=log, schema_source=source, table=TABLE, num_features=experiment.NUM_FEATURES, served=case.served
        )
        found: Json = analyze_log(settings).document.to_json()
        return found

    features = Step(f"{STREAM}: analysing what arrives of the training stream", product, analyse, (data_step(bench),))
    return Step(
        f"{STREAM}: planning {case.method}",
        folder / "planned.json",
        partial(make_plan_file, bench.spark, bench.data.denormalised, case.variant, product, folder),
        (features,),
    )


def load_step(bench: Bench, case: Case) -> Step:
    """Plan and load a case, and publish it in both formats."""
    folder, planned = case.folder(bench), case.planned(bench) / "plan.json"

    def make() -> Json:
        from layoutopt.model.layout import Plan
        from layoutopt.publish.publishing import publication, publish

        plan = replace(Plan.loads(planned.read_bytes()), file_bytes=case.file_bytes)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_bytes(plan.dumps())
        loaded = load_table(bench.spark(), bench.data.denormalised, folder)
        table = str(folder / "table")
        for format in ("iceberg", "delta"):
            publish(table, publication(table, format))
        return loaded

    name = f"loading {case.method} in files of {case.file_bytes:,} bytes"
    return Step(name, folder / "loaded.json", make, (case_plan_step(bench, case),))


def reading_step(bench: Bench, case: Case) -> Step:
    """Let every reader plan the unseen queries on a case."""
    folder = case.folder(bench)
    make = partial(read_by_all, bench, folder / "table")
    return Step(f"reading {case.method} by others", folder / "read.json", make, (load_step(bench, case),))


def shared_step(bench: Bench, case: Case) -> Step:
    """Group a case's blocks into files of several sizes."""
    folder = case.folder(bench)

    def make() -> Json:
        from layoutopt.bench.files.shared import asked_of, shared_bytes
        from layoutopt.scan.table import open_table

        asked = asked_of(open_table(str(folder / "table")), read_test_queries(bench, STREAM))
        return {"sizes": [shared_bytes(asked, size) for size in SIZES]}

    return Step(f"grouping the blocks of {case.method}", folder / "shared.json", make, (load_step(bench, case),))


def planning_step(bench: Bench, case: Case) -> Step:
    """Time a server that plans the unseen queries on a case's files, each under so many names that they are 10,000."""
    folder = case.folder(bench)

    def make() -> Json:
        from layoutopt.bench.files.many import multiply, planning_seconds

        many = folder / "many"
        multiply(folder / "table", many, MANY)
        found = planning_seconds(many, read_test_queries(bench, STREAM))
        shutil.rmtree(many)
        return found

    return Step(f"planning scans of {MANY:,} files", folder / "planning.json", make, (load_step(bench, case),))


def read_by_all(bench: Bench, root: Path) -> Json:
    """What each reader reads of a table for each unseen query."""
    from layoutopt.bench.files.reading import by_delta, by_duckdb, by_iceberg, served_table, static_table
    from layoutopt.scan.table import open_table
    from layoutopt.workload.served import said

    queries = read_test_queries(bench, STREAM)
    table, published = open_table(str(root)), static_table(root)
    with served_table(root) as served:
        by_reader = {
            SERVED: by_iceberg(served, queries),
            ICEBERG: by_iceberg(published, queries),
            DELTA: by_delta(root, published.schema(), queries),
            **by_ourselves(table, queries),
        }
    paths = [table.catalog.files.full_path(path) for source in table.sources for path in source.blocks.files]
    texts = [query.sql for query in stream_for_testing(STREAM)]
    return {
        "files": len(paths),
        "rows": table.rows,
        "said": [said(query.filter.root) == query.filter.root for query in queries],
        "templates": [query.template for query in stream_for_testing(STREAM)],
        "readings": {name: [asdict(each) for each in found] for name, found in by_reader.items()},
        DUCKDB: by_duckdb(paths, texts, TABLE),
    }


def by_ourselves(table: Table, queries: Sequence[Query]) -> dict[str, list[Reading]]:
    """What our own reader reads of a table of one layout, and in files read whole; and by what Iceberg can say."""
    from layoutopt.workload.served import said

    blocks = [_blocks_read(table, query.filter.root, query.columns) for query in queries]
    asked = [_blocks_read(table, said(query.filter.root), query.columns) for query in queries]
    return {
        OURS: [block for block, _ in blocks],
        OUR_FILES: [file for _, file in blocks],
        OURS_ASKED: [block for block, _ in asked],
    }


def _blocks_read(table: Table, root: Node, columns: Sequence[str]) -> tuple[Reading, Reading]:
    """What a filter leaves of the blocks, and of the files that have one of these."""
    from layoutopt.bench.files.reading import Reading

    (pruned,) = table.prune(root, columns)
    blocks = pruned.source.blocks
    opened = np.isin(blocks.file, blocks.file[pruned.read])
    files, of_files = len(np.unique(blocks.file[opened])), int(blocks.rows[opened].sum())
    by_block, by_file = (
        Reading(files, int(blocks.rows[read].sum()), int(pruned.bytes[read].sum()), of_files)
        for read in (pruned.read, opened)
    )
    return by_block, by_file


def run_files(
    scale: float,
    *,
    root: Path = DEFAULT_ROOT,
    methods: Sequence[str] = METHODS,
    block_rows: int = 10_000,
    file_bytes: int = 4_000_000,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, Any]]:
    """What readers read of the same rows in files of a size, laid out by several methods, for queries no plan has seen.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments; what was read there is not read again.
        methods: how the rows are laid out; of all but ``sop`` no features are known.
        block_rows: the rows of a block.
        file_bytes: how large a file may grow.
        say: told each step that is run.

    Returns:
        By method what :func:`read_by_all` found; where there are features also as ``shared`` what
        :func:`layoutopt.bench.files.shared.shared_bytes` says of files of several sizes, and as ``planning`` what
        :func:`layoutopt.bench.files.many.planning_seconds` found of its files, each under many names.

    Raises:
        SettingError: a scale factor that can't be generated, or a method that is not known.
    """
    known = (*registry.METHODS, SOP_SERVED)
    unknown = [method for method in methods if method not in known]
    if unknown:
        raise SettingError(f"there is no method {unknown[0]!r}; give some of {', '.join(known)}")
    with spark_when_needed("layoutopt-files") as spark:
        bench = Bench(TpchData(scale, root), spark)
        cases = {method: Case(method, block_rows, file_bytes) for method in methods}
        found = {method: run(reading_step(bench, case), say) for method, case in cases.items()}
        for method, case in cases.items():
            if case.variant.features:
                found[method]["shared"] = run(shared_step(bench, case), say)["sizes"]
                found[method]["planning"] = run(planning_step(bench, case), say)
        return found
