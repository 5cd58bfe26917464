"""Write reproduction.md, and the plots that it shows, from the results of `cfk reproduce`.

``python docs/explanation/make_reproduction.py FOLDER`` takes FOLDER/results.json, which ``cfk reproduce -o FOLDER``
wrote; without a folder, the page is written anew from the results that are kept here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cfk_plugin.reproduction import Results
from cfk_plugin.reproduction.page.plots import draw
from cfk_plugin.reproduction.page.rendering import render

HERE = Path(__file__).resolve().parent
KEPT, PAGE = HERE / "reproduction.json", HERE / "reproduction.md"
FIGURES = "../assets/reproduction/"


def main(folder: Path | None) -> None:
    """Write page and plots."""
    if folder is not None:
        KEPT.write_bytes((folder / "results.json").read_bytes())
    results = Results.from_json(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(render(results, FIGURES), encoding="utf-8")
    draw(results, HERE / FIGURES)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
