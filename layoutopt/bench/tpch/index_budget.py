"""`layoutopt bench unforeseen`: what indexes of a budget save queries that no log foresaw, and what the best could.

The table is chapter 3's, planned with a log that has look-ups beside the stream. Each family's bytes are told without
indexes, with those chosen, and as they would be if just the blocks were read that hold a row of the query: no index of
blocks saves more, whatever it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, key_of, run
from layoutopt.bench.tpch.ablation import block_rows
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import SEED, Bench, data_step, load_table
from layoutopt.bench.tpch.index_loads import loads_in_turns
from layoutopt.bench.tpch.queries import STREAMS, TABLE, TRAINING_QUERIES, draw_stream, write_log
from layoutopt.bench.tpch.unforeseen import draw_unforeseen

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.model.query import Query
    from layoutopt.scan.table import Table

BUDGET: Final = 0.02
STREAM: Final = "chapter3"


@dataclass(frozen=True)
class FamilyFigure:
    """What the test queries of one family read, in bytes, or all of them.

    Attributes:
        family: its name.
        without: of blocks without indexes.
        read: of blocks with them.
        indexes: of index files, each as often as a query needs it.
        needed: of blocks that hold a row of the query.
    """

    family: str
    without: int
    read: int
    indexes: int
    needed: int

    def __add__(self, other: FamilyFigure) -> FamilyFigure:
        mine, theirs = vars(self), vars(other)
        return FamilyFigure("all", **{name: mine[name] + theirs[name] for name in mine if name != "family"})

    @property
    def ratio(self) -> float:
        """How many times fewer bytes of blocks are read by indexes."""
        return self.without / max(self.read, 1)

    @property
    def ratio_with_indexes(self) -> float:
        """As :attr:`ratio`, what is read of index files counted too."""
        return self.without / max(self.read + self.indexes, 1)

    @property
    def best(self) -> float:
        """How many times fewer any index of blocks could save at most."""
        return self.without / max(self.needed, 1)


def unforeseen_figures(
    scale: float, *, root: Path = DEFAULT_ROOT, budget: float = BUDGET, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Plan, load and replay; finished steps are used again.

    Returns:
        ``families``, the fields of a :class:`FamilyFigure` each, the ``indexes`` chosen, with their ``bytes``,
        ``data_bytes``, the table's, and ``loads``, as :func:`~layoutopt.bench.tpch.index_loads.loads_in_turns`.

    Raises:
        SettingError: a scale factor that can't be generated.
    """
    with spark_when_needed(f"layoutopt unforeseen, sf {scale:g}") as spark:
        bench = Bench(TpchData(scale, root), spark)
        step = unforeseen_step(bench, budget)
        said, folder = "unforeseen: loading with indexes and without, in turns", step.product.parent
        turns = Step(said, folder / "turns.json", partial(loads_in_turns, bench, folder), (step,))
        return {**run(step, say), "loads": run(turns, say)}


def unforeseen_step(bench: Bench, budget: float) -> Step:
    """The last step, whose product :func:`unforeseen_figures` gives."""
    rows = block_rows(bench.data.scale)
    folder = bench.folder / key_of(f"unforeseen {STREAM}", {"budget": budget, "block_rows": rows})
    features = Step(
        "unforeseen: analysing the log",
        folder / "features.json",
        partial(_features, bench, folder),
        (data_step(bench),),
    )
    plan = Step(
        f"unforeseen: planning with indexes of {budget:.1%}",
        folder / "planned.json",
        partial(_plan, bench, folder, features.product, budget, rows),
        (features,),
    )
    load = Step(
        "unforeseen: loading",
        folder / "loaded.json",
        lambda: load_table(bench.spark(), bench.data.denormalised, folder),
        (plan,),
    )
    return Step("unforeseen: replaying", folder / "replayed.json", partial(replayed, bench, folder / "table"), (load,))


def _features(bench: Bench, folder: Path) -> Json:
    from layoutopt.config.settings import AnalyzeSettings
    from layoutopt.features.analysis import analyze_log

    log = folder / "train.jsonl"
    stream = draw_stream(STREAMS[STREAM], "train", TRAINING_QUERIES, SEED)
    write_log((*stream, *draw_unforeseen("train", bench.data.scale, SEED)), log)
    settings = AnalyzeSettings(log=str(log), schema_source=str(bench.data.denormalised), table=TABLE)
    document: Json = analyze_log(settings).document.to_json()
    return document


