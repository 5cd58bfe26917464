"""Write the small tables and figures of benchmarks.md from the CSV files beside it.

Each file in docs/reference/benchmarks holds what a script in tests/benchmarks printed. After one of
them has changed, run ``python docs/reference/make_benchmarks.py`` from the repository's root. With
``--check`` it writes nothing; its exit code is 1 if the page shows other figures than the files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parent
PAGE = HERE / "benchmarks.md"
RESULTS = HERE / "benchmarks"
DEFAULT = "catalogue-shared"  # the answers under the default policy


def read(name: str) -> pd.DataFrame:
    """Return a file of results as text, digit by digit as it was printed."""
    return pd.read_csv(RESULTS / f"{name}.csv", dtype=str, keep_default_na=False)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Return a Markdown table; columns after the first few are aligned to the right."""
    rules = ["---"] * text_columns + ["---:"] * (len(head) - text_columns)
    lines = [f"| {' | '.join(cells)} |" for cells in [head, rules, *rows]]
    return "\n".join(lines)


def thousands(number: str) -> str:
    return f"{int(number):,}"


def span(values: pd.Series) -> str:
    """Return the least and the greatest of some printed numbers, with the digits they have."""
    printed = sorted(set(values), key=float)
    return printed[0] if len(printed) == 1 else f"{printed[0]} to {printed[-1]}"


def answers_of(method: str) -> pd.DataFrame:
    answers = read("answers")
    return answers[answers["answers"] == method].set_index("table")


def answers() -> str:
    methods = [answers_of(name) for name in ("NICE-sparsity", "DiCE-random", DEFAULT)]
    head = ["table", "distance, NICE", "DiCE", "default", "changes, NICE", "DiCE", "default"]
    head += ["CPU ms, NICE", "DiCE", "default"]
    columns = ("distance", "changes", "ms_per_query")
    rows = [
        [str(name), *(method.loc[name, column] for column in columns for method in methods)]
        for name in methods[-1].index
    ]
    return markdown(head, rows)


def answers_by_k() -> str:
    by_k = read("answers-by-k")
    head = ["table", "distance, k = 5", "10", "20", "range lost %, k = 5", "10", "20"]
    rows = [
        [str(name), *group["distance"], *group["ncp_percent"]]
        for name, group in by_k.groupby("table", sort=False)
    ]
    return markdown(head, rows)


def guarantees() -> str:
    head = ["guarantee", "distance", "answered %", "true %", "range lost %", "people, least"]
    names = {DEFAULT: "catalogue", "reciprocal": "reciprocal", "lookup": "lookup"}
    columns = ("distance", "answered_percent", "true_percent", "ncp_percent", "k_consistent")
    rows = []
    for method, name in names.items():
        found = answers_of(method)
        rows.append([f'`"{name}"`', *(span(found[column]) for column in columns)])
    return markdown(head, rows)


def short_catalogue() -> str:
    head = ["table", "entries", "short part", "distance, people who chose", "other people"]
    rows = [
        [
            row.table,
            thousands(row.entries),
            row.entries_of_short_part,
            row.distance_of_choosing_people,
            row.distance_of_others,
        ]
        for row in read("short-catalogue").itertuples()
    ]
    return markdown(head, rows)


def groups() -> str:
    found = read("groups")
    head = ["table", "people", "Mondrian", "`fast`", "`balanced`", "`thorough`"]
    rows = [
        [
            row.table,
            thousands(row.people),
            row.mondrian_ncp_percent,
            f"{row.fast_ncp_percent} in {row.fast_cpu_s} s",
            f"{row.balanced_ncp_percent} in {row.balanced_cpu_s} s",
            f"{row.thorough_ncp_percent} in {row.thorough_cpu_s} s",
        ]
        for row in found[found["k"] == "10"].itertuples()
    ]
    return markdown(head, rows)


