"""Write what-explanations-leak.md and its plots from leaks.json, which tests/benchmarks/leaks.py
wrote.

``python docs/explanation/make_leaks.py`` runs no experiment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
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
FIGURES = HERE.parent / "assets/leaks"
SHOWN = {
    "membership_cfd": "CFD",
    "membership_cfd_lrt": "CFD-LRT",
    "membership_loss": "Loss",
    "membership_loss_lrt": "Loss-LRT",
}
DIMENSIONS = (100, 1000, 5000, 7000)
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
    for name, rows in tables(found).items():
        page = page.replace(f"{{{{{name}}}}}", "\n".join(rows))
    return page


def tables(found: dict[str, Report]) -> dict[str, list[str]]:
    """Return every table of the page, by its name in the template."""
    lines = [membership(f"{d:,}", found[f"linear d={d}"], SHOWN) for d in DIMENSIONS]
    few, more = "TPR at FPR 0.01", "as many further queries"
    return {
        "linear": table(["d", *heads(SHOWN)], lines),
        "separation": table(["separation", "test accuracy", *heads(SHOWN)], separations(found)),
        "networks": table(["d", "layers", "test accuracy", *heads(SHOWN)], networks(found)),
        "real": table(
            ["table", "method", "answered", "attack", "AUC", "paper", few, "paper"], real(found)
        ),
        "extraction": table(
            ["table", "answers", "queries", "with explanations", "queries alone", more, "gain"],
            copied(found),
        ),
        "surrogate": table(
            ["table", "answers", "threshold", "control", "learned", "control"],
            through_copies(found),
        ),
        "asked": table(
            ["table", "answers", "attribute", "right", "baseline", "control"], asked(found)
        ),
        "attributes": table(
            ["table", "answers", "who fits", "right", "baseline", "control", "fits one person"],
            guessed(found),
        ),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def heads(attacks: dict[str, str]) -> list[str]:
    return [f"{name}: {what}" for name in attacks.values() for what in ("AUC", "TPR at FPR 0.01")]


def membership(first: str, report: Report, attacks: dict[str, str]) -> list[str]:
    cells = [first]
    for attack in attacks:
        result = of(report, attack)
        cells += [rate(result["main"]), figure(result, "tpr_at_0_01")]
    return cells


def separations(found: dict[str, Report]) -> Iterable[list[str]]:
    for separation in ("3.4", "5", "6", "8", "12"):
        report = found[
            "linear d=5000" if separation == "8" else f"linear d=5000 separation={separation}"
        ]
        yield [separation, accuracy(report), *membership("", report, SHOWN)[1:]]


def networks(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if name.startswith("network"):
            d, layers = (part.split("=")[1] for part in name.split()[1:])
            yield [
                d,
                layers.replace("-", ", "),
                accuracy(report),
                *membership("", report, SHOWN)[1:],
            ]


def real(found: dict[str, Report]) -> Iterable[list[str]]:
    for (name, method), printed in PUBLISHED.items():
        report = found[f"table {name} {method}"]
        for attack in ("membership_cfd", "membership_cfd_lrt"):
            result = of(report, attack)
            area, few = printed.get(attack, (None, None))
            answered = 1 - result["figures"]["unanswered_others"]
            numbers = [
                rate(result["main"]),
                written(area),
                figure(result, "tpr_at_0_01"),
                written(few),
            ]
            yield [name, method, f"{100 * answered:.0f} %", SHOWN[attack], *numbers]


def copied(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if not name.startswith("extraction"):
            continue
        _, data, owner = name.split()
        for result in report["results"]:
            kind, queries = result["attack"].split("_")[1:]
            if kind == "known":
                further = "–" if result["control"] is None else rate(result["control"])
                numbers = [
                    rate(result["main"]),
                    rate(result["baseline"]),
                    further,
                    figure(result, "gain"),
                ]
                yield [data, owner, queries, *numbers]


def through_copies(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if name.startswith("surrogate"):
            both = [of(report, f"membership_surrogate_{way}") for way in ("threshold", "learned")]
            cells = [rate(result[part]) for result in both for part in ("main", "control")]
            yield [*name.split()[1:], *cells]


def asked(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if name.startswith("asked"):
            result = of(report, "attribute_inference_surrogate")
            cells = [rate(result[part]) for part in ("main", "baseline", "control")]
            yield [*name.split()[1:], report["settings"]["attribute"], *cells]


def guessed(found: dict[str, Report]) -> Iterable[list[str]]:
    for name, report in found.items():
        if name.startswith("attributes"):
            pooled = of(report, "attribute_inference_linkage")
            for who, attack in (("everybody", "linkage"), ("at most three", "singled_out")):
                result = of(report, f"attribute_inference_{attack}")
                cells = [rate(result[part]) for part in ("main", "baseline", "control")]
                yield [
                    *name.split()[1:],
                    who,
                    *cells,
                    f"{100 * pooled['figures']['fits_one']:.0f} %",
                ]


def of(report: Report, attack: str) -> Report:
    return next(result for result in report["results"] if result["attack"] == attack)


def accuracy(report: Report) -> str:
    return f"{report['results'][0]['figures']['test_accuracy']:.3f}"


def rate(found: Report | None) -> str:
    if found is None or found["value"] is None:
        return "–"
    return f"{found['value']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def figure(result: Report, name: str) -> str:
    values = [result["figures"].get(end) for end in (name, f"{name}_low", f"{name}_high")]
    if any(value is None or math.isnan(value) for value in values):
        return "–"
    return "{:.3f} ({:.3f} to {:.3f})".format(*values)


def written(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


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
    draw(results, FIGURES)
