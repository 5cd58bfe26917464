"""The toy example of Goethals, Sörensen, Martens (2023): Table 2, and a model that agrees with
every row of it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.data.schema import Schema

COLUMNS = ["Name", "Age", "Gender", "City", "Salary", "Relationship status", "Credit decision"]
ROWS = [
    ("Alfred", 25, "M", "Brussels", 50, "Single", "Reject"),
    ("Boris", 23, "M", "Antwerp", 40, "Separated", "Reject"),
    ("Casper", 34, "M", "Brussels", 30, "Cohabiting", "Reject"),
    ("Derek", 47, "M", "Antwerp", 100, "Married", "Accept"),
    ("Edward", 70, "M", "Brussels", 90, "Single", "Accept"),
    ("Fiona", 24, "F", "Antwerp", 60, "Single", "Accept"),
    ("Gina", 27, "F", "Antwerp", 80, "Married", "Accept"),
    ("Hilda", 38, "F", "Brussels", 60, "Widowed", "Reject"),
    ("Ingrid", 26, "F", "Antwerp", 60, "Single", "Reject"),
    ("Jade", 50, "F", "Brussels", 100, "Married", "Accept"),
]
TABLE = pd.DataFrame(ROWS, columns=COLUMNS)
FEATURES = ["Age", "Gender", "City", "Salary", "Relationship status"]
QUASI_IDENTIFIERS = ["Age", "Gender", "City"]
DESIRED = "Accept"
LISA = {"Age": 21, "Gender": "F", "City": "Brussels", "Salary": 50, "Relationship status": "Single"}
FIONA = TABLE.loc[TABLE["Name"] == "Fiona", FEATURES]
REGION = Region(
    {"Age": Interval(24, 27), "Gender": frozenset({"F"}), "City": frozenset({"Antwerp"})}
)


def model(rows: pd.DataFrame) -> np.ndarray:
    """Accept a salary of 80 or more, or of 60 for somebody of at most 25 in Antwerp."""
    rich = rows["Salary"] >= 80
    young = (rows["Salary"] == 60) & (rows["Age"] <= 25) & (rows["City"] == "Antwerp")
    return np.where(rich | young, "Accept", "Reject")


def schema() -> Schema:
    """Declare the roles that the paper gives the columns."""
    return Schema.from_frame(
        TABLE, quasi_identifiers=QUASI_IDENTIFIERS, identifiers=["Name"], target="Credit decision"
    )


def population() -> Population:
    """Return Table 2 as a population."""
    return Population.from_frame(TABLE, schema())