def requests() -> str:
    head = ["call", "guarantee", "one alone, ms", "of 1,000, µs each", "of 20,000, µs each"]
    found = read("requests")
    rows = [
        [
            f"`{row.call}`",
            row.guarantee,
            row.lone_ms,
            row.of_1000_us_each,
            row.of_20000_us_each or "–",
        ]
        for row in found[found["desired"] == "a label"].itertuples()
    ]
    return markdown(head, rows, text_columns=2)


def fit() -> str:
    head = ["table", "rows", "CPU s"]
    rows = [[row.table, thousands(row.rows), row.fit_cpu_s] for row in read("fit").itertuples()]
    return markdown(head, rows)


def servers() -> str:
    columns = ("median_ms", "95th_percentile_ms", "added_median_ms")
    found = read("servers")
    head = ["server", "median, ms", "95th percentile, ms", "added at the median, ms"]
    rows = [[row["server"], *(row[name] for name in columns)] for _, row in found.iterrows()]
    return markdown(head, rows)


def scale() -> str:
    found = read("scale")
    columns = ("fit_s", "peak_memory_gb", "median_ms", "99th_percentile_ms")
    head = ["people", "combinations", "fit, s", "memory, GB", "search, median ms"]
    head += ["99th percentile, ms"]
    rows = []
    for _, row in found[found["postal_area"] == "nominal"].iterrows():
        counts = [thousands(row["people"]), thousands(row["combinations"])]
        rows.append([*counts, *(row[name] for name in columns)])
    return markdown(head, rows, text_columns=0)


def catalogue_fit() -> str:
    head = ["a million people", "combinations", "CPU s", "model rows per row", "memory, GB"]
    rows = [
        [
            row.people,
            thousands(row.combinations),
            row.fit_cpu_s,
            row.model_rows_per_row,
            row.memory_gb,
        ]
        for row in read("catalogue-fit").itertuples()
    ]
    return markdown(head, rows)


def spark() -> str:
    found = read("spark")
    head = ["work", "rows", "CPU s", "driver, GB", "Java, GB", "worker, GB"]
    columns = ("cpu_s", "driver_gb", "java_gb", "worker_gb")
    rows = []
    for _, row in found[found["rows"].astype(int) >= 1_000_000].iterrows():
        cells = [row[name] or "–" for name in columns]
        rows.append([row["work"], thousands(row["rows"]), *cells])
    return markdown(head, rows)


TABLES: dict[str, Callable[[], str]] = {
    "table: answers": answers,
    "table: answers by k": answers_by_k,
    "table: guarantees": guarantees,
    "table: short catalogue": short_catalogue,
    "table: groups": groups,
    "table: requests": requests,
    "table: fit": fit,
    "table: servers": servers,
    "table: scale": scale,
    "table: catalogue fit": catalogue_fit,
    "table: spark": spark,
}


def how_often_less(one: pd.DataFrame, other: pd.DataFrame, figure: str) -> str:
    """Return in words on how many tables a method has less of something."""
    words = ("none", "one", "two", "three", "four", "five", "all")
    return words[(one[figure].astype(float) < other[figure].astype(float)).sum()]


def most_missing(percents: pd.Series) -> str:
    """Return by how much the least of some percentages falls short of 100."""
    return f"{100 - percents.astype(float).min():g}"


