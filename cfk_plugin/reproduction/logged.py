"""The runs of an experiment: one per table and method, k as the step of each metric."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cfk_plugin.records.run import ReportContents, Value, client_of, log_report
from cfk_plugin.reproduction.outcome import Measurement
from cfk_plugin.reproduction.summary import aggregate

if TYPE_CHECKING:
    from cfk_plugin.reproduction.workspace import Workspace

_EXTRA = ("nearest", "nearest_5", "distance")


def log(
    outcomes: Mapping[str, Measurement], workspace: Workspace, *, experiment: str, tracking_uri: str
) -> dict[str, str]:
    """Log every outcome once, to the run of its table and method.

    A run holds the figures of every explanation as ``outcomes/KEY.json`` and their means as metrics: ``ncp``,
    ``pureness`` and so on (`Aggregate`) with k as the step; where settings are not the usual ones, their names come
    first, as in ``alpha-40/ncp``. An experiment that is continued adds to its runs.

    Parameters
    ----------
    outcomes : mapping
        Key of a piece to its outcome.
    workspace : Workspace
        Remembers which runs there are and what they hold.
    experiment, tracking_uri : str

    Returns
    -------
    dict
        Key of a piece to the id of its run.

    Raises
    ------
    TrackingError
        If MLflow does not take them.
    """
    client, known = client_of(tracking_uri), workspace.runs()
    runs: dict[str, str] = {}
    for key, outcome in outcomes.items():
        name = f"{tracking_uri} {experiment} {outcome.setting.key} {outcome.method}"
        held = known.get(name)
        if held is None or not _exists(client, held["run_id"]):
            held = known[name] = {"run_id": None, "keys": []}
        if key not in held["keys"]:
            held["run_id"] = log_report(
                _contents(key, outcome),
                held["run_id"],
                experiment=experiment,
                tracking_uri=tracking_uri,
                run_name=f"{outcome.setting.table} {outcome.method}",
            )
            held["keys"].append(key)
            workspace.keep_runs(known)
        runs[key] = held["run_id"]
    return runs


def prefix(outcome: Measurement) -> str:
    """Return what the names of an outcome's metrics start with: nothing, where everything is as usual."""
    parts = [f"{name}-{value}" for name, value in sorted(outcome.options.items())]
    parts += ["distances"] if "nearest" in outcome.figures else []
    parts += [f"first-{outcome.asked}"] if outcome.asked < outcome.scene.explained else []
    return "".join(f"{part}/" for part in parts)


def _contents(key: str, outcome: Measurement) -> ReportContents:
    setting, scene = asdict(outcome.setting), asdict(outcome.scene)
    scene.pop("seconds")  # of the process that prepared it; a continued experiment may have had another
    params = {
        f"{part}.{name}": value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for part, values in (("setting", setting), ("scene", scene))
        for name, value in values.items()
    }
    return ReportContents(
        text=outcome.to_json(),
        artifact=f"outcomes/{key}.json",
        metrics=list(_metrics(outcome)),
        params=params,
        tags={"cfk.reproduction": "1", "cfk.table": outcome.setting.table, "cfk.method": outcome.method},
    )


def _metrics(outcome: Measurement) -> Iterator[Value]:
    start = prefix(outcome)
    found: dict[str, Any] = asdict(aggregate(outcome))
    for name in _EXTRA:
        values = [value for value in outcome.figures.get(name, ()) if value is not None]
        found[name] = math.fsum(values) / len(values) if values else None
    for name, value in found.items():
        if name != "k" and isinstance(value, (int, float)) and math.isfinite(value):
            yield Value(f"{start}{name}", float(value), outcome.k)


def _exists(client: Any, run_id: str) -> bool:
    """Say whether a run is still there: a store may have been emptied since."""
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run_id).info.lifecycle_stage == "active")
    except MlflowException:
        return False
