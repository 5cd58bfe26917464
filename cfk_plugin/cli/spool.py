"""cfk spool: records of explanations that wait for MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import app, command, console

Folder = Annotated[Path | None, typer.Option(help="Folder of the spool; else CFK_SPOOL, else the user's own.")]

spool = typer.Typer(help="Look at records that wait for MLflow, or send them.", no_args_is_help=True)
app.add_typer(spool, name="spool")


@command("status", "cfk spool status", spool)
def spool_status(folder: Folder = None) -> int:
    """Show how many records wait, how old they are, and why. Exit code 0 when none does, else 3."""
    from cfk_plugin.commands import spool as work

    return work.status(folder, console())


@command("flush", "cfk spool flush\ncfk spool flush --folder /var/lib/cfk/spool", spool)
def spool_flush(folder: Folder = None) -> int:
    """Send what ended processes left behind. Exit code 0 when all is delivered, else 3."""
    from cfk_plugin.commands import spool as work

    return work.flush(folder, console())
