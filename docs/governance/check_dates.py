"""List the entries of the control map that were checked more than a year ago.

``python docs/governance/check_dates.py`` compares with today, ``--on 2027-12-01`` with another day.
It exits with 1 if there are any, so that a scheduled job fails. No test runs it with today's date.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Sequence

from cfk_plugin.report.statements import controls, outdated


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the entries that must be checked again; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    today = dt.datetime.now(tz=dt.UTC).date()
    parser.add_argument("--on", type=dt.date.fromisoformat, default=today, metavar="YYYY-MM-DD")
    on = parser.parse_args(arguments).on
    entries = controls()
    old = set(outdated(entries, on))
    print(f"{len(old)} of {len(entries)} entries were checked more than a year before {on}.")
    for entry in entries:
        if entry["control"] in old:
            print(f"{entry['checked_on']}  {entry['control']}\n    {entry['source']}")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
