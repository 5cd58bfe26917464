"""Attack what is released for native counterfactuals of the six tables; print one Markdown table
per attack.

Run it with ``python tests/benchmarks/attacks.py --data FOLDER [--tables adult,cmc] [--k 10]
[--limit 50]
[--guarantee lookup] [--method exact] [--attacks linkage,model_filter] [--simulations 20]
[--everybody 1]
[--out FOLDER]``. With ``--everybody`` every person with the desired predicted outcome is a
counterfactual.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np

from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.audit import ATTACKS, AuditResult, Setting, run_linkage_audit
from cfk_plugin.errors import LookupGuaranteeWarning
from printing import DATA, arguments, heading, line
from tables import TABLES, case

SHOWN = {
    "linkage": ("raw_success", "raw_singled_out", "success", "k_min", "k_median"),
    "inversion_own": (
        "k_effective_min",
        "k_effective_median",
        "k_effective_below_k",
        "k_effective_one",
    ),
    "inversion_released": (
        "k_effective_min",
        "k_effective_median",
        "k_effective_below_k",
        "k_effective_one",
    ),
    "model_filter": (
        "k_consistent_min",
        "k_consistent_below_k",
        "k_consistent_one",
        "k_both_below_k",
        "k_both_one",
    ),
    "steering": ("k_steered_median", "k_steered_below_k", "right_survives", "queries"),
    "intersection": (
        "k_after_2_below_k",
        "k_after_5_below_k",
        "k_after_5_one",
        "k_after_10_median",
    ),
    "homogeneity": ("flagged", "lift"),
    "uniqueness": ("private_matches_one", "k_private_one", "region_success"),
    "downcoding": ("forced_median", "right_forced", "border_lift", "k_effective_success"),
}
"""Figures of each attack that the tables show; the JSON files hold all."""


def row(table: str, result: AuditResult, seconds: float) -> str:
    main = result.main
    figures = [f"{result.figures.get(name, float('nan')):.3g}" for name in SHOWN[result.attack]]
    success = f"{main.value:.3f} ({main.low:.3f}–{main.high:.3f})"
    return line(
        table, result.n, success, f"{result.baseline.value:.3f}", *figures, f"{seconds:.1f}"
    )


def measure(name: str, options: argparse.Namespace) -> dict[str, str]:
    table = case(name, options.data, options.limit, options.seed)
    policy = PrivacyPolicy(
        k=options.k,
        guarantee=options.guarantee,
        private_values="exact",
    )
    anonymizer = KAnonymizer(policy=policy, method=options.method, seed=options.seed)
    anonymizer.fit(table.population, table.model, table.desired)
    raw, queries, limit = table.counterfactuals, table.queries, options.limit
    if options.everybody:
        raw = table.population.frame[list(raw)]
        raw = raw[table.model.predict(raw) == table.desired].reset_index(drop=True)
        queries, limit = (
            queries.take(np.arange(len(raw)) % len(queries)).reset_index(drop=True),
            len(raw),
        )
    setting = Setting(anonymizer, raw, queries, seed=options.seed, limit=limit)
    started, rows = time.perf_counter(), {}
    for attack in options.attacks:
        report = run_linkage_audit(setting, [attack], simulations=options.simulations)
        rows[attack] = row(name, report[attack], time.perf_counter() - started)
        started = time.perf_counter()
        if options.out:
            file = f"{name}-{options.guarantee}-{options.method}-{attack}.json"
            (Path(options.out) / file).write_text(report.to_json(indent=1), encoding="utf-8")
    return rows


def main() -> None:
    how = {"guarantee": "lookup", "method": "auto", "out": ""}
    sizes = {"k": 10, "limit": 50, "seed": 0, "simulations": 20, "everybody": 0}
    options = arguments(__doc__, data=DATA, tables=TABLES, attacks=list(ATTACKS), **sizes, **how)
    warnings.simplefilter("ignore", LookupGuaranteeWarning)
    rows: dict[str, list[str]] = defaultdict(list)
    for name in options.tables:
        for attack, found in measure(name, options).items():
            rows[attack].append(found)
            print(f"<!-- {attack}: {found} -->", flush=True)
    for attack, lines in rows.items():
        print(
            f"\n### {attack}\n",
            heading("table", "n", "success", "baseline", *SHOWN[attack], "s"),
            *lines,
            sep="\n",
        )


if __name__ == "__main__":
    main()
