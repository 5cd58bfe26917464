"""Tables and plots of what was released: the figures in them, and axes that say what they show."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.breakdown import ncp_table, risk_by_group_size
from cfk_plugin.errors import InputError
from cfk_plugin.plots import plot_ncp_by_attribute, plot_risk
from prototyped import prototypes


@pytest.fixture(scope="module")
def population() -> Population:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"age": random.integers(20, 60, 80), "city": random.choice(list("AB"), 80), "pay": range(80)})
    return Population.from_frame(rows, Schema.from_frame(rows, quasi_identifiers=["age", "city"], weights={"age": 3}))


@pytest.fixture(scope="module")
def explanations(population: Population) -> Explanations:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=7))
    anonymizer.fit(population, model=lambda rows: rows["pay"] > 10, desired=True)
    return anonymizer.transform(population.frame.tail(30))


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_sizes_and_risks_add_up(explanations: Explanations) -> None:
    table = risk_by_group_size(explanations)
    assert table["people"].is_monotonic_increasing
    assert table["people"].min() >= 7
    assert table["releases"].sum() == len(explanations.released)
    assert table["share_up_to"].iloc[-1] == 1
    assert (table["releases"] * table["prosecutor_risk"]).sum() / table["releases"].sum() == pytest.approx(
        explanations.summary()["marketer_risk"]
    )
    pd.testing.assert_frame_equal(risk_by_group_size([e.certificate.k for e in explanations.released]), table)
    assert risk_by_group_size([10, 12, 10, 20]).to_dict("list") == {
        "people": [10, 12, 20],
        "releases": [2, 1, 1],
        "share_up_to": [0.5, 0.75, 1.0],
        "prosecutor_risk": [0.1, 1 / 12, 0.05],
    }


def test_losses_of_attributes_add_up_to_the_loss(explanations: Explanations, population: Population) -> None:
    table = ncp_table(explanations, population)
    assert set(table["attribute"]) == {"age", "city"}
    assert (table["weight"] * table["ncp_mean"]).sum() == pytest.approx(explanations.summary()["ncp_mean"])
    assert table["ncp_mean"].is_monotonic_decreasing
    assert table[["ncp_mean", "ncp_p95", "exact"]].stack().between(0, 1).all()


def test_bars_are_shares_of_the_releases(ax: Axes) -> None:
    assert plot_risk([10, 10, 11, 14], k=10, ax=ax) is ax
    assert [bar.get_height() for bar in ax.patches] == [50, 25, 0, 0, 25]
    assert texts(ax)[:5] == ["50", "25", "", "", "25"]
    assert "policy: k = 10" in texts(ax)[-1]


@pytest.mark.parametrize("sizes", [[10], [10, 5_000_000], list(range(10, 400)), [3, 10]])
def test_no_release_is_outside_of_the_bars(sizes: list[int], ax: Axes) -> None:
    plot_risk(sizes, k=10, ax=ax)
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(100)
    assert len(ax.patches) <= 25


def test_axes_have_names_and_units(explanations: Explanations, population: Population) -> None:
    risk = plot_risk(explanations, ax=Figure().add_subplot())
    assert risk.get_xlabel() == "people who fit the region (number)"
    assert risk.get_ylabel().startswith("released explanations (%")
    (other,) = risk.child_axes
    assert other.get_xlabel() == "prosecutor risk, 1 / people (%)"
    loss = plot_ncp_by_attribute(explanations, population, ax=Figure().add_subplot())
    assert loss.get_xlabel().startswith("information loss NCP")
    assert loss.get_ylabel() == "quasi-identifier"
    assert sorted(label.get_text() for label in loss.get_yticklabels()) == ["age\nweight 0.75", "city\nweight 0.25"]


def test_colours_are_grey(explanations: Explanations, population: Population) -> None:
    for ax in (
        plot_risk(explanations, ax=Figure().add_subplot()),
        plot_ncp_by_attribute(explanations, population, ax=Figure().add_subplot()),
    ):
        shown = [*(bar.get_facecolor() for bar in ax.patches), *(line.get_color() for line in ax.lines)]
        assert all(len(set(mpl.colors.to_rgb(colour))) == 1 for colour in shown)


@pytest.mark.parametrize("entries", [[], None])
def test_nothing_released_says_so(entries: Any, explanations: Explanations, population: Population, ax: Axes) -> None:
    nothing = Explanations([], policy=explanations.policy, columns=explanations.columns)
    assert texts(plot_risk(nothing if entries is None else entries, ax=ax)) == ["nothing was released"]
    assert texts(plot_ncp_by_attribute(nothing, population, ax=Figure().add_subplot())) == ["nothing was released"]
    assert risk_by_group_size(nothing).empty
    assert ncp_table(nothing, population)["ncp_mean"].isna().all()


def test_a_region_without_people_is_refused() -> None:
    with pytest.raises(InputError, match="at least one person"):
        plot_risk([10, 0])


def test_prototypes_have_no_people_to_plot(population: Population) -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    for refused in (lambda: plot_risk(prototypes()), lambda: plot_ncp_by_attribute(prototypes(), population)):
        with pytest.raises(InputError, match="prototypes stand for nobody"):
            refused()
    with pytest.raises(InputError, match="prototypes stand for nobody"):
        risk_by_group_size(prototypes())
    assert plt.get_fignums() == before


def test_without_axes_a_figure_is_made(explanations: Explanations, population: Population) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    for ax in (plot_risk(explanations), plot_ncp_by_attribute(explanations, population)):
        ax.figure.canvas.draw()
        plt.close(ax.figure)


def test_importing_the_module_does_not_import_matplotlib() -> None:
    code = "import sys, cfk_plugin.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
