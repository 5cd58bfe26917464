"""The paper's toy example: seven numbers and one sentence, from the metrics and through the whole
pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import toy
from cfk_plugin import GeneralizedCounterfactual, Interval, KAnonymizer, PrivacyPolicy, metrics
from cfk_plugin.data.wording import Wording
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector
from cfk_plugin.protection import ExactProtector, GraspProtector

POPULATION = toy.population()
MEMBERS = toy.REGION.members(POPULATION)


def test_model_agrees_with_every_row() -> None:
    """The ages of the rows span 47 years, as the paper's footnote says."""
    assert toy.model(toy.TABLE).tolist() == toy.TABLE["Credit decision"].tolist()
    assert np.ptp(toy.TABLE["Age"]) == 47


def test_metrics_give_the_seven_numbers() -> None:
    """The paper's region has Fiona, Gina and Ingrid inside."""
    assert toy.TABLE["Name"].iloc[MEMBERS].tolist() == ["Fiona", "Gina", "Ingrid"]
    inside = POPULATION.frame.iloc[MEMBERS]
    labels = toy.model(inside)
    assert (POPULATION.count(toy.REGION), (labels == toy.DESIRED).sum()) == (3, 2)
    private = {name: toy.FIONA[name].iloc[0] for name in ("Salary", "Relationship status")}
    assert (toy.model(inside.assign(**private)) == toy.DESIRED).sum() == 1  # Fiona alone
    assert metrics.k_private(inside, private) == 2
    assert metrics.ncp(toy.REGION, POPULATION) == pytest.approx(3 / 47 / 3)
    assert metrics.ncp_by_attribute(toy.REGION, POPULATION) == pytest.approx(
        {"Age": 3 / 47, "Gender": 0, "City": 0}
    )
    asked = (toy.REGION, toy.FIONA, POPULATION, toy.model, toy.DESIRED)
    assert metrics.pureness(*asked) == metrics.Pureness(0.5, 0.5, 0.5, True, 4)
    sampled = metrics.pureness(*asked, method="sample", n=3, random_state=0)
    assert (sampled.exact, sampled.low <= 0.5 <= sampled.high) == (False, True)
    assert metrics.discernibility([POPULATION.count(toy.REGION)]) == 3
    assert [metrics.classification_metric([label], [labels]) for label in ("Accept", "Reject")] == [
        0,
        1,
    ]
    assert metrics.prosecutor_risk([3]) == metrics.Risk(1 / 3, 1 / 3, 1.0)


class PaperRegion:
    """Proposes the region of the paper's Figure 2: Fiona joined with Gina."""

    name = "figure-2"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        return [Proposal(toy.REGION)] * len(request)


def explain(method: str | Protector, **policy: object) -> GeneralizedCounterfactual:
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(guarantee="lookup", **{"k": 2, **policy}), method=method
    )
    explanations = anonymizer.fit(POPULATION, toy.model, toy.DESIRED).transform(toy.FIONA)
    assert isinstance(explanations[0], GeneralizedCounterfactual)
    return explanations[0]


def test_certificate_gives_the_seven_numbers() -> None:
    """The recount has them in full; the certificate has the policy's k, and rounds."""
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=2), method=PaperRegion())
    explanations = anonymizer.fit(POPULATION, toy.model, toy.DESIRED).transform(toy.FIONA)
    certificate = explanations.released[0].certificate
    recount = explanations.released[0].recount
    summary = explanations.summary()
    assert (recount.k, recount.k_desired, recount.k_consistent) == (3, 2, 1)
    assert recount.k_worst == 1
    assert recount.ncp == pytest.approx(3 / 47 / 3)
    assert round(recount.ncp, 3) == 0.021
    assert (recount.pureness, certificate.exact) == (0.5, True)
    assert (certificate.k, certificate.ncp, certificate.pureness) == (2, 0.03, 0.5)
    assert (summary["cdm"], summary["cm"]) == (3, 0)


def test_private_values_match_two_people() -> None:
    """Fiona and Ingrid both earn 60 and are single."""
    recount = explain(PaperRegion()).recount
    assert (recount.k_private, recount.private_matches) == (2, 2)


def test_text_says_what_paper_says() -> None:
    """The order and the words are ours, and the sentence ends with the pureness."""
    found = explain(PaperRegion())
    # The paper: "If you were 3 to 6 years older, lived in Antwerp and earned $10K more ..."
    wording = Wording(
        titles={"Salary": "a salary"},
        units={"Salary": "thousand dollars"},
        phrases={"City": "a home in {}"},
        outcomes={toy.DESIRED: "your credit would be approved"},
    )
    assert found.text(toy.LISA, wording) == (
        "Your credit would be approved if two things were different: a home in “Antwerp” instead of"
        " “Brussels”; and a salary of 60 thousand dollars instead of 50. This also needs something"
        " that nobody can choose: an age of 24 to 27 years instead of 21. This is true of 50% of the combinations of these values."
    )


def test_least_ncp_needs_ingrid_alone() -> None:
    """She is two years older than Fiona: no smaller region has two people."""
    found = explain("exact", objective="ncp")
    assert found.region["Age"] == Interval(24, 26)
    assert found.recount.ncp == pytest.approx(2 / 47 / 3)
    assert found.certificate.optimal


def test_pureness_first_is_proven_pure() -> None:
    """Antwerp and 60K are accepted up to 25: with men allowed, Boris (23) joins Fiona."""
    found = explain("exact", objective="pureness")
    assert found.region["Age"] == Interval(23, 24)
    assert found.region["Gender"] == frozenset({"F", "M"})
    assert found.recount.pureness == 1.0
    assert found.recount.ncp == pytest.approx((1 / 47 + 1) / 3)
    assert found.certificate.optimal


def test_grasp_keeps_k_without_proof() -> None:
    """With one neighbour to draw from and one restart, Gina joins; two people stay inside."""
    found = explain(GraspProtector(alpha=1, iterations=1))
    assert found.recount.k >= 2
    assert not found.certificate.optimal


def test_exact_is_never_worse_than_grasp() -> None:
    """In the objective that the policy names; NCP decides between equally pure regions."""
    for k in (2, 3, 5):
        for objective in ("ncp", "pureness"):
            ours = explain(ExactProtector(), k=k, objective=objective).certificate
            theirs = explain(GraspProtector(), k=k, objective=objective).certificate
            if objective == "ncp":
                assert ours.ncp <= theirs.ncp
            else:
                assert (-ours.pureness, ours.ncp) <= (-theirs.pureness, theirs.ncp)
