"""The settings by which a plan is made as the thesis has it (Sun 2017), one by one or all together."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field

_AS_WRITTEN: Final = MappingProxyType(
    {
        "guides": "features",
        "weights": "subsumed",
        "slices": False,
        "partitioner": "ward",
        "row_order": ("none",),
        "search": "text",
        "local_features": "count",
    }
)

Weights = Annotated[
    Literal["marginal", "subsumed"],
    Field(
        description="what a feature counts for while blocks are made: the rows that queries skip by it beyond stricter "
        "features, or all queries that it subsumes (the thesis's Equation 3.1)",
    ),
]
Slices = Annotated[
    bool,
    Field(description="whether ranges of the most filtered column that no feature is about guide blocks too"),
]
Search = Annotated[
    Literal["default", "text"],
    Field(
        description="how `gsop` and `gsop-r` search: `text` is as the thesis has it, which takes minutes: groups "
        "merged by the estimate by blocks alone, copies made feature by feature (Algorithms 1 and 2)",
    ),
]
LocalFeatures = Annotated[
    Literal["selectivity", "count"],
    Field(
        description="how the features that guide a column group are ranked: by weight and selectivity, of which fewer "
        "than fit are tried too, or by the number of queries (the thesis's 4.5)",
    ),
]
AsWritten = Annotated[
    bool,
    Field(
        description="plan as the thesis has it: --guides features --weights subsumed --no-slices --partitioner ward "
        "--row-order none --search text --local-features count, each unless given",
    ),
]


def with_as_written(values: Any) -> Any:
    """The thesis's settings too, where ``as_written`` is asked for and they are not given otherwise."""
    asked = isinstance(values, dict) and (values.get("as_written") or values.get("as-written"))
    given = {str(key).replace("-", "_") for key in values} if asked else set()
    return {**values, **{key: value for key, value in _AS_WRITTEN.items() if key not in given}} if asked else values