def figures() -> dict[str, str]:
    """Return the figures that stand in sentences, by their name on the page."""
    default = answers_of(DEFAULT)
    nice = answers_of("NICE-sparsity")
    dice = answers_of("DiCE-random")
    beside_nice = default["distance"].astype(float) / nice["distance"].astype(float)
    reciprocal = answers_of("reciprocal")
    few = read("few-changes")
    usual = few[few["options"] == "default"]
    shared = read("shared-beside-exact")
    ratio = shared["distance_shared_over_exact"].astype(float)
    ratio_by_table = ratio.groupby(shared["table"]).mean()
    coarse = read("bins-and-rare-values")
    requests = read("requests").set_index(["call", "desired"])
    explain = requests.loc[("explain", "a label")]
    fits = read("fit").set_index("table")
    sizes = read("scale")
    largest = sizes[sizes["people"] == "10000000"]
    numeric = largest.set_index("postal_area").loc["numeric"]
    facts = read("short-catalogue-and-facts").iloc[[0, -1]]
    facts_reach, short_reach = facts["others_reached_percent"]
    facts_cost, short_cost = facts["others_mean_cost"]
    catalogues = read("catalogue-fit")
    faster = read("searches-beside-grasp").set_index("objective")
    times = sorted(faster.loc["pureness", "grasp_whole_over_exact_whole"], key=int)
    slowest, fastest = times[0], times[-1]
    exact = read("searches")
    exact = exact[exact["method"] == "exact, pureness"]
    detection = read("detection")
    pipeline = read("pipeline")
    first = read("first-call")["cpu_s"]
    served = read("prototypes")
    moved = served[served["moved_lone_ms"] != ""]
    million = read("reports")
    million = million[million["explanations"] == "1000000"]
    times_farther = served["prototypes_l1"].astype(float) / served["rows_l1"].astype(float)
    return {
        "answered": span(default["answered_percent"]),
        "true": span(default["true_percent"]),
        "NICE nearer": how_often_less(nice, default, "distance"),
        "DiCE nearer": how_often_less(dice, default, "distance"),
        "NICE fewer": how_often_less(nice, default, "changes"),
        "DiCE fewer": how_often_less(dice, default, "changes"),
        "beside NICE": f"{beside_nice.min():.1f} to {beside_nice.max():.1f}",
        "reciprocal withheld": most_missing(reciprocal["answered_percent"]),
        "reciprocal untrue": most_missing(reciprocal["true_percent"]),
        "range": span(default["ncp_percent"]),
        "pureness": span(default["pureness_mean_percent"]),
        "changes": span(usual["changes_mean"]),
        "more than four": span(usual["more_than_four_changes_percent"]),
        "shared": f"{ratio_by_table.min():.2f} to {ratio_by_table.max():.2f}",
        "bins": span(coarse["bins_distance"]),
        "rare": span(coarse["rare_withheld_distance"]),
        "one answer": explain["lone_ms"],
        "of a thousand": f"{float(explain['of_1000_us_each']) / 1000:.1f}",
        "fit of adult": fits.loc["adult", "fit_cpu_s"],
        "facts reach": facts_reach,
        "facts cost": facts_cost,
        "short reach": short_reach,
        "short cost": short_cost,
        "numeric fit": numeric["fit_s"],
        "numeric memory": numeric["peak_memory_gb"],
        "prototypes fit": span(moved["rows_fit_s"]),
        "prototypes answer": span(moved["moved_lone_ms"]),
        "report memory": span(million["memory_gb"]),
        "largest fit": span(largest["fit_s"]),
        "largest memory": max(largest["peak_memory_gb"], key=float),
        "fit of a million": span(catalogues["fit_cpu_s"]),
        "faster": f"{thousands(slowest)} to {thousands(fastest)}",
        "proven": span(exact["proven_percent"]),
        "detection": span(detection["adult_ms"].iloc[:-1]),
        "detection in batches": detection["adult_ms"].iloc[-1],
        "lone": span(pipeline["lone_median_ms"]),
        "batch": span(pipeline["batch_of_50_ms_each"]),
        "imports": first[0],
        "first on a machine": first[1],
        "first in a process": first[2],
        "farther": f"{times_farther.min():.1f} to {times_farther.max():.1f}",
    }


def render(page: str) -> str:
    """Return the page with its figures between ``<!-- name -->`` and ``<!-- end -->``."""
    shown = {name: f"\n\n{make()}\n\n" for name, make in TABLES.items()} | figures()
    for name, content in shown.items():
        pattern = rf"<!-- {name} -->.*?<!-- end -->"
        if not re.search(pattern, page, re.DOTALL):
            raise ValueError(f"the page has no place for {name!r}")
        filled = f"<!-- {name} -->{content}<!-- end -->"
        page = re.sub(pattern, lambda _, filled=filled: filled, page, flags=re.DOTALL)
    return page


def main() -> int:
    """Write the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    made = render(page)
    if "--check" in sys.argv[1:]:
        return int(made != page)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
