"""Query streams over the denormalised TPC-H table: the templates of Sun 2017, sections 3.7.2, 4.7.2 and 5.7.1.

Each template of the TPC-H specification is reduced to its scan of the denormalised table `tpch`: the columns it reads
and its filters; joins, aggregates and subqueries are gone. The substitution parameters are the specification's own
(clause 2.4). Where the thesis counts fewer columns than the specification's text reads, the text gives way: q2 reads no
`ps_supplycost`, q16 no `s_comment`, q17 no `l_quantity`, q20 no `p_name` (so only its outer scan is left).

In the skewed streams every parameter but the dates follows a Zipf distribution, the specification's order of the
values being their rank.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from layoutopt.errors import SettingError

TABLE: Final = "tpch"
ZIPF_EXPONENT: Final = 3.0  # 3.7.2: the first of five regions then takes 84.3 % of the queries
TRAINING_QUERIES: Final = 100  # a template
TEST_QUERIES: Final = 10  # a template

SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
SHIP_MODES: Final = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
TYPE_SYLLABLES: Final = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
CONTAINER_SYLLABLES: Final = (
    ("SM", "LG", "MED", "JUMBO", "WRAP"),
    ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"),
)
REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
# In the order of n_nationkey, with the region of each.
REGION_OF_NATION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ALGERIA": "AFRICA",
        "ARGENTINA": "AMERICA",
        "BRAZIL": "AMERICA",
        "CANADA": "AMERICA",
        "EGYPT": "MIDDLE EAST",
        "ETHIOPIA": "AFRICA",
        "FRANCE": "EUROPE",
        "GERMANY": "EUROPE",
        "INDIA": "ASIA",
        "INDONESIA": "ASIA",
        "IRAN": "MIDDLE EAST",
        "IRAQ": "MIDDLE EAST",
        "JAPAN": "ASIA",
        "JORDAN": "MIDDLE EAST",
        "KENYA": "AFRICA",
        "MOROCCO": "AFRICA",
        "MOZAMBIQUE": "AFRICA",
        "PERU": "AMERICA",
        "CHINA": "ASIA",
        "ROMANIA": "EUROPE",
        "SAUDI ARABIA": "MIDDLE EAST",
        "VIETNAM": "ASIA",
        "RUSSIA": "EUROPE",
        "UNITED KINGDOM": "EUROPE",
        "UNITED STATES": "AMERICA",
    }
)
NATIONS: Final = tuple(REGION_OF_NATION)
COUNTRY_CODES: Final = tuple(str(nation_key + 10) for nation_key in range(len(NATIONS)))  # clause 4.2.2.9

Value = TypeVar("Value")


class Draw:
    """Draws substitution parameters: uniformly, or, when `skew` is given, by Zipf's law with that exponent.

    Dates are uniform in either case.
    """

    def __init__(self, rng: random.Random, skew: float | None = None) -> None:
        self._rng = rng
        self._skew = skew

    def one(self, values: Sequence[Value]) -> Value:
        """Draw one of `values`; under skew the earlier, the likelier."""
        if self._skew is None:
            return self._rng.choice(values)
        weights = [rank**-self._skew for rank in range(1, len(values) + 1)]
        return self._rng.choices(values, weights)[0]

    def several(self, values: Sequence[Value], count: int) -> list[Value]:
        """Draw `count` different ones of `values`, one after the other."""
        left = list(values)
        drawn = []
        for _ in range(count):
            drawn.append(self.one(left))
            left.remove(drawn[-1])
        return drawn

    def year(self, first: int = 1993, last: int = 1997) -> int:
        """Draw a year from `first` to `last`, both included."""
        return self._rng.randint(first, last)

    def day_of_march_1995(self) -> str:
        """Draw q3's date: a day from 1995-03-01 to 1995-03-31."""
        return f"1995-03-{self._rng.randint(1, 31):02d}"

    def month(self, first: tuple[int, int], last: tuple[int, int]) -> str:
        """Draw the first day of a month between two (year, month), both included."""
        start, end = (year * 12 + month - 1 for year, month in (first, last))
        year, month = divmod(self._rng.randint(start, end), 12)
        return f"{year}-{month + 1:02d}-01"

    def brand(self) -> str:
        """Draw a brand: `Brand#MN`, M and N from 1 to 5, independently."""
        return f"Brand#{self.one('12345')}{self.one('12345')}"

    def syllables(self, lists: Sequence[Sequence[str]]) -> str:
        """Draw one syllable from each list."""
        return " ".join(self.one(values) for values in lists)


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _q2(draw: Draw) -> str:
    size, metal, region = draw.one(range(1, 51)), draw.one(TYPE_SYLLABLES[2]), draw.one(REGIONS)
    return f"p_size = {size} AND p_type LIKE '%{metal}' AND sr_name = '{region}'"


def _q3(draw: Draw) -> str:
    segment, date = draw.one(SEGMENTS), draw.day_of_march_1995()
    return f"c_mktsegment = '{segment}' AND o_orderdate < DATE '{date}' AND l_shipdate > DATE '{date}'"