def _plan(bench: Bench, folder: Path, features: Path, budget: float, rows: int) -> Json:
    from layoutopt.config.documents import read_features
    from layoutopt.config.settings import PlanSettings
    from layoutopt.spark.planning.indexes import plan_with_indexes

    settings = PlanSettings(
        source=str(bench.data.denormalised),
        features=features,
        partition_by="o_year",
        method="sop",
        block_rows=rows,
        index_budget=budget,
    )
    said: list[str] = []
    plan = plan_with_indexes(bench.spark(), settings, read_features(features), said.append)
    (folder / "plan.json").write_bytes(plan.dumps())
    return {"digest": plan.digest, "predicted": dict(plan.predicted), "said": said}


def replayed(bench: Bench, path: Path) -> Json:
    """Replay the test queries on the table at a path."""
    from layoutopt.scan.matches import find_matches, questions_of
    from layoutopt.scan.table import open_table
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    drawn = draw_unforeseen("test", bench.data.scale, SEED)
    log = path.parent / "test.jsonl"
    write_log(drawn, log)
    table = open_table(str(path))
    queries = analyze(read_log(log), table.schema, TABLE).queries
    questions, of_query = questions_of(table, queries, "spark")
    (matches,) = find_matches(table, questions)
    sizes = _index_bytes(table)
    figures: dict[str, FamilyFigure] = {}
    for query, question in zip(queries, of_query, strict=True):
        if question is None:
            raise AssertionError(f"nobody but Spark can tell what matches {query.sql}")
        family = drawn[query.id].template
        figure = _figure(table, sizes, query, family, matches.block[:, question])
        figures[family] = figures[family] + figure if family in figures else figure
    return {
        "families": [{**vars(figure), "family": family} for family, figure in figures.items()],
        "indexes": {str(spec): size for spec, size in sizes.items()},
        "data_bytes": int(sum(source.blocks.bytes.sum() for source in table.sources)),
    }


def _figure(table: Table, sizes: Mapping[Any, int], query: Query, family: str, holding: Any) -> FamilyFigure:
    from layoutopt.indexes.choosing import candidates
    from layoutopt.scan.prune import PruneOutcome

    (pruned,) = table.prune(query.filter.root, query.columns)
    read, by_index = (pruned.size(outcome).bytes for outcome in (PruneOutcome.READ, PruneOutcome.INDEX))
    asked = {(spec.subject, spec.kind) for spec in candidates([query.filter.root])}
    of_indexes = sum(size for spec, size in sizes.items() if (spec.subject, spec.kind) in asked)
    return FamilyFigure(family, read + by_index, read, of_indexes, int(pruned.bytes[holding].sum()))


def _index_bytes(table: Table) -> Mapping[Any, int]:
    """The bytes of the files of each index."""
    sizes: dict[Any, int] = {}
    for source in table.sources:
        for named in source.blocks.index_files:
            sizes[named.index] = sizes.get(named.index, 0) + named.digest.size
    return sizes


def print_unforeseen(console: Console, found: Mapping[str, Any], scale: float) -> None:
    """The figures as a table, a line a family and one for all, and the indexes chosen."""
    from rich.table import Table as RichTable

    families = [FamilyFigure(**each) for each in found["families"]]
    total = families[0]
    for each in families[1:]:
        total = total + each
    table = RichTable(title=f"queries that no log foresaw, at scale factor {scale:g}", title_justify="left")
    table.add_column("queries")
    for name in ("without", "with indexes", "times fewer", "with their files", "at best"):
        table.add_column(name, justify="right")
    for each in (*families, total):
        ratios = [f"{ratio:.1f}x" for ratio in (each.ratio, each.ratio_with_indexes, each.best)]
        sizes = [f"{size / 1e6:,.1f} MB" for size in (each.without, each.read)]
        table.add_row(each.family, *sizes, *ratios)
    console.print(table)
    for index, size in found["indexes"].items():
        console.print(f"{index}: {size / 1e6:,.2f} MB, {size / found['data_bytes']:.2%} of the data")
    loads = found["loads"]
    taken = f"{loads['seconds']:.2f} times the seconds of one without, {loads['cpu_seconds']:.2f} times the processors'"
    console.print(f"a load with indexes takes {taken} (medians of {len(loads['rounds'])} rounds in turns)")
