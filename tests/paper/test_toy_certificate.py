"""The paper's toy example through the whole pipeline: seven numbers, one sentence, and what is better than it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import toy
from cfk_plugin import GeneralizedCounterfactual, Interval, KAnonymizer, Phrase, PrivacyPolicy
from cfk_plugin.hookspecs import Proposal, Protector, Task
from cfk_plugin.protection import ExactProtector, GraspProtector

pytestmark = pytest.mark.full_search


class PaperRegion:
    """Proposes the region of the paper's Figure 2: Fiona joined with Gina."""

    name = "figure-2"

    def protect(self, task: Task) -> Sequence[Proposal]:
        return [Proposal(toy.REGION)] * len(task)


def explain(method: str | Protector, **policy: object) -> GeneralizedCounterfactual:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="nominal", **{"k": 2, **policy}), method=method)
    explanations = anonymizer.fit(toy.population(), toy.model, toy.DESIRED).transform(toy.FIONA)
    assert isinstance(explanations[0], GeneralizedCounterfactual)
    return explanations[0]


def test_the_seven_numbers_of_the_paper() -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="nominal", k=2), method=PaperRegion())
    explanations = anonymizer.fit(toy.population(), toy.model, toy.DESIRED).transform(toy.FIONA)
    certificate, summary = explanations.released[0].certificate, explanations.summary()
    assert (certificate.k, certificate.k_desired, certificate.k_consistent) == (3, 2, 1)
    assert certificate.ncp == pytest.approx(3 / 47 / 3)
    assert round(certificate.ncp, 3) == 0.021
    assert (certificate.pureness, certificate.exact) == (0.5, True)
    assert (summary["cdm"], summary["cm"]) == (3, 0)


def test_private_values_single_out_fiona_and_ingrid() -> None:
    certificate = explain(PaperRegion()).certificate
    assert (certificate.k_private, certificate.private_matches) == (2, 2)  # both earn 60 and are single


def test_the_sentence_of_the_paper() -> None:
    text = explain(PaperRegion()).text(toy.LISA)
    assert "3–6 years older" in text
    said = explain(PaperRegion()).text(
        toy.LISA,
        {
            "City": Phrase("", "", "lived in {}"),
            "Salary": Phrase("earned ${}K more", "earned ${}K less", "earned ${}K"),
        },
    )
    assert said == (
        "If you were 3–6 years older, lived in Antwerp and earned $10K more, the outcome would be the desired one."
    )


def test_least_ncp_needs_ingrid_alone() -> None:
    found = explain("exact", objective="ncp")
    assert found.region["Age"] == Interval(24, 26)
    assert found.certificate.ncp == pytest.approx(2 / 47 / 3)
    assert found.certificate.optimal


def test_pureness_first_is_proven_pure() -> None:
    # Antwerp and 60K are accepted up to 25: with men allowed, Boris (23) joins Fiona.
    found = explain("exact", objective="pureness")
    assert found.region["Age"] == Interval(23, 24)
    assert found.region["Gender"] == frozenset({"F", "M"})
    assert found.certificate.pureness == 1.0
    assert found.certificate.ncp == pytest.approx((1 / 47 + 1) / 3)
    assert found.certificate.optimal


def test_grasp_constructs_the_region_of_the_paper() -> None:
    # One neighbour to draw from and one restart: Gina joins; local search may only keep two people inside.
    found = explain(GraspProtector(alpha=1, iterations=1))
    assert found.certificate.k >= 2
    assert not found.certificate.optimal


def test_exact_is_never_worse_than_grasp() -> None:
    for k in (2, 3, 4, 5):
        for objective in ("ncp", "pureness"):
            ours = explain(ExactProtector(), k=k, objective=objective).certificate
            theirs = explain(GraspProtector(), k=k, objective=objective).certificate
            if objective == "ncp":
                assert ours.ncp <= theirs.ncp
            else:
                assert (-ours.pureness, ours.ncp) <= (-theirs.pureness, theirs.ncp)
