"""Record settings anew, store what changed, and print it.

    python tests/frozen/regenerate.py [part of a setting's name ...]

All settings but the one on Spark, which `test_frozen_on_spark.py` stores. Commit changed records
together with the change of the product that they record, and with nothing else.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "frozen"), str(TESTS / "servers")]

from frozen_records import differences, file_of, read, write  # noqa: E402
from frozen_settings import SETTINGS  # noqa: E402

MOST_SHOWN = 12


def main(parts: list[str]) -> int:
    """Record the settings whose name has one of the parts; all of them without parts."""
    warnings.simplefilter("ignore")
    names = [name for name in SETTINGS if not parts or any(part in name for part in parts)]
    if not names:
        print(f"no setting has a name with {' or '.join(parts)}")
        return 2
    n_changed = 0
    for name in names:
        path = file_of(name)
        recording = SETTINGS[name]()
        if not path.exists():
            write(path, recording)
            print(f"{name}: {len(recording.records)} records, new")
            continue
        stored = read(path)
        changes = differences(stored, recording)
        if changes or stored.header["made_with"] != recording.header()["made_with"]:
            write(path, recording)
        if not changes:
            continue
        n_changed += 1
        print(f"{name}: {len(changes)} differences")
        for change in changes[:MOST_SHOWN]:
            print(f"  {change}")
        if len(changes) > MOST_SHOWN:
            print(f"  and {len(changes) - MOST_SHOWN} more")
    print(f"{n_changed} of {len(names)} settings changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
