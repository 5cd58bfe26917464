"""A result holds regions, or the prototypes of one fit; its figures are those of what it holds."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from cfk_plugin.errors import InputError
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Suppressed
from prototyped import COLUMNS, FINGERPRINT, certificate, policy, prototype, prototypes, unproven
from spooled import explanations, released


def test_entries_are_told_apart() -> None:
    found = prototypes()
    assert (len(found), len(found.released), len(found.prototypes), len(found.suppressed)) == (3, 2, 2, 1)
    assert found.generalized == ()
    regions = explanations()
    assert regions.released == regions.generalized
    assert regions.prototypes == ()


@pytest.mark.parametrize(
    ("entries", "under"),
    [
        ((prototype(), released(1)), policy()),
        ((released(0),), policy()),
        ((prototype(),), explanations().policy),
        ((prototype(), released(1)), explanations().policy),
    ],
)
def test_kinds_are_not_mixed(entries: Any, under: Any) -> None:
    with pytest.raises(InputError, match="give each kind a result of its own"):
        Explanations(entries, policy=under, columns=COLUMNS)


def test_prototypes_of_two_fits_are_refused() -> None:
    with pytest.raises(InputError, match="prototypes of several fits"):
        prototypes(prototype(0), prototype(1, of=certificate(fit="other")))


@pytest.mark.parametrize("said", [{"epsilon": 2.0}, {"model_access": "private"}])
def test_a_certificate_beyond_the_policy_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="another budget or model"):
        prototypes(prototype(0, of=certificate(**said)))


def test_a_summary_of_prototypes_has_their_budget_and_no_figure_of_regions() -> None:
    summary = prototypes().summary()
    assert summary.keys() == explanations().summary().keys()
    counts = {"asked": 3, "released": 2, "suppressed": 1, "prototypes": 2, "epsilon": 1.0, "delta": 0.0}
    assert {name: summary[name] for name in counts} == counts
    assert summary["released_native"] == 0
    assert summary["reasons"] == {"none_found": 1}
    of_regions = ("k_", "ncp_", "pureness_", "cdm", "cm", "optimal", "prosecutor", "marketer", "native_")
    assert {summary[name] for name in summary if name.startswith(of_regions)} == {None}


def test_a_claim_is_no_budget() -> None:
    summary = unproven().summary()
    assert (summary["prototypes"], summary["epsilon"], summary["delta"]) == (1, None, None)


def test_a_summary_of_regions_has_no_budget() -> None:
    summary = explanations().summary()
    assert (summary["prototypes"], summary["epsilon"], summary["delta"]) == (0, None, None)
    assert (summary["released"], summary["cdm"], summary["k_min"]) == (2, 14, 5)


def test_the_table_has_values_and_no_k() -> None:
    table = prototypes().to_frame()
    assert list(table) == list(explanations().to_frame())
    assert table["age"].tolist()[::2] == ["31", "44"]
    assert table["city"].tolist()[::2] == ["Ghent", "missing"]
    assert table.loc[1, "reason"] == "none_found"
    assert table[["k", "ncp", "pureness", "pureness_low", "pureness_high"]].isna().all(axis=None)


def test_the_data_holder_sees_the_certificate() -> None:
    table = prototypes().audit_frame()
    assert table["epsilon"].tolist()[::2] == [1.0, 1.0]
    assert table["fit"].tolist()[::2] == ["9f2c9f2c9f2c9f2c", "9f2c9f2c9f2c9f2c"]
    assert table.loc[1, "reason"] == "none_found"


def test_a_slice_keeps_the_policy() -> None:
    found = prototypes()
    part = found[1:]
    assert isinstance(part, Explanations)
    assert (part.policy, len(part.prototypes), part[1]) == (found.policy, 1, found[2])
    assert found.for_query(2) == (found[2],)


def test_equality_is_of_entries_and_policy() -> None:
    assert prototypes() == prototypes()
    assert prototypes() != prototypes()[:2]
    assert prototypes() != prototypes(under=policy(epsilon=2.0))
    assert repr(prototypes()) == "Explanations(2 released, 1 suppressed)"


def test_json_has_no_fingerprint_of_the_population() -> None:
    text = prototypes().to_json()
    assert FINGERPRINT not in text
    content = json.loads(text)
    assert content["policy"] == policy().to_dict()
    assert [set(entry) - {"query", "status"} for entry in content["explanations"]] == [
        {"prototype", "certificate"},
        {"reason", "columns"},
        {"prototype", "certificate"},
    ]


def test_nothing_released_is_a_result_of_either_kind() -> None:
    nothing = prototypes(Suppressed(0, "none_found"))
    assert nothing.summary()["epsilon"] is None
    pd.testing.assert_frame_equal(nothing.to_frame(), explanations(Suppressed(0, "none_found")).to_frame())
