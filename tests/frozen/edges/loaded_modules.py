"""What an import loads: modules of the product, and of other distributions.

`import cfk_plugin` loads nothing else at all. Of the other statements the list has what the
product's own code imports: what that loads in turn depends on its version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

BARE = "import cfk_plugin"
COMMANDS = "import cfk_plugin.cli"
PROTECT = "from cfk_plugin import protect"
NOTES_IMPORTS = """
import builtins, json, sys
imported = []
import_module = builtins.__import__

def note(name, globals=None, *rest):
    if str((globals or {}).get("__name__")).startswith("cfk_plugin"):
        imported.append(name)
    return import_module(name, globals, *rest)

builtins.__import__ = note
before = set(sys.modules)
exec(sys.argv[1])
loaded = sorted(set(sys.modules) - before)
print(json.dumps({"loaded": loaded, "imported": imported}))
"""


@dataclass(frozen=True)
class Modules:
    loaded: set[str]  # by the statement, whoever asked for them
    imported: set[str]  # by code of the product


def measure(*statements: str) -> list[str]:
    lines: list[str] = []
    for statement in statements:
        modules = modules_of(statement)
        product = {name for name in modules.loaded if _top(name) == "cfk_plugin"}
        others = modules.loaded if statement == BARE else modules.imported
        third_party = {_top(name) for name in others - product} - sys.stdlib_module_names
        names = product | (third_party - {"cfk_plugin"})
        lines += [f"{statement} | {name}" for name in sorted(names)]
    return lines


def modules_of(statement: str) -> Modules:
    """Return the modules of a statement in a new process, where it warns of nothing."""
    command = [sys.executable, "-W", "error", "-c", NOTES_IMPORTS, statement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    return Modules(loaded=set(names["loaded"]), imported=set(names["imported"]))


def _top(name: str) -> str:
    return name.partition(".")[0]
