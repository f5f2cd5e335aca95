"""One table of Iceberg's: what a client loads and has scans planned of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from layoutopt.model.schema import Column, Schema
from layoutopt.publish.contents import View
from layoutopt.publish.foreign.told import SourceTold
from layoutopt.publish.iceberg_snapshot import ManifestFolder, metadata_json
from layoutopt.scan.opened import OpenedTable
from layoutopt.serve.planning import Planner


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A view of a table's snapshot.

    Attributes:
        table: at the snapshot.
        view: what of it is shown.
    """

    table: OpenedTable
    view: View

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that files don't say: none."""
        return ()

    @cached_property
    def planner(self) -> Planner:
        """What plans its scans."""
        return Planner(self.table, self.view)

    def metadata(self, manifests: ManifestFolder, older: Sequence[Shown]) -> str:
        """Iceberg's metadata as JSON, with some older snapshots.

        Raises:
            CatalogError, PublicationError: the table is damaged, or can't be shown.
            OSError: its manifests can't be written.
        """
        listed = [(each.table.catalog, each.view) for each in (*older, self)]
        snapshots = [(catalog, manifests.manifest_list(catalog, view)) for catalog, view in listed]
        return metadata_json(snapshots, self.view)


@dataclass(frozen=True, eq=False)
class ShownSource:
    """Files that somebody else keeps, as they are at one moment.

    Attributes:
        table: what is known of them.
        source: what readers are told of them.
    """

    table: OpenedTable
    source: SourceTold

    @property
    def view(self) -> View:
        """All columns."""
        return View(None, self.table.schema, None, Schema(()))

    @property
    def constants(self) -> tuple[Column, ...]:
        """The columns that some files don't say."""
        return self.source.constants

    @cached_property
    def planner(self) -> Planner:
        """What plans its scans."""
        return Planner(self.table, self.view, self.source)

    def metadata(self, manifests: ManifestFolder, older: Sequence[Shown]) -> str:
        """Iceberg's metadata as JSON; there is no older snapshot. Raises OSError if manifests can't be written."""
        return self.source.metadata(manifests)


Shown = ShownTable | ShownSource
