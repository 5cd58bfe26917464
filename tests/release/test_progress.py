"""What takes long says what is being done, to a person who watches and to nobody else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

WAITS = """
import time
from cfk_plugin.data import display
with display.doing("counting people"):
    time.sleep(0.2)
    with display.doing("finding answers"):
        display.advance(3, 10)
        time.sleep(0.2)
    time.sleep(0.2)
print("done")
"""
FITS = """
import time
import pandas as pd
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
table = pd.DataFrame({"age": range(60), "pay": [i % 30 for i in range(60)]})

def accepts(rows):
    time.sleep(0.1)
    return rows["pay"] > 9

population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, accepts, desired=True)
anonymizer.explain(table.head(3))
anonymizer.transform(table.tail(3), table.head(3))
"""


def seen(script: str, *, terminal: bool = True) -> str:
    """Return what a script writes to stderr, which is a terminal or not."""
    if not terminal:
        done = subprocess.run(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, check=True
        )
        return done.stderr
    screen, end = pty.openpty()
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end) as process:
        os.close(end)
        text = b""
        try:
            while part := os.read(screen, 1 << 16):
                text += part
        except OSError:  # Linux says so where the other end is closed
            pass
    os.close(screen)
    assert process.returncode == 0, text
    return text.decode()


def test_a_terminal_shows_the_stage() -> None:
    """A person sees what is being done and how far it is."""
    text = seen(WAITS)
    assert text.index("counting people") < text.index("finding answers, 3 of 10")
    assert text.count("counting people") > 1  # again after the inner stage


@pytest.mark.parametrize("quiet", ["pipe", "thread", "loop", "process"])
def test_no_one_else_sees_progress(quiet: str) -> None:
    wrapped = {
        "thread": f"import threading\nit = threading.Thread(target=exec, args=({WAITS!r}, globals()))\nit.start()\nit.join()",
        "loop": f"import asyncio\nasync def work(): exec({WAITS!r}, globals())\nasyncio.run(work())",
        "process": "from joblib import Parallel, delayed\n"
        f"Parallel(2)(delayed(exec)({WAITS!r}, {{}}) for _ in range(2))",
    }
    assert seen(wrapped.get(quiet, WAITS), terminal=quiet != "pipe") == ""


def test_fitting_and_answering_name_their_stages() -> None:
    text = seen(FITS)
    for stage in (
        "asking the model about the training rows",
        "finding answers for the catalogue",
        "answering queries",
        "protecting counterfactuals",
    ):
        assert stage in text


SEARCHES = """
import logging, sys, time
sys.path[:0] = {path}
from applicants import FEATURES, QUERIES, dice_of
from cfk_adapters import dice_search
from cfk_adapters.dice import DiceSource
from cfk_plugin.hookspecs import AdaptContext

dice_search.PATIENCE = 0.3
explainer = dice_of("genetic")
make = type(explainer)._generate_counterfactuals

def slow(*args, **named):
    time.sleep(0.4)
    return make(*args, **named)

type(explainer)._generate_counterfactuals = slow
source = DiceSource(explainer, AdaptContext(tuple(FEATURES), "approved"))
logging.basicConfig(format="%(levelname)s %(message)s")
source.{call}
"""
CALLS = [
    "generate(QUERIES, total_CFs=1, maxiterations=2)",
    'methods["generate_counterfactuals"](QUERIES, total_CFs=1, maxiterations=2)',
]


@pytest.mark.parametrize("call", CALLS)
def test_a_long_search_of_dice_says_where_it_is_and_what_is_faster(call: str) -> None:
    pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    script = SEARCHES.replace("{call}", call).replace("{path}", repr(sys.path))
    watched = seen(script)
    for query in (2, 3):
        assert f"DiCE's genetic search: query {query} of 3" in watched
    unwatched = seen(script, terminal=False)
    warnings = [line for line in unwatched.splitlines() if line.startswith("WARNING DiCE's")]
    (warning,) = warnings
    assert re.search(r"genetic search: query [123] of 3, \d+ s so far", warning)
    assert '; faster: an explainer made with dice_ml.Dice(..., method="random")' in warning
