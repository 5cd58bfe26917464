"""`cfk sign`: make a pair of keys, or sign a file with one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin.errors import InputError
from cfk_plugin.release import signing

if TYPE_CHECKING:
    from rich.console import Console


def run(path: Path | None, key: Path | None, new_key: Path | None, console: Console) -> int:
    """Make keys or a signature, and say where it is."""
    passphrase = os.environ.get("CFK_SIGN_PASSPHRASE")
    if new_key is not None:
        if path is not None or key is not None:
            raise InputError("--new-key makes keys and signs nothing; sign with --key then")
        public = signing.new_key(new_key, passphrase)
        console.print(f"{new_key}: keep it to yourself", markup=False, highlight=False)
        console.print(f"{public}: give it to those who verify", markup=False, highlight=False)
        return 0
    if path is None or key is None:
        raise InputError("give a file and --key, your private key; cfk sign --new-key PATH makes one")
    console.print(f"{signing.sign(path, key, passphrase)}", markup=False, highlight=False)
    return 0
