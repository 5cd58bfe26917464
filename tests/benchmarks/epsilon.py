"""What audits of epsilon find: the sound mechanism, mechanisms that are broken, and their ceilings.

.venv/bin/python tests/benchmarks/epsilon.py --runs 2000
"""

from __future__ import annotations

import warnings
from pathlib import Path
from sys import path

from cfk_plugin.audit import canary_audit

path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from neighbouring import (
    CANARY,
    domain_from_rows,
    heard,
    people,
    schema,
    sound,
    with_little_noise,
    without_composition,
    without_pair_noise,
)
from printing import arguments, heading


def main() -> None:
    asked = arguments(__doc__, runs=400, only=[], epsilon=[0.5, 1.0, 3.0])
    cases = {
        "sound": sound,
        "pairs without noise": without_pair_noise,
        "a fiftieth of the noise": with_little_noise,
        "composition ignored": without_composition,
        "domain read from rows": domain_from_rows,
    }
    print(heading("mechanism", "claimed", "epsilon at least (95 %)", "these runs could show", "verdict"))
    for name, make in cases.items():
        if asked.only and name not in asked.only:
            continue
        for claimed in asked.epsilon:
            score = None if make is domain_from_rows else heard
            given = None if make is domain_from_rows else schema(people())
            report = canary_audit(
                make(claimed), people(), CANARY, claimed=claimed, runs=asked.runs, score=score, schema=given
            )
            found = f"{report.epsilon_low:.2f} | {report.ceiling:.2f} | {report.verdict}"
            print(f"| {name} | {claimed:g} | {found} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
