"""``geo-box``: a few boxes around a block's points, for filters on two coordinates (Ta-Shma 2020, IV-D).

Minima and maxima of two columns form one box. If a block's points lie in two distant places, two boxes leave out the
area between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.keys import FLOATS, key_storage, one_chunk, stored_keys
from layoutopt.functions.ranges import keys_to_floats
from layoutopt.indexes.lists import find_blocks_without, flatten_lists, list_array
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.predicates import InSet, Like
from layoutopt.model.types import struct_fields
from layoutopt.model.values import NAN_KEY
from layoutopt.skipping.zone_maps import overlaps

# The ends of a box: the first and last key of one coordinate, then of the other.
_ENDS = 4
# Gives boxes of points in a line an area.
_MARGIN = 1e-3


class GeoBox:
    """Boxes that hold all points of a block, of ``struct(lat, lon)``, for ranges of both coordinates."""

    parameter = Parameter(8, 1, 256, "how many boxes of a block are stored")

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of the boxes' ends, for structs of two fields with int64 keys."""
        fields = _field_types(type)
        fits = len(fields) == 2 and all(key_storage(field) == pa.int64() for field in fields)
        return pa.large_list(pa.int64()) if fits else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's boxes, ascending; points with a NULL are in none."""
        points, offsets = _read_points(column)
        blocks = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        types = _field_types(column.type)
        boxes = [_make_boxes(np.unique(points[start:stop], axis=0), types, int(parameter)) for start, stop in blocks]
        return list_array([pa.array(ends.ravel()) for ends in boxes], pa.int64())

    def serves(self, literal: InSet | Like) -> bool:
        """Return False: it serves two literals at once."""
        return False

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return no blocks: it serves two literals at once."""
        return np.zeros(len(stored), np.bool_)

    def cannot_match_all(self, literals: Sequence[InSet], stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks whose boxes have no point for both literals."""
        ends, offsets = flatten_lists(stored)
        boxes = np.asarray(ends)
        if len(literals) != 2 or len(boxes) % _ENDS or (offsets % _ENDS).any():
            return np.zeros(len(stored), np.bool_)  # foreign values
        met = [
            overlaps(boxes[2 * i :: _ENDS], boxes[2 * i + 1 :: _ENDS], literal.values.intervals)
            for i, literal in enumerate(literals)
        ]
        return find_blocks_without(np.logical_and(*met), offsets // _ENDS, stored)


def _field_types(type: str) -> list[str]:
    return [kind for _, kind in struct_fields(type)]


def _read_points(column: BlockColumn) -> tuple[Ints, Ints]:
    """Return the keys of the points without NULL, ``[points, 2]``, and where each block's begin."""
    structs = one_chunk(column.values)
    keys = [stored_keys(pc.struct_field(structs, [i]), type) for i, type in enumerate(_field_types(column.type))]
    known = np.logical_and.reduce([np.asarray(column.is_valid(), dtype=np.bool_) for column in keys])
    points = np.stack([np.asarray(column.filter(pa.array(known))) for column in keys], axis=1)
    return points, np.concatenate(([0], np.cumsum(known)))[column.offsets]


@dataclass(frozen=True, eq=False)
class _Box:
    """Distinct points and their scaled coordinates."""

    points: Ints
    places: Floats

    @cached_property
    def cut(self) -> tuple[float, int, int]:
        """The best cut: the saved area, its coordinate, and how many points come before it."""
        return max((self._cut_along(i) for i in range(2)), key=lambda cut: cut[0])

    def _cut_along(self, coordinate: int) -> tuple[float, int, int]:
        if len(self.points) < 2:
            return 0.0, coordinate, 0
        order = np.argsort(self.places[:, coordinate], kind="stable")
        places = self.places[order]
        before = _measure_areas(places)[:-1]
        after = _measure_areas(places[::-1])[::-1][1:]
        saved = _measure_areas(places)[-1] - (before + after)
        best = int(np.argmax(saved))
        return float(saved[best]), coordinate, best + 1

    def halves(self) -> tuple[_Box, _Box]:
        _, coordinate, count = self.cut
        order = np.argsort(self.places[:, coordinate], kind="stable")
        first, second = (np.sort(part) for part in (order[:count], order[count:]))
        return _Box(self.points[first], self.places[first]), _Box(self.points[second], self.places[second])


def _measure_areas(places: Floats) -> Floats:
    """Return the area of the box around the first points, for any number of them, ``float64[points]``."""
    low, high = np.minimum.accumulate(places, axis=0), np.maximum.accumulate(places, axis=0)
    areas: Floats = np.prod(high - low + _MARGIN, axis=1)
    return areas


def _make_boxes(points: Ints, types: Sequence[str], most: int) -> Ints:
    """Return the ends of at most ``most`` boxes around distinct points, ``[boxes, 4]``, ascending.

    >>> _make_boxes(np.array([[0, 0], [1, 1], [50, 50]]), ["int", "int"], 2).tolist()
    [[0, 1, 0, 1], [50, 50, 50, 50]]
    """
    if not len(points):
        return np.zeros((0, _ENDS), np.int64)
    boxes = [_Box(points, np.stack([_scale_keys(points[:, i], type) for i, type in enumerate(types)], axis=1))]
    while len(boxes) < most:
        best = max(range(len(boxes)), key=lambda i: boxes[i].cut[0])
        if boxes[best].cut[0] <= 0:
            break
        boxes += boxes.pop(best).halves()
    ends = [np.stack([box.points.min(axis=0), box.points.max(axis=0)], axis=1).ravel() for box in boxes]
    return np.unique(np.stack(ends), axis=0)


def _scale_keys(keys: Ints, type: str) -> Floats:
    """Scale keys to 0 to 1 between the smallest and largest; NaN and infinities are well outside."""
    values = np.where(keys == NAN_KEY, np.inf, keys_to_floats(keys)) if type in FLOATS else keys.astype(np.float64)
    finite = np.isfinite(values)
    low, high = values[finite].min(initial=np.inf), values[finite].max(initial=-np.inf)
    width = high / 2 - low / 2 if low < high else 1.0
    with np.errstate(all="ignore"):
        places: Floats = np.clip(np.nan_to_num((values / 2 - low / 2) / width if low <= high else values), -1.0, 2.0)
    return places
