"""The types of arrays, one name for each kind of element; shapes stand where a function documents its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
"""TRUE and FALSE: bits of vectors, or a mask of whatever a function says."""
Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]
"""What numpy gives and takes to index other arrays."""
Counters = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]
"""Packed feature vectors, see :mod:`layoutopt.model.vectors`."""
Hashes = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Packed = Bytes
"""Bits, eight a byte."""
Keys = npt.NDArray[Any]
"""Keys of one kind: int64, or objects that are all int, all str or all bytes (anything where they are not known)."""
