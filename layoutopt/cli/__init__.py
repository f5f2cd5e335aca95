"""The command line: parse, call, render."""

from layoutopt.cli.app import app, main

__all__ = ["app", "main"]
