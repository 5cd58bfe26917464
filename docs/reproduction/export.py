"""The whole tables of the experiments as CSV files, which the page links to."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduction import published
from reproduction.measure import LABELS
from reproduction.results import Results, StudyRow

IN_PERCENT = {"ncp", "pureness", "unique", "below_10", "accuracy", "proven", "pure"}
"""Figures that are shares in the results and percent in the files. Differences are in points."""

PAPER_METHODS: Mapping[published.PrintedMethod, str] = {
    "cf-k": "CF-K as printed",
    "mondrian": "Mondrian as printed",
}

GROUP_OF: Mapping[str, str] = {"counterfactual": "counterfactual", "asking": "query"}
"""Whose group it is: of the person whose row the counterfactual is, or of the query's person."""

Record = Mapping[str, Any]


def write_tables(results: Results, folder: Path) -> None:
    """Write every table into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in table_texts(results).items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")


def table_texts(results: Results) -> dict[str, str]:
    """Return the CSV text of each table by its name; a study that was not run has none."""
    tables = {
        "data": data_records(results),
        "methods": method_records(results),
        "verdicts": verdict_records(results),
        "parameters": parameter_records(results.studies["parameters"]),
        "groups": group_records(results.studies["fairness"]),
        "plausibility": plausibility_records(results.studies["plausibility"]),
        "frontier": frontier_records(results.studies["frontier"]),
    }
    return {name: as_csv(records) for name, records in tables.items() if records}


def as_csv(records: Sequence[Record]) -> str:
    """Return records as CSV, with a header of all their columns."""
    columns = list(dict.fromkeys(column for record in records for column in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({column: plain(value) for column, value in record.items()})
    return text.getvalue()


def plain(value: Any) -> str:
    """Write a value; a number has at most six decimals, and None is empty."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def percent(share: float | None) -> float | None:
    """Return a share, or a difference of shares, times 100."""
    return None if share is None else 100 * share


def in_percent(figures: Record, *names: str) -> dict[str, Any]:
    """Return shares in percent, each with the ends of its interval if it has one."""
    columns: dict[str, Any] = {}
    for name in names:
        columns[f"{name}_percent"] = percent(figures[name])
        for end in ("low", "high"):
            if f"{name}_{end}" in figures:
                columns[f"{name}_percent_{end}"] = percent(figures[f"{name}_{end}"])
    return columns


def fields(figures: Any, *names: str) -> dict[str, Any]:
    """Return attributes of an object by name; shares in percent."""
    columns: dict[str, Any] = {}
    for name in names:
        base = name.removesuffix("_low").removesuffix("_high")
        value = getattr(figures, name)
        if base in IN_PERCENT:
            columns[name.replace(base, f"{base}_percent", 1)] = percent(value)
        else:
            columns[name] = value
    return columns


def data_records(results: Results) -> Sequence[Record]:
    """Return what each table is, here and in the paper."""
    records = []
    for name, summary in results.tables.items():
        printed = published.TABLES[name]
        records.append(
            {
                "table": name,
                "rows": summary.rows_train + summary.rows_test,
                "rows_in_paper": printed.rows,
                "unique_percent": percent(summary.unique),
                "unique_percent_in_paper": percent(printed.unique),
                "below_10_percent": percent(summary.below_10),
                "below_10_percent_in_paper": percent(printed.below_10),
                "trees": summary.n_estimators,
                "most_leaves": summary.max_leaf_nodes,
                **fields(summary, "accuracy", "explained", "unanswered", "limit", "seed", "source"),
            }
        )
    return records


