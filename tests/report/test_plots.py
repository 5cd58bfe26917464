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
from cfk_plugin.metrics import POOLED, GroupGap, group_gap
from cfk_plugin.plots import (
    ExplanationDisplay,
    FrontierDisplay,
    RiskDisplay,
    plot_frontier,
    plot_groups,
    plot_ncp_by_attribute,
    plot_risk,
    plot_roc,
)
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
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=7))
    anonymizer.fit(population, model=accepts, desired=True)
    return anonymizer.transform(population.frame.tail(30))


@pytest.fixture(scope="module")
def costs(population: Population) -> Frontier:
    return measured(population, [2, 5, 20], guarantee="lookup", objective="ncp", max_ncp=0.25)


def measured(population: Population, ks: list[int], **settings: Any) -> Frontier:
    policy = PrivacyPolicy(**{"guarantee": "reciprocal", "k": 7, **settings})
    raw = population.frame.tail(20)
    return frontier(raw, population=population, model=accepts, desired=True, policy=policy, ks=ks)


def accepts(rows: pd.DataFrame) -> pd.Series:
    return rows["pay"] > 10


@functools.cache
def gaps() -> dict[str, tuple[GroupGap, ...]]:
    groups = np.repeat(["north", "south", "west", "few"], [30, 20, 15, 12])
    random = np.random.default_rng(1)
    shift = np.where(groups == "south", 0.2, 0.0)
    share = random.random(77) / 10 + shift
    lost = np.where(random.random(77) < 0.2, np.nan, share)
    return {"k": group_gap(random.integers(10, 15, 77), groups), "ncp": group_gap(lost, groups)}


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
    assert sorted(label.get_text() for label in loss.get_yticklabels()) == [
        "age\nweight 0.75",
        "city\nweight 0.25",
    ]


def test_without_axes_a_figure_of_its_own_is_made_in_grey(
    explanations: Explanations, population: Population, costs: Frontier
) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    drawn = [
        plot_risk(explanations),
        plot_ncp_by_attribute(explanations, population),
        plot_frontier(costs),
    ]
    drawn.append(plot_groups(gaps(), tolerance=0.1)[0])
    assert len({id(ax.figure) for ax in drawn}) == len(drawn)
    for ax in drawn:
        assert ax.has_data()
        ax.figure.canvas.draw()
        plt.close(ax.figure)
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


@pytest.mark.parametrize("entries", [[], None])
def test_nothing_released_says_so(
    entries: Any, explanations: Explanations, population: Population, ax: Axes
) -> None:
    nothing = Explanations([], policy=explanations.policy, columns=explanations.columns)
    assert texts(plot_risk(nothing if entries is None else entries, ax=ax)) == [
        "nothing was released"
    ]
    assert texts(plot_ncp_by_attribute(nothing, population, ax=Figure().add_subplot())) == [
        "nothing was released"
    ]
    assert risk_by_group_size(nothing).empty
    assert ncp_table(nothing, population)["ncp_mean"].isna().all()


def test_displays_draw_what_the_functions_draw(
    explanations: Explanations, costs: Frontier, ax: Axes
) -> None:
    risk = RiskDisplay.from_explanations(explanations, ax=ax)
    assert risk.ax_ is ax
    assert risk.figure_ is ax.figure
    same = plot_risk(explanations, ax=Figure().add_subplot())
    assert [bar.get_height() for bar in ax.patches] == [bar.get_height() for bar in same.patches]
    assert RiskDisplay([10, 11], k=10).plot(ax=Figure().add_subplot()).ax_.patches
    frontier = FrontierDisplay.from_frontier(costs, ax=Figure().add_subplot()).ax_
    assert texts(frontier) == texts(plot_frontier(costs, ax=Figure().add_subplot()))


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
        plot_risk([10, 0])


