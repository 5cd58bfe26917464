"""Use the installed toy plugin in every way in which the host calls one; print what it wrote down.

Run by `built_wheels.calls_of_hooks` in a process that sees the installed wheels alone.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import cfk_toy
import numpy as np
import pandas as pd

import cfk_plugin.hookspecs
from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.plugins import generator, generators, load_plugins

TRAIN = pd.DataFrame({"age": np.arange(20, 60), "pay": np.arange(40) * 2 + 10})
QUERIES = TRAIN.head(2)
POPULATION = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age"]))


def earns_enough(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(rows["pay"] > 50)


def protected(**options: Any) -> Any:
    """Return the protected toy explainer; a lookup guarantee needs no kernel, which would be
    compiled here.
    """
    return protect(
        cfk_toy.ToyExplainer(),
        model=earns_enough,
        population=POPULATION,
        policy=PrivacyPolicy(k=5, guarantee="lookup"),
        desired=True,
        method="toy",
        **options,
    )


def show(title: str) -> None:
    """Print the calls since the last title."""
    print(f"# {title}")
    print("\n".join(cfk_toy.CALLS))
    cfk_toy.CALLS.clear()


def show_what_is_installed() -> None:
    print("# the hooks that exist")
    for name, hook in vars(cfk_plugin.hookspecs).items():
        if name.startswith("cfk_"):
            print(f"{name}({', '.join(inspect.signature(hook).parameters)})")
    print("# the toy plugin as it is found")
    for info in load_plugins().infos:
        if info.name == "toy":
            print(info.name, info.distribution, info.version, ", ".join(info.hooks))
    print("is among the generators:", "toy" in generators())


def main() -> None:
    installed = Path(sys.argv[1])
    assert Path(cfk_plugin.__file__).is_relative_to(installed)
    assert Path(cfk_toy.__file__).is_relative_to(installed)
    show_what_is_installed()
    cfk_toy.CALLS.clear()
    protected().explain(QUERIES, features_to_vary=["pay"], step=3)
    show("explain")
    protected().find(QUERIES, step=2)
    show("a method of the explainer")
    cfk_toy.ToyExplainer.pay = 0
    protected().explain(QUERIES)
    show("explain where the answers do not have the outcome")
    cfk_toy.ToyExplainer.pay = 90
    generator("toy")(TRAIN, earns_enough(TRAIN), earns_enough, True, 7)
    show("an explainer made by name")


if __name__ == "__main__":
    main()
