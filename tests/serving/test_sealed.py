"""A sealed population protects as the one that it was sealed from, and holds no row."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import GeneralizedCounterfactual, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import BundleError, ModelError, PolicyError, PopulationError
from random_tables import described, random_table

SETTINGS: list[dict[str, Any]] = [
    {},
    {"objective": "ncp"},
    {"l": 2},
    {"guarantee": "lookup", "objective": "ncp"},
]


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] >= 2).to_numpy().astype(int)


def fitted(population: Population, **settings: Any) -> KAnonymizer:
    policy = PrivacyPolicy(**{"guarantee": "reciprocal", **settings}) if settings else None
    return KAnonymizer(policy=policy).fit(population, model=model, desired=1)


def facts(entry: Any) -> Any:
    """What leaves of an entry, and what is certified of it without looking at rows."""
    if not isinstance(entry, GeneralizedCounterfactual):
        return entry
    c = entry.certificate
    return (
        entry.region,
        dict(entry.released),
        c.k,
        entry.recount.k_effective,
        entry.recount.k_consistent,
        c.ncp,
        c.pureness,
        c.policy_hash,
    )


def strangers(train: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Rows with other people's private values."""
    shuffled = train.sample(frac=1, random_state=seed).reset_index(drop=True)
    return train.assign(pay=shuffled["pay"], illness=shuffled["illness"])


