"""Tables and plots of what was released: the figures in them, and axes that say what they show."""

from __future__ import annotations

import functools
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
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.data.display import profile
from cfk_plugin.errors import InputError
from cfk_plugin.frontier import Frontier, frontier
from cfk_plugin.metrics import group_gap
from cfk_plugin.plots import ExplanationDisplay, FrontierDisplay, RiskDisplay, RocDisplay
from cfk_plugin.release.explanations import group_gaps, ncp_table, risk_by_group_size
from prototyped import prototypes
from reported import membership


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
        rows, Schema.from_frame(rows, quasi_identifiers=["age", "city"], weights={"age": 3})
    )


@pytest.fixture(scope="module")
def explanations(population: Population) -> Explanations:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=7))
    anonymizer.fit(population, model=accepts, desired=True)
    return anonymizer.transform(population.frame.tail(30))


@pytest.fixture(scope="module")
def costs(population: Population) -> Frontier:
    return measured(population, [2, 5, 20], guarantee="lookup", objective="ncp", max_ncp=0.25)


def measured(population: Population, ks: list[int], **settings: Any) -> Frontier:
    policy = PrivacyPolicy(**{"guarantee": "lookup", "k": 7, **settings})
    raw = population.frame.tail(20)
    return frontier(raw, population=population, model=accepts, desired=True, policy=policy, ks=ks)


def accepts(rows: pd.DataFrame) -> pd.Series:
    return rows["pay"] > 10


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
    assert (table["releases"] * table["prosecutor_risk"]).sum() / table[
        "releases"
    ].sum() == pytest.approx(explanations.summary()["marketer_risk"])
    pd.testing.assert_frame_equal(
        risk_by_group_size([e.certificate.k for e in explanations.released]), table
    )
    assert risk_by_group_size([10, 12, 10, 20]).to_dict("list") == {
        "people": [10, 12, 20],
        "releases": [2, 1, 1],
        "share_up_to": [0.5, 0.75, 1.0],
        "prosecutor_risk": [0.1, 1 / 12, 0.05],
    }


def test_losses_of_attributes_add_up_to_the_loss(
    explanations: Explanations, population: Population
) -> None:
    table = ncp_table(explanations, population)
    assert set(table["attribute"]) == {"age", "city"}
    assert (table["weight"] * table["ncp_mean"]).sum() == pytest.approx(
        explanations.summary()["ncp_mean"]
    )
    assert table["ncp_mean"].is_monotonic_decreasing
    assert table[["ncp_mean", "ncp_p95", "exact"]].stack().between(0, 1).all()


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


def test_without_axes_a_figure_of_its_own_is_made_in_grey(
    explanations: Explanations, costs: Frontier
) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    displays = [
        RiskDisplay.from_explanations(explanations),
        ExplanationDisplay.from_explanations(explanations),
        FrontierDisplay.from_frontier(costs),
        RocDisplay.from_report(attacked()),
    ]
    assert len({id(display.figure_) for display in displays}) == len(displays)
    for display in displays:
        ax = display.ax_
        assert ax.has_data()
        display.figure_.canvas.draw()
        plt.close(display.figure_)
        shown = [
            *(bar.get_facecolor() for bar in ax.patches),
            *(line.get_color() for line in ax.lines),
        ]
        shown += [
            colour
            for found in ax.collections
            for colour in (*found.get_facecolor(), *found.get_edgecolor())
        ]
        assert all(len(set(mpl.colors.to_rgb(colour))) == 1 for colour in shown)


def test_nothing_released_says_so(
    explanations: Explanations, population: Population, ax: Axes
) -> None:
    nothing = Explanations([], policy=explanations.policy, columns=explanations.columns)
    RiskDisplay.from_explanations(nothing, ax=ax)
    assert texts(ax) == ["nothing was released"]
    assert texts(RiskDisplay([]).plot(ax=Figure().add_subplot()).ax_) == ["nothing was released"]
    assert risk_by_group_size(nothing).empty
    assert ncp_table(nothing, population)["ncp_mean"].isna().all()


def test_a_display_draws_the_same_again(
    explanations: Explanations, costs: Frontier, ax: Axes
) -> None:
    risk = RiskDisplay.from_explanations(explanations, ax=ax)
    assert risk.ax_ is ax
    assert risk.figure_ is ax.figure
    bars = [bar.get_height() for bar in ax.patches]
    again = Figure().add_subplot()
    assert risk.plot(ax=again) is risk
    assert risk.ax_ is again
    assert risk.figure_ is again.figure
    assert [bar.get_height() for bar in again.patches] == bars
    frontier = FrontierDisplay.from_frontier(costs, ax=Figure().add_subplot())
    names = texts(frontier.ax_)
    assert texts(frontier.plot(ax=Figure().add_subplot()).ax_) == names


