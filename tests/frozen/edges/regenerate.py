"""Write the stored lists of the product's edges anew, and print what changed.

Run ``python tests/frozen/edges/regenerate.py`` from the repository. It runs the tests of this
folder, which write what they measure instead of comparing it. Arguments go to pytest: ``-k http``
regenerates one list, ``-m "not slow"`` leaves out what takes longer. Commit the lists together
with the change that they record, and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys

from pinned import REGENERATE, STORED, differences, read_stored

REPOSITORY = STORED.parents[3]


def names_of_lists() -> set[str]:
    return {path.name for path in STORED.glob("*.txt")}


def main() -> int:
    before = {name: read_stored(name) for name in names_of_lists()}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", str(STORED.parent)]
    done = subprocess.run(
        [*command, *sys.argv[1:]],
        cwd=REPOSITORY,
        env={**os.environ, REGENERATE: "1"},
        check=False,
    )
    n_changed = 0
    for name in sorted(names_of_lists()):
        changes = differences(before.get(name, []), read_stored(name))
        if changes:
            n_changed += 1
            print("\n".join([f"{name}:", *changes]))
    print(f"{n_changed} lists changed")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
