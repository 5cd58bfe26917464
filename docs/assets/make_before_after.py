"""Draw before-after.svg from real output: one patient's explanation without and with protection.

Run it from the repository's root: ``python docs/assets/make_before_after.py``. With ``--check`` it
writes nothing and fails when the picture is not what it would write. The patients are
scikit-learn's diabetes data, which is public: the only reason why training rows are drawn.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from cfk_plugin import GeneralizedCounterfactual, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.demo import LOW, load_patients

PICTURE = Path(__file__).with_name("before-after.svg")
K = 10
KNOWN = ["age", "sex", "bmi"]
WIDTH, HEIGHT, PANEL, TOP = 880, 464, 400, 84  # the drawing; a panel's width; where the plots begin
MARGIN, PLOT = 30, 232  # room for the labels left of a plot; its height
AGES, BMIS = (18, 82), (17.0, 43.0)

STYLE = """
  svg { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; font-size: 13px }
  .card { fill: #ffffff; stroke: #d0d7de }
  .ink { fill: #1f2328 } .soft { fill: #59636e } .axis { stroke: #d0d7de; fill: none }
  .title { font-size: 17px; font-weight: 600 } .number { font-weight: 600 }
  .other { fill: #8c959f; fill-opacity: .55 } .same { fill: #59636e }
  .before { fill: #c93c37 } .after { fill: #0b6bcb } .area { fill: #0b6bcb; fill-opacity: .14; stroke: #0b6bcb }
  .ring { fill: none; stroke: #c93c37; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    .ink { fill: #f0f6fc } .soft { fill: #9198a1 } .axis { stroke: #3d444d }
    .other { fill: #656c76; fill-opacity: .6 } .same { fill: #9198a1 }
    .before { fill: #ff7b72 } .after { fill: #58a6ff } .area { fill: #58a6ff; fill-opacity: .2; stroke: #58a6ff }
    .ring { stroke: #ff7b72 }
  }
"""


def explain() -> tuple[pd.DataFrame, pd.Series, GeneralizedCounterfactual, int]:
    """Return the training patients, what the explainer finds for the first patient asked for, what
    is released, and how many private values that asks to change."""
    data = load_patients(1)
    train = data.train.drop(columns="progression")
    schema = Schema.from_frame(
        train, quasi_identifiers=KNOWN, nominal=["sex"], immutable=["age", "sex"]
    )
    population = Population.from_frame(train, schema)
    explainer = import_module("cfk_adapters.nearest").NearestUnlikeNeighbour(
        train, data.model, desired=LOW
    )
    raw = explainer.explain(data.queries).iloc[0]
    policy = PrivacyPolicy(k=K)
    private = protect(
        explainer, model=data.model, population=population, policy=policy, desired=LOW
    )
    entry = private.explain(data.queries)[0]
    assert isinstance(entry, GeneralizedCounterfactual)
    query = data.queries.iloc[0]
    return train, raw, entry, sum(value != query[name] for name, value in entry.released.items())


def x_of(age: float, left: float) -> float:
    return left + MARGIN + (age - AGES[0]) / (AGES[1] - AGES[0]) * (PANEL - MARGIN)


def y_of(bmi: float) -> float:
    return TOP + PLOT - (bmi - BMIS[0]) / (BMIS[1] - BMIS[0]) * PLOT


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def plot(train: pd.DataFrame, left: float, sex: int, inside: pd.Series, kind: str) -> list[str]:
    """Draw every patient by age and BMI: those whose sex does not fit pale, those who fit in colour
    and last.
    """
    out = [f'<path class="axis" d="M{left + MARGIN} {TOP} V{TOP + PLOT} H{left + PANEL}"/>']
    groups = {"other": train["sex"] != sex, "same": (train["sex"] == sex) & ~inside, kind: inside}
    for name, rows in groups.items():
        radius = 3.4 if name == kind else 2.4
        out += [
            f'<circle class="{name}" cx="{x_of(age, left):.1f}" cy="{y_of(bmi):.1f}" r="{radius}"/>'
            for age, bmi in train.loc[rows, ["age", "bmi"]].itertuples(index=False)
        ]
    out += [
        text(x_of(age, left), TOP + PLOT + 17, str(age), "soft", "middle")
        for age in (20, 40, 60, 80)
    ]
    out.append(text(left + (MARGIN + PANEL) / 2, TOP + PLOT + 34, "age", "soft", "middle"))
    out += [text(left + MARGIN - 6, y_of(bmi) + 4, str(bmi), "soft", "end") for bmi in (20, 30, 40)]
    out.append(text(left, TOP + 4, "BMI", "soft"))
    return out


def draw(
    train: pd.DataFrame, raw: pd.Series, entry: GeneralizedCounterfactual, changes: int
) -> str:
    """Return the picture."""
    left, right = 26.0, WIDTH - PANEL - 26.0
    sex = int(raw["sex"])
    same = (train[KNOWN] == raw[KNOWN]).all(axis=1)
    fits = train.apply(entry.region.contains, axis=1)
    private = [name for name in train.columns if name not in KNOWN]
    equal = int((train.loc[same, private] == raw[private]).all(axis=1).sum())
    assert int(same.sum()) == equal == 1
    assert int(fits.sum()) == entry.recount.k
    ages: Any = entry.region["age"]
    bmis: Any = entry.region["bmi"]
    cells = entry.cells()
    below = TOP + PLOT + 64
    area = (
        f'<rect class="area" x="{x_of(ages.low, right) - 4:.1f}" y="{y_of(bmis.high) - 4:.1f}" '
        f'width="{x_of(ages.high, right) - x_of(ages.low, right) + 8:.1f}" '
        f'height="{y_of(bmis.low) - y_of(bmis.high) + 8:.1f}" rx="4"/>'
    )
    ring = f'<circle class="ring" cx="{x_of(raw["age"], left):.1f}" cy="{y_of(raw["bmi"]):.1f}" r="9"/>'
    lines = [
        text(left, 36, "Before: a training patient", "before title"),
        text(
            left,
            58,
            f"age {raw['age']:.0f}, sex {sex}, BMI {raw['bmi']}, and {len(private)} private values",
        ),
        text(right, 36, f"After: a region with k = {K}", "after title"),
        text(
            right,
            58,
            f"age {cells['age']}, sex {cells['sex']}, BMI {cells['bmi']}; {changes or 'no'} private values to change",
        ),
        *plot(train, left, sex, same, "before"),
        ring,
        area,
        *plot(train, right, sex, fits, "after"),
        text(left, below, f"{int(same.sum())} of {len(train)} patients matches.", "ink number"),
        text(
            left,
            below + 20,
            f"Anyone who knows age, sex and BMI of that patient learns all {len(private)}",
        ),
        text(left, below + 40, "private values: blood pressure and six blood values."),
        text(right, below, f"{entry.recount.k} of {len(train)} patients match.", "ink number"),
        text(
            right,
            below + 20,
            f"Information loss (NCP) {entry.recount.ncp:.3f}; the model agrees for",
        ),
        text(
            right,
            below + 40,
            f"{entry.recount.pureness:.0%} of the value combinations inside (pureness).",
        ),
    ]
    legend = f"Strong dots: patients of sex {sex}. Faint dots: the others. Data: diabetes patients of scikit-learn, public."
    described = (
        f"Two scatter plots of {len(train)} patients by age and BMI. Before: the explanation is one patient. "
        f"After: it is a rectangle that {entry.recount.k} patients match."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t d">',
            '<title id="t">One explanation before and after protection</title>',
            f'<desc id="d">{described}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
            *lines,
            text(WIDTH / 2, HEIGHT - 12, legend, "soft", "middle"),
            "</svg>\n",
        ]
    )


def main() -> int:
    """Write the picture, or check it."""
    drawn = draw(*explain())
    if "--check" in sys.argv[1:]:
        return 0 if PICTURE.read_text(encoding="utf-8") == drawn else 1
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
