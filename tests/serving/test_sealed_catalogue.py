"""A sealed catalogue answers as the one that was sealed, and its file tells no more than all
answers together.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    log_protected_model,
    protect,
)
from cfk_plugin.errors import ModelError, PolicyError, PopulationError
from cfk_plugin.serving.handler import RequestHandler
from model_server import store

K = 4
QUASI, PRIVATE = ["age", "town", "grade", "since"], ["pay", "debt", "job"]
FEATURES = [*QUASI, *PRIVATE]
LEVELS = ["low", "mid", "high"]


def people(n: int = 120, seed: int = 3) -> pd.DataFrame:
    """People with private values of every kind, two of them nobody else's, and gaps."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 60, n),
            "town": rng.choice(["Ghent", "Namur", "Arlon"], n).astype(object),
            "grade": rng.choice(LEVELS, n).astype(object),
            "since": pd.Timestamp("2001-01-01")
            + pd.to_timedelta(rng.integers(0, 4, n) * 500, unit="D"),
            "pay": 1_000_003 + 7_919 * rng.permutation(n),
            "debt": rng.normal(10, 4, n).round(1),
            "job": rng.choice(["clerk", "nurse", "smith"], n).astype(object),
            "name": [f"NOBODY{i:04d}" for i in range(n)],
            "person": [f"KEY{i:04d}" for i in range(n)],
        }
    )
    for name in ("town", "debt"):
        table.loc[table.index[rng.random(n) < 0.1], name] = None
    return table


def score(rows: pd.DataFrame) -> np.ndarray:
    pay = (rows["pay"].to_numpy(dtype=float) - 1_000_003) / 7_919
    return np.asarray(
        pay
        - 2 * rows["debt"].fillna(12).to_numpy(dtype=float)
        + rows["age"].to_numpy(dtype=float) / 2
    )


def two(rows: pd.DataFrame) -> np.ndarray:
    return np.where(score(rows) > 55, "yes", "no")


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.array(LEVELS, dtype=object)[np.digitize(score(rows), [30, 65])]


def much(labels: Any) -> Any:
    return labels > 55


GOALS: dict[str, tuple[Any, Any]] = {
    "label": (two, "yes"),
    "opposite": (three, "opposite"),
    "callable": (score, much),
}


def population(train: pd.DataFrame, key: bytes | None = b"a secret") -> Population:
    schema = Schema.from_frame(
        train,
        quasi_identifiers=QUASI,
        identifiers=["name"],
        subject="person",
        ordinal={"grade": LEVELS},
    )
    return Population.from_frame(train, schema, key=key)


def fitted(
    train: pd.DataFrame, model: Any = two, desired: Any = "yes", **policy: Any
) -> KAnonymizer:
    settings = PrivacyPolicy(**{"k": K, "guarantee": "catalogue", **policy})
    return KAnonymizer(policy=settings).fit(population(train), model=model, desired=desired)


def opened(path: Path) -> Population:
    return Population.open(path, key=b"a secret")


def queries() -> pd.DataFrame:
    """Return 200 queries: people of the table, strangers, and values that nobody has."""
    asked = pd.concat([people().head(80), people(120, seed=9)], ignore_index=True)[FEATURES]
    asked.loc[:4, "age"] = [0, 200, 17, 90, 44]
    asked.loc[5:9, "pay"] += 13
    return asked


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    return people()


