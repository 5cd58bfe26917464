"""What is kept of an experiment, and how long it will take."""

from __future__ import annotations

from pathlib import Path

import pytest

import reproduced
from cfk_plugin.reproduction.measure import Job
from cfk_plugin.reproduction.run import Event, Forecast, Workspace

JOB = Job(table="heart", method="exact-ncp", k=5, asked=3)


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    prepared = reproduced.prepared()
    outcome, workspace = reproduced.measure(prepared, "exact-ncp", 5, asked=3), Workspace(tmp_path / "new")
    key = JOB.key(prepared.config)
    assert workspace.measurement(key) is None
    assert workspace.summary(prepared.config) is None
    workspace.keep(key, outcome)
    workspace.keep_summary(prepared.config, prepared.summary)
    workspace.keep_runs({"a": 1})
    again = Workspace(tmp_path / "new")
    assert again.measurement(key) == outcome
    assert again.summary(prepared.config) == prepared.summary
    assert again.runs() == {"a": 1}
    assert not list(tmp_path.rglob("*.partial"))


def test_a_damaged_file_counts_as_missing(tmp_path: Path) -> None:
    workspace, config = Workspace(tmp_path), reproduced.config()
    key = JOB.key(config)
    for text in (b"", b"{", b"[]", b'{"setting": {}}', b"\xff"):
        (tmp_path / "outcomes").mkdir(exist_ok=True)
        (tmp_path / "outcomes" / f"{key}.json").write_bytes(text)
        (tmp_path / "scenes").mkdir(exist_ok=True)
        (tmp_path / "scenes" / f"{config.key}.json").write_bytes(text)
        (tmp_path / "runs.json").write_bytes(text)
        assert workspace.measurement(key) is None
        assert workspace.summary(config) is None
        assert workspace.runs() == ({} if text != b'{"setting": {}}' else {"setting": {}})


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
    forecast.done(Event(slow[0], 8, 40.0))  # the table has only 8, and the other one is taken to be like it
    assert forecast.left == pytest.approx((16 * 5.0 + 16 * 0.05) / 2)
    forecast.done(Event(slow[1], 8, None))  # known before: it took no time and says nothing of the others
    assert forecast.left == pytest.approx((8 * 5.0 + 16 * 0.05) / 2)
    forecast.done(Event(fast[0], 50, 1.0))
    assert forecast.left == pytest.approx((8 * 5.0 + 50 * 0.02) / 2)
    forecast.done(Event(slow[2], 8, 1.0))
    forecast.done(Event(fast[1], 50, 1.0))
    assert forecast.left == 0
