"""Record every setting anew, store what changed, and print it.

    python tests/frozen/regenerate.py [part of a setting's name ...]

A commit that changes stored records holds nothing but the change that they record.
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
    n_changed = 0
    for name, record in SETTINGS.items():
        if parts and not any(part in name for part in parts):
            continue
        path = file_of(name)
        recording = record()
        if not path.exists():
            write(path, recording)
            print(f"{name}: {len(recording.records)} records, new")
            continue
        changes = differences(read(path), recording)
        if not changes:
            continue
        n_changed += 1
        write(path, recording)
        print(f"{name}: {len(changes)} differences")
        for change in changes[:MOST_SHOWN]:
            print(f"  {change}")
        if len(changes) > MOST_SHOWN:
            print(f"  and {len(changes) - MOST_SHOWN} more")
    print(f"{n_changed} settings changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
