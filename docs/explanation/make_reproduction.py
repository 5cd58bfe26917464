"""Write reproduction.md, and the plots that it shows, from the results of `cfk reproduce`.

``python docs/explanation/make_reproduction.py FOLDER`` takes FOLDER/results.json, which ``cfk
reproduce -o FOLDER`` wrote; without a folder, the page is written anew from the results that are
kept here. What is said of them is written by hand, in reproduction.md.j2.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cfk_plugin.reproduction import Results
from cfk_plugin.reproduction.page import render
from cfk_plugin.reproduction.plots import draw

HERE = Path(__file__).resolve().parent
KEPT, SAID, PAGE = (HERE / f"reproduction.{ending}" for ending in ("json", "md.j2", "md"))
FIGURES = "../assets/reproduction/"


def main(folder: Path | None) -> None:
    """Write page and plots."""
    if folder is not None:
        KEPT.write_bytes((folder / "results.json").read_bytes())
    results = Results.from_json(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(render(results, FIGURES, SAID.read_text(encoding="utf-8")), encoding="utf-8")
    draw(results, HERE / FIGURES)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
