"""What is kept of an experiment, and how long it will take."""

from __future__ import annotations

from pathlib import Path

import pytest

import reproduced
from cfk_plugin.reproduction.measure import Piece, measure
from cfk_plugin.reproduction.run import Forecast, Workspace

PIECE = Piece(table="heart", method="exact-ncp", k=5, asked=3)


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    prepared = reproduced.prepared()
    outcome, workspace = measure(prepared, "exact-ncp", 5, asked=3), Workspace(tmp_path / "new")
    key = PIECE.key(prepared.setting)
    assert workspace.outcome(key) is None
    assert workspace.scene(prepared.setting) is None
    workspace.keep(PIECE, outcome)
    workspace.keep_scene(prepared.setting, prepared.scene)
    workspace.keep_runs({"a": 1})
    again = Workspace(tmp_path / "new")
    assert again.outcome(key) == outcome
    assert again.scene(prepared.setting) == prepared.scene
    assert again.runs() == {"a": 1}
    assert not list(tmp_path.rglob("*.partial"))


def test_a_damaged_file_counts_as_missing(tmp_path: Path) -> None:
    workspace, setting = Workspace(tmp_path), reproduced.setting()
    key = PIECE.key(setting)
    for text in (b"", b"{", b"[]", b'{"setting": {}}', b"\xff"):
        (tmp_path / "outcomes").mkdir(exist_ok=True)
        (tmp_path / "outcomes" / f"{key}.json").write_bytes(text)
        (tmp_path / "scenes").mkdir(exist_ok=True)
        (tmp_path / "scenes" / f"{setting.key}.json").write_bytes(text)
        (tmp_path / "runs.json").write_bytes(text)
        assert workspace.outcome(key) is None
        assert workspace.scene(setting) is None
        assert workspace.runs() == ({} if text != b'{"setting": {}}' else {"setting": {}})


def test_pieces_differ_by_everything_in_them() -> None:
    others = [
        Piece(table="heart", method="exact-ncp", k=5),
        Piece(table="heart", method="exact-ncp", k=6, asked=3),
        Piece(table="heart", method="grasp", k=5, asked=3),
        Piece(table="heart", method="exact-ncp", k=5, asked=3, kind="distances"),
        Piece(table="heart", method="exact-ncp", k=5, asked=3, options={"weight": 1}),
    ]
    setting = reproduced.setting()
    assert len({piece.key(setting) for piece in (PIECE, *others)}) == 6
    assert PIECE.key(setting) != PIECE.key(reproduced.setting(seed=1))


def test_time_left_is_what_the_method_took_so_far() -> None:
    slow = [Piece(table="heart", method="grasp", k=k, asked=10) for k in (5, 10, 20)]
    fast = [Piece(table="cmc", method="exact-ncp", k=k) for k in (5, 10)]
    forecast = Forecast([*slow, *fast], limit=100, jobs=2)
    assert forecast.left == pytest.approx((30 * 1.0 + 200 * 0.05) / 2)  # guesses
    forecast.done(slow[0], 8, 40.0)  # the table has only 8, and the other one is taken to be like it
    assert forecast.left == pytest.approx((16 * 5.0 + 16 * 0.05) / 2)
    forecast.done(slow[1], 8, None)  # known before: it took no time and says nothing of the others
    assert forecast.left == pytest.approx((8 * 5.0 + 16 * 0.05) / 2)
    forecast.done(fast[0], 50, 1.0)
    assert forecast.left == pytest.approx((8 * 5.0 + 50 * 0.02) / 2)
    forecast.done(slow[2], 8, 1.0)
    forecast.done(fast[1], 50, 1.0)
    assert forecast.left == 0
