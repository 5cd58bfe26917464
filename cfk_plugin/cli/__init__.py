"""The command line `cfk`. Exit codes: 0 pass, 1 fail, 2 usage or error, 3 review."""

from __future__ import annotations

from cfk_plugin.cli import audit, records, release, report
from cfk_plugin.cli.frame import app

__all__ = ["app", "audit", "main", "records", "release", "report"]


def main() -> None:
    """Run the command line."""
    app()
