"""The figures of the quality table next to closed forms, and the comparison of two tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from quality import (
    FIGURES,
    Case,
    CountedModel,
    Heom,
    compare,
    exaggeration,
    main,
    nice_answers,
    row_distances,
)

TRAIN = pd.DataFrame({"hours": np.arange(101.0), "job": ["clerk", "cook"] * 50 + ["clerk"]})


class Threshold:
    """Gives the outcome above 10 hours, with the probability hours / 20; the job has no weight."""

    classes_ = np.array(["no", "yes"])

    def predict_proba(self, rows: pd.DataFrame) -> np.ndarray:
        probability = np.clip(rows["hours"].to_numpy(dtype=float) / 20, 0, 1)
        return np.column_stack([1 - probability, probability])

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        return self.classes_[self.predict_proba(rows).argmax(axis=1)]


@pytest.fixture
def case() -> Case:
    model = Threshold()
    return Case(
        table="hours",
        train=TRAIN,
        labels=pd.Series(model.predict(TRAIN)),
        schema=None,  # nothing is protected
        desired="yes",
        model=model,
        model_seconds=1.0,
        queries=TRAIN.head(1),
        refused_row=TRAIN.head(1),
    )


def figures_of(case: Case, hours: float, job: str = "clerk", margin: float = 0.0) -> dict:
    """Return the figures of one answer to a clerk with 0 hours."""
    query = pd.DataFrame({"hours": [0.0], "job": ["clerk"]})
    point = pd.DataFrame({"hours": [hours], "job": [job]})
    return exaggeration(case, query, point, np.array([margin]))


def table_of(**figures: float) -> pd.DataFrame:
    """Return two tables with two splits; every figure is 1 unless given, for the first table."""
    rows = pd.DataFrame(1.0, index=range(4), columns=list(FIGURES))
    rows.insert(0, "table", ["cmc", "cmc", "heart", "heart"])
    rows.insert(1, "split", [0, 1, 0, 1])
    for name, value in figures.items():
        rows.loc[rows["table"] == "cmc", name] = value
    return rows


def worse_figures(before: pd.DataFrame, now: pd.DataFrame) -> set[str]:
    comparison = compare(before, now)
    return set(comparison.loc[comparison["is_worse"], "figure"])


def test_asked_exceeds_needed(case):
    """24 hours are asked; the model needs 11, the first whole number above 10."""
    figures = figures_of(case, hours=24)
    assert figures["asked_needed_median"] == pytest.approx(24 / 11)
    assert figures["asked_needed_p90"] == pytest.approx(24 / 11)
    assert figures["needless"] == 0


def test_margin_raises_what_is_needed(case):
    """With a margin of 0.2 the probability must be 0.6, which takes 12 hours."""
    figures = figures_of(case, hours=14, margin=0.2)
    assert figures["asked_needed_median"] == pytest.approx(14 / 12)
    assert figures["asked_needed_median_no_margin"] == pytest.approx(14 / 11)


def test_needless_category_is_noticed(case):
    """The job has no weight."""
    figures = figures_of(case, hours=11, job="cook", margin=0.1)
    assert figures["needless_margin"] == 1
    assert figures["needless"] == 1
    assert figures["asked_needed_median"] == 1  # of the hours, the only number


def test_needless_number_is_infinite(case):
    """At 20 hours the model is certain already."""
    query = pd.DataFrame({"hours": [20.0], "job": ["clerk"]})
    point = pd.DataFrame({"hours": [30.0], "job": ["clerk"]})
    figures = exaggeration(case, query, point, np.array([0.2]))
    assert figures["asked_needed_median"] == np.inf
    assert figures["needless_margin"] == 1


def test_change_needed_only_with_margin(case):
    """From 10.5 hours the model says yes without a margin, and needs 12 with one of 0.2."""
    query = pd.DataFrame({"hours": [10.5], "job": ["clerk"]})
    point = pd.DataFrame({"hours": [12.0], "job": ["clerk"]})
    figures = exaggeration(case, query, point, np.array([0.2]))
    assert (figures["needless_margin"], figures["needless"]) == (0, 1)


def test_unchanged_numbers_have_no_ratio(case):
    """Only a category changes."""
    figures = figures_of(case, hours=0, job="cook")
    assert np.isnan(figures["asked_needed_median"])


def test_heom_of_every_kind():
    """50 of 100 hours are a half; a missing value is far from any other, and near a missing one."""
    rows = pd.DataFrame({"hours": [0.0, np.nan, np.nan], "job": ["clerk", np.nan, np.nan]})
    others = pd.DataFrame({"hours": [50.0, 1.0, np.nan], "job": ["cook", "cook", np.nan]})
    assert Heom(TRAIN).by_feature(rows, others).tolist() == [[0.5, 1], [1, 1], [0, 0]]


def test_nearest_row_has_the_outcome(case):
    """The nearest clerk above 10 hours has 12, as every second person is a cook."""
    distances = row_distances(case, Heom(TRAIN), case.queries)
    assert distances == pytest.approx([0.12])


def test_nice_gives_the_outcome(case):
    """NICE changes the hours alone, as the job has no weight."""
    answers = nice_answers(case, case.queries)
    assert answers.to_dict("records") == [{"hours": 12.0, "job": "clerk"}]


def test_counted_model_counts_rows():
    """And calls, of either method."""
    model = CountedModel(Threshold())
    model.predict(TRAIN)
    model.predict_proba(TRAIN.head(3))
    assert (model.n_calls, model.n_rows) == (2, 104)


def test_equal_tables_pass():
    """With infinite and missing figures, too."""
    table = table_of(asked_needed_p90=np.inf, needless=0.0, ncp=np.nan)
    assert worse_figures(table, table) == set()


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("ncp", 1.0, 1.11),
        ("pureness", 1.0, 0.89),
        ("ms_batch", 1.0, 1.31),
        ("needless", 0.0, 0.02),
        ("asked_needed_p90", 2.0, np.inf),
        ("survival", 0.9, np.nan),
    ],
)
def test_worse_figure_is_noticed(name, before, now):
    """Each figure has its direction and its tolerance."""
    assert worse_figures(table_of(**{name: before}), table_of(**{name: now})) == {name}


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("ncp", 1.0, 1.09),
        ("ncp", 1.0, 0.1),
        ("pureness", 0.9, 1.0),
        ("ms_batch", 1.0, 1.29),
        ("needless", 0.0, 0.01),
        ("asked_needed_p90", np.inf, 2.0),
        ("entries", 1.0, 9.0),
    ],
)
def test_figure_within_its_tolerance_passes(name, before, now):
    """And one that is better."""
    assert worse_figures(table_of(**{name: before}), table_of(**{name: now})) == set()


def test_average_has_its_own_tolerance():
    """9 % on both tables are allowed on each of them, but not on average."""
    now = table_of()
    now["ncp"] = 1.09
    comparison = compare(table_of(), now)
    assert comparison.loc[comparison["is_worse"], "table"].tolist() == ["average"]


def test_tables_without_common_splits_are_refused():
    """There is nothing to compare."""
    with pytest.raises(ValueError, match="no table and split in common"):
        compare(table_of().query("split == 0"), table_of().query("split == 1"))


@pytest.mark.parametrize(("now", "exit_code"), [(1.0, 0), (0.5, 1)])
def test_exit_code_tells_a_worse_figure(tmp_path: Path, capsys, now, exit_code):
    """So that a job can call the program."""
    files = [tmp_path / "before.csv", tmp_path / "now.csv"]
    table_of(asked_needed_p90=np.inf).to_csv(files[0], index=False)
    table_of(asked_needed_p90=np.inf, answered=now).to_csv(files[1], index=False)
    assert main(["--compare", *map(str, files)]) == exit_code
    assert ("WORSE" in capsys.readouterr().out) == bool(exit_code)