@pytest.mark.filterwarnings("ignore::cfk_plugin.errors.LookupGuaranteeWarning")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("seed", [1, 4])
def test_releases_are_the_same_row_for_row(
    seed: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    train = random_table(seed)
    if seed % 2:  # crowded cells are divided
        train = pd.concat(
            [train] + [train.head(1).assign(pay=pay, person=1000 + pay) for pay in range(12)],
            ignore_index=True,
        )
    anonymizer = fitted(described(train), k=4, **settings)
    anonymizer.seal(tmp_path / "population.cfk")
    opened = Population.open(tmp_path / "population.cfk")
    other = fitted(opened)
    assert other.policy_ == anonymizer.policy_
    assert opened.fingerprint == anonymizer.population_.fingerprint
    for raw in (train, strangers(train, seed)):
        here, there = anonymizer.transform(raw), other.transform(raw)
        assert [facts(e) for e in there] == [facts(e) for e in here]
        assert anonymizer.regions_of(raw) == other.regions_of(raw)
        assert len(here.released) or settings.get("l")
    assert {e.recount.k_desired for e in there.released} <= {None}


@pytest.mark.parametrize("seed", [0, 3])
def test_people_with_several_rows_are_never_counted_twice(seed: int, tmp_path: Path) -> None:
    train = random_table(seed)
    anonymizer = fitted(described(train, subject=True), k=3)
    anonymizer.seal(tmp_path / "population.cfk")
    other = fitted(Population.open(tmp_path / "population.cfk"))
    here, there = anonymizer.transform(train), other.transform(train)
    for a, b in zip(here, there, strict=True):
        if isinstance(b, GeneralizedCounterfactual):
            assert isinstance(a, GeneralizedCounterfactual)
            assert a.region == b.region
            assert 3 <= b.certificate.k <= a.certificate.k


def test_a_larger_k_gives_unions_of_the_sealed_groups(tmp_path: Path) -> None:
    train = random_table(1)
    anonymizer = fitted(described(train), k=3)
    anonymizer.seal(tmp_path / "population.cfk")
    opened = Population.open(tmp_path / "population.cfk")
    inside = anonymizer.population_.cells_inside
    smaller = [inside(region) for region in anonymizer.regions_of(train)]
    for k in (3, 4, 7, 20):
        regions = fitted(opened, k=k).regions_of(train)
        assert all(region is not None and opened.count(region) >= k for region in regions)
        for region, small in zip(regions, smaller, strict=True):
            assert not (small & ~inside(region)).any()
    with pytest.raises(PolicyError, match="above the number of people"):
        fitted(opened, k=len(train) + 1)


def test_an_outcome_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    class Estimator:
        classes_ = (0, 1)
        predict = staticmethod(model)

    fitted(described(random_table(2)), k=4).seal(tmp_path / "population.cfk")
    opened = Population.open(tmp_path / "population.cfk")
    KAnonymizer().fit(opened, model=Estimator(), desired=1)
    with pytest.raises(ModelError, match="not one of the model's classes"):
        KAnonymizer().fit(opened, model=Estimator(), desired="yes")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 3}, "below the floor of the bundle, 4"),
        ({"k": 4, "guarantee": "catalogue"}, "guarantee"),
        ({"k": 9, "min_pureness": 0.1}, "min_pureness"),
        ({"k": 4, "objective": "ncp", "max_ncp": 0.9}, "max_ncp, objective"),
    ],
)
def test_a_policy_cannot_be_weakened(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    fitted(described(random_table(2)), k=4).seal(tmp_path / "population.cfk")
    with pytest.raises(PolicyError, match=message):
        fitted(Population.open(tmp_path / "population.cfk"), **change)


@pytest.mark.parametrize(
    "settings",
    [{"guarantee": "catalogue", "alpha": 0.5}, {"alpha": 0.5}, {"rare_values": "withhold"}],
    ids=str,
)
def test_what_needs_rows_is_not_sealed(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot hold"):
        fitted(described(random_table(2)), k=3, **settings).seal(tmp_path / "population.cfk")
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_without_a_partition_gives_no_reciprocal_guarantee(tmp_path: Path) -> None:
    described(random_table(2)).seal(tmp_path / "population.cfk")
    opened = Population.open(tmp_path / "population.cfk")
    with pytest.raises(PolicyError, match="seal a fitted KAnonymizer"):
        fitted(opened, k=3)
    with pytest.raises(PopulationError, match="has no rows"):
        opened.frame  # noqa: B018 - the access is what is refused


def canaries() -> pd.DataFrame:
    """People whose private values are words and numbers that occur nowhere else."""
    n = 40
    words = [f"SENTINEL{i:04d}" for i in range(n)]
    return pd.DataFrame(
        {
            "age": np.arange(n) // 3 + 20,
            "pay": np.arange(n) * 7919 + 1_000_003,
            "illness": words,
            "ward": pd.Categorical(words[::-1]),
        }
    )


@pytest.mark.parametrize("key", [None, b"a secret"])
def test_no_private_value_and_no_pickle_is_in_the_file(key: bytes | None, tmp_path: Path) -> None:
    import zipfile

    train = canaries()
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age"]), key=key
    )
    fitted(population, k=5).seal(tmp_path / "population.cfk")
    with zipfile.ZipFile(tmp_path / "population.cfk") as file:
        content = b"".join(file.read(name) for name in file.namelist())
    assert b"SENTINEL" not in content
    assert b"a secret" not in content
    for pay in train["pay"]:
        assert str(pay).encode() not in content
        for kind in ("<i8", "<f8", "<f4"):
            assert np.array([pay], dtype=kind).tobytes() not in content
    for start in range(len(content)):
        if content[start : start + 1] == b"\x80" and content[start + 1 : start + 2] <= b"\x05":
            with pytest.raises(Exception, match=r".*"):
                pickle.loads(content[start:])


def test_opened_in_another_process_with_the_key_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = canaries()
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age"]), key=b"a secret"
    )
    anonymizer = fitted(population, k=5)
    anonymizer.seal(tmp_path / "population.cfk")
    monkeypatch.delenv("CFK_KEY", raising=False)
    with pytest.raises(
        BundleError, match="the bundle was sealed with a key; give it, or set CFK_KEY"
    ):
        Population.open(tmp_path / "population.cfk")
    train.to_pickle(tmp_path / "train.pkl")
    script = """
import pandas as pd
from cfk_plugin import KAnonymizer, Population
population = Population.open("population.cfk")
anonymizer = KAnonymizer().fit(population, model=lambda rows: (rows["pay"] >= 2).astype(int), desired=1)
for region in anonymizer.regions_of(pd.read_pickle("train.pkl")):
    print(region["age"])
"""
    env, command = {**os.environ, "CFK_KEY": "a secret"}, [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        str(region["age"]) for region in anonymizer.regions_of(train) if region
    ]


def test_a_damaged_bundle_protects_nobody(tmp_path: Path) -> None:
    path = tmp_path / "population.cfk"
    fitted(described(random_table(2)), k=3).seal(path)
    path.write_bytes(path.read_bytes().replace(b"cells", b"sells", 1))
    with pytest.raises(BundleError):
        Population.open(path)
