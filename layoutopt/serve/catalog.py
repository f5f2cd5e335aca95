"""The answers of the catalog, without HTTP: what each endpoint says, in the specification's JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layoutopt.errors import QueryError
from layoutopt.model.schema import Column
from layoutopt.publish.iceberg_metadata import ManifestFolder, snapshot_number
from layoutopt.serve.filters import Json, columns_in, condition_of, residual_of
from layoutopt.serve.planning import Planned
from layoutopt.serve.protocol import ScanRequest, bad_request, no_such_namespace
from layoutopt.serve.tables import Shown, Tables

_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
)
_SERVER_PLANS: Final = {"scan-planning-mode": "server"}
"""What tells clients, for the whole catalog and for each table, to have their scans planned here."""

Namespace = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RestCatalog:
    """What is served.

    Attributes:
        tables: under their names.
        manifests: where the manifests of clients that plan scans on their own are written.
        deepest: how deep filters may be nested.
    """

    tables: Tables
    manifests: ManifestFolder
    deepest: int

    def config(self) -> Json:
        """What the catalog can do."""
        # By default: clients whose own configuration says so plan on their own.
        return {"defaults": _SERVER_PLANS, "overrides": {}, "endpoints": list(_ENDPOINTS)}

    def namespaces(self, parent: Namespace | None) -> Json:
        """The namespaces directly below one, or the first parts of all.

        Raises:
            RefusedError: there is no such namespace.
        """
        known, length = self._namespaces(), 0 if parent is None else len(parent)
        if parent is not None and not any(one[:length] == parent for one in known):
            raise no_such_namespace(parent)
        below = {one[: length + 1] for one in known if len(one) > length and one[:length] == (parent or ())}
        return {"namespaces": [list(one) for one in sorted(below)]}

    def namespace(self, name: Namespace) -> Json:
        """A namespace; raises as :meth:`namespaces`."""
        if not any(one[: len(name)] == name for one in self._namespaces()):
            raise no_such_namespace(name)
        return {"namespace": list(name), "properties": {}}

    def _namespaces(self) -> set[Namespace]:
        return {namespace for namespace, _ in self.tables.roots()}

    def table_names(self, namespace: Namespace) -> Json:
        """The tables of a namespace; raises as :meth:`namespaces`."""
        self.namespace(namespace)
        names = [name for space, name in self.tables.names() if space == namespace]
        return {"identifiers": [{"namespace": list(namespace), "name": name} for name in names]}

    def table(self, namespace: Namespace, name: str) -> bytes:
        """A table's metadata, of its newest snapshot and some before.

        Raises:
            RefusedError: there is no such table.
            LayoutoptError: it is damaged, or can't be shown.
            OSError: its manifests can't be written.
        """
        shown = self.tables.find(namespace, name)
        metadata = shown.metadata(self.manifests, self.tables.older(namespace, name, shown))
        return b'{"config":' + json.dumps(_SERVER_PLANS).encode() + b',"metadata":' + metadata.encode() + b"}"

    def exists(self, namespace: Namespace, name: str) -> None:
        """Raises as :meth:`table` if there is no such table."""
        self.tables.find(namespace, name)

    def plan(self, namespace: Namespace, name: str, request: ScanRequest) -> tuple[Shown, Planned]:
        """Plan a scan of a table.

        Raises:
            RefusedError: there is no such table or snapshot, or the filter is none of Iceberg's.
            LayoutoptError: the table is damaged, or can't be shown.
        """
        snapshot = None if request.snapshot is None else snapshot_number(request.snapshot)
        shown = self.tables.find(namespace, name, snapshot)
        try:
            condition = condition_of(
                request.filter,
                shown.planner.target,
                case_sensitive=request.case_sensitive,
                deepest=self.deepest,
            )
            if request.by_pyiceberg:
                _check_selected(request, shown.constants)
            return shown, shown.planner.plan(condition, residual_of(request.filter), request.by_pyiceberg)
        except QueryError as error:
            raise bad_request(str(error)) from error
        except RecursionError as error:
            raise bad_request("the filter is nested too deep; flatten it") from error


def _check_selected(request: ScanRequest, constants: Sequence[Column]) -> None:
    """Refuse what pyiceberg would lose rows of: a filter about a column that files lack, which it does not ask for."""
    if request.select is None:
        return
    asked = {name.lower() for name in request.select}
    lacking = {column.name.lower() for column in constants} - asked
    lost = next((term for term in columns_in(request.filter) if term.lower() in lacking), None)
    if lost is not None:
        raise bad_request(
            f"pyiceberg takes {lost!r}, which files don't hold, for NULL in a filter unless it is selected; add it to "
            "selected_fields"
        )


def namespace_of(text: str) -> Namespace:
    """A namespace as it stands in a path: its parts, with unit separators between them."""
    parts: Sequence[str] = text.split("\x1f")
    return tuple(parts)