def test_an_explanation_is_drawn_among_all_groups(
    explanations: Explanations, population: Population, ax: Axes
) -> None:
    entry = explanations.generalized[0]
    ExplanationDisplay.from_explanations(explanations, ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["age", "city", "pay"]
    assert texts(ax) == list(entry.cells().values())
    anonymizer = KAnonymizer(policy=explanations.policy).fit(
        population, model=accepts, desired=True
    )
    groups = [region["age"] for region in {*anonymizer.regions_of(population.frame)}]
    bars = [bar for bar in ax.patches if bar.get_y() == 1.0]
    assert len(groups) > 5
    assert [round(-bar.get_height() / 0.8, 9) for bar in bars] == [
        height for height, _ in profile(entry.region["age"], groups)
    ]
    dark = mpl.colors.to_rgba("0.1")
    assert [bar.get_facecolor() == dark for bar in bars] == [
        own for _, own in profile(entry.region["age"], groups)
    ]


def test_what_was_before_is_drawn_only_where_the_queries_are_given(
    explanations: Explanations, population: Population
) -> None:
    queries = population.frame.head(30).assign(pay=5)
    shown = ExplanationDisplay.from_explanations(
        explanations, 0, queries=queries, ax=Figure().add_subplot()
    )
    said = dict(zip(("age", "city", "pay"), texts(shown.ax_), strict=True))
    assert said["pay"] == f"5 → {explanations[0].released['pay']}"
    with pytest.raises(InputError, match="29 queries, and query 29 was answered"):
        ExplanationDisplay.from_explanations(explanations, 0, queries=queries.head(29))
    with pytest.raises(InputError, match="only a released region can be drawn"):
        ExplanationDisplay.from_explanations(prototypes())


def test_a_lookup_explanation_is_drawn_without_groups(population: Population, ax: Axes) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="lookup")).fit(
        population, accepts, True
    )
    found = anonymizer.transform(population.frame.tail(1))
    ExplanationDisplay.from_explanations(found, ax=ax)
    assert not ax.patches
    assert ax.get_xlabel() == ""
    assert texts(ax) == list(found.generalized[0].cells().values())


def test_a_region_without_people_is_refused() -> None:
    with pytest.raises(InputError, match="at least one person"):
        RiskDisplay([10, 0])


def test_prototypes_have_no_people_to_plot(population: Population) -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    for refused in (
        lambda: RiskDisplay.from_explanations(prototypes()),
        lambda: risk_by_group_size(prototypes()),
        lambda: ncp_table(prototypes(), population),
    ):
        with pytest.raises(InputError, match="prototypes stand for nobody"):
            refused()
    assert plt.get_fignums() == before


def test_the_frontier_shows_what_compares(costs: Frontier, ax: Axes) -> None:
    FrontierDisplay.from_frontier(costs, ax=ax)
    assert 0 < costs.common < costs.points[0].released
    frame = costs.to_frame()
    pureness, loss, withheld, _ = ax.lines
    for line, column in (
        (pureness, "common_pureness_mean"),
        (loss, "common_ncp_mean"),
        (withheld, "withheld_rate"),
    ):
        assert line.get_xydata().tolist() == frame[["k", column]].to_numpy().tolist()
    last = costs.points[-1]
    assert texts(ax)[-1] == " policy: k = 7"
    assert set(texts(ax)[:-1]) == {
        f"pureness {last.common_pureness_mean.value:.2f}",
        f"information loss, NCP {last.common_ncp_mean.value:.2f}",
        f"withheld, of answers needed {last.withheld_rate.value:.2f}",
    }
    assert ax.get_ylabel().endswith(f"over the {costs.common} of 20 released at every k")
    assert ax.get_xlabel().startswith("k, least number of people")


def test_names_of_lines_do_not_lie_on_each_other(costs: Frontier, ax: Axes) -> None:
    table = costs.to_frame().assign(
        common_pureness_mean=0.5, common_ncp_mean=0.5, withheld_rate=0.5
    )
    FrontierDisplay(table).plot(ax=ax)
    heights = sorted(text.xy[1] for text in ax.texts)
    assert heights == pytest.approx([0.5, 0.56, 0.62])
    assert "policy" not in " ".join(texts(ax))


def test_without_a_common_counterfactual_the_axis_says_so(population: Population, ax: Axes) -> None:
    found = measured(population, [2, 70], max_ncp=0.2)
    FrontierDisplay(found.to_frame(), k=10).plot(ax=ax)
    assert found.common == 0
    assert ax.lines[0].get_ydata()[0] == found.points[0].pureness_mean.value
    assert ax.get_ylabel().endswith("over what each k releases: not the same ones")
    assert texts(ax)[-1] == " policy: k = 10"


