"""Which data about people each file has that the product writes: as the documentation's table says.

Everybody in the table has a name, quasi-identifiers and a pay that nobody else has, and so do those
who ask. A file has all of them, some, or none.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    log_protected_model,
)
from cfk_plugin.errors import UntrackedWarning
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.release.publication import catalogue_page
from cfk_plugin.report.privacy_report import PrivacyReport
from cfk_plugin.tracking.logger import RunLogger

PAGE = Path(__file__).parents[2] / "docs/explanation/threat-model.md"
KEY = b"the key of this test"
COLUMNS = ("names", "quasi-identifiers", "private values", "who asks")


def people(n: int, first: int) -> pd.DataFrame:
    """Return people whose values are all different, and different from those of other calls."""
    number = np.arange(first, first + n)
    return pd.DataFrame(
        {
            "name": [f"canary-name-{i}" for i in number],
            "age": np.round(20 + number * 0.0731 + 0.00013, 5),
            "height": np.round(150 + ((number * 37) % 997) * 0.0517 + 0.00017, 5),
            "pay": 100_003 + number * 37,
            "job": np.array(["clerk", "nurse", "smith"])[number % 3],
        }
    )


TRAIN = people(200, first=0)
ASKING = people(400, first=500)


def is_tall(rows: pd.DataFrame) -> np.ndarray:
    return rows["height"].to_numpy(dtype=float) > 165


QUERIES = ASKING[~is_tall(ASKING)].head(30).reset_index(drop=True)


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    """Return a catalogue of the people, for a model that can be logged."""
    schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "height"], subject="name")
    features = TRAIN[list(schema.features)]
    height = make_column_transformer(("passthrough", ["height"]))
    model = make_pipeline(height, DecisionTreeClassifier(max_depth=1))
    model.fit(features, is_tall(features))
    population = Population.from_frame(TRAIN, schema, key=KEY)
    return KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, desired=True)


@pytest.fixture(scope="module")
def answers(anonymizer: KAnonymizer) -> Explanations:
    return anonymizer.explain(QUERIES)


# --- the files ---


def published_catalogue(anonymizer: KAnonymizer, folder: Path) -> None:
    (folder / "catalogue.json").write_text(anonymizer.published().to_json())
    anonymizer.published().to_frame().to_csv(folder / "catalogue.csv", index=False)


def page_of_catalogue(anonymizer: KAnonymizer, folder: Path) -> None:
    page = catalogue_page(anonymizer.published(), anonymizer.population_)
    (folder / "page.html").write_text(page)


def logged_model(anonymizer: KAnonymizer, folder: Path) -> None:
    with mlflow.start_run():
        info = log_protected_model(anonymizer, pip_requirements=[])
    mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(folder))
    for wheel in folder.rglob("*.whl"):
        wheel.unlink()  # it is code
    file = CatalogueFile.read(next(folder.rglob("*.cfk")))
    assert not any(".first" in name for name in file.arrays)  # digests that recognise people


def logged_run(answers: Explanations, folder: Path) -> None:
    run = answers.log()
    mlflow.artifacts.download_artifacts(run_id=run, dst_path=str(folder))
    (folder / "run.json").write_text(json.dumps(mlflow.get_run(run).to_dictionary()))


def journal(answers: Explanations, folder: Path) -> None:
    logger = RunLogger(tracking_uri="http://127.0.0.1:9", journal=folder / "journal.jsonl")
    with pytest.warns(UntrackedWarning):
        logger.submit(answers)


def privacy_report(answers: Explanations, folder: Path) -> None:
    report = PrivacyReport.of_runs([answers.log()])
    report.save(folder / "report.html")
    report.save(folder / "report.json")


Write = Callable[[Any, Path], object]
OF_CATALOGUE: dict[str, Write] = {
    "published catalogue": published_catalogue,
    "page of a catalogue": page_of_catalogue,
    "saved catalogue": lambda anonymizer, folder: anonymizer.catalogue_.save(
        folder / "saved.cfk", key=KEY
    ),
    "logged model of a catalogue": logged_model,
}
OF_ANSWERS: dict[str, Write] = {
    "released answers": lambda answers, folder: (folder / "a.json").write_text(answers.to_json()),
    "MLflow run": logged_run,
    "journal": journal,
    "privacy report": privacy_report,
}


# --- what they have ---


@dataclass(frozen=True)
class Content:
    """All texts and numbers that can be read from files, and their bytes."""

    texts: str
    numbers: frozenset[float]
    raw: bytes

    def has_number(self, number: float) -> bool:
        packed = struct.pack("<d", number), struct.pack("<q", int(number))
        is_whole = float(number).is_integer()
        return (
            float(number) in self.numbers
            or packed[0] in self.raw
            or (is_whole and packed[1] in self.raw)
        )

    def has_text(self, text: str) -> bool:
        return re.search(rf"{re.escape(text)}(?!\d)", self.texts) is not None


def read(folder: Path) -> Content:
    texts, numbers, raw = [], set[float](), b""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = path.read_bytes()
        raw += content
        for text in texts_of(path, content, numbers):
            texts.append(text)
            found = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)", text)
            numbers.update(map(float, found))
    assert texts
    return Content("\n".join(texts), frozenset(numbers), raw)


def texts_of(path: Path, content: bytes, numbers: set[float]) -> Iterator[str]:
    """Yield what a file says as text; numbers of arrays are added to `numbers`."""
    yield content.decode("latin-1")
    if path.suffix == ".parquet":
        yield pd.read_parquet(path).to_csv()
    if path.suffix == ".gz":
        yield gzip.decompress(content).decode("utf-8")
    if content.startswith(b"SQLite"):
        with sqlite3.connect(path) as database:
            yield "\n".join(database.iterdump())
    if path.suffix == ".cfk":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    values = np.load(io.BytesIO(archive.read(name))).ravel()
                    numbers.update(values.astype(float).tolist())
                else:
                    yield archive.read(name).decode()


def share(found: list[bool]) -> str:
    if all(found):
        return "all"
    return "some" if any(found) else "none"


def seen_in(content: Content) -> dict[str, str]:
    """Return of how many people the files have the name, the quasi-identifiers and the pay."""
    ages = [content.has_number(age) for age in TRAIN["age"]]
    heights = [content.has_number(height) for height in TRAIN["height"]]
    quasi = [has_age and has_height for has_age, has_height in zip(ages, heights, strict=True)]
    columns = {
        "names": share([content.has_text(name) for name in TRAIN["name"]]),
        # one of them alone is some
        "quasi-identifiers": share(quasi) if any(quasi) else share([*ages, *heights]),
        "private values": share([content.has_number(pay) for pay in TRAIN["pay"]]),
    }
    of_queries = [QUERIES[name].tolist() for name in ("age", "height", "pay")]
    asks = any(content.has_number(number) for numbers in of_queries for number in numbers)
    return {**columns, "who asks": "some" if asks else "none"}


def documented() -> dict[str, dict[str, str]]:
    """Return the first word of each cell of the documentation's table."""
    lines = PAGE.read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| file |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        words = [re.split(r"\W", cell)[0] for cell in cells]
        for file in name.split(", "):
            rows[file] = dict(zip(COLUMNS, words, strict=True))
    return rows


def test_table_has_every_file() -> None:
    """No file is documented that is not written, and none is left out."""
    assert set(documented()) == set(OF_CATALOGUE | OF_ANSWERS)


@pytest.mark.usefixtures("mlflow_store")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", OF_CATALOGUE | OF_ANSWERS)
def test_file_has_documented_people(
    name: str, anonymizer: KAnonymizer, answers: Explanations, tmp_path: Path
) -> None:
    """All, some or none of the people who are in the table, or ask."""
    folder = tmp_path / "files"
    folder.mkdir()
    if name in OF_CATALOGUE:
        OF_CATALOGUE[name](anonymizer, folder)
    else:
        OF_ANSWERS[name](answers, folder)
    assert seen_in(read(folder)) == documented()[name]


def test_people_are_seen_in_tables(tmp_path: Path) -> None:
    """Files with everyone, and with one of the people who ask."""
    TRAIN.to_csv(tmp_path / "train.csv", index=False)
    QUERIES.head(1).to_parquet(tmp_path / "asked.parquet")
    assert seen_in(read(tmp_path)) == dict(zip(COLUMNS, ("all", "all", "all", "some"), strict=True))
