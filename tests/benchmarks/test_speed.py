"""Side by side in one run: exact search and the published metaheuristic, on data that ships with
scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.protection import ExactProtector, GraspProtector, MondrianProtector


@pytest.fixture(scope="module")
def patients() -> dict[str, Any]:
    data = load_diabetes(as_frame=True, scaled=False)
    high = np.where(data.target > data.target.median(), "high", "low")
    model = RandomForestClassifier(100, max_leaf_nodes=50, random_state=0, n_jobs=1).fit(
        data.data, high
    )
    schema = Schema.from_frame(data.data, quasi_identifiers=["age", "sex", "bmi"])
    population = Population.from_frame(data.data, schema)
    low = data.data[model.predict(data.data) == "low"].head(10)
    return {"model": model, "population": population, "counterfactuals": low}


@pytest.mark.parametrize("objective", ["ncp", "pureness"])
@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_ten_explanations_take_time(
    benchmark: Any, patients: dict[str, Any], method: str, objective: str
) -> None:
    """By each method, for each objective."""
    protector = {"exact": ExactProtector, "grasp": GraspProtector, "mondrian": MondrianProtector}[
        method
    ]()
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(guarantee="lookup", k=10, objective=objective), method=protector
    )
    anonymizer.fit(patients["population"], patients["model"], desired="low")
    anonymizer.transform(patients["counterfactuals"].head(1))  # compile, index, calibrate
    benchmark.group = f"ten explanations, model included, objective {objective}"
    explanations = benchmark.pedantic(
        anonymizer.transform, args=(patients["counterfactuals"],), rounds=3, iterations=1
    )
    assert min(e.certificate.k for e in explanations.released) >= 10


def test_one_explanation_takes_time(benchmark: Any, patients: dict[str, Any]) -> None:
    """By the exact search."""
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=10))
    anonymizer.fit(patients["population"], patients["model"], desired="low")
    anonymizer.transform(patients["counterfactuals"])
    benchmark.group = "one explanation, model included"
    explanations = benchmark(anonymizer.transform, patients["counterfactuals"].head(1))
    assert len(explanations.released) == 1
