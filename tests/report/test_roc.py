"""Curves of membership attacks in a report: what is drawn, what a number says, and what the external edition hides."""

from __future__ import annotations

import functools
import json
import re
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

import reported
from attacked import membership
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.report.build import build
from cfk_plugin.report.compose import compose
from cfk_plugin.report.data import Amount, Distribution, Edition, ReportData
from cfk_plugin.report.document import Chart, Curves, Folded, Link, Table, shown
from cfk_plugin.report.render import render_html, render_markdown

SCHEMA = json.loads((files("cfk_plugin") / "schemas" / "report-1.schema.json").read_text(encoding="utf-8"))
SHIFTS = {"membership_cfd": 0.0, "membership_cfd_lrt": 0.4, "membership_loss": 1.0, "membership_loss_lrt": 1.5}
PROTECTED = {"policy": reported.POLICY.to_dict(), "population": "f" * 64, "subject": "protected"}


@functools.cache
def data(edition: Edition = "internal", n: int = 1_000, epsilon: float | None = None) -> ReportData:
    return reporting(membership(SHIFTS, n, epsilon=epsilon, **PROTECTED), edition)


def reporting(attacks: AttackReport, edition: Edition = "internal") -> ReportData:
    audits = [json.loads(attacks.to_json())]
    return build(reported.evidence(reported.run(audits=audits)), inputs=reported.inputs(), edition=edition)


def curves(report: ReportData) -> list[Distribution]:
    return [found for found in report.distributions if found.id.startswith("roc")]


def charts(report: ReportData) -> list[Chart]:
    (section,) = [section for section in compose(report).sections if section.id == "section-9"]
    return [block for block in section.blocks if isinstance(block, Chart)]


@pytest.mark.parametrize("edition", ["internal", "external"])
def test_a_report_with_curves_is_valid_and_read_back(edition: Edition) -> None:
    report = data(edition, epsilon=1.0)
    jsonschema.validate(json.loads(report.to_json()), SCHEMA, cls=jsonschema.Draft202012Validator)
    read = ReportData.from_json(report.to_json())
    assert read.to_json() == report.to_json()
    assert render_html(compose(read)) == render_html(compose(report))
    assert {"membership_cfd", "tpr_at_0_01"} <= set(report.definitions)


