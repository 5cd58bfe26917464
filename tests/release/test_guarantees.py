"""What only one guarantee offers or refuses; the oracle counts what each promises."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.errors import LookupGuaranteeWarning, PolicyError
from cfk_plugin.protection import ExactProtector
from worlds import World


@pytest.mark.parametrize("method", ["exact", "nonsense", ExactProtector(), None])
def test_catalogue_takes_no_protector(method: Any, applicants: World) -> None:
    """A protector generalises counterfactuals, and a catalogue has none."""
    with pytest.raises(PolicyError, match="lookup"):
        applicants.fit(method=method)


def test_only_lookup_warns(residents: World) -> None:
    """It does not stop an attacker who runs the algorithm again, or asks the model."""
    with pytest.warns(LookupGuaranteeWarning, match="catalogue"):
        residents.fit(guarantee="lookup")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LookupGuaranteeWarning)
        residents.fit()


def test_rare_outcome_is_not_explained(residents: World) -> None:
    """Fewer than k people have it."""
    cut = np.sort(residents.table["salary"])[-residents.k + 1]

    def is_rich(rows: pd.DataFrame) -> Any:
        return (rows["salary"] >= cut).to_numpy()

    with pytest.raises(PolicyError, match="no group"):
        residents.fit(model=is_rich, desired=True)
    opposite = residents.fit(model=is_rich, desired="opposite")
    assert opposite.explain(residents.refused).summary()["reasons"] == {"infeasible": 8}


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_grown_region_is_not_optimal(method: str, residents: World) -> None:
    """A region that had to grow until it is diverse is not called optimal."""
    by_k = residents.fit(guarantee="lookup", method=method).transform(residents.native)
    diverse = residents.fit(guarantee="lookup", method=method, l=4).transform(residents.native)
    pairs = list(zip(by_k, diverse, strict=True))
    assert any(one.region != other.region for one, other in pairs)
    for one, other in pairs:
        assert other.recount.l >= 4
        assert other.region == one.region or not other.certificate.optimal


def test_impossible_diversity_is_withheld(residents: World) -> None:
    """There are three jobs, and a gap."""
    anonymizer = residents.fit(guarantee="lookup", l=5)
    assert anonymizer.transform(residents.native).summary()["reasons"] == {"l_diversity": 8}
