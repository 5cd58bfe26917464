"""Makes the bundles beside it anew.

Run: python tests/stored/make_sealed.py

What each of them protects is in ``sealed.json``; `tests/data/test_sealing.py` opens them and
compares. Until the first release a change of the format makes them anew; later ones are kept, and
the new format gets files of its own.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema

HERE = Path(__file__).parent
KEYS: dict[str, bytes | None] = {"keyed": b"the key of the stored bundles", "plain": None}
POLICIES: dict[str, dict[str, Any]] = {
    "lookup": {"k": 5, "guarantee": "lookup"},
    "reciprocal": {"k": 4, "guarantee": "reciprocal"},
    "catalogue": {"k": 4, "guarantee": "catalogue"},
}
CITIES = {
    "Antwerp": ["Flanders"],
    "Ghent": ["Flanders"],
    "Namur": ["Wallonia"],
    "Arlon": ["Wallonia"],
}


def model(rows: pd.DataFrame) -> np.ndarray:
    """Desire much pay."""
    return (rows["pay"] >= 50).to_numpy().astype(int)


def people(n: int, seed: int) -> pd.DataFrame:
    """Return made-up people; one combination is crowded, so that its people are divided."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(20, 45, n),
            "height": np.round(rng.normal(1.7, 0.1, n), 2),
            "since": pd.Timestamp("2019-01-01")
            + pd.to_timedelta(rng.integers(0, 30, n) * 40, unit="D"),
            "city": rng.choice(list(CITIES), n),
            "degree": rng.choice(["none", "school", "master"], n),
            "sex": rng.choice(["m", "f", None], n, p=[0.5, 0.4, 0.1]),
            "member": rng.choice([True, False], n),
            "pay": rng.integers(0, 100, n),
            "illness": rng.choice(["flu", "none"], n),
        }
    )
    table.loc[table.index % 9 == 4, "age"] = np.nan
    crowd = pd.concat([table.head(1)] * 15, ignore_index=True).assign(pay=range(40, 55))
    return pd.concat([table, crowd], ignore_index=True)


def population(key: bytes | None) -> Population:
    """Return the population that is sealed."""
    table = people(60, seed=1)
    schema = Schema.from_frame(
        table,
        quasi_identifiers=["age", "height", "since", "city", "degree", "sex", "member"],
        sensitive=["illness"],
        hierarchies={"city": CITIES},
        ordinal={"degree": ["none", "school", "master"]},
        weights={"age": 2.0},
    )
    return Population.from_frame(table, schema, key=key)


def protected(opened: Population) -> dict[str, Any]:
    """Return what a sealed population says of itself, and what is released of 6 counterfactuals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anonymizer = KAnonymizer().fit(opened, model=model, desired=1)
    raw = people(25, seed=2).tail(30).head(6)  # also with values that the population does not have
    raw = raw.assign(pay=80)
    alone = anonymizer.policy_.guarantee == "catalogue"
    entries = anonymizer.explain(raw.assign(pay=20)) if alone else anonymizer.transform(raw)
    regions = [] if alone else anonymizer.regions_of(raw)
    return {
        "repr": repr(opened),
        "fingerprint": opened.fingerprint,
        "policy": anonymizer.policy_.to_dict(),
        "regions": [None if region is None else region.to_dict() for region in regions],
        "released": [
            {**entry.to_dict(), "recount": entry.recount.to_dict()} for entry in entries.generalized
        ],
        "withheld": [entry.to_dict() for entry in entries.withheld],
    }


def main() -> None:
    """Write bundles and what they protect."""
    found = {}
    for name, settings in POLICIES.items():
        for how, key in KEYS.items():
            path = HERE / f"{name}_{how}.cfk"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = KAnonymizer(policy=PrivacyPolicy(**settings)).fit(
                    population(key), model=model, desired=1
                )
            fitted.seal(path)
            found[path.stem] = protected(Population.open(path, key=key))
    lines = [f'"{name}": {json.dumps(facts, sort_keys=True)}' for name, facts in found.items()]
    (HERE / "sealed.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
