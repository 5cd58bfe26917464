"""docs/explanation/what-explanations-leak.md is what its results say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.full_search

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_leaks", DOCS / "explanation" / "make_leaks.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (DOCS / "explanation" / "leaks.json").read_text(encoding="utf-8")
    )
    return content


def test_page_is_rendered_from_its_results(make: ModuleType, found: dict[str, Any]) -> None:
    page = (DOCS / "explanation" / "what-explanations-leak.md").read_text(encoding="utf-8")
    assert page == make.render(found), "run python docs/explanation/make_leaks.py"
    assert "{{" not in page


def test_csv_files_are_written_from_its_results(make: ModuleType, found: dict[str, Any]) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in make.TABLES.iterdir()}
    assert kept == make.csv_files(found), "run python docs/explanation/make_leaks.py"


def test_guesses_are_better_than_the_baseline_only_where_people_are_singled_out(
    make: ModuleType, found: dict[str, Any]
) -> None:
    for table in make.COPIED:
        for owner in make.OWNERS:
            report = found[f"attributes {table} {owner}"]
            if owner == "raw":
                few = make.of(report, "attribute_inference_singled_out")
                assert few["main"]["low"] > few["baseline"]["high"]
            else:
                guess = make.of(report, "attribute_inference_linkage")
                assert guess["main"]["low"] <= guess["baseline"]["high"]
                if owner != "dp":
                    assert guess["figures"]["fits_one"] == 0


def test_confidence_finds_most_members_of_a_model_that_memorised_them(
    make: ModuleType, found: dict[str, Any]
) -> None:
    reports = [report for name, report in found.items() if name.startswith("table diabetes130")]
    area = {
        attack: [make.of(report, attack)["main"]["value"] for report in reports]
        for attack in make.SHOWN
    }
    assert [f"{value:.2f}" for value in area["membership_loss_lrt"]] == ["0.95"] * len(reports)
    assert f"{max(area['membership_cfd'] + area['membership_cfd_lrt']):.2f}" == "0.63"


def test_no_copy_gains_clearly_and_only_those_of_training_rows_find_members(
    make: ModuleType, found: dict[str, Any]
) -> None:
    for name, report in found.items():
        if name.startswith("extraction"):
            gains = [result["figures"].get("gain_low") for result in report["results"]]
            assert all(gain is None or gain <= 0 for gain in gains)
        if name.startswith("surrogate adult"):
            result = make.of(report, "membership_surrogate_threshold")
            assert (result["main"]["low"] > 0.5) == (name.split()[-1] in ("raw", "reciprocal"))
        if name.startswith("asked"):
            result = make.of(report, "attribute_inference_surrogate")
            assert result["main"]["low"] <= result["baseline"]["value"]


def test_intervals_hold_their_values_and_attacks_have_controls(found: dict[str, Any]) -> None:
    for report in found.values():
        for result in report["results"]:
            for part in ("main", "baseline", "control"):
                rate = result[part]
                if rate is not None and rate["value"] is not None:
                    assert rate["low"] <= rate["value"] <= rate["high"]


def test_the_published_pattern_of_linear_models_is_there(
    make: ModuleType, found: dict[str, Any]
) -> None:
    """Strength grows with d; at d = n = 5,000 the test of likelihoods finds more at few alarms than
    the distance.
    """
    reports = [found[f"linear d={d}"] for d in (100, 1000, 5000, 7000)]
    areas = [make.of(report, "membership_cfd_lrt")["main"] for report in reports]
    assert [area["value"] for area in areas] == sorted(area["value"] for area in areas)
    assert areas[0]["high"] < areas[2]["low"]
    plain, tested = (make.of(reports[2], f"membership_{name}") for name in ("cfd", "cfd_lrt"))
    assert tested["main"]["low"] > plain["main"]["high"]
    for few in ("tpr_at_0_1", "tpr_at_0_01"):
        assert tested["figures"][f"{few}_low"] > plain["figures"][f"{few}_high"]


def test_every_figure_is_there() -> None:
    page = (DOCS / "explanation" / "what-explanations-leak.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(\.\./assets/leaks/([\w-]+\.svg)\)", page))
    assert shown == {path.name for path in (DOCS / "assets" / "leaks").iterdir()}


@pytest.mark.slow
def test_figures_are_drawn_from_the_results(
    make: ModuleType, found: dict[str, Any], tmp_path: Path
) -> None:
    for path in make.draw(found, tmp_path):
        kept = (DOCS / "assets" / "leaks" / path.name).read_text(encoding="utf-8")
        # Coordinates may differ in their last digits between releases of matplotlib; what is
        # written may not.
        assert re.findall(r"<!-- (.*) -->", path.read_text(encoding="utf-8")) == re.findall(
            r"<!-- (.*) -->", kept
        )