def test_attacks_of_an_older_report_have_no_subject_and_are_judged() -> None:
    content = json.loads(data().to_json())
    for attack in content["attacks"]:
        for name in ("subject", "concerns", "judged"):
            del attack[name]
    jsonschema.validate(content, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert {(a.subject, a.concerns, a.judged) for a in ReportData.from_dict(content).attacks} == {("", True, True)}


def test_the_curve_is_what_was_logged_and_the_table_what_was_measured() -> None:
    logged = membership(SHIFTS, **PROTECTED)
    (found,) = curves(data())
    place = {label: i for i, label in enumerate(found.labels)}
    assert next(iter(place)) == "0.001"  # of 1,000 others nothing less can be seen
    for name, amounts in found.series.items():
        curve, figures = logged.curves[name], logged[name].figures
        for rate in ("0.02", "0.501"):
            reached = max(t for f, t in zip(curve.fpr, curve.tpr, strict=True) if f <= float(rate) + 1e-9)
            assert amounts[place[rate]].value == pytest.approx(reached)
        for rate, figure in (("0.1", "tpr_at_0_1"), ("0.001", "tpr_at_0_001")):
            told = amounts[place[rate]]
            assert (told.value, told.low, told.high) == tuple(figures[figure + end] for end in ("", "_low", "_high"))
    (chart,) = charts(data())
    assert [row[0] for row in chart.table.rows] == ["CFD", "CFD-LRT", "Loss", "Loss-LRT", "a coin"]
    assert [len(row) for row in chart.table.rows] == [4] * 5
    assert tuple(chart.table.rows[-1][1:]) == ("0.1", "0.01", "0.001")


def test_what_so_few_people_cannot_show_was_not_measured() -> None:
    (chart,) = charts(data(n=60))
    assert [cell == "not measured" for cell in chart.table.rows[0][1:]] == [False, True, True]
    assert isinstance(chart.picture, Curves)
    assert min(x for _, points in chart.picture.series for x, _ in points) >= 1 / 60


def test_a_claim_is_drawn_where_there_is_one() -> None:
    (without,), (within,) = charts(data()), charts(data(epsilon=1.0))
    assert [name for name, _ in without.picture.guides] == ["a coin"]  # type: ignore[union-attr]
    names = [name for name, _ in within.picture.guides]  # type: ignore[union-attr]
    assert names == ["a coin", "bound_tight", "bound_paper"]
    told = {row[0]: row[1:] for row in within.table.rows}
    assert tuple(told["most that epsilon admits"]) == ("0.272", "0.0272", "0.00272")


def test_a_chart_has_four_curves_at_most_and_none_of_a_coin() -> None:
    shifts = {**SHIFTS, "membership_random": 0.0, "membership_surrogate_threshold": 0.2}
    found = charts(reporting(membership(shifts, 200, **PROTECTED)))
    assert [[name for name, _ in chart.picture.series] for chart in found] == [  # type: ignore[union-attr]
        list(SHIFTS),
        ["membership_surrogate_threshold"],
    ]
    assert len({chart.id for chart in found}) == 2


@pytest.mark.parametrize("n", [15, 60, 400])
def test_no_step_of_an_external_curve_is_of_few_people(n: int) -> None:
    report = data("external", n=n)
    for found in curves(report):
        for name, amounts in found.series.items():
            known = [round(a.value * n) for a in amounts if a.value is not None]
            steps = np.diff([0, *known])
            # The last point, (1, 1), is no step of the curve; rates are rounded to three digits.
            assert all(step <= 0 or step >= 10 for step in steps[:-1]), (name, steps)
            assert all(a.low is a.high is a.n is None for a in amounts)
            alarms = [round(float(label) * n) for label, a in zip(found.labels, amounts, strict=True) if a.value]
            assert all(not 0 < alarm < 11 and not 0 < n - alarm < 11 for alarm in alarms)
    assert bool(curves(report)) == (n > 15)


def test_figures_of_few_people_are_nowhere_outside() -> None:
    inside, outside = data(n=1_367), data("external", n=1_367)
    told = ("tpr_at_0_1", "tpr_at_0_01", "tpr_at_0_001_high")
    exact = {repr(attack.figures[name].value) for attack in inside.attacks for name in told}
    exact |= {repr(attack.main.value) for attack in inside.attacks}
    assert len(exact) > len(SHIFTS) * 2
    assert all(value in inside.to_json() for value in exact)
    for text in (outside.to_json(), render_html(compose(outside)), render_markdown(compose(outside))):
        assert not any(value in text for value in exact)
        assert not re.search(r"(?<![\d.])(1,?367|2,?734)(?![\d.])", re.sub(r"data:[^\"]*", "", text))
    shown = {attack.id: attack.figures for attack in outside.attacks}["membership_loss"]
    assert (shown["tpr_at_0_01"].band, shown["members"].band) == ("hidden", "1,000–1,999")
    assert "attacks.membership_loss.tpr_at_0_01" in outside.suppressed_cells


def test_without_the_number_of_people_there_is_no_curve_outside() -> None:
    audit = json.loads(membership({"membership_cfd": 0.5}, **PROTECTED).to_json())
    for name in ("members", "others"):
        del audit["results"][0]["figures"][name]
    run = reported.run(audits=[audit])
    editions: tuple[Edition, ...] = ("internal", "external")
    assert [len(curves(build(reported.evidence(run), edition=edition))) for edition in editions] == [1, 0]


def test_the_ends_of_an_interval_stand_beside_their_figure() -> None:
    (section,) = [section for section in compose(data()).sections if section.id == "section-9"]
    tables = [table for block in section.blocks if isinstance(block, Folded) for table in block.blocks]
    (cells,) = [
        table.rows for table in tables if isinstance(table, Table) and table.id == "table-attack-membership_loss"
    ]
    told = data().attacks[2].figures
    names = [cell.text if isinstance(cell, Link) else cell for cell, _ in cells]
    assert not any(str(name).endswith("_low") for name in names)
    found = dict(zip(names, (cell for _, cell in cells), strict=True))["Members found at 10 % false alarms"]
    ends = {name: told[f"tpr_at_0_1{name}"].value for name in ("", "_low", "_high")}
    assert found == shown(Amount(value=ends[""], low=ends["_low"], high=ends["_high"]))


def test_chart_says_what_it_shows() -> None:
    html = render_html(compose(data(epsilon=1.0)))
    assert html.count('<svg class="chart" role="img" aria-labelledby="chart-roc-title chart-roc-desc"') == 1
    assert "share of members found (TPR)" in html
