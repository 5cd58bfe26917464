"""Every command of `cfk` with every exit code that it can have: 0 pass, 1 fail, 2 error, 3 review.

`make_files` writes the files that the commands read. Each case starts from a copy of them.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import typer
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import reported
from cfk_plugin import BudgetAccountant, KAnonymizer, Ledger, Population, PrivacyPolicy, Schema
from cfk_plugin.cli import app
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.shipper import Shipper
from cfk_plugin.records.spool import Spool, SpoolSettings
from model_server import serving, store
from spooled import explanations

STORED_LEDGER = Path(__file__).resolve().parents[2] / "stored" / "before_release" / "ledger.db"
STORED_LEDGER_KEY = b"a key for show, of the tests alone"
FEATURES = ["age", "sex", "salary"]
SCHEMA = {
    "quasi_identifiers": ["age", "sex"],
    "identifiers": ["name"],
    "target": "outcome",
    "nominal": ["sex"],
}
TOWNS = {"quasi_identifiers": ["age"], "bounds": {"age": [0, 99]}}
FUNCTIONS = """
import numpy as np

def noisy(rows, random_state):
    return (rows["town"] == "made up").sum() + np.random.default_rng(random_state).laplace()

def exact(rows):
    return rows["age"].sum()
"""

MODEL = "-s schema.json -m model.joblib"
PROTECT = f"protect train.csv wanted.csv {MODEL} -d yes --k 5"
CATALOGUE = f"catalogue train.csv {MODEL} -d yes --k 5"
SERVE = "serve --bundle catalogue.cfk --model model.joblib --desired yes"
LINKAGE = f"audit linkage train.csv wanted.csv {MODEL} -d yes --k 5 --guarantee reciprocal --attacks linkage,inversion_own"
EPSILON = "audit epsilon towns.csv -s towns.json --canary canary.json --runs 40"
FRONTIER = f"audit frontier train.csv wanted.csv {MODEL} -d yes --ks 2,5"
ALL = "audit people.csv -s schema.json -d yes -m fresh.joblib --against raw"


@dataclass(frozen=True)
class Case:
    """One way to end a command.

    `prepare` changes the files, or what the command calls, before the words are given to `cfk`.
    """

    command: str  # empty for `cfk` itself
    when: str
    words: str
    prepare: Callable[[pytest.MonkeyPatch], None] | None = None


def break_the_promise(patch: pytest.MonkeyPatch) -> None:
    """Replace the verdict: no attack leaves fewer people than a guarantee promises."""
    patch.setattr("cfk_plugin.audit.AuditReport.verdict", "fail")


def withhold_everything(patch: pytest.MonkeyPatch) -> None:
    shutil.copyfile("refused.csv", "wanted.csv")


def withhold_some(patch: pytest.MonkeyPatch) -> None:
    both = pd.concat([pd.read_csv("wanted.csv"), pd.read_csv("refused.csv")])
    both.to_csv("wanted.csv", index=False)


def allow_no_region(patch: pytest.MonkeyPatch) -> None:
    Path("strict.json").write_text(json.dumps({"max_ncp": 1e-9}))


def interrupt(patch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    patch.setattr("cfk_plugin._files.read_table", stop)


def fail_unexpectedly(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    patch.setattr("cfk_plugin._files.read_table", fail)


def break_a_plugin(patch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("broken", "no_such_module", "cfk_plugin")
    patch.setattr("cfk_plugin.plugins.entry_points", lambda group: [point])


def tamper_with_the_ledger(patch: pytest.MonkeyPatch) -> None:
    connection = sqlite3.connect("ledger.db")
    with connection:
        connection.execute("UPDATE cfk_ledger_releases SET k = k + 1")
    connection.close()


def use_the_stored_ledger(patch: pytest.MonkeyPatch) -> None:
    shutil.copyfile(STORED_LEDGER, "old.db")
    patch.setenv("CFK_LEDGER_KEY", STORED_LEDGER_KEY.decode())


def train_again(patch: pytest.MonkeyPatch) -> None:
    """Publish a catalogue, and train a model that refuses much of it."""
    assert exit_code_of(f"{CATALOGUE} -o catalogue.json") == 0
    train = pd.read_csv("train.csv")
    later = np.where(train["age"] > 75, "yes", "no")
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    joblib.dump(model.fit(train[FEATURES], later), "later.joblib")


CHECK = "ledger status ledger.db --train train.csv -s schema.json"


def add_a_column(patch: pytest.MonkeyPatch) -> None:
    pd.read_csv("train.csv").assign(extra=1).to_csv("train.csv", index=False)


def keep_no_kernel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("cfk_plugin._protect.warm_up", lambda: frozenset({None}))


def keep_kernels(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("cfk_plugin._protect.warm_up", lambda: frozenset({Path("kernels")}))


def spool_nothing(patch: pytest.MonkeyPatch) -> None:
    folder = Path("spool").absolute()
    patch.setenv("CFK_SPOOL", str(folder))
    spool = Spool(SpoolSettings(folder))
    spool.check(1)
    spool.close()


def spool_a_record(patch: pytest.MonkeyPatch) -> None:
    """Leave a record for a tracking server that is not there."""
    folder = Path("spool").absolute()
    patch.setenv("CFK_SPOOL", str(folder))
    shippers: dict[Path, Shipper] = {}
    patch.setattr("cfk_plugin.records.shipper._shippers", shippers)
    logger = RunLogger(tracking_uri="http://127.0.0.1:9", timeout=0.1)
    assert logger.submit(explanations())
    for shipper in shippers.values():
        shipper.close(0)


CASES = [
    Case("", "nothing is asked for", ""),
    Case("", "help", "--help"),
    Case("", "the version", "--version"),
    Case("", "an unknown command", "protekt"),
    Case("", "a group without a command", "ledger"),
    Case("", "Ctrl-C", PROTECT, interrupt),
    Case("", "an unexpected error", PROTECT, fail_unexpectedly),
    Case("demo", "k is too small", "demo --k 1"),
    Case("schema", "the schema is written", "schema train.csv -o new.json"),
    Case("schema", "the file is there already", "schema train.csv -o schema.json"),
    Case("protect", "all are released", PROTECT),
    Case("protect", "none is released", PROTECT, withhold_everything),
    Case("protect", "some are withheld", PROTECT, withhold_some),
    Case("protect", "a file is missing", PROTECT.replace("train.csv", "nowhere.csv")),
    Case("catalogue", "it has entries", f"{CATALOGUE} -o new.parquet"),
    Case(
        "catalogue",
        "it has no entry",
        f"{CATALOGUE} -o new.csv --policy strict.json",
        allow_no_region,
    ),
    Case("catalogue", "no output is named", CATALOGUE),
    Case("verify", "nothing is wrong", "verify released.json train.csv -s schema.json"),
    Case("verify", "too few people", "verify released.json train.csv -s schema.json --k 60"),
    Case("verify", "the signature is wrong", "verify released.json --key other.key.pub"),
    Case("verify", "nothing was released", "verify withheld.json train.csv -s schema.json"),
    Case("verify", "neither rows nor key", "verify released.json"),
    Case(
        "verify",
        "a later model refuses answers",
        "verify catalogue.json train.csv -s schema.json -m later.joblib -d yes",
        train_again,
    ),
    Case("sign", "keys are made", "sign --new-key new.key"),
    Case("sign", "a file is signed", "sign withheld.json --key release.key"),
    Case("sign", "no key is given", "sign released.json"),
    Case("plugins", "plugins are listed", "plugins"),
    Case("plugins", "a plugin cannot be loaded", "plugins", break_a_plugin),
    Case("serve", "nothing says what to serve", "serve"),
    Case("serve", "others would reach it", f"{SERVE} --host 0.0.0.0"),
    Case("warm-up", "kernels are kept", "warm-up", keep_kernels),
    Case("warm-up", "no kernel can be kept", "warm-up", keep_no_kernel),
    Case("ledger create", "it is made", "ledger create new.db"),
    Case("ledger create", "it cannot be made", "ledger create nowhere/new.db"),
    Case("ledger status", "the table is known", CHECK),
    Case("ledger status", "a column is new", CHECK, add_a_column),
    Case("ledger verify", "nothing was changed", "ledger verify ledger.db"),
    Case("ledger verify", "a row was changed", "ledger verify ledger.db", tamper_with_the_ledger),
    Case("ledger verify", "there is no ledger", "ledger verify nowhere.db"),
    Case("ledger status", "of an earlier version", "ledger status old.db", use_the_stored_ledger),
    Case("ledger status", "it is shown", "ledger status ledger.db"),
    Case("ledger status", "there is no ledger", "ledger status nowhere.db"),
    Case("ledger export", "it is written", "ledger export ledger.db -o audit.csv"),
    Case("ledger export", "the suffix is unknown", "ledger export ledger.db -o audit.txt"),
    Case(
        "ledger forget",
        "records are erased",
        "ledger forget ledger.db -s schema.json --train train.csv --rows wanted.csv",
    ),
    Case(
        "ledger forget",
        "the rows are missing",
        "ledger forget ledger.db -s schema.json --rows nowhere.csv",
    ),
    Case("budget show", "accounts are shown", "budget show ledger.db"),
    Case("budget show", "a delta without an epsilon", "budget show ledger.db --delta 0.1"),
    Case(
        "budget raise",
        "the ceiling is raised",
        "budget raise ledger.db --account people --epsilon 5",
    ),
    Case(
        "budget raise",
        "the account is unknown",
        "budget raise ledger.db --account nobody --epsilon 5",
    ),
    Case("spool flush", "nothing is left", "spool flush", spool_nothing),
    Case("spool flush", "a record is left", "spool flush", spool_a_record),
    Case("spool flush", "there is no spool", "spool flush --folder nowhere"),
    Case("report", "every check passes", "report --experiment tests --inputs inputs.yaml"),
    Case("report", "a check fails", "report --experiment tests --preset k20"),
    Case("report", "a check needs a person", "report --experiment tests"),
    Case("report", "nothing says of what", "report"),
    Case("report", "a template is written", "report --template new.yaml"),
    Case("audit linkage", "the promise holds", LINKAGE),
    Case("audit linkage", "the promise is broken", LINKAGE, break_the_promise),
    Case("audit linkage", "nothing was tested", LINKAGE, withhold_everything),
    Case("audit linkage", "an attack is unknown", f"{LINKAGE} --attacks magic"),
    Case(
        "audit epsilon",
        "the claim is not refuted",
        f"{EPSILON} --claimed 1 --delta 0.001 --fit audited:noisy",
    ),
    Case("audit epsilon", "the claim is refuted", f"{EPSILON} --claimed 1 --fit audited:exact"),
    Case(
        "audit epsilon", "too few runs to refute it", f"{EPSILON} --claimed 10 --fit audited:exact"
    ),
    Case("audit epsilon", "nothing is audited", f"{EPSILON} --claimed 1"),
    Case("audit frontier", "some k releases", FRONTIER),
    Case("audit frontier", "no k releases", FRONTIER, withhold_everything),
    Case("audit frontier", "k is no number", f"{FRONTIER} --ks few"),
    Case("audit suite", "an audit is unknown", f"{ALL} --only guessing"),
]

SLOW_CASES = [
    Case("demo", "the demo was shown", "demo --k 5 --patients 2 --folder out"),
    Case("audit suite", "every audit ran", f"{ALL} --only attribute_inference --size small"),
]


def make_files(folder: Path) -> None:
    """Write what the cases read into a folder, and log the run that reports are made from."""
    with chdir(folder):
        _write_applicants()
        _write_audited()
        _write_releases()
        _write_reports()


def _write_applicants() -> None:
    random = np.random.default_rng(0)
    n = 120
    train = pd.DataFrame(
        {
            "name": [f"applicant {i}" for i in range(n)],
            "age": random.integers(18, 80, n),
            "sex": random.integers(0, 2, n),
            "salary": random.integers(20, 120, n),
        }
    )
    train["outcome"] = np.where(train["salary"] + train["age"] > 110, "yes", "no")
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    model.fit(train[FEATURES], train["outcome"])
    is_accepted = model.predict(train[FEATURES]) == "yes"
    train.to_csv("train.csv", index=False)
    train.loc[is_accepted, FEATURES].head(5).to_csv("wanted.csv", index=False)
    train.loc[~is_accepted, FEATURES].head(5).to_csv("refused.csv", index=False)
    joblib.dump(model, "model.joblib")
    joblib.dump(LogisticRegression(max_iter=200), "fresh.joblib")
    Path("schema.json").write_text(json.dumps(SCHEMA))


def _write_audited() -> None:
    n = 60
    towns = pd.DataFrame({"age": np.arange(n) + 18, "town": ["Ghent", "Namur"] * (n // 2)})
    towns.to_csv("towns.csv", index=False)
    Path("towns.json").write_text(json.dumps(TOWNS))
    Path("canary.json").write_text(json.dumps({"age": 99, "town": "made up"}))
    Path("audited.py").write_text(FUNCTIONS)
    train = pd.read_csv("train.csv")
    people = pd.concat([train.drop(columns="name")] * 4, ignore_index=True)
    noise = np.random.default_rng(1).normal(0, 25, len(people))
    people["outcome"] = np.where(people["salary"] + noise > 70, "yes", "no")
    people.assign(name=range(len(people))).to_csv("people.csv", index=False)


def _write_releases() -> None:
    for words in (
        "ledger create ledger.db",
        f"{PROTECT} --guarantee reciprocal --ledger ledger.db -o released.json",
        "sign --new-key release.key",
        "sign --new-key other.key",
        "sign released.json --key release.key",
    ):
        assert exit_code_of(words) == 0
    withheld = PROTECT.replace("wanted.csv", "refused.csv")
    assert exit_code_of(f"{withheld} -o withheld.json") == 1
    with Ledger("ledger.db") as ledger:
        accountant = BudgetAccountant(1.0, 0.0, ledger=ledger, scope="people")
        accountant.spend("people", 0.5, what="a fit")
    train = pd.read_csv("train.csv")
    population = Population.from_frame(train, Schema.from_frame(train, **SCHEMA))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    anonymizer.fit(population, joblib.load("model.joblib"), "yes").seal("catalogue.cfk")


def _write_reports() -> None:
    reported.inputs(Path("inputs.yaml"))
    reported.run()


def exit_code_of(words: str) -> int:
    """Run a command in this process; an exception that is no exit is raised."""
    result = CliRunner().invoke(app, words.split())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code


def measure(cases: list[Case], files: Path, folder: Path) -> list[str]:
    """Return a line for each case: the command, its exit code, and when it has it."""
    lines = []
    for number, case in enumerate(cases):
        place = folder / str(number)
        shutil.copytree(files, place)
        with chdir(place), pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(place)
            if case.prepare is not None:
                case.prepare(patch)
            code = exit_code_of(case.words)
        command = f"cfk {case.command}".rstrip()
        lines.append(f"{command} | {code} | {case.when}")
    return sorted(lines)


def code_of_a_server_that_is_told_to_end(files: Path, folder: Path) -> str:
    """Return the line for `cfk serve`, which runs until a signal ends it."""
    with chdir(files), serving(folder, store(folder), ["cfk_plugin.cli", *SERVE.split()]) as server:
        server.process.terminate()
        return f"cfk serve | {server.process.wait(60)} | it is told to end"


def names_of_commands() -> set[str]:
    """Return the names of all commands, those of groups with the group before."""

    def names_in(group: typer.core.TyperGroup, before: str) -> Iterator[str]:
        for name, command in group.commands.items():
            if isinstance(command, typer.core.TyperGroup):
                yield from names_in(command, f"{before}{name} ")
            else:
                yield before + name

    top = typer.main.get_command(app)
    assert isinstance(top, typer.core.TyperGroup)
    return set(names_in(top, ""))
