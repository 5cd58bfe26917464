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

import mlflow
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, log_protected_model
from cfk_plugin.errors import UntrackedWarning
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


def model(rows: pd.DataFrame) -> np.ndarray:
    return rows["height"].to_numpy(dtype=float) > 165


class Gate:
    """The model as an object, which is pickled by the name of its class."""

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        return model(rows)


QUERIES = ASKING[~model(ASKING)].head(30).reset_index(drop=True)


def population() -> Population:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "height"], identifiers=["name"])
    return Population.from_frame(TRAIN, schema, key=KEY)


def fitted(guarantee: str = "catalogue") -> KAnonymizer:
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    return KAnonymizer(policy=policy).fit(population(), Gate(), desired=True)


# --- the files ---


def released_answers(folder: Path) -> None:
    (folder / "released.json").write_text(fitted().explain(QUERIES).to_json())


def published_catalogue(folder: Path) -> None:
    anonymizer = fitted()
    (folder / "catalogue.json").write_text(anonymizer.published().to_json())
    anonymizer.published().to_frame().to_csv(folder / "catalogue.csv", index=False)


def page_of_catalogue(folder: Path) -> None:
    page = catalogue_page(fitted().published(), population())
    (folder / "page.html").write_text(page)


def saved_catalogue(folder: Path) -> None:
    catalogue = fitted().catalogue_
    assert catalogue is not None
    catalogue.save(folder / "saved.cfk", key=KEY)


def logged_model_of_catalogue(folder: Path) -> None:
    with mlflow.start_run():
        found = log_protected_model(fitted(), code_paths=[__file__], pip_requirements=[])
    mlflow.artifacts.download_artifacts(found.model_uri, dst_path=str(folder))
    for own in [*folder.rglob(Path(__file__).name), *folder.rglob("*.whl")]:
        own.unlink()  # this file says which values there are, and the wheel is code


def logged_run(folder: Path) -> str:
    run: str = fitted().explain(QUERIES).log()
    mlflow.artifacts.download_artifacts(run_id=run, dst_path=str(folder))
    (folder / "run.json").write_text(json.dumps(mlflow.get_run(run).to_dictionary()))
    return run


def journal(folder: Path) -> None:
    logger = RunLogger(tracking_uri="http://127.0.0.1:9", journal=folder / "journal.jsonl")
    with pytest.warns(UntrackedWarning):
        logger.submit(fitted().explain(QUERIES))


def privacy_report(folder: Path) -> None:
    report = PrivacyReport.of_runs([logged_run(folder)])
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    report.save(folder / "report.html")
    report.save(folder / "report.json")


FILES: dict[str, Callable[[Path], object]] = {
    "released answers": released_answers,
    "published catalogue": published_catalogue,
    "page of a catalogue": page_of_catalogue,
    "saved catalogue": saved_catalogue,
    "logged model of a catalogue": logged_model_of_catalogue,
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
    return "all" if all(found) else "some" if any(found) else "none"


def seen_in(content: Content) -> dict[str, str]:
    columns = {
        "names": [content.has_text(name) for name in TRAIN["name"]],
        "quasi-identifiers": [
            content.has_number(age) and content.has_number(height)
            for age, height in zip(TRAIN["age"], TRAIN["height"], strict=True)
        ],
        "private values": [content.has_number(pay) for pay in TRAIN["pay"]],
    }
    asked = [
        content.has_number(query["age"])
        or content.has_number(query["height"])
        or content.has_number(query["pay"])
        for query in QUERIES.to_dict("records")
    ]
    if not any(columns["quasi-identifiers"]):  # one of them alone
        columns["quasi-identifiers"] = [
            content.has_number(number) for name in ("age", "height") for number in TRAIN[name]
        ]
    who_asks = "some" if any(asked) else "none"
    return {**{name: share(found) for name, found in columns.items()}, "who asks": who_asks}


def documented() -> dict[str, dict[str, str]]:
    """Return the first word of each cell of the documentation's table."""
    lines = PAGE.read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| file |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[name] = dict(zip(COLUMNS, (re.split(r"\W", cell)[0] for cell in cells), strict=True))
    return rows


def test_the_table_has_every_file() -> None:
    assert set(documented()) == set(FILES)


@pytest.mark.usefixtures("mlflow_store")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FILES)
def test_a_file_has_what_the_table_says(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    FILES[name](folder)
    assert seen_in(read(folder)) == documented()[name]


def test_what_is_there_is_found(tmp_path: Path) -> None:
    TRAIN.to_csv(tmp_path / "train.csv", index=False)
    QUERIES.head(1).to_parquet(tmp_path / "asked.parquet")
    assert seen_in(read(tmp_path)) == dict(zip(COLUMNS, ("all", "all", "all", "some"), strict=True))