def test_where_nothing_is_withheld_no_line_says_so(costs: Frontier, ax: Axes) -> None:
    many = pd.concat([costs.to_frame().head(1)] * 29).assign(
        k=range(2, 31), withheld_rate=0.0, common=20
    )
    FrontierDisplay(many).plot(ax=ax)
    assert len(ax.lines) == 2
    assert ax.get_ylabel().endswith("over all 20 counterfactuals")
    assert 4 <= len(ax.get_xticks()) <= 12


def test_a_frontier_without_a_release_says_so(population: Population, ax: Axes) -> None:
    FrontierDisplay.from_frontier(measured(population, [70], max_ncp=0.1), ax=ax)
    assert texts(ax) == ["nothing was released"]


def test_group_gaps_are_those_of_the_entries(population: Population) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=7)).fit(
        population, accepts, True
    )
    found = anonymizer.transform(population.frame)
    groups = np.repeat(["first", "second"], 40)
    result = group_gaps(found, groups, ["k", "withheld"])
    released = [entry.status == "released" for entry in found]
    assert 0 < sum(released) < 80
    sizes = [entry.certificate.k if entry.status == "released" else np.nan for entry in found]
    assert result == {
        "k": group_gap(sizes, groups),
        "withheld": group_gap(1 - np.array(released), groups),
    }
    assert sum(gap.n for gap in result["k"]) == sum(released)
    with pytest.raises(InputError, match="unknown metric magic; known: k, ncp, pureness, withheld"):
        group_gaps(found, groups, ["magic"])
    with pytest.raises(InputError, match="one group per value"):
        group_gaps(found, groups[:3])
    with pytest.raises(InputError, match="prototypes stand for nobody"):
        group_gaps(prototypes(), groups)


def test_importing_the_module_does_not_import_matplotlib() -> None:
    code = "import sys, cfk_plugin.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@functools.cache
def attacked() -> AttackReport:
    return membership(
        {"membership_cfd": 0.0, "membership_cfd_lrt": 1.0}, subject="protected", epsilon=1.0
    )


def line(ax: Axes, name: str) -> np.ndarray:
    (found,) = [line for line in ax.lines if str(line.get_label()).startswith(name)]
    return found.get_xydata()  # type: ignore[return-value]


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def test_curves_of_attacks_start_at_one_person(ax: Axes) -> None:
    RocDisplay.from_report(attacked(), ax=ax)
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_xlim()) == ("log", "log", (0.001, 1.0))
    curve, points = attacked().curves["membership_cfd_lrt"], line(ax, "CFD-LRT")
    assert points[0][0] == 0.001
    for rate in (0.01, 0.3):
        reached = max(t for f, t in zip(curve.fpr, curve.tpr, strict=True) if f <= rate + 1e-9)
        assert np.interp(rate, *points.T) == pytest.approx(reached)
    assert (line(ax, "a coin")[:, 0] == line(ax, "a coin")[:, 1]).all()
    areas = [
        f"{attacked()[name].main.value:.2f}" for name in ("membership_cfd", "membership_cfd_lrt")
    ]
    assert legend(ax)[3:] == [f"CFD, AUC {areas[0]}", f"CFD-LRT, AUC {areas[1]}"]
    # In grey they differ by width and dashes; of the two bounds only the dashes do, which is all
    # "--" to matplotlib.
    assert (
        len({(str(each.get_linestyle()), each.get_linewidth()) for each in ax.lines})
        == len(ax.lines) - 1
    )


def test_what_epsilon_admits_is_the_claim_of_the_report(ax: Axes) -> None:
    RocDisplay.from_report(attacked(), ax=ax)
    bound, points = attacked().curves["bound_tight"], line(ax, "most that epsilon admits")
    assert points[:, 1] == pytest.approx(np.interp(points[:, 0], bound.fpr, bound.tpr))
    assert legend(ax)[:3] == ["a coin", "most that epsilon admits", "the same, as published"]


def test_few_people_are_named(ax: Axes) -> None:
    RocDisplay.from_report(membership({"membership_cfd": 2.0}, 150), ax=ax)
    # nothing is drawn that was not seen
    assert line(ax, "CFD")[0][0] == pytest.approx(1 / 150)
    assert "150 people who are no members" in ax.get_xlabel()


def test_without_a_curve_the_axes_say_so(ax: Axes) -> None:
    RocDisplay.from_report(membership({}), ax=ax)
    assert texts(ax) == ["no attack with a curve"]
