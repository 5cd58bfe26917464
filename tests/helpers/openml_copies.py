"""Small made tables with OpenML's headers, written as scikit-learn keeps what it loaded from OpenML."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Header:
    """A data set of OpenML: its columns, each with the categories it declares, or None for a number."""

    data_id: int
    name: str
    target: str
    columns: dict[str, tuple[str, ...] | None]


def _categories(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


_CODES = {code: _categories(code) for code in ("0|1", "1|2|3", "1|2|3|4")}

ADULT = Header(
    1590,
    "adult",
    "class",
    {
        "age": None,
        "workclass": _categories("Private|Self-emp-not-inc|Local-gov|Without-pay"),
        "fnlwgt": None,
        "education": _categories("Bachelors|HS-grad|11th|7th-8th"),
        "education-num": None,
        "marital-status": _categories("Married-civ-spouse|Never-married|Divorced"),
        "occupation": _categories("Tech-support|Craft-repair|Sales"),
        "relationship": _categories("Wife|Own-child|Husband"),
        "race": _categories("White|Asian-Pac-Islander|Black"),
        "sex": _categories("Female|Male"),
        "capital-gain": None,
        "capital-loss": None,
        "hours-per-week": None,
        "native-country": _categories("United-States|Outlying-US(Guam-USVI-etc)|Trinadad&Tobago"),
        "class": _categories(">50K|<=50K"),
    },
)
CMC = Header(
    23,
    "cmc",
    "Contraceptive_method_used",
    {
        "Wifes_age": None,
        "Wifes_education": _CODES["1|2|3|4"],
        "Husbands_education": _CODES["1|2|3|4"],
        "Number_of_children_ever_born": None,
        "Wifes_religion": _CODES["0|1"],
        "Wifes_now_working%3F": _CODES["0|1"],
        "Husbands_occupation": _CODES["1|2|3|4"],
        "Standard-of-living_index": _CODES["1|2|3|4"],
        "Media_exposure": _CODES["0|1"],
        "Contraceptive_method_used": _CODES["1|2|3"],
    },
)
GERMAN = Header(
    31,
    "credit-g",
    "class",
    {
        "checking_status": _categories("<0|0<=X<200|>=200|no checking"),
        "duration": None,
        "credit_history": _categories(
            "no credits/all paid|all paid|existing paid|delayed previously|critical/other existing credit"
        ),
        "purpose": _categories(
            "new car|used car|furniture/equipment|radio/tv|domestic appliance|repairs|education|vacation|retraining"
            "|business|other"
        ),
        "credit_amount": None,
        "savings_status": _categories("<100|100<=X<500|500<=X<1000|>=1000|no known savings"),
        "employment": _categories("unemployed|<1|1<=X<4|4<=X<7|>=7"),
        "installment_commitment": None,
        "personal_status": _categories("male div/sep|female div/dep/mar|male single|male mar/wid|female single"),
        "other_parties": _categories("none|co applicant|guarantor"),
        "residence_since": None,
        "property_magnitude": _categories("real estate|life insurance|car|no known property"),
        "age": None,
        "other_payment_plans": _categories("bank|stores|none"),
        "housing": _categories("rent|own|for free"),
        "existing_credits": None,
        "job": _categories("unemp/unskilled non res|unskilled resident|skilled|high qualif/self emp/mgmt"),
        "num_dependents": None,
        "own_telephone": _categories("none|yes"),
        "foreign_worker": _categories("yes|no"),
        "class": _categories("good|bad"),
    },
)
HEART = Header(
    49,
    "heart-c",
    "num",
    {
        "age": None,
        "sex": _categories("female|male"),
        "cp": _categories("typ_angina|asympt|non_anginal|atyp_angina"),
        "trestbps": None,
        "chol": None,
        "fbs": _categories("t|f"),
        "restecg": _categories("left_vent_hyper|normal|st_t_wave_abnormality"),
        "thalach": None,
        "exang": _categories("no|yes"),
        "oldpeak": None,
        "slope": _categories("up|flat|down"),
        "ca": None,
        "thal": _categories("fixed_defect|normal|reversable_defect"),
        "num": _categories("<50|>50_1"),
    },
)
HEADERS = {"adult": ADULT, "cmc": CMC, "german": GERMAN, "heart": HEART}
"""By the name that the table has in the experiments."""


def made(header: Header, rows: int = 120, seed: int = 0) -> pd.DataFrame:
    """Draw rows: every declared category stands there, numbers are 0 to 3, as `ca` has them."""
    random = np.random.default_rng(seed)
    columns: dict[str, Sequence[object]] = {}
    for name, categories in header.columns.items():
        values = list(categories) if categories else [0, 1, 2, 3]
        columns[name] = [values[place] for place in random.permutation(np.arange(rows) % len(values))]
    return pd.DataFrame(columns, dtype=object)


def keep(header: Header, frame: pd.DataFrame, home: Path) -> Path:
    """Write a table to scikit-learn's folder `home` as if it had been loaded, and return the file with its rows."""
    url = f"https://api.openml.org/data/v1/download/{header.data_id}/{header.name}.arff"
    arff = _arff(header, frame)
    description = {
        "id": str(header.data_id),
        "name": header.name,
        "version": "1",
        "description": "A made table.",
        "format": "ARFF",
        "licence": "Public",
        "url": url,
        "status": "active",
        "md5_checksum": hashlib.md5(arff.encode()).hexdigest(),
    }
    features = [
        {
            "index": str(place),
            "name": name,
            "data_type": "nominal" if categories else "numeric",
            "is_target": str(name == header.target).lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": str(int(frame[name].isna().sum())),
        }
        for place, (name, categories) in enumerate(header.columns.items())
    ]
    qualities = [{"name": "NumberOfInstances", "value": str(float(len(frame)))}]
    api = "api/v1/json/data"
    _write(home, f"{api}/{header.data_id}", json.dumps({"data_set_description": description}))
    _write(home, f"{api}/features/{header.data_id}", json.dumps({"data_features": {"feature": features}}))
    _write(home, f"{api}/qualities/{header.data_id}", json.dumps({"data_qualities": {"quality": qualities}}))
    return _write(home, urlparse(url).path.lstrip("/"), arff)


def _arff(header: Header, frame: pd.DataFrame) -> str:
    lines = [f"@RELATION {header.name}", ""]
    for name, categories in header.columns.items():
        kind = "{" + ",".join(map(_quoted, categories)) + "}" if categories else "REAL"
        lines.append(f"@ATTRIBUTE '{name}' {kind}")
    rows = (",".join(map(_quoted, row)) for row in frame[list(header.columns)].itertuples(index=False))
    return "\n".join([*lines, "", "@DATA", *rows, ""])


def _quoted(value: object) -> str:
    if pd.isna(value):
        return "?"
    return f"'{value}'" if " " in str(value) else str(value)


def _write(home: Path, path: str, text: str) -> Path:
    file = home / "openml" / "openml.org" / f"{path}.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode()))
    return file
