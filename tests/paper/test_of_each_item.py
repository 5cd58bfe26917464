"""Every method, attack, measure and table of the papers has a section in the docs and a test."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GOETHALS = "Goethals, Sörensen, Martens (2023)"
YANG = "Yang, Feng, Zhou, Chen, Hu (2022)"
PAWELCZYK = "Pawelczyk, Lakkaraju, Neel (2023)"


class Item(NamedTuple):
    """Something that a paper introduces or measures."""

    paper: str
    name: str
    section: str  # path of a page, "#", and the heading
    test: str  # path of a file below tests/, "::", and the function


REPRODUCTION = "docs/reproduction/index.md"
METRICS = "docs/reference/metrics.md"
AUDITS = "docs/reference/audits.md"
METHODS = "docs/explanation/methods-of-the-papers.md"

ITEMS = [
    Item(
        GOETHALS,
        "the toy example",
        "docs/explanation/how-it-works.md#The attack",
        "paper/test_toy.py::test_the_seven_numbers_of_the_certificate",
    ),
    Item(
        GOETHALS,
        "the explanation linkage attack",
        f"{AUDITS}#linkage",
        "audit/test_linkage.py::test_on_the_papers_example_an_attack_reaches_what_a_hand_counts",
    ),
    Item(
        GOETHALS,
        "native counterfactuals",
        f"{METRICS}#native_rate",
        "release/test_detection.py::test_no_spelling_hides_a_native_row",
    ),
    Item(
        GOETHALS,
        "CF-K by GRASP",
        "docs/explanation/how-it-works.md#The other methods",
        "paper/test_toy.py::test_grasp_constructs_the_region_of_the_paper",
    ),
    Item(
        GOETHALS,
        "Mondrian as a yardstick",
        f"{REPRODUCTION}#Mondrian: Tables 7, 10 and 12",
        "protection/test_mondrian.py::test_classes_are_those_of_the_definition",
    ),
    Item(
        GOETHALS,
        "NCP",
        f"{METRICS}#ncp_mean",
        "metrics/test_regions.py::test_ncp_of_each_kind",
    ),
    Item(
        GOETHALS,
        "pureness",
        f"{METRICS}#pureness_mean",
        "metrics/test_regions.py::test_pureness_is_exact_within_the_budget",
    ),
    Item(
        GOETHALS,
        "discernibility",
        f"{METRICS}#cdm",
        "metrics/test_regions.py::test_discernibility",
    ),
    Item(
        GOETHALS,
        "the classification metric",
        f"{METRICS}#cm",
        "metrics/test_regions.py::test_classification_metric_forgives_ties",
    ),
    Item(
        GOETHALS,
        "the uniqueness of people in the tables (Table 5)",
        f"{METRICS}#unique",
        "metrics/test_risk.py::test_unique_private_values_of_published_tables",
    ),
    Item(
        GOETHALS,
        "Tables 6, 9 and 11",
        f"{REPRODUCTION}#CF-K: Tables 6, 9 and 11",
        "reproduction/test_results.py::test_tables_are_the_papers",
    ),
    Item(
        GOETHALS,
        "Tables 7, 10 and 12",
        f"{REPRODUCTION}#Mondrian: Tables 7, 10 and 12",
        "reproduction/test_results.py::test_mondrian_is_a_yardstick_of_both",
    ),
    Item(
        GOETHALS,
        "Figure 4, parameters",
        f"{REPRODUCTION}#Parameters: Figure 4",
        "reproduction/test_results.py::test_parameters_are_those_of_figure_4",
    ),
    Item(
        GOETHALS,
        "Figure 5, groups",
        f"{REPRODUCTION}#Groups: Figure 5",
        "reproduction/test_results.py::test_groups_are_compared_by_hand",
    ),
    Item(
        GOETHALS,
        "Table 8, plausibility",
        f"{REPRODUCTION}#Plausibility: Table 8",
        "reproduction/test_results.py::test_table_8_has_a_column_for_every_nice_and_every_k",
    ),
    Item(
        YANG,
        "DPC, its autoencoder and search",
        f"{METHODS}#DPC: what it does",
        "recourse/test_dpc.py::test_the_search_follows_the_gradient_of_equation_18",
    ),
    Item(
        YANG,
        "the claimed guarantee",
        f"{METHODS}#See DPC leak",
        "recourse/test_dpc_leak.py::test_one_counterfactual_refutes_the_claimed_epsilon",
    ),
    Item(
        YANG,
        "CADEX",
        f"{METHODS}#Which methods are included",
        "recourse/test_recourse.py::"
        "test_cadex_changes_one_feature_where_that_flips_and_twice_as_many_where_not",
    ),
    Item(
        YANG,
        "REVISE",
        f"{METHODS}#Which methods are included",
        "recourse/test_recourse.py::test_revise_answers_with_what_its_autoencoder_decodes",
    ),
    Item(
        YANG,
        "C-CHVAE",
        f"{METHODS}#Which methods are included",
        "recourse/test_recourse.py::test_answers_lie_where_the_training_rows_do",
    ),
    Item(
        YANG,
        "Tables 2 and 3, flipping ratio and distance",
        f"{METHODS}#DPC: what it costs",
        "dp/test_digits.py::test_digits_become_other_digits",
    ),
    Item(
        YANG,
        "extraction of the model (section 5.3)",
        f"{AUDITS}#Extraction",
        "audit/test_extraction.py::"
        "test_counterfactuals_on_the_boundary_copy_the_model_and_those_that_say_nothing_do_not",
    ),
    Item(
        PAWELCZYK,
        "SCFE",
        f"{METHODS}#Which methods are included",
        "recourse/test_scfe.py::test_linear_models_are_answered_at_the_distance_of_the_closed_form",
    ),
    Item(
        PAWELCZYK,
        "Growing Spheres",
        f"{METHODS}#Which methods are included",
        "recourse/test_recourse.py::test_distance_is_close_to_that_of_the_boundary",
    ),
    Item(
        PAWELCZYK,
        "the distance attacks CFD and CFD-LRT",
        f"{AUDITS}#Membership",
        "audit/test_membership.py::"
        "test_figures_are_those_of_documented_scores_of_whoever_was_asked_about",
    ),
    Item(
        PAWELCZYK,
        "the leak of linear models grows with the number of features",
        f"{AUDITS}#Membership",
        "audit/test_membership.py::"
        "test_the_leak_of_a_linear_model_grows_with_the_number_of_features",
    ),
    Item(
        PAWELCZYK,
        "the leak of networks",
        f"{AUDITS}#Membership",
        "audit/test_membership.py::"
        "test_at_the_size_of_the_paper_leaks_grow_with_features_and_the_ratio_test_leads_at_few_alarms",
    ),
    Item(
        PAWELCZYK,
        "real tables",
        f"{AUDITS}#Membership",
        "audit/test_membership.py::test_nobody_is_found_among_people_who_are_no_members",
    ),
    Item(
        PAWELCZYK,
        "theorem 1, the bound on balanced accuracy",
        f"{METRICS}#bound_paper",
        "audit/test_roc.py::test_bounds_have_their_published_numbers_and_one_person_more_or_less_counts_twice",
    ),
]


@cache
def headings_of(page: str) -> set[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return {heading.strip() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((REPOSITORY / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_an_item_of_a_paper_has_a_section_and_a_test(item: Item) -> None:
    page, _, heading = item.section.partition("#")
    assert heading in headings_of(page)
    file, _, function = item.test.partition("::")
    assert function in functions_of(file)