@pytest.fixture(scope="module", params=GOALS)
def both(
    request: pytest.FixtureRequest, train: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> tuple[KAnonymizer, KAnonymizer, Path]:
    """Return an anonymizer, the one that was made from its bundle alone, and the bundle."""
    model, desired = GOALS[request.param]
    whole, path = fitted(train, model, desired), tmp_path_factory.mktemp("sealed") / "catalogue.cfk"
    whole.seal(path)
    return whole, KAnonymizer().fit(opened(path), model=model, desired=desired), path


def test_answers_and_the_publication_are_the_same_bit_for_bit(
    both: tuple[KAnonymizer, KAnonymizer, Path],
) -> None:
    whole, alone, path = both
    here, there = whole.explain(queries()), alone.explain(queries())
    assert there.to_json() == here.to_json()
    assert len(here.released) > 80  # of those who do not have the outcome yet
    assert sum(bool(entry.recount.moved) for entry in here.generalized) > 50
    assert alone.published().to_json() == whole.published().to_json()
    alone.seal(path.with_name("again.cfk"))
    assert path.with_name("again.cfk").read_bytes() == path.read_bytes()


def test_answers_to_who_cannot_change_everything_are_the_same(
    both: tuple[KAnonymizer, KAnonymizer, Path],
) -> None:
    whole, alone, _ = both
    asked, answered = queries().head(60), 0
    for kept in (["age", "job"], ["debt", "town"]):
        vary = [name for name in FEATURES if name not in kept]
        here, there = (each.explain(asked, features_to_vary=vary) for each in (whole, alone))
        assert there.to_json() == here.to_json()
        answered += len(here.released)
    assert answered > 20


def test_figures_without_rows_are_what_was_sealed_and_floors(
    both: tuple[KAnonymizer, KAnonymizer, Path], train: pd.DataFrame
) -> None:
    whole, alone, _ = both
    for exact, found in zip(
        whole.explain(queries()).generalized, alone.explain(queries()).generalized, strict=True
    ):
        inside = train[[exact.region.contains(row) for row in train.to_dict("records")]]
        more, less = exact.recount, found.recount
        assert less.k == more.k == len(inside)
        assert (
            less.k_consistent
            == less.k_effective
            == K
            <= min(more.k_consistent, more.k_effective or 0)
        )
        assert (less.k_desired, less.k_private, less.private_matches) == (None, None, None)


def content(path: Path) -> bytes:
    with zipfile.ZipFile(path) as file:
        return b"".join(file.read(name) for name in file.namelist())


def test_the_file_has_private_values_of_entries_alone_and_nobodys_quasi_identifiers(
    both: tuple[KAnonymizer, KAnonymizer, Path], train: pd.DataFrame
) -> None:
    whole, _, path = both
    found = content(path)
    offered = whole.published().to_frame()
    others = train[~train["pay"].astype(str).isin(offered["pay"])]
    assert len(others) > 10
    for row in others.to_dict("records"):
        assert str(row["pay"]).encode() not in found
        for kind in ("<i8", "<f8", "<f4", "<i4"):
            assert np.array([row["pay"]], dtype=kind).tobytes() not in found
    for secret in (b"NOBODY", b"KEY0", b"a secret", b"\x80\x04"):
        assert secret not in found
    with zipfile.ZipFile(path) as file:
        arrays = {
            name: np.load(io.BytesIO(file.read(name)))
            for name in file.namelist()
            if name.endswith(".npy")
        }
    assert not {"cells.npy", "people.npy"} & {*arrays}
    told = {(str(e.outcome), e.region): e.certificate.k for e in whole.published().generalized}
    assert sorted(arrays["catalogue.people.npy"]) == sorted(told.values())


def test_the_file_does_not_depend_on_the_order_of_the_table(
    train: pd.DataFrame, tmp_path: Path
) -> None:
    for name, table in {"here": train, "there": train.sample(frac=1, random_state=5)}.items():
        fitted(table.reset_index(drop=True)).seal(tmp_path / f"{name}.cfk")
    assert (tmp_path / "here.cfk").read_bytes() == (tmp_path / "there.cfk").read_bytes()


def test_what_a_catalogue_alone_cannot_do_is_refused(train: pd.DataFrame, tmp_path: Path) -> None:
    fitted(train).seal(tmp_path / "catalogue.cfk")
    alone = opened(tmp_path / "catalogue.cfk")
    answering = KAnonymizer().fit(alone, model=two, desired="yes")
    for asked in (answering.transform, answering.regions_of):
        with pytest.raises(PolicyError, match="use explain"):
            asked(train)
    for count in (
        alone.risk_profile,
        lambda: alone.count(answering.explain(queries()).generalized[0].region),
    ):
        with pytest.raises(PopulationError, match="who is where"):
            count()
    for settings, said in (
        ({"k": 2 * K}, "fixes k"),
        ({"k": K - 1}, "fixes k"),
        ({"k": K, "guarantee": "lookup"}, "fixes guarantee"),
    ):
        with pytest.raises(PolicyError, match=said):
            KAnonymizer(policy=PrivacyPolicy(**settings)).fit(alone, model=two, desired="yes")
    with pytest.raises(PolicyError, match="opposite"):
        KAnonymizer().fit(alone, model=two, desired="opposite")


def test_another_model_is_refused_or_gives_no_answer_that_fewer_than_k_people_fit(
    train: pd.DataFrame, tmp_path: Path
) -> None:
    fitted(train).seal(tmp_path / "catalogue.cfk")
    alone = opened(tmp_path / "catalogue.cfk")
    for model, desired in (
        (lambda rows: np.where(score(rows) > 75, "yes", "no"), "yes"),
        (two, "no"),
    ):
        with pytest.raises(ModelError, match="sealed with"):
            KAnonymizer().fit(alone, model=model, desired=desired)
    catalogue = KAnonymizer().fit(alone, model=two, desired="yes").guarantee_.catalogue
    assert catalogue is not None
    known = {tuple(row) for row in catalogue.points.astype(str).to_numpy()}

    def changed(rows: pd.DataFrame) -> np.ndarray:
        """Say of entries' points what was sealed, and of nearly all else something else."""
        is_known = np.array(
            [tuple(row) in known for row in rows[FEATURES].astype(str).to_numpy()], dtype=bool
        )
        return np.where(is_known | (score(rows) > 95), two(rows), "no")

    moved = 0
    for entry in (
        KAnonymizer().fit(alone, model=changed, desired="yes").explain(queries()).generalized
    ):
        if entry.recount.moved:
            inside = train[[entry.region.contains(row) for row in train.to_dict("records")]]
            assert (changed(inside.assign(**entry.released)) == "yes").sum() >= K
            moved += 1
    assert moved


def test_a_handler_answers_from_a_bundle(train: pd.DataFrame, tmp_path: Path) -> None:
    whole = fitted(train)
    whole.seal(tmp_path / "catalogue.cfk")
    alone, asked = opened(tmp_path / "catalogue.cfk"), queries().astype({"since": str}).head(20)
    explainer = protect(None, population=alone, model=two, desired="yes")
    records = RequestHandler(alone, explainer, 50).answer(asked.where(asked.notna(), None))
    assert [record["status"] for record in records] == [
        entry.status for entry in whole.explain(queries().head(20))
    ]


# --- logged models --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(train: pd.DataFrame) -> Any:
    texts = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job"]), remainder="passthrough"
    )
    tree = make_pipeline(texts, DecisionTreeClassifier(max_depth=4, random_state=0))
    return tree.fit(train[["age", "pay", "job"]], two(train))


