"""Kernels are kept where they can be, compiled where they cannot, and never read from somebody
else's folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import event

from cfk_plugin.protection import compiled


class Count(event.Listener):  # type: ignore[misc]
    compiled = 0

    def on_start(self, _: object) -> None:
        self.compiled += 1

    def on_end(self, _: object) -> None:
        pass


def total(a: Any, b: Any) -> Any:
    return a + b


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path / "cfk_plugin"


def compiles() -> int:
    """Run a kernel as a process would that has not run it yet; return how often the compiler was
    called.
    """
    with event.install_listener("numba:compile", Count()) as count:
        assert compiled.jit(total)(1, 2) == 3
    return int(count.compiled)


def test_what_was_compiled_is_kept(folder: Path) -> None:
    assert [compiles(), compiles()] == [1, 0]
    assert len([*folder.iterdir()]) == 1


def test_a_named_folder_is_looked_into_alone_where_it_can_be_written(folder: Path) -> None:
    assert [*compiled._folders()] == [folder]


@pytest.mark.parametrize("content", [b"", b"no pickle", None], ids=["empty", "garbage", "cut"])
def test_a_damaged_file_is_compiled_anew(folder: Path, content: bytes | None) -> None:
    compiles()
    (kept,) = folder.iterdir()
    kept.write_bytes(kept.read_bytes()[:-100] if content is None else content)
    assert [compiles(), compiles()] == [1, 0]


def test_kernels_of_other_sources_are_compiled_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles()
    monkeypatch.setattr(compiled, "_stamp", lambda source: f"of a later version of {source.name}")
    assert [compiles(), compiles()] == [1, 0]


@pytest.mark.skipif(
    os.name != "posix", reason="elsewhere a user's temporary files are the user's own"
)
@pytest.mark.parametrize("made", ["open to others", "a link"])
def test_a_temporary_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"cfk_plugin-{os.getuid()}"
    assert own in compiled._folders()
    own.rmdir()
    if made == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        own.symlink_to(tmp_path / "elsewhere")
    else:
        own.mkdir()
        own.chmod(0o777)
    assert own not in compiled._folders()


READ_ONLY = """
import errno, os, sys

def refuse(event, args):
    if event in ("os.mkdir", "os.rename") or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        raise OSError(errno.EROFS, "read-only file system")

sys.addaudithook(refuse)

from cfk_plugin.protection.compiled import jit

@jit
def total(a, b):
    return a + b

print(total(1, 2), total(1.5, 2.0))
"""


def test_a_process_that_can_write_nowhere_compiles_for_itself_and_says_so_once() -> None:
    nowhere = {
        "NUMBA_CACHE_DIR": "/dev/null/kernels",
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "/dev/null/cache",
    }
    asked = [sys.executable, "-c", READ_ONLY]
    done = subprocess.run(
        asked, capture_output=True, text=True, check=True, env={**os.environ, **nowhere}
    )
    assert done.stdout.split() == ["3", "3.5"]
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1


# In processes of their own, as of a user: the first one compiles, or finds what is kept in the
# package's own folder.
LATER = """
import numpy as np, pandas as pd, sys, warnings
from numba.core import event
from cfk_plugin import Attribute, DPPrototypes, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.dp import infer_domains
from cfk_plugin.protection.compiled import KERNELS
from cfk_plugin.protection.lookup.exact import ExactProtector
from cfk_plugin.protection.partition import neighbors

neighbors._COMPARED = 0  # as of many rows

class Count(event.Listener):
    compiled = []
    def on_start(self, told):
        self.compiled.append(told.data["dispatcher"].py_func.__name__)
    def on_end(self, _):
        pass

event.register("numba:compile", Count())
warnings.simplefilter("ignore")
random = np.random.default_rng(1)
n = 300
table = pd.DataFrame({
    "age": random.choice([*range(20, 60), np.nan], n), "zip": random.choice(["a", "b", None], n),
    "job": random.choice(["nurse", "cook", "poet"], n), "school": random.choice(["low", "mid", "high"], n),
    "born": pd.Timestamp("2000-01-01") + pd.to_timedelta(random.integers(0, 900, n), unit="D"),
    "pay": random.integers(0, 100, n), "who": random.integers(0, 250, n),
})
schema = Schema.from_frame(
    table, quasi_identifiers=["age", "zip", "job", "school", "born"], sensitive=["pay"], subject="who",
    ordinal={"school": ["low", "mid", "high"]},
    columns={"job": Attribute(hierarchy={"nurse": ["care"], "cook": ["rest"], "poet": ["rest"]})},
)
population = Population.from_frame(table, schema)
cases = [({"guarantee": "catalogue"}, "auto"), ({"guarantee": "catalogue", "l": 3}, "auto")]
cases += [({"guarantee": "lookup"}, method) for method in ("exact", "grasp", "mondrian", ExactProtector(threads=2))]
cases += [({"guarantee": "lookup", "objective": "ncp"}, ExactProtector(node_limit=3, time_limit=1e-9))]
for settings, method in cases:
    for desired in (True, "opposite"):
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, **settings), method=method)
        anonymizer.fit(population, lambda rows: (rows["pay"] > 50).to_numpy(), desired)
        anonymizer.transform(table[table["pay"] > 50].head(3), table[table["pay"] <= 50].head(3))
    if settings.get("guarantee") == "catalogue":
        anonymizer.explain(table[table["pay"] <= 50].head(3))
features = table.drop(columns="who").dropna()
declared = infer_domains(features, Schema.from_frame(features, quasi_identifiers=["age", "zip"]))
people = Population.from_frame(features, declared)
known = {"model_access": "public"}
for settings in (known, {"delta": 1e-6, "serve": "prototypes"}, {**known, "rows": 9}):
    for desired in (True, "opposite"):
        drawn = DPPrototypes(people=300, **{"rows": 500, **settings})
        drawn.fit(people, lambda rows: (rows["pay"] > 50).to_numpy(), desired)
        for asked in (features, features.head(1), table.iloc[5:8]):
            drawn.generate(asked)
print(Count.compiled, [kernel.py_func.__name__ for kernel in KERNELS if len(kernel.signatures) > 1])
"""


@pytest.mark.slow
def test_after_warm_up_a_new_process_compiles_nothing() -> None:
    warm = subprocess.run(
        [sys.executable, "-m", "cfk_plugin.cli", "warm-up"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "kernels are kept in" in warm.stdout
    later = subprocess.run(
        [sys.executable, "-c", LATER], capture_output=True, text=True, check=True
    )
    assert later.stdout.split() == ["[]", "[]"]