def _q5(draw: Draw) -> str:
    region, year = draw.one(REGIONS), draw.year()
    return (
        f"c_nationkey = s_nationkey AND sr_name = '{region}' AND o_orderdate >= DATE '{year}-01-01' "
        f"AND o_orderdate < DATE '{year}-01-01' + INTERVAL '1' YEAR"
    )


def _q6(draw: Draw) -> str:
    year, percent, quantity = draw.year(), draw.one(range(2, 10)), draw.one((24, 25))
    return (
        f"l_shipdate >= DATE '{year}-01-01' AND l_shipdate < DATE '{year}-01-01' + INTERVAL '1' YEAR "
        f"AND l_discount BETWEEN 0.0{percent} - 0.01 AND 0.0{percent} + 0.01 AND l_quantity < {quantity}"
    )


def _q7(draw: Draw) -> str:
    one, other = draw.several(NATIONS, 2)
    return (
        f"((sn_name = '{one}' AND cn_name = '{other}') OR (sn_name = '{other}' AND cn_name = '{one}')) "
        "AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'"
    )


def _q8(draw: Draw) -> str:
    region, type_ = REGION_OF_NATION[draw.one(NATIONS)], draw.syllables(TYPE_SYLLABLES)
    return (
        f"cr_name = '{region}' AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31' AND p_type = '{type_}'"
    )


def _q10(draw: Draw) -> str:
    date = draw.month((1993, 2), (1995, 1))
    return f"o_orderdate >= DATE '{date}' AND o_orderdate < DATE '{date}' + INTERVAL '3' MONTH AND l_returnflag = 'R'"


def _q11(draw: Draw) -> str:
    return f"sn_name = '{draw.one(NATIONS)}'"


def _q12(draw: Draw) -> str:
    modes, year = draw.several(SHIP_MODES, 2), draw.year()
    return (
        f"l_shipmode IN ({_quoted(modes)}) AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate "
        f"AND l_receiptdate >= DATE '{year}-01-01' AND l_receiptdate < DATE '{year}-01-01' + INTERVAL '1' YEAR"
    )


def _q14(draw: Draw) -> str:
    date = draw.month((1993, 1), (1997, 12))
    return f"l_shipdate >= DATE '{date}' AND l_shipdate < DATE '{date}' + INTERVAL '1' MONTH"


def _q16(draw: Draw) -> str:
    brand, type_ = draw.brand(), draw.syllables(TYPE_SYLLABLES[:2])
    sizes = ", ".join(str(size) for size in draw.several(range(1, 51), 8))
    return f"p_brand <> '{brand}' AND p_type NOT LIKE '{type_}%' AND p_size IN ({sizes})"


def _q17(draw: Draw) -> str:
    return f"p_brand = '{draw.brand()}' AND p_container = '{draw.syllables(CONTAINER_SYLLABLES)}'"


def _q19(draw: Draw) -> str:
    # The specification's text says 'AIR REG', which no row has: the data's name for it is 'REG AIR'.
    shapes = (
        (draw.one(range(1, 11)), ("SM CASE", "SM BOX", "SM PACK", "SM PKG"), 5),
        (draw.one(range(10, 21)), ("MED BAG", "MED BOX", "MED PKG", "MED PACK"), 10),
        (draw.one(range(20, 31)), ("LG CASE", "LG BOX", "LG PACK", "LG PKG"), 15),
    )
    return " OR ".join(
        f"(p_brand = '{draw.brand()}' AND p_container IN ({_quoted(containers)}) "
        f"AND l_quantity >= {quantity} AND l_quantity <= {quantity} + 10 AND p_size BETWEEN 1 AND {largest} "
        "AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON')"
        for quantity, containers, largest in shapes
    )


def _q20(draw: Draw) -> str:
    return f"sn_name = '{draw.one(NATIONS)}'"


def _q21(draw: Draw) -> str:
    return f"o_orderstatus = 'F' AND l_receiptdate > l_commitdate AND sn_name = '{draw.one(NATIONS)}'"


def _q22(draw: Draw) -> str:
    codes = _quoted(draw.several(COUNTRY_CODES, 7))
    return f"substring(c_phone, 1, 2) IN ({codes}) AND c_acctbal > 0.00"


@dataclass(frozen=True)
class Template:
    """A query template: what it selects, and its filter with drawn parameters.

    Attributes:
        select: the columns of the select list; the filter may read more.
        columns: how many columns a query reads, filter included (the thesis's count, where it has one).
        filter: draws a filter as Spark SQL.
    """

    select: str
    columns: int
    filter: Callable[[Draw], str]

    def sql(self, draw: Draw) -> str:
        """Draw one query."""
        return f"SELECT {self.select} FROM {TABLE} WHERE {self.filter(draw)}"


