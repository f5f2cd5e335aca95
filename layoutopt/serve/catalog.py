"""The REST catalog without HTTP: each endpoint's response as the specification's JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layoutopt.errors import QueryError
from layoutopt.model.schema import Column
from layoutopt.publish.iceberg_metadata import ManifestFolder, snapshot_number
from layoutopt.serve.filters import Json, columns_in, to_condition, to_residual
from layoutopt.serve.planning import Planned
from layoutopt.serve.protocol import ScanRequest, bad_request, no_such_namespace
from layoutopt.serve.tables import ServedView, Tables

_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
)
# The setting of the catalog and of each table by which clients let the server plan their scans.
_SERVER_PLANS: Final = {"scan-planning-mode": "server"}
Namespace = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RestCatalog:
    """The served tables, the folder for their manifests, and the limits of filters and scans.

    Attributes:
        deepest: the largest nesting depth of filters.
        max_bytes: the most compressed bytes that a scan may read; None for no limit.
    """

    tables: Tables
    manifests: ManifestFolder
    deepest: int
    max_bytes: int | None = None

    def config(self) -> Json:
        """Return the capabilities of the catalog."""
        # A default, so that clients may be configured to plan scans themselves.
        return {"defaults": _SERVER_PLANS, "overrides": {}, "endpoints": list(_ENDPOINTS)}

    def namespaces(self, parent: Namespace | None) -> Json:
        """Return the namespaces directly below ``parent``, or the first parts of all.

        Raises:
            RefusedError: there is no such namespace.
        """
        known, length = self._namespaces(), 0 if parent is None else len(parent)
        if parent is not None and not any(name[:length] == parent for name in known):
            raise no_such_namespace(parent)
        below = {name[: length + 1] for name in known if len(name) > length and name[:length] == (parent or ())}
        return {"namespaces": [list(name) for name in sorted(below)]}

    def namespace(self, name: Namespace) -> Json:
        """Return a namespace; raises as :meth:`namespaces`."""
        if not any(known[: len(name)] == name for known in self._namespaces()):
            raise no_such_namespace(name)
        return {"namespace": list(name), "properties": {}}

    def _namespaces(self) -> set[Namespace]:
        return {namespace for namespace, _ in self.tables.roots()}

    def table_names(self, namespace: Namespace) -> Json:
        """Return the tables of a namespace; raises as :meth:`namespaces`."""
        self.namespace(namespace)
        names = [name for space, name in self.tables.names() if space == namespace]
        return {"identifiers": [{"namespace": list(namespace), "name": name} for name in names]}

    def table(self, namespace: Namespace, name: str) -> bytes:
        """Return a table's metadata, with its newest snapshot and its history.

        Raises:
            RefusedError: there is no such table.
            LayoutoptError: it is damaged, or can't be shown.
            OSError: its manifests can't be written.
        """
        shown = self.tables.find(namespace, name)
        metadata = shown.metadata(self.manifests, self.tables.older(namespace, name, shown))
        return b'{"config":' + json.dumps(_SERVER_PLANS).encode() + b',"metadata":' + metadata.encode() + b"}"

    def exists(self, namespace: Namespace, name: str) -> None:
        """Check that a table exists; raises as :meth:`table`."""
        self.tables.find(namespace, name)

    def plan(self, namespace: Namespace, name: str, request: ScanRequest) -> tuple[ServedView, Planned]:
        """Plan a scan of a table.

        Raises:
            RefusedError: there is no such table or snapshot, the filter is invalid, or the scan is above the limit.
            LayoutoptError: the table is damaged, or can't be shown.
        """
        snapshot = None if request.snapshot is None else snapshot_number(request.snapshot)
        shown = self.tables.find(namespace, name, snapshot)
        try:
            condition = to_condition(
                request.filter,
                shown.planner.target,
                case_sensitive=request.case_sensitive,
                deepest=self.deepest,
            )
            if request.by_pyiceberg:
                _check_selected(request, shown.constants)
            columns = None if request.select is None else {*request.select, *columns_in(request.filter)}
            residual = to_residual(request.filter)
            return shown, shown.planner.plan(condition, residual, request.by_pyiceberg, columns, self.max_bytes)
        except QueryError as error:
            raise bad_request(str(error)) from error
        except RecursionError as error:
            raise bad_request("the filter is nested too deep; flatten it") from error


def _check_selected(request: ScanRequest, constants: Sequence[Column]) -> None:
    """Refuse a filter by an unselected column that files lack, for which pyiceberg would lose rows."""
    if request.select is None:
        return
    selected = {name.lower() for name in request.select}
    missing = {column.name.lower() for column in constants} - selected
    lost = next((term for term in columns_in(request.filter) if term.lower() in missing), None)
    if lost is not None:
        raise bad_request(
            f"pyiceberg treats {lost!r}, which files don't hold, as NULL in a filter unless it is selected; add it to "
            "selected_fields"
        )


def split_namespace(text: str) -> Namespace:
    """Return the parts of a namespace in a path, which unit separators join."""
    return tuple(text.split("\x1f"))
