"""The story that `cfk demo` tells: real patients, explanations before and after, and where to look at them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin._files import progress_bar
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.demo.acts import explainers, quiet
from cfk_plugin.demo.patients import HIGH, KNOWN, LOW, load_patients

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["HIGH", "LOW", "load_patients", "run"]


def run(*, k: int, patients: int, folder: Path, console: Console) -> int:
    """Tell the story; return the exit code."""
    from cfk_plugin.demo.logged import log
    from cfk_plugin.demo.telling import farewell, introduce, show, summarise

    policy = PrivacyPolicy(k=k)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        data = load_patients(patients)
        features = data.train.drop(columns="progression")
        schema = Schema.from_frame(features, quasi_identifiers=KNOWN, nominal=["sex"])
        population = Population.from_frame(features, schema)
    introduce(data, population, k, console)
    acts = []
    for name, play in explainers(console).items():
        with quiet(), progress_bar(f"explaining with {name}", console) as told:
            acts.append(play(name, data, population, policy, told))
    for act in acts:
        show(act, data.queries, population, console)
    summarise(acts, console)
    with quiet():
        logged = log(acts, folder)
    farewell(logged, folder, console)
    return 1 if any(act.explanations.summary()["released_native"] for act in acts) else 0