TEMPLATES: Final[Mapping[str, Template]] = MappingProxyType(
    {
        "q2": Template("s_acctbal, s_name, sn_name, p_partkey, p_mfgr, s_address, s_phone, s_comment", 11, _q2),
        "q3": Template("l_orderkey, l_extendedprice, l_discount, o_orderdate, o_shippriority", 7, _q3),
        "q5": Template("sn_name, l_extendedprice, l_discount", 7, _q5),
        "q6": Template("l_extendedprice, l_discount", 4, _q6),
        "q7": Template("sn_name, cn_name, l_shipdate, l_extendedprice, l_discount", 5, _q7),
        "q8": Template("o_orderdate, l_extendedprice, l_discount, sn_name", 6, _q8),
        "q10": Template(
            "c_custkey, c_name, l_extendedprice, l_discount, c_acctbal, cn_name, c_address, c_phone, c_comment",
            11,
            _q10,
        ),
        "q11": Template("ps_partkey, ps_supplycost, ps_availqty", 4, _q11),
        "q12": Template("l_shipmode, o_orderpriority", 5, _q12),
        "q14": Template("p_type, l_extendedprice, l_discount", 4, _q14),
        "q16": Template("p_brand, p_type, p_size, ps_suppkey", 4, _q16),
        "q17": Template("l_extendedprice", 3, _q17),
        "q19": Template("l_extendedprice, l_discount", 8, _q19),
        "q20": Template("s_name, s_address", 3, _q20),
        "q21": Template("s_name", 5, _q21),
        "q22": Template("c_phone, c_acctbal", 2, _q22),
    }
)


@dataclass(frozen=True)
class Stream:
    """A workload: its templates, and the Zipf exponent of their non-date parameters (None: uniform)."""

    templates: tuple[str, ...]
    skew: float | None = None


_CHAPTER_3: Final = ("q3", "q5", "q6", "q8", "q10", "q12", "q14", "q19")
_CHAPTER_4: Final = ("q3", "q5", "q6", "q11", "q12", "q16", "q19", "q20", "q21", "q22")
_CHAPTER_5: Final = (
    *("q2", "q3", "q5", "q6", "q7", "q8", "q11"),
    *("q12", "q16", "q17", "q19", "q20", "q21", "q22"),
)

STREAMS: Final[Mapping[str, Stream]] = MappingProxyType(
    {
        "chapter3": Stream(_CHAPTER_3),
        "chapter3-skewed": Stream(_CHAPTER_3, ZIPF_EXPONENT),
        "chapter4": Stream(_CHAPTER_4),
        "chapter4-skewed": Stream(_CHAPTER_4, ZIPF_EXPONENT),
        "chapter5": Stream(_CHAPTER_5),
        "chapter5-skewed": Stream(_CHAPTER_5, ZIPF_EXPONENT),
    }
)


def chosen_streams(names: Sequence[str]) -> tuple[str, ...]:
    """The streams asked for, all where none is.

    Raises:
        SettingError: one is not known.
    """
    for name in names:
        if name not in STREAMS:
            raise SettingError(f"--streams names {name!r}, which is no query stream; choose of {', '.join(STREAMS)}")
    return tuple(names or STREAMS)


@dataclass(frozen=True)
class StreamQuery:
    """One query of a stream and the template it was drawn from."""

    template: str
    sql: str


def draw_stream(stream: Stream, role: str, per_template: int, seed: int) -> tuple[StreamQuery, ...]:
    """Draw a stream's queries, `per_template` of each, the templates taking turns.

    Args:
        stream: the workload.
        role: what the queries are for, such as `train` or `test`; different roles are independent draws.
        per_template: how many queries of each template.
        seed: the same seed gives the same queries. A template's queries don't depend on the others in the stream.
    """
    draws = [Draw(random.Random(f"{seed}/{role}/{name}"), stream.skew) for name in stream.templates]
    return tuple(
        StreamQuery(name, TEMPLATES[name].sql(draw))
        for _ in range(per_template)
        for name, draw in zip(stream.templates, draws, strict=True)
    )


def write_log(queries: Sequence[StreamQuery], path: Path) -> None:
    """Write a query log: `.jsonl` with `sql` and `user` (the template's name), or `.sql` with one query a line.

    Raises:
        ValueError: for any other suffix.
    """
    if path.suffix == ".jsonl":
        lines = [json.dumps({"sql": query.sql, "user": query.template}) for query in queries]
    elif path.suffix == ".sql":
        lines = [f"{query.sql};" for query in queries]
    else:
        raise ValueError(f"{path} is no query log: name it .jsonl or .sql")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_streams(folder: Path, seed: int) -> list[Path]:
    """Write the training and the test log of every stream to `folder`, as `<stream>-<role>.jsonl` and `.sql`."""
    written = []
    for name, stream in STREAMS.items():
        for role, count in (("train", TRAINING_QUERIES), ("test", TEST_QUERIES)):
            queries = draw_stream(stream, role, count, seed)
            for suffix in ("jsonl", "sql"):
                written.append(folder / f"{name}-{role}.{suffix}")
                write_log(queries, written[-1])
    return written