def method_records(results: Results) -> Sequence[Record]:
    """Return the means of every method, and the printed ones."""
    records: list[Record] = []
    for mean in results.aggregates:
        records.append(
            {
                "table": mean.table,
                "k": mean.k,
                "method": LABELS[mean.method],
                "explanations": mean.n,
                "released": mean.released,
                **fields(mean, "ncp", "ncp_low", "ncp_high"),
                **fields(mean, "pureness", "pureness_low", "pureness_high"),
                **fields(mean, "cdm", "cdm_per_explanation", "cm", "k_min"),
                **fields(mean, "k_desired", "k_desired_min", "k_consistent", "k_consistent_min"),
                **fields(mean, "proven", "pure"),
                **fields(mean, "seconds", "search_seconds", "model_seconds"),
            }
        )
    for (method, k, table), printed in published.RESULTS.items():
        if table in results.tables:
            records.append(
                {
                    "table": table,
                    "k": k,
                    "method": PAPER_METHODS[method],
                    **fields(printed, "ncp", "pureness", "cdm", "cdm_per_explanation", "cm"),
                    **fields(printed, "seconds"),
                }
            )
    return records


def verdict_records(results: Results) -> Sequence[Record]:
    """Return each comparison of a method with a yardstick; differences are in percentage points."""
    records = []
    for verdict in results.verdicts:
        record: dict[str, Any] = {
            "table": verdict.table,
            "k": verdict.k,
            "method": LABELS[verdict.method],
            "against": LABELS[verdict.against],
            "explanations": verdict.n,
        }
        for name in ("ncp", "pureness"):
            record[f"{name}_percent"] = percent(getattr(verdict, name))
            record[f"{name}_percent_against"] = percent(getattr(verdict, f"their_{name}"))
            record[f"{name}_difference_points"] = percent(getattr(verdict, f"{name}_by"))
            record[f"{name}_difference_points_low"] = percent(getattr(verdict, f"{name}_low"))
            record[f"{name}_difference_points_high"] = percent(getattr(verdict, f"{name}_high"))
            record[f"{name}_verdict"] = getattr(verdict, f"{name}_word")
        records.append(record)
    return records


def parameter_records(rows: Iterable[StudyRow]) -> Sequence[Record]:
    """Return the points of Figure 4."""
    return [
        {
            "table": row["table"],
            "parameter": row["parameter"],
            "value": row["value"],
            "method": LABELS[row["method"]],
            "explanations": row["n"],
            **in_percent(row, "ncp", "pureness"),
            "seconds": row["seconds"],
        }
        for row in rows
    ]


def group_records(rows: Iterable[StudyRow]) -> Sequence[Record]:
    """Return the means of minority and majority; the difference is minority minus majority."""
    return [
        {
            "table": row["table"],
            "k": row["k"],
            "method": LABELS[row["method"]],
            "group_of": GROUP_OF[row["by"]],
            "metric": row["metric"],
            "group": row["group"],
            "explanations": row["n"],
            **in_percent(row, "mean"),
            "difference_points": percent(row["difference"]),
            "difference_points_low": percent(row["difference_low"]),
            "difference_points_high": percent(row["difference_high"]),
        }
        for row in rows
    ]


def plausibility_records(rows: Iterable[StudyRow]) -> Sequence[Record]:
    """Return the distances of Table 8, and the printed ones."""
    records = []
    for row in rows:
        printed = printed_distance(row)
        records.append(
            {
                "table": row["table"],
                "method": LABELS[row["method"]],
                "k": row["k"],
                "explanations": row["n"],
                **{name: row[name] for name in ("nearest", "nearest_low", "nearest_high")},
                "nearest_in_paper": printed.nearest,
                **{name: row[name] for name in ("nearest_5", "nearest_5_low", "nearest_5_high")},
                "nearest_5_in_paper": printed.nearest_5,
            }
        )
    return records


def printed_distance(row: StudyRow) -> published.PrintedDistance:
    """Return what the paper prints for a row of the study of distances."""
    for printed in published.DISTANCES:
        if printed.k == row["k"] and printed.method in (row["method"], "cf-k"):
            return printed
    raise LookupError(f"the paper has no distances of {row['method']} at k = {row['k']}")


def frontier_records(rows: Iterable[StudyRow]) -> Sequence[Record]:
    """Return what each k costs."""
    return [
        {
            "table": row["table"],
            "k": row["k"],
            "method": LABELS[row["method"]],
            "explanations": row["n"],
            "released_percent": percent(row["released"]),
            **in_percent(row, "ncp", "pureness"),
        }
        for row in rows
    ]
