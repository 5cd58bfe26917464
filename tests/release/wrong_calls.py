"""What newcomers do wrong, and what the product answers.

`CALLS` holds the calls by name, `answers` makes all of them. What they are to answer is in
``wrong_calls.json`` beside this file.

Run: python tests/release/wrong_calls.py

writes the file anew. Read the difference before you commit it: would somebody who has never seen
the product know what to do next?
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dice_ml
import joblib
import numpy as np
import pandas as pd
import polars as pl
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

from cfk_plugin import (
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Schema,
    protect,
)
from cfk_plugin.cli import app
from cfk_plugin.release.explanations import Explanations, group_gaps

STORED = Path(__file__).with_suffix(".json")

N = 240
RANDOM = np.random.default_rng(17)
TRAIN = pd.DataFrame(
    {
        "age": RANDOM.integers(7_018, 7_070, N),
        "city": RANDOM.choice(["Canaryville", "Canaryton", "Canaryburg"], N),
        "income": RANDOM.integers(7_115, 7_190, N) * 100,
        "debt": RANDOM.integers(7_201, 7_290, N),
    }
)
FEATURES = list(TRAIN.columns)
TRAIN["approved"] = np.where(TRAIN["income"] > 715_000, "yes", "no")
CODED = TRAIN.assign(approved=(TRAIN["approved"] == "yes").astype(int))
QUASI = ["age", "city"]


def encoded(steps: Any) -> Any:
    columns = (OneHotEncoder(handle_unknown="ignore"), ["city"])
    return make_pipeline(make_column_transformer(columns, remainder="passthrough"), steps)


TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
MODEL = encoded(TREE).fit(TRAIN[FEATURES], TRAIN["approved"])
MODEL_OF_CODES = encoded(DecisionTreeClassifier(max_depth=3, random_state=0)).fit(
    CODED[FEATURES], CODED["approved"]
)
DUMMIES = pd.get_dummies(TRAIN[FEATURES])
MODEL_OF_DUMMIES = LogisticRegression(max_iter=5_000).fit(DUMMIES, TRAIN["approved"])
MODEL_OF_ARRAYS = LogisticRegression(max_iter=5_000).fit(DUMMIES.to_numpy(), TRAIN["approved"])
QUERIES = TRAIN.loc[TRAIN["approved"] == "no", FEATURES].head(3).reset_index(drop=True)


@cache
def schema() -> Schema:
    return Schema.from_frame(TRAIN, quasi_identifiers=QUASI, target="approved")


@cache
def population() -> Population:
    return Population.from_frame(TRAIN, schema())


@cache
def population_of_codes() -> Population:
    return Population.from_frame(CODED, schema())


@cache
def dice() -> Any:
    data = dice_ml.Data(
        dataframe=CODED, continuous_features=["age", "income", "debt"], outcome_name="approved"
    )
    model = dice_ml.Model(model=MODEL_OF_CODES, backend="sklearn")
    return dice_ml.Dice(data, model, method="random")


@cache
def private() -> Any:
    """Return what a right call of `protect` returns, with DiCE as the explainer."""
    return protect(
        dice(), model=MODEL_OF_CODES, population=population_of_codes(), k=3, sample_explainer=0
    )


@cache
def explanations() -> Explanations:
    return private().explain(QUERIES)


def declared(table: Any = TRAIN, **settings: Any) -> Schema:
    """Declare a table, right but for the settings."""
    right: dict[str, Any] = {"quasi_identifiers": QUASI, "target": "approved"}
    return Schema.from_frame(table, **right | settings)


def wrapped(explainer: Any = None, **settings: Any) -> Any:
    """Protect an explainer, right but for the settings."""
    right: dict[str, Any] = {"model": MODEL, "population": population(), "desired": "yes"}
    if "policy" not in settings:
        right["k"] = 3
    return protect(explainer, **right | settings)


def counted(table: Any) -> Population:
    return Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=QUASI, target="approved")
    )


def cfk(words: str) -> str:
    """Run a command beside files of the table, and return what it says."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        TRAIN.to_csv("train.csv", index=False)
        TRAIN.to_csv("semicolons.csv", index=False, sep=";")
        TRAIN.to_csv("numbered.csv")
        in_euro(TRAIN).to_csv("euro.csv", index=False)
        Path("train.xlsx").write_bytes(b"PK")
        Path("notes.joblib").write_text("these are notes")
        TRAIN.loc[TRAIN["approved"] == "yes", FEATURES].head(3).to_csv("cf.csv", index=False)
        joblib.dump(MODEL, "model.joblib")
        right = {"quasi_identifiers": QUASI, "target": "approved"}
        schemas = {
            "schema": right,
            "empty": right | {"quasi_identifiers": []},
            "misspelt": right | {"quasi_identifers": QUASI},
            "column": right | {"quasi_identifiers": ["age", "town"]},
            "policy": {"k": 5, "min_purity": 0.9},
        }
        for name, content in schemas.items():
            Path(f"{name}.json").write_text(json.dumps(content))
        Path("torn.json").write_text('{"quasi_identifiers": ["age",')
        result = CliRunner().invoke(app, words.split(), prog_name="cfk")
        text = " ".join(result.stderr.split())
        return f"exit code {result.exit_code}: {text}"


