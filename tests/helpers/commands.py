"""The command line, run in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from cfk_plugin.cli import app

CANARIES = ("canary-4711", "canary-5c1d", "canary-7f3a", "made-up-31b9")
"""What tables of tests hold, and no command says."""


def cfk(command: str, *words: object, code: int = 0) -> Result:
    """Run a command that ends with this exit code, without a word of a table."""
    result = CliRunner().invoke(app, [*command.split(), *map(str, words)])
    assert not [canary for canary in CANARIES if canary in result.output]
    assert result.exit_code == code, result.output
    return result


def output_of(command: str, *words: object, code: int = 0) -> str:
    """Return what a command says, on one line."""
    return " ".join(cfk(command, *words, code=code).output.split())
