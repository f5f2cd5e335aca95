"""Queries over the denormalised TPC-H table whose constants no log foresees: what indexes are for.

Look-ups of orders, customers and parts by their keys, brands that the log never asks for, words in part names, and the
ends of what is computed. The training log has the families, with other constants, beside chapter 3's stream; so
features foresee the stream, and an index what features can't.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from layoutopt.bench.tpch.queries import CONTAINER_SYLLABLES, TABLE, StreamQuery

TRAINING_QUERIES: Final = 25  # a family
TEST_QUERIES: Final = 10  # a family
COLOURS: Final = (
    "almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue", "blush", "brown",
    "burlywood", "burnished", "chartreuse", "chiffon", "chocolate", "coral", "cornflower", "cornsilk", "cream", "cyan",
    "dark", "deep", "dim", "dodger", "drab", "firebrick", "floral", "forest", "frosted", "gainsboro", "ghost",
    "goldenrod", "green", "grey", "honeydew", "hot", "indian", "ivory", "khaki", "lace", "lavender", "lawn", "lemon",
    "light", "lime", "linen", "magenta", "maroon", "medium", "metallic", "midnight", "mint", "misty", "moccasin",
    "navajo", "navy", "olive", "orange", "orchid", "pale", "papaya", "peach", "peru", "pink", "plum", "powder", "puff",
    "purple", "red", "rose", "rosy", "royal", "saddle", "salmon", "sandy", "seashell", "sienna", "sky", "slate",
    "smoke", "snow", "spring", "steel", "tan", "thistle", "tomato", "turquoise", "violet", "wheat", "white", "yellow",
)  # fmt: skip
"""The words of part names, five a name (clause 4.2.3)."""
_BRANDS: Final = tuple(f"Brand#{m}{n}" for m in range(1, 6) for n in range(1, 6))
_UNASKED: Final = _BRANDS[::5]
"""Brands that only the test queries ask for."""


@dataclass(frozen=True)
class Constants:
    """What a query's constants are drawn by.

    Attributes:
        rng: draws.
        scale: TPC-H's scale factor, which keys grow with.
        training: whether the query is one of the log's.
    """

    rng: random.Random
    scale: float
    training: bool

    def key(self, at_scale_1: int) -> int:
        """A number from 1 to as many as there are."""
        return self.rng.randint(1, max(1, round(at_scale_1 * self.scale)))

    def order(self) -> int:
        """The key of an order: of 32 numbers the first eight are used."""
        number = self.key(1_500_000)
        return (number // 8) * 32 + number % 8

    def customer(self) -> int:
        """The key of a customer that may have orders: no multiple of three."""
        number = self.key(150_000)
        return number if number % 3 else number + 1

    def brand(self) -> str:
        """A brand that the log asks for, or one that it doesn't."""
        asked = [brand for brand in _BRANDS if (brand not in _UNASKED) == self.training]
        return self.rng.choice(asked)

    def container(self) -> str:
        """A container."""
        return " ".join(self.rng.choice(syllables) for syllables in CONTAINER_SYLLABLES)

    def colours(self, count: int) -> str:
        """Some words as they stand in a part's name, side by side."""
        return " ".join(self.rng.sample(COLOURS, count))


@dataclass(frozen=True)
class Family:
    """Queries that differ in constants alone: what they select, and the filter."""

    select: str
    filter: Callable[[Constants], str]


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "order": Family(
            "l_linenumber, l_partkey, l_quantity, l_extendedprice, l_shipdate, l_shipmode, o_orderstatus, o_totalprice",
            lambda draw: f"l_orderkey = {draw.order()}",
        ),
        "customer": Family(
            "o_orderkey, o_orderdate, o_totalprice, o_orderstatus, o_orderpriority, l_extendedprice",
            lambda draw: f"c_custkey = {draw.customer()}",
        ),
        "customer by name": Family(
            "c_address, c_phone, c_acctbal, c_mktsegment, o_orderkey, o_orderdate, o_totalprice",
            lambda draw: f"c_name = 'Customer#{draw.customer():09d}'",
        ),
        "part": Family(
            "o_orderdate, l_quantity, l_extendedprice, l_discount, s_name, ps_supplycost",
            lambda draw: f"p_partkey = {draw.key(200_000)}",
        ),
        "brand never asked for": Family(
            "l_quantity, l_extendedprice",
            lambda draw: f"p_brand = '{draw.brand()}' AND p_container = '{draw.container()}'",
        ),
        "a word of names": Family(
            "p_partkey, l_quantity, l_extendedprice", lambda draw: f"p_name LIKE '%{draw.colours(1)}%'"
        ),
        "three words of names": Family(
            "p_partkey, l_quantity, l_extendedprice", lambda draw: f"p_name LIKE '%{draw.colours(3)}%'"
        ),
        "highest revenue": Family(
            "l_orderkey, l_partkey, o_orderdate",
            lambda draw: f"l_extendedprice * (1 - l_discount) > {draw.rng.randint(101_000, 104_000)}",
        ),
        "highest stock": Family(
            "ps_partkey, ps_suppkey, s_name",
            lambda draw: f"ps_supplycost * ps_availqty > {draw.rng.randint(9_850, 9_980) * 1000}",
        ),
        "dearest orders": Family(
            "l_orderkey, o_orderdate, c_name",
            lambda draw: f"o_totalprice - l_extendedprice > {draw.rng.randint(430, 480) * 1000}",
        ),
    }
)
"""The families by name."""


def draw_unforeseen(role: str, scale: float, seed: int) -> tuple[StreamQuery, ...]:
    """Draw the families' queries, taking turns: of ``train`` 25 each, of ``test`` 10, with other constants.

    The same seed gives the same queries, and a family's don't depend on the others.
    """
    training = role == "train"
    draws = {name: Constants(random.Random(f"{seed}/{role}/{name}"), scale, training) for name in FAMILIES}
    return tuple(
        StreamQuery(name, f"SELECT {family.select} FROM {TABLE} WHERE {family.filter(draws[name])}")
        for _ in range(TRAINING_QUERIES if training else TEST_QUERIES)
        for name, family in FAMILIES.items()
    )
