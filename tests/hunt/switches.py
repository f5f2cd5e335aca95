"""Which constructs the generated texts and tables have; each can be left out to look for others behind it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Switches:
    """Constructs that are generated.

    Attributes:
        struct_paths: fields of structs, where columns and aliases have the same names.
        using_types: USING and NATURAL with keys of different types.
        beyond: integers against literals beyond BIGINT.
        odd_names: columns whose names have dots, backticks, quotes and line breaks.
    """

    struct_paths: bool = True
    using_types: bool = True
    beyond: bool = True
    odd_names: bool = True

    @classmethod
    def of_environment(cls) -> Switches:
        """All of them but those that ``HUNT_WITHOUT`` names, with commas between."""
        left_out = os.environ.get("HUNT_WITHOUT", "").split(",")
        return cls(**{field.name: field.name not in left_out for field in fields(cls)})
