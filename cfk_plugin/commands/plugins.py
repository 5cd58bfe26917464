"""`cfk plugins`: what is installed and what it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from cfk_plugin.plugins import generators, load_plugins

if TYPE_CHECKING:
    from rich.console import Console


def run(console: Console) -> int:
    """List the plugins, the one that is asked first on top; return the exit code."""
    manager = load_plugins()
    if not manager.infos:
        console.print("no plugins are installed")
        return 0
    table = Table("plugin", "distribution", "version", "hooks")
    for info in reversed(manager.infos):
        table.add_row(info.name, info.distribution or "–", info.version, ", ".join(info.hooks))
    console.print(table)
    if protectors := sorted(manager.protectors()):
        console.print(f"protectors that plugins bring: {', '.join(protectors)}", highlight=False)
    if names := generators():
        console.print(f"generators, by name: {', '.join(names)}", highlight=False)
    return 0