def test_prototypes_have_no_people_to_plot(population: Population) -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    for refused in (
        lambda: plot_risk(prototypes()),
        lambda: plot_ncp_by_attribute(prototypes(), population),
    ):
        with pytest.raises(InputError, match="prototypes stand for nobody"):
            refused()
    with pytest.raises(InputError, match="prototypes stand for nobody"):
        risk_by_group_size(prototypes())
    assert plt.get_fignums() == before


def test_the_frontier_shows_what_compares(costs: Frontier, ax: Axes) -> None:
    assert plot_frontier(costs, ax=ax) is ax
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
        f"withheld, of all asked {last.withheld_rate.value:.2f}",
    }
    assert ax.get_ylabel().endswith(f"over the {costs.common} of 20 released at every k")
    assert ax.get_xlabel().startswith("k, least number of people")


def test_names_of_lines_do_not_lie_on_each_other(costs: Frontier, ax: Axes) -> None:
    table = costs.to_frame().assign(
        common_pureness_mean=0.5, common_ncp_mean=0.5, withheld_rate=0.5
    )
    plot_frontier(table, ax=ax)
    heights = sorted(text.xy[1] for text in ax.texts)
    assert heights == pytest.approx([0.5, 0.56, 0.62])
    assert "policy" not in " ".join(texts(ax))


def test_without_a_common_counterfactual_the_axis_says_so(population: Population, ax: Axes) -> None:
    found = measured(population, [2, 70], max_ncp=0.2)
    plot_frontier(found, k=10, ax=ax)
    assert found.common == 0
    assert ax.lines[0].get_ydata()[0] == found.points[0].pureness_mean.value
    assert ax.get_ylabel().endswith("over what each k releases: not the same ones")
    assert texts(ax)[-1] == " policy: k = 10"


def test_where_nothing_is_withheld_no_line_says_so(costs: Frontier, ax: Axes) -> None:
    many = pd.concat([costs.to_frame().head(1)] * 29).assign(
        k=range(2, 31), withheld_rate=0.0, common=20
    )
    plot_frontier(many, ax=ax)
    assert len(ax.lines) == 2
    assert ax.get_ylabel().endswith("over all 20 counterfactuals")
    assert 4 <= len(ax.get_xticks()) <= 12


def test_a_frontier_without_a_release_says_so(population: Population, ax: Axes) -> None:
    assert texts(plot_frontier(measured(population, [70], max_ncp=0.1), ax=ax)) == [
        "nothing was released"
    ]
    with pytest.raises(
        InputError, match=r"no frontier: columns asked, common, ncp_mean, .* are missing"
    ):
        plot_frontier(pd.DataFrame({"k": [2], "released": [3]}))


def test_groups_have_dots_intervals_and_sizes(costs: Frontier) -> None:
    people, loss = plot_groups(gaps(), tolerance=0.1, ax=Figure().subplots(1, 2))
    found = gaps()
    for panel, metric in ((people, "k"), (loss, "ncp")):
        order = [label.get_text().split("\n")[0] for label in panel.get_yticklabels()]
        assert order == sorted(gap.group for gap in found["k"])
        by_name = {gap.group: gap for gap in found[metric]}
        _, dots = panel.lines
        assert dots.get_xdata().tolist() == pytest.approx(
            [by_name[name].gap if name in by_name else np.nan for name in order], nan_ok=True
        )
        assert panel.lines[0].get_xdata() == [0, 0]
        assert panel.get_xlabel().startswith("group − everybody else")
    labels = [label.get_text() for label in loss.get_yticklabels()]
    assert labels[1].startswith("north\nn = ")
    assert labels[1].endswith(" to 30")
    assert people.get_title() == "people who fit, k"
    assert (texts(people), texts(loss)) == ([], ["accepted: ±0.1"])
    names = ("group", "n", "gap", "low", "high")
    rows = [
        {"metric": m, **{n: getattr(gap, n) for n in names}}
        for m, of in found.items()
        for gap in of
    ]
    people, loss = plot_groups(pd.DataFrame(rows), tolerance={"k": 2}, ax=Figure().subplots(2))
    assert (texts(people), texts(loss)) == (["accepted: ±2"], [])