RIGHT = "protect train.csv cf.csv -s schema.json -m model.joblib --k 3"


def in_euro(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(income=[f"€ {income:,}" for income in table["income"]])


def with_words(table: pd.DataFrame) -> pd.DataFrame:
    incomes = table["income"].astype(str)
    return table.assign(income=incomes.mask(np.arange(len(table)) % 12 == 0, "unknown"))


def with_birthdays(table: pd.DataFrame) -> pd.DataFrame:
    days = pd.Timestamp("1960-01-01") + pd.to_timedelta(table["age"] - 7_000, "D") * 300
    return table.assign(born=days.dt.strftime("%d/%m/%Y"))


def with_lists(table: pd.DataFrame) -> pl.DataFrame:
    return pl.from_pandas(table).with_columns(tags=pl.lit([7_777]))


CALLS: dict[str, Callable[[], Any]] = {
    # --- the table and its columns ----------------------------------------------------------------
    "schema of a file name": lambda: declared("train.csv"),
    "schema of an array": lambda: declared(TRAIN.to_numpy()),
    "no quasi-identifier": lambda: declared(quasi_identifiers=[]),
    "quasi-identifiers as one text": lambda: declared(quasi_identifiers="age"),
    "quasi-identifier misspelt": lambda: declared(quasi_identifiers=["age", "citty"]),
    "quasi-identifier in capitals": lambda: declared(quasi_identifiers=["Age", "city"]),
    "quasi-identifier also sensitive": lambda: declared(sensitive=["city"]),
    "target misspelt": lambda: declared(target="aproved"),
    "nominal misspelt": lambda: declared(nominal=["aeg"]),
    "immutable misspelt": lambda: declared(immutable=["agee"]),
    "monotone misspelt": lambda: declared(monotone={"agee": "increase"}),
    "direction misspelt": lambda: declared(monotone={"age": "increasing"}),
    "never advised value misspelt": lambda: declared(never_advise={"city": ["Gent"]}),
    "never advised number": lambda: declared(never_advise={"income": [0]}),
    "bounds misspelt": lambda: declared(bounds={"incomes": (0, 1e6)}),
    "label column left in": lambda: declared(target=None),
    "copy of the label left in": lambda: declared(
        TRAIN.assign(label_code=(TRAIN["approved"] == "yes").astype(int))
    ),
    "numbers as text": lambda: declared(in_euro(TRAIN)),
    "words among numbers": lambda: declared(with_words(TRAIN)),
    "days as dd/mm/yyyy": lambda: declared(with_birthdays(TRAIN)),
    "polars table with lists": lambda: declared(with_lists(TRAIN)),
    "schema of another table": lambda: Population.from_frame(
        TRAIN.rename(columns={"income": "Income"}), schema()
    ),
    "schema and table exchanged": lambda: Population.from_frame(schema(), TRAIN),  # type: ignore[arg-type]
    "population without a schema": lambda: Population.from_frame(TRAIN),  # type: ignore[call-arg]
    # --- the policy -------------------------------------------------------------------------------
    "guarantee misspelt": lambda: PrivacyPolicy(guarantee="catalog"),  # type: ignore[arg-type]
    "setting of a policy misspelt": lambda: PrivacyPolicy(min_purity=0.9),  # type: ignore[call-arg]
    "k as text": lambda: PrivacyPolicy(k="10"),  # type: ignore[arg-type]
    "k larger than the table": lambda: wrapped(k=1_000),
    "too few rows": lambda: wrapped(population=counted(TRAIN.head(5)), k=10),
    # --- protect ----------------------------------------------------------------------------------
    "protect without a model": lambda: protect(dice(), population=population()),  # type: ignore[call-arg]
    "protect a table": lambda: wrapped(population=TRAIN),
    "class of a model": lambda: wrapped(model=DecisionTreeClassifier),
    "model that is not fitted": lambda: wrapped(model=DecisionTreeClassifier()),
    "model of encoded columns": lambda: wrapped(model=MODEL_OF_DUMMIES),
    "model of arrays": lambda: wrapped(model=MODEL_OF_ARRAYS),
    "desired label misspelt": lambda: wrapped(desired="Yes"),
    "desired label of another type": lambda: wrapped(
        model=MODEL_OF_CODES, population=population_of_codes(), desired="1"
    ),
    "threshold of 50": lambda: wrapped(
        model=lambda rows: MODEL.predict_proba(rows)[:, 1], threshold=50, desired=1
    ),
    "method misspelt": lambda: wrapped(
        method="mondrain", policy=PrivacyPolicy(k=3, guarantee="lookup")
    ),
    "start misspelt": lambda: wrapped(start="queries"),
    "explainer of an unknown class": lambda: wrapped(object()),
    "data of DiCE in place of the explainer": lambda: wrapped(dice().data_interface),
    "class of DiCE in place of the explainer": lambda: wrapped(dice_ml.Dice),
    "transform before fit": lambda: KAnonymizer().transform(QUERIES),
    # --- queries ----------------------------------------------------------------------------------
    "one row as a Series": lambda: private().explain(QUERIES.iloc[0]),
    "queries without a column": lambda: private().explain(QUERIES.drop(columns="debt")),
    "queries with a misspelt column": lambda: private().explain(
        QUERIES.rename(columns={"income": "incom"})
    ),
    "queries with a missing value": lambda: private().explain(
        QUERIES.assign(income=[np.nan, *QUERIES["income"][1:]])
    ),
    "queries with numbers as text": lambda: private().explain(in_euro(QUERIES)),
    "groups misspelt": lambda: protect(
        dice(),
        model=MODEL_OF_CODES,
        population=population_of_codes(),
        k=3,
        groups="citi",
        sample_explainer=0,
    ).explain(QUERIES),
    "desired_class of DiCE as text": lambda: private().generate_counterfactuals(
        QUERIES, total_CFs=1, desired_class="1"
    ),
    "desired_class of DiCE misspelt": lambda: private().generate_counterfactuals(
        QUERIES, total_CFs=1, desired_class="oposite"
    ),
    "total_CFs misspelt": lambda: private().generate_counterfactuals(QUERIES, total_CF=1),
    "total_CFs left out": lambda: private().generate_counterfactuals(QUERIES),
    "features_to_vary misspelt": lambda: private().generate_counterfactuals(
        QUERIES, total_CFs=1, features_to_vary=["incomes"]
    ),
    "permitted_range misspelt": lambda: private().generate_counterfactuals(
        QUERIES, total_CFs=1, permitted_range={"dept": [0, 7_300]}
    ),
    "metric misspelt": lambda: group_gaps(explanations(), QUERIES["city"], ["purenes"]),
    "report from a store that is not there": lambda: PrivacyReport.of_runs(
        "0" * 32, tracking_uri="sqlite:///runs.db"
    ),
    "report of no runs": lambda: PrivacyReport.of_runs([]),
    # --- the command line -------------------------------------------------------------------------
    "cfk without such a file": lambda: cfk(RIGHT.replace("train.csv", "trian.csv")),
    "cfk with a spreadsheet": lambda: cfk("schema train.xlsx"),
    "cfk with a CSV of semicolons": lambda: cfk(RIGHT.replace("train.csv", "semicolons.csv")),
    "cfk schema of a CSV of semicolons": lambda: cfk("schema semicolons.csv"),
    "cfk with a CSV of numbered rows": lambda: cfk("schema numbered.csv"),
    "cfk with numbers as text": lambda: cfk(
        RIGHT.replace("train.csv", "euro.csv") + " --desired yes"
    ),
    "cfk with a torn schema": lambda: cfk(RIGHT.replace("schema.json", "torn.json")),
    "cfk with a misspelt key in the schema": lambda: cfk(
        RIGHT.replace("schema.json", "misspelt.json")
    ),
    "cfk with a misspelt column in the schema": lambda: cfk(
        RIGHT.replace("schema.json", "column.json")
    ),
    "cfk with a schema that is not filled in": lambda: cfk(
        RIGHT.replace("schema.json", "empty.json")
    ),
    "cfk with a misspelt setting in the policy": lambda: cfk(f"{RIGHT} --policy policy.json"),
    "cfk with notes in place of a model": lambda: cfk(
        RIGHT.replace("model.joblib", "notes.joblib")
    ),
    "cfk with a misspelt label": lambda: cfk(f"{RIGHT} --desired Yes"),
    "cfk with a misspelt guarantee": lambda: cfk(f"{RIGHT} --guarantee reciprokal"),
    "cfk with a misspelt option": lambda: cfk(f"{RIGHT} --desird yes"),
    "cfk with a misspelt command": lambda: cfk("protct train.csv"),
}


def answer(call: Callable[[], Any]) -> dict[str, Any]:
    """Return what a call answers: warnings, then the result, or the class and text of an error."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        try:
            outcome = {"result": shown(call())}
        except Exception as error:  # noqa: BLE001 - which class it is, is the matter
            text = " ".join(str(error).split())
            outcome = {"error": type(error).__name__, "text": text.replace(folder, "FOLDER")}
    texts = [f"{each.category.__name__}: {each.message}" for each in caught if is_ours(each)]
    if not texts:
        return outcome
    return {"warnings": texts, **outcome}


def is_ours(warning: warnings.WarningMessage) -> bool:
    return warning.category.__module__ == "cfk_plugin.errors"


def shown(result: Any) -> str:
    """Write a result without a value of a row."""
    if isinstance(result, str):
        return result
    if isinstance(result, Explanations):
        withheld = [entry.text_for_operator() for entry in result.withheld]
        return " ".join([f"{len(result.released)} released.", *withheld])
    return type(result).__name__


def answers() -> dict[str, dict[str, Any]]:
    """Make all calls, and return what each answers."""
    return {name: answer(call) for name, call in CALLS.items()}


if __name__ == "__main__":
    STORED.write_text(json.dumps(answers(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
