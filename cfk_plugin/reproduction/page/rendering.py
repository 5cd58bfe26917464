"""The page on the experiments: a pure function of their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cfk_plugin.reproduction.page import study_tables
from cfk_plugin.reproduction.page.comparison import (
    CF_K,
    MONDRIAN,
    beside,
    duration,
    ks_of,
    people,
    quality,
    runs,
    scenes,
    sizes,
    tally,
    verdict_table,
    verdicts_of,
)
from cfk_plugin.reproduction.page.labels import in_order, label
from cfk_plugin.reproduction.page.plots import PLOTS
from cfk_plugin.reproduction.page.reasons import agreements, data_differs, missed
from cfk_plugin.reproduction.page.writing import NOT_RUN, listed, times
from cfk_plugin.reproduction.prepare import Setting
from cfk_plugin.reproduction.results import OURS, PAPER, THEIRS, Printed, Results, published

_EXPLAINERS = {
    "nice": "NICE without optimisation, as in the paper",
    "nearest": "the nearest unlike neighbour of this product, the search of NICE without optimisation (NICE itself was "
    "not used)",
}
_GRIDS = {
    "small": "a smaller grid than the paper's: 100 trees, most leaves 10, 100, 500 or unlimited",
    "paper": "the paper's grid",
}


def render(results: Results, figures: str = "figures/") -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    results : Results
    figures : str
        Where the files of `plots.draw` are, as seen from the page.

    Returns
    -------
    str
        The same results give the same text. What was not run is said to be "not run".
    """
    text = (
        _environment()
        .get_template("page.md.j2")
        .render(
            results=results,
            published=published(),
            main=OURS[0],
            headline=_headline(results),
            run_as=list(_run_as(results)),
            scenes=scenes(results),
            against_paper=verdict_table(results, PAPER),
            against_grasp=verdict_table(results, THEIRS),
            tally_paper=list(tally(results, PAPER)),
            tally_grasp=list(tally(results, THEIRS)),
            missed_paper=missed(results, PAPER),
            missed_grasp=missed(results, THEIRS),
            cf_k=list(_parts(results, "cf-k", CF_K)),
            mondrian=list(_parts(results, "mondrian", MONDRIAN)),
            others=list(_others(results)),
            people=people(results),
            unit=_unit(results),
            group_k=study_tables.group_k(results),
            agreements=agreements(results),
            data_differs=data_differs(results),
            runs=runs(results),
            traced=study_tables.traced(results),
            figure=lambda name, alt: _figure(results, figures, name, alt),
            bullets=_bullets,
            label=label,
            **{name: getattr(study_tables, name)(results) for name in _STUDY_TABLES},
        )
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


_STUDY_TABLES = ("parameters", "fairness", "plausibility", "frontier", "candidates", "weights")


def _headline(results: Results) -> dict[str, str]:
    """Return in how many combinations our main method reached both figures; nothing where nothing was run."""
    said = {}
    for against in (PAPER, THEIRS):
        found = [v for v in verdicts_of(results, against) if v.is_measured]
        if found:
            reached = sum(v.is_reached for v in found)
            lost = in_order(v.table for v in found if not v.is_reached)
            missing = f"; not on {listed(lost)}, see below" if lost else ""
            said[against] = f"both are reached in {times(reached, len(found))} combinations of table and k{missing}"
    printed = [(table, k) for method, k, table in published().results if method == "cf-k"]
    if left := [place for place in printed if results.find(place[0], OURS[0], place[1]) is None]:
        what = f"{times(len(left), len(printed))} combinations that the paper prints were {NOT_RUN}"
        said[PAPER] = "; ".join(filter(None, (said.get(PAPER), what)))
    return said


def _run_as(results: Results) -> Iterator[str]:
    """Return the settings, those that all tables share once."""
    settings = results.settings
    if not settings:
        yield f"Nothing: {NOT_RUN}."
        return
    lines: tuple[Callable[[Setting], str], ...] = (
        lambda s: f"Counterfactuals: {_EXPLAINERS.get(s.explainer, s.explainer)}",
        lambda s: f"Random forest tuned by five-fold cross-validation over {_GRIDS.get(s.grid, s.grid)}",
        lambda s: f"At most {s.limit} explanations per table; split 60/40, seed {s.seed}",
        lambda s: f"Rows: {s.source}",
    )
    for says in lines:
        said: dict[str, list[str]] = {}
        for table in in_order(settings):
            said.setdefault(says(settings[table]), []).append(table)
        for text, tables in said.items():
            yield f"{text}." if len(said) == 1 else f"{text} ({listed(tables)})."
    if asked := {a.n for a in results.aggregates if a.method == THEIRS}:
        yield f"GRASP was asked for {listed(map(str, sorted(asked)), 'or')} explanations per table and k."
    if results.machine:
        yield f"On {results.machine}."
    if versions := results.versions:
        yield f"With {listed(f'{name} {version}' for name, version in versions.items())}."


def _parts(results: Results, printed: Printed, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    for k in ks_of(results):
        source = next(
            (found.source for (m, at, _), found in published().results.items() if (m, at) == (printed, k)), ""
        )
        table = beside(results, k, printed, methods, quality)
        yield {"k": k, "source": f" ({source})" if source else "", "table": table}


def _others(results: Results) -> Iterator[dict[str, Any]]:
    for k in ks_of(results):
        yield {
            "k": k,
            "cf_k_times": beside(results, k, "cf-k", CF_K, duration),
            "cf_k_sizes": beside(results, k, "cf-k", CF_K, sizes),
            "mondrian_sizes": beside(results, k, "mondrian", MONDRIAN[:2], sizes),
        }


def _unit(results: Results) -> str:
    units = sorted({str(row["unit"]) for row in results.rows("plausibility") if row.get("unit")})
    return f", {listed(units)}" if units else ""


def _figure(results: Results, folder: str, name: str, alt: str) -> str:
    return f"![{alt}]({folder}{name}.svg)" if PLOTS[name].needs(results) else ""


def _bullets(lines: Sequence[str], title: str) -> str:
    """Return a title and a list below it; nothing without lines."""
    return "\n".join([title, "", *(f"* {line}" for line in lines)]) if lines else ""


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(__package__),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - the page is Markdown
    )