def test_small_groups_are_never_shown_alone_and_one_has_nothing_to_differ_from() -> None:
    groups = np.repeat(["large", "tiny", "small"], [40, 4, 8])
    for n, expected in ((52, ["large\nn = 40", f"{POOLED}\nn = 12"]), (44, ["large\nn = 40"])):
        (panel,) = plot_groups(
            {"ncp": group_gap(np.arange(n) / n, groups[:n])}, ax=Figure().add_subplot()
        )
        assert [label.get_text() for label in panel.get_yticklabels()] == expected
    (panel,) = plot_groups({"ncp": group_gap([0.1] * 20, ["all"] * 20)}, ax=Figure().add_subplot())
    assert texts(panel) == ["fewer than two groups\nof 11 or more"]
    first, second = plot_groups({"ncp": (), "k": gaps()["k"]})
    assert texts(first) == ["fewer than two groups\nof 11 or more"]
    assert second.get_yticklabels()[0].get_text().startswith("few\n")


@pytest.mark.parametrize(
    ("given", "axes", "message"),
    [
        ({"ncp": ()}, 2, "1 metrics need as many axes, got 2"),
        ({}, 1, "no metric to plot"),
        (pd.DataFrame({"metric": ["k"]}), 1, "columns group, n, gap, low, high are missing"),
    ],
)
def test_groups_that_cannot_be_drawn_are_refused(given: Any, axes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plot_groups(given, ax=Figure().subplots(axes))


def test_group_gaps_are_those_of_the_entries(population: Population) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=7)).fit(
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
    assert plot_roc(attacked(), ax=ax) is ax
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


def test_what_epsilon_admits_is_the_tight_bound(ax: Axes) -> None:
    plot_roc(attacked(), epsilon=0.5, delta=0.01, ax=ax)
    x, y = line(ax, "most that ε = 0.5, δ = 0.01 admits").T
    right = np.minimum(1 - np.exp(-0.5) * (0.99 - x), 1)
    assert y == pytest.approx(np.minimum(np.exp(0.5) * x + 0.01, right), abs=1e-9)
    held = plot_roc(attacked(), ax=Figure().add_subplot())
    # the claim of the report
    bound, points = attacked().curves["bound_tight"], line(held, "most that epsilon admits")
    assert points[:, 1] == pytest.approx(np.interp(points[:, 0], bound.fpr, bound.tpr))
    with pytest.raises(InputError, match="epsilon"):
        plot_roc(attacked(), epsilon=-1.0, ax=Figure().add_subplot())


def test_several_reports_are_told_apart_and_few_people_are_named(ax: Axes) -> None:
    few = membership({"membership_cfd": 2.0}, 150, subject="nice")
    plot_roc([attacked(), few], ax=ax)
    assert [name.split(",")[0] for name in legend(ax)[3:]] == [
        "protected: CFD",
        "protected: CFD-LRT",
        "nice: CFD",
    ]
    # nothing is drawn that was not seen
    assert line(ax, "nice: CFD")[0][0] == pytest.approx(1 / 150)
    assert "150 people who are no members" in ax.get_xlabel()


def test_curves_by_name_and_linear_axes(ax: Axes) -> None:
    plot_roc(attacked().curves, log=False, ax=ax)
    assert (ax.get_xscale(), ax.get_ylim()[0]) == ("linear", 0.0)
    assert legend(ax) == [
        "a coin",
        "most that epsilon admits",
        "the same, as published",
        "CFD",
        "CFD-LRT",
    ]
    assert texts(plot_roc({}, ax=Figure().add_subplot())) == ["no attack with a curve"]
    for wrong in ({"a": (0, 1)}, [1]):
        with pytest.raises(InputError, match=r"Curve|AttackReport"):
            plot_roc(wrong, ax=Figure().add_subplot())  # type: ignore[arg-type]
