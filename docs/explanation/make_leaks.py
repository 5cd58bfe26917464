"""Write what-explanations-leak.md, its plots and the CSV files beside it from leaks.json, which
tests/benchmarks/leaks.py wrote.

``python docs/explanation/make_leaks.py`` runs no experiment.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from cfk_plugin.audit.result import Curve
from cfk_plugin.plots import RocDisplay, RocLine

HERE = Path(__file__).resolve().parent
KEPT, PAGE, TEMPLATE = (
    HERE / "leaks.json",
    HERE / "what-explanations-leak.md",
    HERE / "what-explanations-leak.md.in",
)
TABLES, FIGURES = HERE / "what-explanations-leak", HERE.parent / "assets/leaks"
SHOWN = {
    "membership_cfd": "CFD",
    "membership_cfd_lrt": "CFD-LRT",
    "membership_loss": "Loss",
    "membership_loss_lrt": "Loss-LRT",
}
PAGE_ATTACKS = {attack: name for attack, name in SHOWN.items() if attack != "membership_loss"}
DIMENSIONS = (100, 1000, 5000, 7000)
QUERIES = (250, 500, 1000, 2000)
COPIED, REAL = ("german", "adult"), ("adult", "diabetes130")
OWNERS = {
    "raw": "unprotected",
    "reciprocal": "`reciprocal`",
    "catalogue": "`catalogue`",
    "dp": "prototypes, ε = 1",
}
METHODS = {
    "scfe": "SCFE",
    "cadex": "CADEX",
    "growing-spheres": "growing spheres",
    "c-chvae": "C-CHVAE",
    "revise": "REVISE",
}
COLUMNS = [name.lower().replace("-", "_") for name in SHOWN.values()]
ENDS = ("auc", "auc_low", "auc_high")
FEW = ("tpr_at_fpr_0_01", "tpr_at_fpr_0_01_low", "tpr_at_fpr_0_01_high")
ENDED = ("share", "low", "high")
PANELS = {
    "linear": [f"linear d={d}" for d in DIMENSIONS],
    "real": [
        "table adult scfe",
        "table adult growing-spheres",
        "table adult c-chvae",
        "table diabetes130 scfe",
    ],
}
PUBLISHED = {  # Pawelczyk, Lakkaraju, Neel (2023), table 2: AUC and TPR at FPR 0.01
    ("adult", "scfe"): {"membership_cfd": (0.4971, 0.0121), "membership_cfd_lrt": (0.4988, 0.0158)},
    ("adult", "cadex"): {},
    ("adult", "growing-spheres"): {
        "membership_cfd": (0.5038, 0.0097),
        "membership_cfd_lrt": (0.5103, 0.0095),
    },
    ("adult", "revise"): {},
    ("adult", "c-chvae"): {
        "membership_cfd": (0.5008, 0.0157),
        "membership_cfd_lrt": (0.5066, 0.0134),
    },
    ("diabetes130", "scfe"): {
        "membership_cfd": (0.5051, 0.0093),
        "membership_cfd_lrt": (0.5050, 0.0113),
    },
    ("diabetes130", "cadex"): {},
    ("diabetes130", "growing-spheres"): {
        "membership_cfd": (0.5000, 0.0083),
        "membership_cfd_lrt": (0.5047, 0.0159),
    },
    ("diabetes130", "revise"): {},
}
Report = dict[str, Any]


def render(found: dict[str, Report]) -> str:
    """Return the page."""
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, rows in small_tables(found).items():
        page = page.replace(f"{{{{{name}}}}}", "\n".join(rows))
    return page


# --- the small tables of the page ---


def small_tables(found: dict[str, Report]) -> dict[str, list[str]]:
    """Return every table of the page as lines of Markdown, by its name in the template."""
    attacks = list(SHOWN.values())
    return {
        "attributes": markdown(
            ["table", "explanations", "right", "baseline", "right, few fit", "baseline, few fit"],
            guesses(found),
        ),
        "extraction": markdown(
            ["explanations", *(f"{queries} queries" for queries in QUERIES)], gains(found)
        ),
        "surrogate": markdown(["table", "explanations", "right", "control"], members(found)),
        "linear": markdown(
            ["d", *attacks],
            [[f"{d:,}", *areas(found[f"linear d={d}"])] for d in DIMENSIONS],
        ),
        "networks": markdown(
            ["d", "layers", *attacks],
            [[d, layers, *areas(report)] for d, layers, report in networks(found)],
        ),
        "real": markdown(
            [
                "method",
                *(f"{table}: {attack}" for table in REAL for attack in PAGE_ATTACKS.values()),
            ],
            by_method(found),
        ),
    }


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def areas(report: Report) -> list[str]:
    return [f"{of(report, attack)['main']['value']:.2f}" for attack in SHOWN]


def guesses(found: dict[str, Report]) -> Iterable[list[str]]:
    for table in COPIED:
        for owner, name in OWNERS.items():
            report = found[f"attributes {table} {owner}"]
            pooled = of(report, "attribute_inference_linkage")
            few = of(report, "attribute_inference_singled_out")
            cells = [
                interval(each[part]) for each in (pooled, few) for part in ("main", "baseline")
            ]
            yield [table, name, *cells]


def gains(found: dict[str, Report]) -> Iterable[list[str]]:
    for owner, name in OWNERS.items():
        report = found[f"extraction adult {owner}"]
        cells = []
        for queries in QUERIES:
            figures = of(report, f"extraction_known_{queries}")["figures"]
            low, high = figures["gain_low"], figures["gain_high"]
            cells.append(f"{figures['gain']:.3f} ({low:.3f} to {high:.3f})")
        yield [name, *cells]


def members(found: dict[str, Report]) -> Iterable[list[str]]:
    for table in COPIED:
        for owner, name in OWNERS.items():
            result = of(found[f"surrogate {table} {owner}"], "membership_surrogate_threshold")
            yield [table, name, interval(result["main"]), interval(result["control"])]


def by_method(found: dict[str, Report]) -> Iterable[list[str]]:
    for method, name in METHODS.items():
        cells = [name]
        for table in REAL:
            for attack in PAGE_ATTACKS:
                if (table, method) not in PUBLISHED:
                    cells.append("–")
                    continue
                value = of(found[f"table {table} {method}"], attack)["main"]["value"]
                printed = PUBLISHED[table, method].get(attack)
                paper = "" if printed is None else f" ({printed[0]:.2f})"
                cells.append(f"{value:.2f}{paper}")
        yield cells


def interval(found: Report | None) -> str:
    if found is None or found["value"] is None:
        return "–"
    return f"{found['value']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


# --- the whole tables, as CSV ---


def csv_files(found: dict[str, Report]) -> dict[str, str]:
    """Return the text of every CSV file beside the page, by its name."""
    attacks = [f"{attack}_{column}" for attack in COLUMNS for column in (*ENDS, *FEW)]
    guess = [f"{part}_{end}" for part in ("right", "baseline", "control") for end in ENDED]
    return {
        "linear.csv": csv_text(
            ["dimensions", *attacks],
            [[str(d), *attacked(found[f"linear d={d}"])] for d in DIMENSIONS],
        ),
        "separation.csv": csv_text(["separation", "test_accuracy", *attacks], separations(found)),
        "networks.csv": csv_text(
            ["dimensions", "layers", "test_accuracy", *attacks],
            [
                [d, layers, accuracy(report), *attacked(report)]
                for d, layers, report in networks(found)
            ],
        ),
        "real-tables.csv": csv_text(
            ["table", "method", "answered_percent", "attack", *ENDS, "paper_auc", *FEW]
            + ["paper_tpr_at_fpr_0_01"],
            real(found),
        ),
        "extraction.csv": csv_text(
            ["table", "explanations", "queries"]
            + [
                f"{part}_{end}"
                for part in ("with_explanations", "queries_only", "further_queries", "gain")
                for end in ENDED
            ],
            copied(found),
        ),
        "surrogate.csv": csv_text(
            ["table", "explanations"]
            + [
                f"{way}_{part}_{end}"
                for way in ("threshold", "learned")
                for part in ("right", "control")
                for end in ENDED
            ],
            through_copies(found),
        ),
        "attributes-through-copy.csv": csv_text(
            ["table", "explanations", "attribute", *guess], asked(found)
        ),
        "attributes.csv": csv_text(
            ["table", "explanations", "people_who_fit", *guess, "fits_one_person_percent"],
            guessed(found),
        ),
    }


def csv_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def attacked(report: Report) -> list[str]:
    cells = []
    for attack in SHOWN:
        result = of(report, attack)
        cells += [*rate(result["main"]), *figure(result, "tpr_at_0_01")]
    return cells


def separations(found: dict[str, Report]) -> Iterable[list[str]]:
    for separation in ("3.4", "5", "6", "8", "12"):
        report = found[
            "linear d=5000" if separation == "8" else f"linear d=5000 separation={separation}"
        ]
        yield [separation, accuracy(report), *attacked(report)]


def networks(found: dict[str, Report]) -> Iterable[tuple[str, str, Report]]:
    for name, report in found.items():
        if name.startswith("network"):
            d, layers = (part.split("=")[1] for part in name.split()[1:])
            yield d, layers, report


def real(found: dict[str, Report]) -> Iterable[list[str]]:
    for (name, method), printed in PUBLISHED.items():
        report = found[f"table {name} {method}"]
        answered = 1 - of(report, "membership_cfd")["figures"]["unanswered_others"]
        for attack, attack_name in SHOWN.items():
            result = of(report, attack)
            area, few = printed.get(attack, (None, None))
            numbers = [
                *rate(result["main"]),
                written(area),
                *figure(result, "tpr_at_0_01"),
                written(few),
            ]
            yield [name, method, f"{100 * answered:.0f}", attack_name, *numbers]


def copied(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if not name.startswith("extraction"):
            continue
        _, data, owner = name.split()
        for result in report["results"]:
            kind, queries = result["attack"].split("_")[1:]
            if kind == "known":
                numbers = [
                    *rate(result["main"]),
                    *rate(result["baseline"]),
                    *rate(result["control"]),
                    *figure(result, "gain"),
                ]
                yield [data, owner, queries, *numbers]


def through_copies(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if name.startswith("surrogate"):
            both = [of(report, f"membership_surrogate_{way}") for way in ("threshold", "learned")]
            rates = [rate(result[part]) for result in both for part in ("main", "control")]
            yield [*name.split()[1:], *chain.from_iterable(rates)]


def asked(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if name.startswith("asked"):
            result = of(report, "attribute_inference_surrogate")
            rates = [rate(result[part]) for part in ("main", "baseline", "control")]
            yield [
                *name.split()[1:],
                report["settings"]["attribute"],
                *chain.from_iterable(rates),
            ]


def guessed(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if name.startswith("attributes"):
            pooled = of(report, "attribute_inference_linkage")
            for who, attack in (("any number", "linkage"), ("at most three", "singled_out")):
                result = of(report, f"attribute_inference_{attack}")
                rates = [rate(result[part]) for part in ("main", "baseline", "control")]
                yield [
                    *name.split()[1:],
                    who,
                    *chain.from_iterable(rates),
                    f"{100 * pooled['figures']['fits_one']:.0f}",
                ]


def of(report: Report, attack: str) -> Report:
    return next(result for result in report["results"] if result["attack"] == attack)


def accuracy(report: Report) -> str:
    return f"{report['results'][0]['figures']['test_accuracy']:.3f}"


def rate(found: Report | None) -> list[str]:
    if found is None or found["value"] is None:
        return ["", "", ""]
    return [written(found[end]) for end in ("value", "low", "high")]


def figure(result: Report, name: str) -> list[str]:
    values = [result["figures"].get(end) for end in (name, f"{name}_low", f"{name}_high")]
    if any(value is None or math.isnan(value) for value in values):
        return ["", "", ""]
    return [written(value) for value in values]


def written(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def draw(found: dict[str, Report], folder: Path) -> list[Path]:
    """Draw the plots of the page."""
    mpl.rcParams["svg.hashsalt"] = "leaks"  # ids of shapes are the same in every run
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, cases in PANELS.items():
        figure, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
        for ax, case in zip(axes.flat, cases, strict=True):
            curves = found[case]["curves"]
            shown = [
                RocLine(name, Curve(tuple(curves[attack]["fpr"]), tuple(curves[attack]["tpr"])))
                for attack, name in SHOWN.items()
            ]
            RocDisplay(shown, guides={}).plot(ax=ax)
            ax.set_title(case)
            lines = ax.get_legend_handles_labels()
            ax.get_legend().remove()
        figure.legend(
            *lines, loc="outside upper center", ncols=len(SHOWN) + 1, frameon=False, handlelength=3
        )
        paths.append(folder / f"roc-{name}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
        plt.close(figure)
    return paths


if __name__ == "__main__":
    results = json.loads(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(render(results), encoding="utf-8")
    TABLES.mkdir(exist_ok=True)
    for name, text in csv_files(results).items():
        (TABLES / name).write_text(text, encoding="utf-8")
    draw(results, FIGURES)