def test_a_logged_model_answers_without_rows(
    train: pd.DataFrame, tree: Any, tmp_path: Path
) -> None:
    store(tmp_path)
    settings: dict[str, Any] = {
        "model": tree,
        "desired": "yes",
        "policy": PrivacyPolicy(k=K, guarantee="catalogue"),
        "requirements": [],
    }
    whole = KAnonymizer(policy=settings["policy"]).fit(
        people_alone(train), model=tree, desired="yes"
    )
    with mlflow.start_run():
        logged = log_protected_model(population=people_alone(train), **settings)
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(
        queries().drop(columns=["since"]).head(20)
    )
    assert [each["status"] for each in found] == [
        entry.status for entry in whole.explain(queries().head(20))
    ]
    assert "released" in {each["status"] for each in found}
    others = train[~train["pay"].astype(str).isin(whole.published().to_frame()["pay"])]
    files = [
        path for path in tmp_path.rglob("*") if path.is_file() and "mlflow.db" not in path.name
    ]
    for path in files:
        kept = content(path) if path.suffix == ".cfk" else path.read_bytes()
        assert not [pay for pay in others["pay"] if str(pay).encode() in kept], path.name


def people_alone(train: pd.DataFrame) -> Population:
    """Return the population of the served tests: without dates, which JSON does not have."""
    table = train.drop(columns=["since", "name", "person"])
    return Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=QUASI[:3], ordinal={"grade": LEVELS})
    )
