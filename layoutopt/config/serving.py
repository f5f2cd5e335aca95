"""The settings of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from layoutopt.config.fields import Positional, Text, Texts, VerbSettings


class ServeSettings(VerbSettings):
    """Tables as an Iceberg REST catalog."""

    tables: Annotated[Texts, Positional()] = Field(
        (), description="the tables: FOLDER (or a URL), called by its last part, NAME=FOLDER or NAMESPACE.NAME=FOLDER"
    )
    root: Text | None = Field(
        None, description="also serve every table below this folder or URL: ROOT/TABLE and ROOT/NAMESPACE/TABLE"
    )
    host: Text = Field("127.0.0.1", description="the address to listen on; another than this machine's needs a token")
    port: int = Field(8181, ge=0, le=65_535, description="the port to listen on; 0 for any that is free")
    token_file: Path | None = Field(
        None, description="a file of tokens, one a line, of which every request has to bear one [default: none needed]"
    )
    manifests: Text | None = Field(
        None,
        description="a folder or URL for the manifests of clients that plan scans on their own; they have to be able "
        "to read it [default: a temporary folder]",
    )
    history: int = Field(
        0, ge=0, le=1000, description="how many older snapshots of each table clients may ask for by their ids"
    )
    max_body_bytes: int = Field(4 << 20, ge=1_000, description="the longest body of a request")
    max_body_seconds: float = Field(30, gt=0, description="the longest time that a body may take to come")
    max_requests: int = Field(256, ge=1, description="the most requests at a time, waiting ones too; more get a 429")
    max_filter_depth: int = Field(200, ge=1, le=400, description="how deep filters may be nested")
    threads: int = Field(
        4, ge=1, le=256, description="how many scans are planned at a time; as many tables are loaded beside"
    )
    log_json: Text | None = Field(
        None, description="add a JSON line for each request, and for each failure, to this file; - for stderr"
    )
