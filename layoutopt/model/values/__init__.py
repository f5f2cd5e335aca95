"""Values: keys, sets of keys, and comparisons with constants."""

from layoutopt.model.values.keys import NAN_KEY, Key, domain, float_keys, from_key, key_kind, successor, to_key
from layoutopt.model.values.value_sets import Interval, ValueSet, compare

__all__ = [
    "NAN_KEY", "Interval", "Key", "ValueSet", "compare", "domain", "float_keys", "from_key", "key_kind", "successor",
    "to_key",
]  # fmt: skip
