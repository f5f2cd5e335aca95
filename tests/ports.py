"""Ports of this machine for the servers that tests start."""

from __future__ import annotations

import socket
from typing import Final

HOST: Final = "127.0.0.1"


def find_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
