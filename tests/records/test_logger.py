from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from cfk_plugin._protect import protect
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import TrackingError
from cfk_plugin.records.logger import RunLogger, observe, track
from cfk_plugin.records.spool import Shipper, spool_folder
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Suppressed
from spooled import COLUMNS, explanations, kept, released
from tracking_server import tracking_server

if TYPE_CHECKING:
    from collections.abc import Iterator


def run_of(run_id: str | None) -> Any:
    import mlflow

    assert run_id is not None
    return mlflow.get_run(run_id)


def parts_of(run_id: str, folder: Path) -> pd.DataFrame:
    import mlflow

    path = mlflow.MlflowClient().download_artifacts(run_id, "cfk", str(folder))
    return pd.concat([pd.read_parquet(p) for p in sorted(Path(path).glob("explanations/part-*.parquet"))])


def history(run_id: str, name: str) -> list[tuple[int, float]]:
    import mlflow

    return sorted((m.step, m.value) for m in mlflow.MlflowClient().get_metric_history(run_id, name))


def test_log_writes_params_metrics_and_tags(mlflow_store: str) -> None:
    run = run_of(explanations(findings=["native", "near-native", "synthetic"]).log())
    assert run.info.status == "FINISHED"
    assert run.data.params == {
        "cfk.k": "5",
        "cfk.method": "exact",
        "cfk.guarantee": "nominal",
        "cfk.generator": "dice",
    }
    summary = {
        "cfk.asked": 3,
        "cfk.released": 2,
        "cfk.suppressed": 1,
        "cfk.k.min": 5,
        "cfk.k.mean": 7,
        "cfk.k.p05": 5.2,
        "cfk.k_desired.min": 4,
        "cfk.ncp.mean": 0.5,
        "cfk.pureness.mean": 0.75,
        "cfk.pureness.min": 0.5,
        "cfk.pureness.low": 0.9,
        "cfk.native_rate": 1 / 3,
        "cfk.near_native_rate": 1 / 3,
        "cfk.suppressed_rate": 1 / 3,
        "cfk.released_native": 0,
    }
    assert {name: run.data.metrics[name] for name in summary} == pytest.approx(summary)
    tags = {name: value for name, value in run.data.tags.items() if name.startswith("cfk.")}
    assert len(tags.pop("cfk.stream")) == 16
    assert tags == {
        "cfk.schema_version": "1",
        "cfk.policy_sha256": PrivacyPolicy(guarantee="nominal", k=5).sha256,
        "cfk.population_fingerprint": "00c0ffee",
        "cfk.plugins": "dice 0.1.0",
        "cfk.verdict": "pass",
    }


def test_the_summary_agrees_with_the_explanations_own(mlflow_store: str) -> None:
    result = explanations(findings=["native", "synthetic", None])
    metrics, summary = run_of(result.log()).data.metrics, result.summary()
    for name in ("k_min", "k_mean", "k_p05", "k_desired_min", "ncp_mean", "ncp_p95", "pureness_low"):
        head, _, tail = name.rpartition("_")
        assert metrics[f"cfk.{head}.{tail}"] == pytest.approx(summary[name]), name
    for name in ("native_rate", "near_native_rate", "suppressed_rate", "released_native"):
        assert metrics[f"cfk.{name}"] == pytest.approx(summary[name]), name


def test_records_and_policy_are_artifacts(mlflow_store: str, tmp_path: Path) -> None:
    run_id = explanations().log()
    rows = parts_of(run_id, tmp_path)
    assert list(rows["step"]) == [0, 1, 2]
    assert list(rows["reason"].fillna("")) == ["", "infeasible", ""]
    assert list(rows["feature.age"].fillna("")) == ["24–27", "", "24–27"]
    assert json.loads(rows["released"][0]) == {"salary": 60}
    assert json.loads(rows["region"][0])["city"] == {"kind": "set", "values": ["Antwerp", "Ghent"]}
    assert not {"k_private", "k_consistent", "private_matches", "finding"} & set(rows.columns)
    policy = json.loads((tmp_path / "cfk" / "policy.json").read_text())
    assert policy == PrivacyPolicy(guarantee="nominal", k=5).to_dict()


