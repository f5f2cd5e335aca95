"""The index types by name: built in, or installed by other packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from layoutopt.errors import SettingError
from layoutopt.extensions import find
from layoutopt.indexes.bloom import Bloom
from layoutopt.indexes.gap_list import GapList
from layoutopt.indexes.geo_box import GeoBox
from layoutopt.indexes.metric_distance import Formatted, MetricDistance
from layoutopt.indexes.ngrams import NGrams, Prefix, Suffix
from layoutopt.indexes.protocol import Index, suits
from layoutopt.indexes.value_list import Hybrid, ValueList
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import describe
from layoutopt.model.predicates.normal import array_of, elements_of

BUILT_IN: Final[Mapping[str, Index]] = {
    "value-list": ValueList(),
    "bloom": Bloom(),
    "hybrid": Hybrid(),
    "gap-list": GapList(),
    "prefix": Prefix(),
    "suffix": Suffix(),
    "ngrams": NGrams(),
    "formatted": Formatted(),
    "geo-box": GeoBox(),
    "metric-distance": MetricDistance(),
}


def find_index(kind: str) -> Index:
    """Return the index type of a name.

    Raises:
        SettingError: no type has the name, two packages claim it, or its package can't be imported.
    """
    return find("indexes", kind, BUILT_IN, "type of index")


def find_parameter(spec: IndexSpec) -> float:
    """Return the tuning parameter of an index: its own, else its type's default.

    Raises:
        SettingError: the type is unknown, or the number is out of its range.
    """
    parameter = find_index(spec.kind).parameter
    if spec.parameter is None:
        return parameter.default
    if not parameter.least <= spec.parameter <= parameter.most:
        raise SettingError(
            f"the index {spec} has the parameter {spec.parameter:g}, {parameter.meaning}; give {parameter.least:g} to "
            f"{parameter.most:g}"
        )
    return spec.parameter


def check_index(spec: IndexSpec) -> None:
    """Raise SettingError if no load could build an index.

    Raises:
        SettingError: its type is unknown or can't index the expression, or its parameter is out of range.
    """
    find_parameter(spec)
    array = array_of(spec.subject)
    if array is not None and elements_of(array) != spec.subject:
        raise SettingError(
            f"the index {spec} is of elements of the type {spec.subject.type!r}, which {array.type!r} does not have; "
            "plan again"
        )
    index = find_index(spec.kind)
    if index.storage(spec.subject.type) is None:
        raise SettingError(
            f"the index {spec} is of values of the type {spec.subject.type!r}, for which {spec.kind} has no use; "
            "choose another type of index"
        )
    if not suits(index, spec.subject):
        raise SettingError(
            f"the index {spec} is of {describe(spec.subject)}, for which {spec.kind} has no use; name an expression "
            "that it is meant for, as `layoutopt plan --help` shows"
        )
