"""The same runs read from a real tracking server and from a local store."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from cfk_plugin.audit import AuditReport
from cfk_plugin.audit.result import AuditResult, rate
from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.records import reading as store
from cfk_plugin.records.run import StoreDownError
from cfk_plugin.report.runs import RunEvidence, read_experiment, read_runs
from logged import log, log_file, log_json, made, part
from prototyped import prototypes
from spooled import released
from tracking_server import TrackingServer, tracking_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    with tracking_server(tmp_path_factory.mktemp("server")) as one:
        one.start()
        yield one


def plain(run: RunEvidence) -> dict[str, object]:
    """Return what must not depend on the store: everything but the id, and what MLflow notes itself."""
    found = {name: getattr(run, name) for name in RunEvidence.__slots__ if name not in ("run_id", "rows")}
    return found | {"tags": {name: value for name, value in run.tags.items() if not name.startswith("mlflow.")}}


def test_both_stores_give_the_same_evidence(server: TrackingServer, mlflow_store: str) -> None:
    regions = [made("2026-09-30", released(k=7)), made("2026-10-01"), made("2026-10-02", released(k=9))]
    other = [made("2026-10-03", of=prototypes)]
    recount = pd.DataFrame({"k_desired": [4.0, None, 3.0], "finding": ["native", None, "near-native"]})
    guess = AuditResult("linkage", "guesses", rate([1, 0]), rate([0, 0]), None, {"hits": 1.0}, 0, 2)
    audit = AuditReport((guess,), (), {"k": 5, "guarantee": "nominal"}, "exact", "00c0ffee", 2, 2, 0)
    found = []
    for uri in (server.url, mlflow_store):
        ids = [
            log(regions, uri=uri, start="2026-10-02", experiment="both", run_name="regions"),
            log(other, uri=uri, start="2026-10-01", experiment="both", run_name="prototypes"),
            log([], uri=uri, start="2026-10-03", experiment="both", run_name="audit"),
        ]
        log_file(ids[0], f"cfk/recount/{part(regions[1])}", recount, uri)
        log_json(ids[0], "cfk/population.json", {"rows": 80}, uri)
        audit.log(ids[2], tracking_uri=uri)
        found.append(read_experiment("both", tracking_uri=uri, since="2026-10-01", until="2026-10-31"))
        assert [run.run_id for run in found[-1].runs] == [ids[1], ids[0], ids[2]]
    for one, two in zip(found[0].runs, found[1].runs, strict=True):
        assert plain(one) == plain(two)
        assert (one.rows is None) == (two.rows is None)
        if one.rows is not None and two.rows is not None:
            assert_frame_equal(one.rows, two.rows)
    served = found[0].runs[1]
    assert served.rows is not None
    assert served.rows["k"].dropna().tolist() == [5, 9, 9]
    assert served.rows["k_desired"].dropna().tolist()[:2] == [4, 3]
    assert served.population == {"rows": 80}
    assert len(found[0].runs[2].audits) == 1


def test_what_is_not_on_the_server_is_named(server: TrackingServer) -> None:
    with pytest.raises(InputError, match="there is no run " + "f" * 32):
        read_runs("f" * 32, tracking_uri=server.url)
    with pytest.raises(InputError, match=r"no experiment 'credit' in this store; it has .*'Default'"):
        read_experiment("credit", tracking_uri=server.url)


def test_a_file_that_the_server_has_lost_is_named(server: TrackingServer) -> None:
    record = made("2026-10-01")
    run_id = log([record], uri=server.url)
    (path,) = (server.folder / "served").rglob(f"explanations/{part(record)}")
    path.write_bytes(b"CANARY")
    with pytest.raises(TrackingError, match=f"run {run_id}, cfk/explanations/{part(record)}: it is damaged") as caught:
        read_runs(run_id, tracking_uri=server.url)
    assert "CANARY" not in str(caught.value)
    path.unlink()
    with pytest.raises(TrackingError, match=f"run {run_id}, .* no file with number 0"):
        read_runs(run_id, tracking_uri=server.url)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # MLflow's, of answers that come too late
def test_a_server_that_hangs_in_between_is_given_up(server: TrackingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [made(f"2026-10-{day:02d}", released()) for day in range(1, 29)]
    run_id = log(records, uri=server.url)
    monkeypatch.setattr(store, "PATIENCE", 2.0)
    read = store.Workers.map
    stopped = []

    def map_until_it_hangs(self: store.Workers, function: Any, items: Any) -> Iterator[Any]:
        for place, answer in enumerate(read(self, function, items)):
            if place == 4:  # among the files
                server.hang()
                stopped.append(place)
            yield answer

    try:
        with monkeypatch.context() as patch:
            patch.setattr(store.Workers, "map", map_until_it_hangs)
            with pytest.raises(StoreDownError, match="did not answer for 2 seconds"):
                read_runs(run_id, tracking_uri=server.url)
        assert stopped
        monkeypatch.setattr(store, "PATIENCE", 60.0)
        with pytest.raises(StoreDownError, match="the MLflow tracking server does not answer"):
            read_runs(run_id, tracking_uri=server.url)
    finally:
        server.go_on()
        for thread in threading.enumerate():
            if thread.name == "cfk-report":
                thread.join(30)
        gc.collect()
    (run,) = read_runs(run_id, tracking_uri=server.url).runs
    assert run.rows is not None
    assert len(run.rows) == len(records)
