from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from cfk_plugin.records import reading as store
from cfk_plugin.records.reading import Workers
from cfk_plugin.records.run import StoreDownError


def test_answers_come_in_the_order_of_the_questions() -> None:
    late = threading.Event()

    def answer(number: int) -> int:
        if number == 0:
            late.wait()
        elif number == 3:
            late.set()
        return number

    with Workers() as workers:
        assert list(workers.map(answer, range(100))) == list(range(100))


def test_questions_do_not_run_far_ahead_of_the_answers_that_are_fetched() -> None:
    asked: list[int] = []
    with Workers() as workers:
        answers = workers.map(lambda number: asked.append(number) or number, range(1000))
        assert next(answers) == 0
        answers.close()  # type: ignore[attr-defined]
    assert len(asked) <= store._AHEAD + 1


def test_an_error_is_the_question_s_own() -> None:
    def fail(number: int) -> int:
        raise TimeoutError("mine") if number else KeyError("first")

    with Workers() as workers:
        with pytest.raises(KeyError, match="first"):
            list(workers.map(fail, range(3)))
        with pytest.raises(TimeoutError, match="mine"):
            workers.call(fail, 1)


def test_a_store_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.05)
    monkeypatch.setattr(store, "_FAREWELL", 0.05)
    silent = threading.Event()
    try:
        with Workers() as workers, pytest.raises(StoreDownError, match=r"did not answer for 0\.05 seconds"):
            workers.call(silent.wait)
    finally:
        silent.set()


def test_a_question_that_hangs_does_not_keep_the_process_alive() -> None:
    code = (
        "import threading\n"
        "from cfk_plugin.records import reading as store\n"
        "store.PATIENCE = store._FAREWELL = 0.05\n"
        "try:\n"
        "    with store.Workers() as workers:\n"
        "        workers.call(threading.Event().wait)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "StoreDownError"


def test_who_asks_sees_the_context_of_the_one_who_wants_to_know() -> None:
    import contextvars

    here: contextvars.ContextVar[Any] = contextvars.ContextVar("here", default=None)
    here.set("a workspace")
    with Workers() as workers:
        assert workers.call(here.get) == "a workspace"
