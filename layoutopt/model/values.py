"""Values in one place: keys, sets of keys, and comparisons with constants."""

from layoutopt.model.compare import compare
from layoutopt.model.keys import NAN_KEY, Key, domain, float_keys, from_key, key_kind, successor, to_key
from layoutopt.model.value_sets import Interval, ValueSet

__all__ = [
    "NAN_KEY",
    "Interval",
    "Key",
    "ValueSet",
    "compare",
    "domain",
    "float_keys",
    "from_key",
    "key_kind",
    "successor",
    "to_key",
]
