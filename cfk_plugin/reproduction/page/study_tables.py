"""Tables of the studies: parameters, groups, plausibility, frontier, candidates, weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfk_plugin.reproduction.page.labels import in_order, label, main_k, methods_in_order
from cfk_plugin.reproduction.page.writing import NONE, interval, number, percent, points, seconds, table
from cfk_plugin.reproduction.results import Results, published

Rows = Sequence[Mapping[str, Any]]

PARAMETERS = {"k": "k", "alpha": "α", "iterations": "iterations"}


def parameters(results: Results) -> str:
    """Return NCP, pureness and time at every value of every parameter."""
    rows = sorted(
        results.rows("parameters"), key=lambda row: (list(PARAMETERS).index(str(row["parameter"])), row["value"] or 0)
    )
    return table(
        ["table", "parameter", "method", "NCP %", "pureness %", "time", "n"],
        [
            [
                str(row["table"]),
                f"{PARAMETERS[str(row['parameter'])]} = {row['value']:g}",
                label(str(row["method"])),
                spread(row, "ncp"),
                spread(row, "pureness"),
                seconds(row["seconds"]),  # type: ignore[arg-type]
                str(row["n"]),
            ]
            for row in rows
        ],
        left=3,
    )


def fairness(results: Results) -> str:
    """Return both groups' mean NCP, and by how much they differ: one row per table and method."""
    rows = {tuple(row[name] for name in _GROUPED): row for row in results.rows("fairness")}
    ks, main = sorted({key[2] for key in rows if isinstance(key[2], int)}), group_k(results)
    body = []
    for name in in_order(str(key[0]) for key in rows):
        for method in methods_in_order(str(key[1]) for key in rows):
            at = {k: rows.get((name, method, k, "counterfactual", "ncp", "minority")) for k in ks}
            if not any(at.values()):
                continue
            cells = [
                rows.get((name, method, main, "counterfactual", "ncp", group)) for group in ("minority", "majority")
            ]
            pureness = rows.get((name, method, main, "counterfactual", "pureness", "minority"))
            asking = rows.get((name, method, main, "asking", "ncp", "minority"))
            differences = [gap(row) for row in (*at.values(), pureness, asking)]
            body.append([name, label(method), *map(_group, cells), *differences])
    head = ["table", "method", "minority NCP %", "majority", *(f"difference, k = {k}" for k in ks)]
    return table([*head, "of pureness", "of NCP, by who asks"], body, left=2)


_GROUPED = ("table", "method", "k", "by", "metric", "group")


def group_k(results: Results) -> int | None:
    """Return the k at which groups are shown."""
    return main_k(row["k"] for row in results.rows("fairness") if isinstance(row["k"], int))


def gap(row: Mapping[str, Any] | None) -> str:
    """Write the difference between groups with its interval."""
    if row is None:
        return NONE
    return points(row["difference"]) + interval(row["difference_low"], row["difference_high"])


def plausibility(results: Results) -> str:
    """Return distances to the training rows beside the paper's Table 8."""
    rows = results.rows("plausibility")
    printed = {(found.method, found.k): found for found in published().plausibility}
    order = methods_in_order(str(row["method"]) for row in rows)
    body = []
    for row in sorted(rows, key=lambda row: (str(row["table"]), order.index(str(row["method"])), row["k"] or 0)):
        # The paper prints one method with k, its own; ours stand beside it.
        method = str(row["method"])
        paper = printed.get((method if method.startswith("nice") else "cf-k", row["k"])) if _is_german(row) else None  # type: ignore[arg-type]
        body.append(
            [
                str(row["table"]),
                label(method) + ("" if row["k"] is None else f", k = {row['k']}"),
                NONE if paper is None else number(paper.nearest),
                spread(row, "nearest"),
                NONE if paper is None else number(paper.nearest_5),
                spread(row, "nearest_5"),
                str(row["n"]),
            ]
        )
    head = ["table", "method", "nearest, paper", "here", "5 nearest, paper", "here", "n"]
    return table(head, body, left=2)


