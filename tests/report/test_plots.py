"""Tables and plots of what was released: the figures in them, and axes that say what they show."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfk_plugin import Attribute, Explanations, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import InputError
from cfk_plugin.frontier import frontier
from cfk_plugin.plots import FrontierDisplay, RiskDisplay
from prototyped import prototypes


@pytest.fixture(scope="module")
def population() -> Population:
    random = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "age": random.integers(20, 60, 80),
            "city": random.choice(list("AB"), 80),
            "pay": range(80),
        }
    )
    return Population.from_frame(
        rows,
        Schema.from_frame(
            rows, quasi_identifiers=["age", "city"], columns={"age": Attribute(weight=3)}
        ),
    )


@pytest.fixture(scope="module")
def explanations(population: Population) -> Explanations:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=7))
    anonymizer.fit(population, model=accepts, desired=True)
    return anonymizer.transform(population.frame.tail(30))


@pytest.fixture(scope="module")
def costs(population: Population) -> pd.DataFrame:
    return measure(population, [2, 5, 20])


def measure(population: Population, ks: list[int], **settings: Any) -> pd.DataFrame:
    policy = PrivacyPolicy(**{"guarantee": "lookup", **settings})
    raw = population.frame.tail(20)
    return frontier(raw, population=population, model=accepts, desired=True, policy=policy, ks=ks)


def accepts(rows: pd.DataFrame) -> pd.Series:
    return rows["pay"] > 10


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_bars_are_shares_of_the_releases(ax: Axes) -> None:
    RiskDisplay([10, 10, 11, 14], k=10).plot(ax=ax)
    assert [bar.get_height() for bar in ax.patches] == [50, 25, 0, 0, 25]
    assert texts(ax)[:5] == ["50", "25", "", "", "25"]
    assert "policy: k = 10" in texts(ax)[-1]


@pytest.mark.parametrize("sizes", [[10], [10, 5_000_000], list(range(10, 400)), [3, 10]])
def test_no_release_is_outside_of_the_bars(sizes: list[int], ax: Axes) -> None:
    RiskDisplay(sizes, k=10).plot(ax=ax)
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(100)
    assert len(ax.patches) <= 25


def test_axes_have_names_and_units(explanations: Explanations, ax: Axes) -> None:
    RiskDisplay.from_explanations(explanations, ax=ax)
    assert ax.get_xlabel() == "people who fit the region (number)"
    assert ax.get_ylabel().startswith("released explanations (%")
    (other,) = ax.child_axes
    assert other.get_xlabel() == "prosecutor risk, 1 / people (%)"
    assert texts(ax)[-1] == " policy: k = 7"


def test_nothing_released_says_so(
    explanations: Explanations, population: Population, ax: Axes
) -> None:
    nothing = Explanations([], policy=explanations.policy, columns=explanations.columns)
    RiskDisplay.from_explanations(nothing, ax=ax)
    assert texts(ax) == ["nothing was released"]
    assert texts(RiskDisplay([]).plot(ax=Figure().add_subplot()).ax_) == ["nothing was released"]


def test_a_region_without_people_is_refused() -> None:
    with pytest.raises(InputError, match="at least one person"):
        RiskDisplay([10, 0])


def test_prototypes_have_no_people_to_plot() -> None:
    with pytest.raises(InputError, match="prototypes"):
        RiskDisplay.from_explanations(prototypes())


def test_frontier_has_the_figures_of_each_k(population: Population) -> None:
    raw = population.frame.tail(20)
    policy = PrivacyPolicy(guarantee="lookup", k=7)
    anonymizer = KAnonymizer(policy=policy).fit(population, accepts, True)
    summary = anonymizer.transform(raw).summary()
    (row,) = measure(population, [7]).to_dict("records")
    assert row == {"k": 7} | {name: summary[name] for name in row if name != "k"}


def test_frontier_of_a_larger_k_loses_more(costs: pd.DataFrame) -> None:
    assert costs["k"].tolist() == [2, 5, 20]
    assert costs["ncp_mean"].is_monotonic_increasing


def test_frontier_display_draws_each_figure(costs: pd.DataFrame, ax: Axes) -> None:
    FrontierDisplay(costs, k=5).plot(ax=ax)
    columns = ["pureness_mean", "ncp_mean", "withheld_rate"]
    for line, column in zip(ax.lines, columns, strict=False):
        assert [*line.get_ydata()] == costs[column].tolist()
    assert texts(ax) == [" policy: k = 5"]


def test_frontier_without_a_release_has_no_means(population: Population) -> None:
    costs = measure(population, [70], guarantee="lookup", max_ncp=0.1)
    assert costs["released"].tolist() == [0]
    assert costs[["ncp_mean", "pureness_mean"]].isna().all(axis=None)


def test_importing_the_module_does_not_import_matplotlib() -> None:
    code = "import sys, cfk_plugin.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