def test_steps_and_summary_go_on_over_calls_loggers_and_ways(mlflow_store: str, tmp_path: Path) -> None:
    logger = RunLogger()
    run_id = logger.log(explanations(findings=["native", "native", "native"]))
    assert logger.log(explanations(released(0, k=6, k_desired=2))) == run_id
    other = RunLogger(run_id)
    other.submit(explanations(released(0, k=7), findings=["synthetic"]))
    assert other.flush()
    logger.log(explanations(released(0, k=8)))
    assert history(run_id, "cfk.k") == [(0, 5), (2, 9), (3, 6), (4, 7), (5, 8)]
    metrics = run_of(run_id).data.metrics
    assert metrics["cfk.asked"] == 6
    assert metrics["cfk.k.mean"] == 7
    assert metrics["cfk.k_desired.min"] == 2
    assert metrics["cfk.native_rate"] == 0.75
    assert sorted(parts_of(run_id, tmp_path)["step"]) == list(range(6))


def test_the_active_run_is_used_and_left_running(mlflow_store: str) -> None:
    import mlflow

    with mlflow.start_run() as run:
        assert explanations().log() == run.info.run_id
        assert run_of(run.info.run_id).info.status == "RUNNING"


def test_a_name_asks_for_a_run_nested_in_the_active_one(mlflow_store: str) -> None:
    import mlflow

    with mlflow.start_run() as run:
        child = run_of(explanations().log(run_name="release 7"))
    assert child.info.run_name == "release 7"
    assert child.info.experiment_id == run.info.experiment_id
    assert child.data.tags["mlflow.parentRunId"] == run.info.run_id


def test_experiment_by_name_is_created_once(mlflow_store: str) -> None:
    import mlflow

    ids = {run_of(explanations().log(experiment="credit")).info.experiment_id for _ in range(2)}
    assert ids == {mlflow.get_experiment_by_name("credit").experiment_id}


def test_other_settings_in_one_run_are_refused(mlflow_store: str) -> None:
    run_id = explanations().log()
    with pytest.raises(TrackingError, match=r"another cfk\.k; give each setting its own run"):
        explanations(k=4).log(run_id=run_id)
    assert run_of(run_id).data.metrics["cfk.asked"] == 3


def test_other_settings_in_the_background_get_a_child_run(mlflow_store: str) -> None:
    import mlflow

    with mlflow.start_run() as run:
        observe(explanations(), track=True)
        observe(explanations(k=4), track=True)
        observe(explanations(k=4), track=True)
        assert RunLogger().flush()
    client = mlflow.MlflowClient()
    runs = client.search_runs([run.info.experiment_id], "tags.`mlflow.parentRunId` != ''")
    assert [(r.data.params["cfk.k"], r.data.metrics["cfk.asked"]) for r in runs] == [("4", 6)]


def test_verdict_fails_below_k_and_asks_for_review_when_nothing_left(mlflow_store: str) -> None:
    assert run_of(explanations(released(0, k=4)).log()).data.tags["cfk.verdict"] == "fail"
    assert run_of(explanations(Suppressed(0, "infeasible")).log()).data.tags["cfk.verdict"] == "review"


def test_an_empty_set_is_logged(mlflow_store: str) -> None:
    empty = Explanations([], policy=PrivacyPolicy(guarantee="nominal", k=5), columns=COLUMNS)
    assert run_of(empty.log()).data.metrics["cfk.asked"] == 0


def test_unknown_run_is_one_clear_error(mlflow_store: str) -> None:
    with pytest.raises(TrackingError, match="MLflow did not take the records"):
        explanations().log(run_id="nosuchrun")