def frontier(results: Results) -> str:
    """Return NCP and pureness at every k: one row per table and method."""
    rows = results.rows("frontier")
    ks = sorted({row["k"] for row in rows if isinstance(row["k"], int)})
    body = []
    for name in in_order(str(row["table"]) for row in rows):
        for method in methods_in_order(str(row["method"]) for row in rows):
            own = {row["k"]: row for row in rows if (row["table"], row["method"]) == (name, method)}
            if own:
                body.append([name, label(method), *(_pair(own.get(k)) for k in ks)])
    return table(["table", "method", *(f"k = {k}" for k in ks)], body, left=2)


def candidates(results: Results) -> str:
    """Return distance, NCP, pureness and k for every number of candidates: one row per table and k."""
    rows = results.rows("candidates")
    ms = sorted({row["m"] for row in rows if isinstance(row["m"], int)})
    body = []
    for name in in_order(str(row["table"]) for row in rows):
        for k in sorted({row["k"] for row in rows if row["table"] == name}, key=lambda k: float(k or 0)):
            own = {row["m"]: row for row in rows if (row["table"], row["k"]) == (name, k)}
            body.append([name, str(k), *(_choice(own.get(m)) for m in ms)])
    return table(["table", "k", *(f"{m} candidate{'' if m == 1 else 's'}" for m in ms)], body)


def weights(results: Results) -> str:
    """Return NCP and pureness for every weight of impurity, in bold what beats the paper's printed CF-K."""
    rows = results.rows("weights")
    tried = sorted({float(row["weight"]) for row in rows if row["weight"] is not None})
    body = []
    for name in in_order(str(row["table"]) for row in rows):
        for k in sorted({row["k"] for row in rows if row["table"] == name}, key=lambda k: float(k or 0)):
            own = {row["weight"]: row for row in rows if (row["table"], row["k"]) == (name, k)}
            paper = published().result("cf-k", int(k or 0), name)
            printed = NONE if paper is None else f"{percent(paper.ncp)} / {percent(paper.pureness)}"
            body.append([name, str(k), printed, *(_weighted(own.get(weight)) for weight in tried)])
    return table(["table", "k", "paper", *(f"weight {weight:g}" for weight in tried)], body)


def traced(results: Results) -> str:
    """Return the runs of every study's rows; nothing where none is known."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name in results.studies:
        for row in results.rows(name):
            run, key = row.get("run_id"), (name, str(row["table"]), str(row.get("method", NONE)))
            if run is not None and f"`{run}`" not in found.setdefault(key, []):
                found[key].append(f"`{run}`")
    body = [[study, name, label(method), ", ".join(ids)] for (study, name, method), ids in sorted(found.items()) if ids]
    return table(["study", "table", "method", "runs"], body, left=4) if body else ""


def spread(row: Mapping[str, Any], name: str) -> str:
    """Write a mean with its interval; NCP and pureness in percent."""
    write = percent if name in ("ncp", "pureness") else number
    mean, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    return write(mean) + ("" if low is None or high is None else f" ({write(low)} to {write(high)})")


def _group(row: Mapping[str, Any] | None) -> str:
    return NONE if row is None else f"{percent(row['mean'])} ({row['n']})"


def _pair(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return NONE
    lost = "" if row.get("released") in (None, 1) else f" ({percent(row['released'], 0)} % released)"
    return f"{percent(row['ncp'])} / {percent(row['pureness'])}{lost}"


def _weighted(row: Mapping[str, Any] | None) -> str:
    return f"**{_pair(row)}**" if row is not None and row["beats"] == 1 else _pair(row)


def _choice(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return NONE
    return f"{number(row['distance'], 3)} / {_pair(row)} / {number(row['k_mean'], 1)}"


def _is_german(row: Mapping[str, Any]) -> bool:
    return bool(row["table"] == "german")
