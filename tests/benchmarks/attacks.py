"""Attack what is released for native counterfactuals of the six tables; print one Markdown table per attack.

Run it with ``python tests/benchmarks/attacks.py --data FOLDER [--tables adult,cmc] [--k 10] [--limit 50]
[--guarantee nominal] [--method exact] [--attacks linkage,model_filter] [--simulations 20] [--out FOLDER]``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from pathlib import Path

from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.audit import ATTACKS, AuditResult, Setting, run_linkage_audit
from cfk_plugin.errors import NominalGuaranteeWarning
from tables import TABLES, case

SHOWN = {
    "linkage": ("raw_success", "raw_singled_out", "success", "k_min", "k_median"),
    "inversion_own": ("k_effective_min", "k_effective_median", "k_effective_below_k", "k_effective_one"),
    "inversion_released": ("k_effective_min", "k_effective_median", "k_effective_below_k", "k_effective_one"),
    "model_filter": ("k_consistent_min", "k_consistent_below_k", "k_consistent_one", "k_both_below_k", "k_both_one"),
    "steering": ("k_steered_median", "k_steered_below_k", "right_survives", "queries"),
    "intersection": ("k_after_2_below_k", "k_after_5_below_k", "k_after_5_one", "k_after_10_median"),
    "homogeneity": ("flagged", "lift"),
    "uniqueness": ("private_matches_one", "k_private_one", "region_success"),
    "downcoding": ("forced_median", "right_forced", "border_lift", "k_effective_success"),
}
"""Figures of each attack that the tables show; the JSON files hold all."""


def row(table: str, result: AuditResult, seconds: float) -> str:
    main, base = result.main, result.baseline
    figures = " | ".join(f"{result.figures.get(name, float('nan')):.3g}" for name in SHOWN[result.attack])
    return (
        f"| {table} | {result.n} | {main.value:.3f} ({main.low:.3f}–{main.high:.3f}) | {base.value:.3f} | {figures} "
        f"| {seconds:.1f} |"
    )


def head(attack: str) -> str:
    names = " | ".join(SHOWN[attack])
    return f"\n### {attack}\n\n| table | n | success | baseline | {names} | s |\n|{'---|' * (5 + len(SHOWN[attack]))}"


def measure(name: str, options: argparse.Namespace) -> dict[str, str]:
    table = case(name, options.data, options.limit, options.seed)
    policy = PrivacyPolicy(k=options.k, guarantee=options.guarantee, anonymity_set=options.anonymity_set)
    anonymizer = KAnonymizer(policy=policy, method=options.method, seed=options.seed)
    anonymizer.fit(table.population, table.model, table.desired)
    setting = Setting(anonymizer, table.counterfactuals, table.queries, seed=options.seed, limit=options.limit)
    started, rows = time.perf_counter(), {}
    for attack in options.attacks:
        report = run_linkage_audit(setting, [attack], simulations=options.simulations)
        rows[attack] = row(name, report[attack], time.perf_counter() - started)
        started = time.perf_counter()
        if options.out is not None:
            file = f"{name}-{options.guarantee}-{options.method}-{attack}.json"
            (options.out / file).write_text(report.to_json(indent=1), encoding="utf-8")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", type=lambda text: text.split(","), default=list(TABLES))
    parser.add_argument("--attacks", type=lambda text: text.split(","), default=list(ATTACKS))
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulations", type=int, default=20)
    parser.add_argument("--guarantee", default="nominal")
    parser.add_argument("--anonymity-set", default="population")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", NominalGuaranteeWarning)
    rows: dict[str, list[str]] = defaultdict(list)
    for name in options.tables:
        for attack, line in measure(name, options).items():
            rows[attack].append(line)
            print(f"<!-- {attack}: {line} -->", flush=True)
    for attack, lines in rows.items():
        print(head(attack), *lines, sep="\n")


if __name__ == "__main__":
    main()
