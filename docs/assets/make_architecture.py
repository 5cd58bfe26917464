"""Draw what happens to a query, step by step: `architecture.svg`.

Run ``python docs/assets/make_architecture.py`` after a change of `STEPS`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent / "architecture.svg"


@dataclass(frozen=True)
class Step:
    """One step on the way of a query."""

    title: str
    what_happens: str
    code: str  # a class, its method, or a function
    module: str  # in `cfk_plugin`


STEPS = (
    Step(
        "Ask the explainer",
        "Under a catalogue only if no answer of it depends on a single row.",
        "WrappedExplainer.explain",
        "release/wrapped_explainer.py",
    ),
    Step(
        "Encode",
        "Queries and counterfactuals become the codes of one request.",
        "Request",
        "release/request.py",
    ),
    Step(
        "Detect",
        "Is its counterfactual a training row, or nearly one?",
        "Detector",
        "release/detection.py",
    ),
    Step(
        "Label",
        "Who has the desired outcome already is told so.",
        "Model.labels",
        "data/outcome_model.py",
    ),
    Step(
        "Search",
        "The least change of the query, with a region of the catalogue.",
        "explain",
        "protection/answers.py",
    ),
    Step(
        "Recount",
        "Other code counts people, and asks the model about the answer again.",
        "Recounter.judge",
        "release/recount.py",
    ),
    Step(
        "Return",
        "The caller, the run and the report get the same object.",
        "Explanations",
        "release/explanations.py",
    ),
)

WIDTH = 880
LEFT = 24
RIGHT = 856
TOP = 56
STEP_HEIGHT = 50
GAP = 12
CODE_X = 596

STYLE = """
  svg { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; font-size: 13px }
  .card { fill: #ffffff; stroke: #d0d7de } .step { fill: #f6f8fa; stroke: #d0d7de }
  .ink { fill: #1f2328 } .soft { fill: #59636e } .name { font-weight: 600 } .heading { font-size: 15px; font-weight: 600 }
  .code { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 12px }
  .way { stroke: #0b6bcb; stroke-width: 2 } .stop { fill: #0b6bcb } .digit { fill: #ffffff; font-weight: 600; font-size: 12px; text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d } .step { fill: #151b23; stroke: #3d444d }
    .ink { fill: #f0f6fc } .soft { fill: #9198a1 } .way { stroke: #58a6ff } .stop { fill: #58a6ff } .digit { fill: #0d1117 }
  }
"""


def drawing() -> str:
    """Return the picture as SVG."""
    bottom = TOP + len(STEPS) * (STEP_HEIGHT + GAP) - GAP
    height = bottom + 52
    description = "; ".join(f"{i}. {step.title}: {step.code}" for i, step in enumerate(STEPS, 1))
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        '<title id="title">What happens to a query, step by step</title>',
        f'<desc id="desc">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="ink heading" x="{LEFT}" y="34">What happens to a query</text>',
        f'<text class="ink heading" x="{CODE_X}" y="34">and where</text>',
        f'<line class="way" x1="{LEFT + 26}" y1="{TOP + 10}" x2="{LEFT + 26}" y2="{bottom - 10}"/>',
    ]
    for number, step in enumerate(STEPS, 1):
        lines.extend(drawing_of(step, number))
    lines.append(
        f'<text class="soft" x="{LEFT}" y="{bottom + 30}">If a step refuses or fails, the'
        " explanation is withheld, with a reason. No step returns a counterfactual as it"
        " came.</text>"
    )
    return "\n".join([*lines, "</svg>", ""])


def drawing_of(step: Step, number: int) -> Iterator[str]:
    """Yield the lines of one step, which is the one of that number from 1."""
    top = TOP + (number - 1) * (STEP_HEIGHT + GAP)
    middle = top + STEP_HEIGHT // 2
    text_x = LEFT + 52
    yield (
        f'<rect class="step" x="{LEFT}" y="{top}" width="{RIGHT - LEFT}" height="{STEP_HEIGHT}"'
        ' rx="4"/>'
    )
    yield f'<circle class="stop" cx="{LEFT + 26}" cy="{middle}" r="11"/>'
    yield f'<text class="digit" x="{LEFT + 26}" y="{middle + 4}">{number}</text>'
    yield f'<text class="ink name" x="{text_x}" y="{top + 21}">{escape(step.title)}</text>'
    yield f'<text class="soft" x="{text_x}" y="{top + 39}">{escape(step.what_happens)}</text>'
    yield f'<text class="ink code" x="{CODE_X}" y="{top + 21}">{escape(step.code)}</text>'
    yield f'<text class="soft code" x="{CODE_X}" y="{top + 39}">{escape(step.module)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")
