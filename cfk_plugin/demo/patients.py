"""The data of the demo: real and public, the only reason why raw counterfactuals of it are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

LOW, HIGH = 0, 1
"""Outcomes: disease progression after a year below and above the median."""
KNOWN = ["age", "sex", "bmi"]
"""What is publicly known of a patient."""

_NAMES = {"s1": "chol", "s2": "ldl", "s3": "hdl", "s4": "tc_hdl", "s5": "log_tg", "s6": "glucose"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Patients:
    """The data of the demo: training rows with the label, model, and the patients to explain."""

    train: pd.DataFrame
    model: Any
    accuracy: float
    queries: pd.DataFrame


def load_patients(patients: int) -> Patients:
    """Load scikit-learn's diabetes patients in their own units, and train a random forest on three quarters."""
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns=_NAMES)
    table = table.astype({"age": int, "sex": int})
    table["progression"] = (table.pop("target") > 140.5).astype(int)  # the median
    train, test = train_test_split(table, test_size=0.25, random_state=0, stratify=table["progression"])
    model = RandomForestClassifier(n_estimators=100, min_samples_leaf=3, random_state=0)
    model.fit(train.drop(columns="progression"), train["progression"])
    X = test.drop(columns="progression")
    high = X[model.predict(X) == HIGH].head(patients).reset_index(drop=True)
    accuracy = float(model.score(X, test["progression"]))
    return Patients(train.reset_index(drop=True), model, accuracy, high)
