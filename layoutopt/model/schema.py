"""A table's schema: column names with Spark's type names; reserved column names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final

from layoutopt.errors import PlanError, SchemaError, expected_names
from layoutopt.model.records import As, Form, Record
from layoutopt.model.types import leaf_paths, quote_name, type_name, type_sql
from layoutopt.model.vectors import words_for


@dataclass(frozen=True)
class Column(Record):
    """One column. ``type`` is Spark's ``simpleString``: ``int``, ``decimal(15,2)``, ``array<int>``, ..."""

    name: str
    type: Annotated[str, As(str, type_name)]
    nullable: bool = True


@dataclass(frozen=True)
class Schema(Record):
    """An ordered set of columns; lookups ignore case, like Spark's.

    >>> schema = Schema((Column("a", "int"), Column("B", "string")))
    >>> schema.find("b").name
    'B'
    >>> schema.names
    ('a', 'B')
    """

    columns: tuple[Column, ...]
    form: ClassVar = Form(bare=True)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the column names, in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def _by_folded_name(self) -> dict[str, Column]:
        return {column.name.lower(): column for column in self.columns}

    def get(self, name: str) -> Column | None:
        """Return the column of that name in any case, or None."""
        return self._by_folded_name.get(name.lower())

    def find(self, name: str) -> Column:
        """Return the column of that name in any case; raise SchemaError if no column has that name."""
        column = self.get(name)
        if column is None:
            raise SchemaError(f"there is no column {name!r:.80}: {expected_names(name, self.names)}")
        return column

    def writable(self) -> Schema:
        """Return the schema if documents can hold it and Spark's SQL can name all of it, else raise SchemaError."""
        names: dict[str, str] = {}
        for column in self.columns:
            duplicate = names.get(column.name.lower())
            if duplicate is not None:
                raise SchemaError(
                    f"the columns {duplicate!r:.80} and {column.name!r:.80} have one name in Spark; rename one"
                )
            names[column.name.lower()] = column.name
            if "${" in column.name:
                raise SchemaError(
                    f"the column {column.name!r:.80} has ${{ in its name, which Spark substitutes; rename it"
                )
            try:
                type_name(column.type)
            except ValueError as error:
                raise SchemaError(
                    f"column {column.name!r:.80} is of type {column.type!r:.200}, in which a field name is empty, too "
                    "long, or contains `--`, a control character or one of <>,:()'\"`;\\/*; rename the field"
                ) from error
        holders: dict[str, str] = {}
        for column in self.columns:
            for path in leaf_paths(column.name, column.type):
                if path in holders:  # Spark confuses their dictionaries, and loses rows
                    raise SchemaError(
                        f"{path!r:.80} is both in the column {holders[path]!r:.80} and in {column.name!r:.80}, which "
                        "Parquet readers confuse; rename one"
                    )
                holders[path] = column.name
        return self

    def select(self, names: Iterable[str]) -> Schema:
        """Return the schema of these columns, in that order."""
        return Schema(tuple(self.find(name) for name in names))

    @classmethod
    def from_json(cls, value: object) -> Schema:
        """Return the schema of a JSON value; raise SchemaError if it is none."""
        try:
            return super().from_json(value)
        except PlanError as error:
            raise SchemaError(str(error)) from error


def schema_ddl(columns: Iterable[Column]) -> str:
    """Return columns as a Spark schema text.

    >>> schema_ddl([Column("a b", "int"), Column("c", "decimal(5,2)")])
    '`a b` int, `c` decimal(5,2)'
    """
    return ", ".join(f"{quote_name(column.name)} {type_sql(column.type)}" for column in columns)


# In every data file: the number of the row's block, unique in the table.
BLOCK: Final = "_block"
# In data files of schemes with several layouts: the row's position in its segment.
TID: Final = "_tid"
# In query results: the row's position among the rows read of its segment, in the files' order.
PLACE: Final = "_w_place"
# During a load: the row's position in the source.
POSITION: Final = "_pos"
# Greater than all positions in a source.
END_OF_SOURCE: Final = 2**63 - 1
# During a load: the number of the row's segment.
SEGMENT: Final = "_segment"
# Names that no source column may have.
RESERVED: Final = frozenset({BLOCK, TID, POSITION, SEGMENT})

_WORD: Final = "_w"
_VALUE: Final = f"{_WORD}x"


def word_names(n_features: int) -> tuple[str, ...]:
    """Return the names of the columns that hold a row's feature vector during a load, 64 bits each.

    >>> word_names(65)
    ('_w0', '_w1')
    """
    return tuple(f"{_WORD}{i}" for i in range(words_for(n_features)))


def value_names(n_expressions: int) -> tuple[str, ...]:
    """Return the names of the columns that hold the values of indexed expressions during a load.

    >>> value_names(2)
    ('_wx0', '_wx1')
    """
    return tuple(f"{_VALUE}{i}" for i in range(n_expressions))