def test_track_logs_what_is_observed_inside_the_block(mlflow_store: str) -> None:
    with track(experiment="block", tags={"team": "risk"}) as logger:
        observe(explanations())
        observe(explanations())
    observe(explanations())
    assert logger.flush()
    run = run_of(logger.run_id)
    assert (run.data.metrics["cfk.asked"], run.data.tags["team"], run.info.status) == (6, "risk", "FINISHED")


def test_nothing_is_tracked_unless_asked_for(own_shipper: Shipper) -> None:
    observe(explanations())
    assert own_shipper._thread is None


def test_many_small_records_are_few_batches(mlflow_store: str, tmp_path: Path) -> None:
    logger = RunLogger()
    for _ in range(500):
        logger.submit(explanations(released(0)))
    assert logger.flush(60)
    assert logger.run_id is not None
    rows = parts_of(logger.run_id, tmp_path)
    assert sorted(rows["step"]) == list(range(500))
    assert len(list((tmp_path / "cfk" / "explanations").iterdir())) < 20


def check_spooled(folder: Path, records: int) -> None:
    found = kept(folder)
    assert len(found) == records
    for record in found:
        assert record.params["cfk.k"] == "5"
        assert len(record.rows) == 3
    assert oct(folder.stat().st_mode & 0o777) == "0o700"


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def hanging() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and never answers
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Threads that opened a connection: a thread that opens none cannot wait for a server."""
    threads: set[int] = set()
    connect = socket.socket.connect

    def noted(self: socket.socket, address: Any) -> None:
        threads.add(threading.get_ident())
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", noted)
    return threads


@pytest.mark.parametrize("server", ["nobody", "hanging"])
def test_a_dead_server_neither_delays_nor_loses(
    server: str,
    request: pytest.FixtureRequest,
    spool: Path,
    own_shipper: Shipper,
    connecting: set[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    uri = request.getfixturevalue(server)
    with track(tracking_uri=uri, timeout=1.0) as logger:
        for _ in range(3):
            observe(explanations())
    assert not logger.flush(60)  # until the server is found to be down; importing MLflow takes its time
    own_shipper.close(0)
    assert connecting
    assert threading.get_ident() not in connecting
    check_spooled(spool, 3)
    assert "does not answer" in caplog.text
    assert len([said for said in caplog.records if "a new one is made" not in said.getMessage()]) <= 2


@pytest.mark.parametrize("server", ["nobody", "hanging"])
def test_explicit_log_says_soon_that_the_server_is_down(server: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(TrackingError, match="tracking server does not answer"):
        explanations().log(tracking_uri=request.getfixturevalue(server), timeout=0.5)


def test_records_are_sent_again_when_the_server_is_back(
    mlflow_store: str, spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from cfk_plugin.records import run

    real, down = run.client_of, [True]

    def flaky(*args: Any) -> Any:
        if down[0]:
            raise run.StoreDownError("the MLflow tracking server does not answer")
        return real(*args)

    monkeypatch.setattr(run, "client_of", flaky)
    logger = RunLogger()
    logger.submit(explanations())
    assert not logger.flush(60)
    check_spooled(spool, 1)
    down[0] = False
    assert logger.flush(60)
    assert run_of(logger.run_id).data.metrics["cfk.asked"] == 3
    assert not kept(spool)


def test_a_failed_upload_is_not_counted_twice(mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cfk_plugin.records import run

    logger = RunLogger()
    with monkeypatch.context() as patch:
        patch.setattr(run, "_log_summary", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(TrackingError, match="OSError"):
            logger.log(explanations())
    run_id = logger.log(explanations())
    assert run_of(run_id).data.metrics["cfk.asked"] == 3


def test_spool_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert spool_folder() == tmp_path / "spool"
    monkeypatch.delenv("CFK_SPOOL")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert spool_folder() == tmp_path / "cfk_plugin" / "spool"


def test_private_counts_are_beside_the_released_rows_alone(mlflow_store: str, tmp_path: Path) -> None:
    run_id = explanations(released(0, k_private=31337, private_matches=41414)).log()
    assert "41414" not in repr(run_of(run_id).to_dictionary())
    assert "31337" not in parts_of(run_id, tmp_path).to_csv()
    (part,) = (tmp_path / "cfk" / "recount").iterdir()
    assert pd.read_parquet(part)[["k_private", "private_matches"]].to_numpy().tolist() == [[31337, 41414]]


def protected(track: bool | RunLogger) -> Any:
    train = pd.DataFrame({"age": [24, 25, 26, 27, 50, 52], "salary": [60, 61, 30, 80, 90, 70]})
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age"]))
    return protect(
        lambda queries: train.head(len(queries)).set_index(queries.index),
        model=lambda rows: rows["salary"] > 50,
        population=population,
        policy=PrivacyPolicy(guarantee="nominal", k=2),
        desired=True,
        plugins=[import_module("cfk_adapters.function")],
        track=track,
    )


def test_a_protected_explainer_tracks(mlflow_store: str) -> None:
    import mlflow

    queries = pd.DataFrame({"age": [30, 31], "salary": [10, 20]})
    with mlflow.start_run() as run:
        protected(track=True).explain(queries)
        assert RunLogger().flush()
    data = run_of(run.info.run_id).data
    assert data.metrics["cfk.asked"] == 2
    assert data.metrics["cfk.native_rate"] == 1
    assert data.params["cfk.k"] == "2"


def test_a_protected_explainer_does_not_wait_for_a_hanging_server(
    hanging: str, spool: Path, own_shipper: Shipper, connecting: set[int]
) -> None:
    queries = pd.DataFrame({"age": [30, 31], "salary": [10, 20]})
    plain, tracked = protected(track=False), protected(track=RunLogger(tracking_uri=hanging))
    expected = plain.explain(queries)
    assert tracked.explain(queries) == expected
    own_shipper.close(0)
    assert threading.get_ident() not in connecting
    assert len(kept(spool)) == 1


SCRIPT = """
import sys
sys.path[:0] = {path!r}
from spooled import explanations
from cfk_plugin.records.logger import observe
assert "mlflow" not in sys.modules
observe(explanations(), track=True)
"""


def run_script(tmp_path: Path, uri: str) -> None:
    path = [str(Path(__file__).parents[1] / "helpers"), str(Path(__file__).parents[2])]
    subprocess.run(
        [sys.executable, "-c", SCRIPT.format(path=path)],
        check=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_TRACKING_URI": uri},
    )


def test_a_short_script_delivers_before_it_ends(mlflow_store: str, tmp_path: Path, spool: Path) -> None:
    import mlflow

    run_script(tmp_path, mlflow_store)
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert (run.data.metrics["cfk.asked"], run.info.status) == (3, "FINISHED")
    assert not kept(spool)


def test_a_script_with_a_hanging_server_ends_and_keeps_its_record(tmp_path: Path, spool: Path, hanging: str) -> None:
    run_script(tmp_path, hanging)
    check_spooled(spool, 1)


@pytest.mark.slow
def test_a_real_server_over_http(tmp_path: Path, spool: Path) -> None:
    import mlflow

    with tracking_server(tmp_path) as server:
        server.start()
        logger = RunLogger(tracking_uri=server.url)
        run_id = logger.log(explanations())
        logger.submit(explanations())
        assert logger.flush()
        client = mlflow.MlflowClient(server.url)
        assert client.get_run(run_id).data.metrics["cfk.asked"] == 6
        assert len(client.list_artifacts(run_id, "cfk/explanations")) == 2
        server.kill()
        logger.submit(explanations())
        assert not logger.flush(20)
        check_spooled(spool, 1)
