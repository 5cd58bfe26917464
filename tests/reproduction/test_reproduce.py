"""The whole experiment on made tables: what it writes, logs and remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

import reproduced
from reproduction.measure import Job, Measurement
from reproduction.prepare import GRIDS
from reproduction.results import Results
from reproduction.run import (
    PAGE,
    Event,
    Experiment,
    Forecast,
    Place,
    Workspace,
    format_duration,
    reproduce,
)

EXPERIMENT = Experiment(
    tables=("heart",),
    methods=("grasp", "exact-pureness", "exact-ncp", "mondrian"),
    ks=(5, 8),
    studies=("frontier",),
    limit=4,
    effective=2,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    reproduced.write(folder, "heart", "cmc")
    return folder


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_store: Path) -> Path:
    """Return the folder of a finished experiment on one table."""
    output = tmp_path_factory.mktemp("reproduction")
    (output / "mlflow.db").write_bytes(_empty_mlflow_store.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GRIDS, "small", {"n_estimators": [5], "max_leaf_nodes": [10, None]})  # type: ignore[arg-type]
        run(data, output)
    return output


def run(data: Path, output: Path) -> Results:
    place = Place(data=data, output=output, tracking_uri=uri(output))
    return reproduce(EXPERIMENT, place, command="a test")


def uri(output: Path) -> str:
    return f"sqlite:///{output / 'mlflow.db'}"


def test_page_results_and_plots_are_written(done: Path) -> None:
    results = Results.from_json((done / "results.json").read_text())
    assert {(a.table, a.method, a.k) for a in results.aggregates} == {
        ("heart", method, k) for method in EXPERIMENT.methods for k in EXPERIMENT.ks
    }
    assert results.command == "a test"
    page = (done / PAGE).read_text()
    assert "heart" in page
    for name in [
        line.split("](figures/")[1].split(")")[0]
        for line in page.splitlines()
        if "](figures/" in line
    ]:
        assert (done / "figures" / name).read_text().startswith("<?xml")


def test_every_number_of_the_page_is_a_metric_of_a_run(done: Path) -> None:
    results = Results.from_json((done / "results.json").read_text())
    client = MlflowClient(uri(done))
    for found in results.aggregates:
        assert found.run_id is not None
        for name in ("ncp", "pureness", "cdm", "seconds", "k_desired", "pure"):
            logged = {
                metric.step: metric.value
                for metric in client.get_metric_history(found.run_id, name)
            }
            assert logged[found.k] == getattr(found, name)
        run = client.get_run(found.run_id)
        assert run.info.status == "FINISHED"
        assert run.data.params["setting.table"] == "heart"
        assert run.data.params["scene.max_leaf_nodes"] in {"10", "100", "500", "null"}
        assert run.data.tags["cfk.method"] == found.method
        artifacts = [
            Path(file.path).name for file in client.list_artifacts(found.run_id, "outcomes")
        ]
        assert len(artifacts) == {"exact-ncp": 9, "exact-pureness": 9}.get(found.method, 2)
    assert len({a.run_id for a in results.aggregates}) == 4
    (row,) = (
        row for row in results.rows("frontier") if (row["method"], row["k"]) == ("exact-ncp", 15)
    )
    history = client.get_metric_history(row["run_id"], "ncp")
    assert {metric.step: metric.value for metric in history}[15] == row["ncp"]


def test_nothing_is_measured_or_logged_twice(done: Path, data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "kept").rglob("*.json")}
    page, text = (done / PAGE).read_text(), (done / "results.json").read_text()
    runs = len(MlflowClient(uri(done)).search_runs(["1"]))
    run(data, done)
    assert {path: path.stat().st_mtime_ns for path in (done / "kept").rglob("*.json")} == before
    assert ((done / PAGE).read_text(), (done / "results.json").read_text()) == (
        page,
        text,
    )
    assert len(MlflowClient(uri(done)).search_runs(["1"])) == runs == 4


def test_no_row_is_anywhere(done: Path) -> None:
    kept = json.dumps([json.loads(path.read_text()) for path in (done / "kept").rglob("*.json")])
    for text in (kept, (done / "results.json").read_text(), (done / PAGE).read_text()):
        assert not [value for value in ("mild", "strong") if value in text]


# --- what is kept, and how long it will take ------------------------------------------------------

JOB = Job(table="heart", method="exact-ncp", k=5, asked=3)


def test_a_damaged_file_counts_as_missing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for text in (b"", b"{", b"[]", b'{"setting": {}}', b"\xff"):
        (tmp_path / "one.json").write_bytes(text)
        assert workspace.read("one.json", Measurement.from_json) is None
        assert workspace.read("none.json", Measurement.from_json) is None


def test_jobs_differ_by_everything_in_them() -> None:
    others = [
        Job(table="heart", method="exact-ncp", k=5),
        Job(table="heart", method="exact-ncp", k=6, asked=3),
        Job(table="heart", method="grasp", k=5, asked=3),
        Job(table="heart", method="exact-ncp", k=5, asked=3, kind="distances"),
        Job(table="heart", method="exact-ncp", k=5, asked=3, options={"weight": 1}),
    ]
    config = reproduced.config()
    assert len({piece.key(config) for piece in (JOB, *others)}) == 6
    assert JOB.key(config) != JOB.key(reproduced.config(seed=1))


def test_time_left_is_what_the_method_took_so_far() -> None:
    slow = [Job(table="heart", method="grasp", k=k, asked=10) for k in (5, 10, 20)]
    fast = [Job(table="cmc", method="exact-ncp", k=k) for k in (5, 10)]
    forecast = Forecast([*slow, *fast], limit=100, at_once=2)
    assert forecast.left == pytest.approx((30 * 1.0 + 200 * 0.05) / 2)  # guesses
    # the table has only 8, and the other one is taken to be like it
    forecast.done(Event(slow[0], 8, 40.0))
    assert forecast.left == pytest.approx((16 * 5.0 + 16 * 0.05) / 2)
    # known before: it took no time and says nothing of the others
    forecast.done(Event(slow[1], 8, None))
    assert forecast.left == pytest.approx((8 * 5.0 + 16 * 0.05) / 2)
    forecast.done(Event(fast[0], 50, 1.0))
    assert forecast.left == pytest.approx((8 * 5.0 + 50 * 0.02) / 2)
    forecast.done(Event(slow[2], 8, 1.0))
    forecast.done(Event(fast[1], 50, 1.0))
    assert forecast.left == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.1, "less than a second"),
        (1.2, "1 second"),
        (2, "2 seconds"),
        (89, "89 seconds"),
        (170, "3 minutes"),
        (5400, "1.5 hours"),
    ],
)
def test_time_left_is_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
