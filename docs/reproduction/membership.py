"""Who was in the training table? Attack explainers and protected services on the same people.

    PYTHONPATH=docs .venv/bin/python -m reproduction.membership FOLDER [--table german]

A forest without limits remembers its training people. The attacks are those of Pawelczyk, Lakkaraju
and Neel (2023): by the distances of the answers (CFD, CFD-LRT), and by the model's confidence
(Loss, Loss-LRT). Prints each figure with its 95 % interval.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cfk_plugin.audit.membership import membership
from cfk_plugin.audit.result import readable, side_by_side
from cfk_plugin.audit.targets import (
    Sample,
    compare,
    full_depth_forest,
    measured_schema,
    standard_owners,
)
from cfk_plugin.plugins import generator
from reproduction.tables import NAMES, read_table


def main() -> None:
    """Measure membership attacks on one table, and print them."""
    parser = argparse.ArgumentParser(prog="reproduction.membership", description=__doc__)
    parser.add_argument("data", type=Path, help="folder with NAME.csv.gz of each table")
    parser.add_argument("--table", choices=NAMES, default="german")
    parser.add_argument("--train", type=int, default=300, help="people the model is trained on")
    parser.add_argument("--attacked", type=int, default=150, help="members, and as many others")
    parser.add_argument("--shadows", type=int, default=8, help="models that the attacker trains")
    options = parser.parse_args()
    table = read_table(options.table, options.data)
    features = table.frame[list(table.features)]
    has_outcome = (table.frame[table.target] == table.desired).to_numpy()
    sample = Sample(features, has_outcome)
    owners = standard_owners(
        sample,
        full_depth_forest(features),
        {name: generator(name) for name in ("nice", "nearest")},
        table.quasi_identifiers,
        schema=measured_schema(sample, table.quasi_identifiers),
    )
    reports = compare(
        owners,
        sample,
        membership,
        n_train=options.train,
        n_shadows=options.shadows,
        attacked=options.attacked,
    )
    print(readable(side_by_side(reports)).to_string(index=False))


if __name__ == "__main__":
    main()
