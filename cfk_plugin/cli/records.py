"""cfk ledger, budget, spool: inspect and maintain what is kept of every release."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfk_plugin.cli import frame as opt
from cfk_plugin.cli.frame import app, command, console, say, show
from cfk_plugin.errors import InputError, LedgerError, counted, quiet

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.data.population import Population
    from cfk_plugin.records.account import Account
    from cfk_plugin.records.ledger import Ledger, Status
    from cfk_plugin.records.outbox import WaitingStream
    from cfk_plugin.records.spool import Spool

ledger = typer.Typer(
    help="Make a ledger of releases, check it, or erase records from it.", no_args_is_help=True
)
budget = typer.Typer(
    help="Look at privacy budgets in a ledger, or raise one.", no_args_is_help=True
)
spool = typer.Typer(help="Send records that wait for MLflow.", no_args_is_help=True)
app.add_typer(ledger, name="ledger")
app.add_typer(budget, name="budget")
app.add_typer(spool, name="spool")


def _opened(url: str, key_file: Path | None, *, create: bool = False) -> Ledger:
    from cfk_plugin.records.ledger import Ledger

    return Ledger(url, key_file=key_file, create=create)


@command(
    "create",
    "cfk ledger create ledger.db\ncfk ledger create postgresql://cfk@db.example.org/privacy",
    ledger,
)
def ledger_create(url: opt.LedgerUrl, key_file: opt.KeyFile = None) -> int:
    """Make a new ledger, once; nothing else does. One that is there is not touched."""
    with _opened(url, key_file, create=True) as book:
        return _show_status(book.status())


@command("verify", "cfk ledger verify ledger.db\ncfk ledger verify ledger.db --head DIGEST", ledger)
def ledger_verify(
    url: opt.LedgerUrl,
    head: Annotated[
        str | None, typer.Option(help="A head that was printed earlier and kept elsewhere.")
    ] = None,
    key_file: opt.KeyFile = None,
) -> int:
    """Check that no release or spend was removed, added or changed.

    Exit code 0 when none was, else 1.
    """
    from cfk_plugin.records.chain import BrokenLedgerError

    try:
        with _opened(url, key_file) as book:
            found = book.verify(head)
    except BrokenLedgerError as error:
        say(f"cfk: {error}", stderr=True)
        return 1
    say("the ledger is as it was written")
    return _show_status(found)


@command(
    "status",
    "cfk ledger status ledger.db\ncfk ledger status ledger.db --train train.csv -s schema.json",
    ledger,
)
def ledger_status(
    url: opt.LedgerUrl,
    train: Annotated[
        Path | None,
        typer.Option(help="Training rows as they are used now: does the ledger know this table?"),
    ] = None,
    schema: opt.OptionalSchemaFile = None,
    key_file: opt.KeyFile = None,
) -> int:
    """Show how many records and releases a ledger holds; with --train, whether it knows a table.

    Exit code 1 when the table has other columns than the ledger was used with, or none of its
    people is on record.
    """
    from cfk_plugin._files import read_schema, read_table
    from cfk_plugin.data.population import Population

    if (train is None) != (schema is None):
        raise InputError("give --train and --schema together")
    population = None
    if train is not None and schema is not None:
        rows = read_table(train)
        population = Population.from_frame(rows, read_schema(schema, rows))
    with _opened(url, key_file) as book:
        if population is None:
            return _show_status(book.status())
        return 0 if _knows_table(book, population) else 1


def _knows_table(book: Ledger, population: Population) -> bool:
    """Say whether a ledger was used with a table's columns and people; one without use passes."""
    from cfk_plugin.records.ledger import TableColumns
    from cfk_plugin.release.person_handles import PersonHandles

    known = book.columns()
    if known is None:
        say("the ledger was not used with a table yet")
        return True
    changes = known.changes(TableColumns.of(population.schema))
    if changes:
        say("the ledger was used with other columns:")
        for change in changes:
            say(f"  {change}")
        return False
    people = PersonHandles(book, population).of_everybody()
    if book.knows_anyone(people) is None:
        say("the columns are those of the ledger; nobody is on record yet")
        return True
    n_known = book.count_known(people)
    say(f"the columns are those of the ledger; of {len(people):,} people {n_known:,} are on record")
    return n_known > 0


def _show_status(found: Status) -> int:
    for field in fields(found):
        value = getattr(found, field.name)
        say(f"{field.name:<10} {'–' if value is None else value}")
    return 0


@command(
    "export",
    "cfk ledger export ledger.db -o audit.csv",
    ledger,
    kept="the file that was begun is not whole",
)
def ledger_export(
    url: opt.LedgerUrl,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the rows go, .csv or .jsonl.")
    ],
    key_file: opt.KeyFile = None,
) -> int:
    """Write what was released, when and how often: handles, hashes, counts and times, no value."""
    from cfk_plugin.records.ledger import COLUMNS

    as_csv, number = output.suffix.lower() == ".csv", 0
    if not as_csv and output.suffix.lower() != ".jsonl":
        raise LedgerError(f"{output}: the export must end in .csv or .jsonl")
    with (
        _opened(url, key_file) as book,
        quiet(f"{output}: cannot be written", LedgerError, let=LedgerError),
        output.open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if as_csv:
            table.writeheader()
        for number, row in enumerate(book.export(), start=1):  # noqa: B007 - used after the loop
            if as_csv:
                table.writerow(row)
            else:
                file.write(json.dumps(row) + "\n")
    say(f"{counted(number, 'row')} in {output}", stderr=True)
    return 0


@command(
    "forget",
    "cfk ledger forget ledger.db -s schema.json --rows person.csv --train train.csv",
    ledger,
)
def ledger_forget(
    url: opt.LedgerUrl,
    schema: opt.SchemaFile,
    rows: Annotated[
        Path, typer.Option(help="Rows that are to be forgotten, as in the training table.")
    ],
    train: Annotated[
        Path | None, typer.Option(help="Training rows, whose columns and types are used.")
    ] = None,
    key_file: opt.KeyFile = None,
) -> int:
    """Erase records from a ledger, and their people from the groups of others.

    What is on record for others stays. People are known by the schema's subject key, if it names
    one: give that column as well.
    """
    from cfk_plugin._files import read_schema, read_table
    from cfk_plugin.records.keys import canonical_text

    known = None if train is None else read_table(train)
    table = read_table(rows) if known is None else _as_trained(rows, known)
    roles = read_schema(schema, table if known is None else known)
    if not len(table):
        raise InputError(f"{rows}: has no rows; give the rows to forget")
    with _opened(url, key_file) as book:
        if missing := [name for name in roles.features if name not in table.columns]:
            lost = ", ".join(missing)
            raise InputError(
                f"{rows}: column {lost} is missing; give the rows as they are in the training table"
            )
        # Column by column: a row of a data frame turns whole numbers beside a fraction into floats.
        columns = [table[name].tolist() for name in sorted(roles.features)]
        records = [list(values) for values in zip(*columns, strict=True)]
        if roles.subject is None:
            people = [[*map(canonical_text, values), "0"] for values in records]
        else:
            subjects = table[roles.subject].tolist() if roles.subject in table.columns else []
            people = [[canonical_text(subject)] for subject in subjects]
        gone = book.forget(*map(book.handle, records), people=[*map(book.person, people)])
    if roles.subject is not None and not people:
        say(
            f"{rows}: has no column {roles.subject}, so nobody was taken out of the groups of"
            " others; give the subject key as well",
            stderr=True,
        )
    say(f"forgot {counted(gone.records, 'record')} with {counted(gone.releases, 'release')}")
    if not gone.records and known is None:
        say(
            "nothing matched; --train makes sure that the rows are read as they were for training",
            stderr=True,
        )
    return 0


def _as_trained(path: Path, train: pd.DataFrame) -> pd.DataFrame:
    """Read rows with the types of the training table; a code such as 007 stays text."""
    import pandas as pd
    from pandas.api import types

    from cfk_plugin._files import read_table
    from cfk_plugin.data.values import conform

    table = read_table(path)
    texts = [
        name
        for name in table.columns
        if name in train.columns
        and (types.is_object_dtype(train[name]) or types.is_string_dtype(train[name]))
    ]
    if path.suffix.lower() not in (".parquet", ".pq") and texts:
        table = table.assign(**pd.read_csv(path, usecols=texts, dtype=str))
    for name in table.columns.intersection(train.columns):
        table[name] = conform(table[name], train[name].dtype)
    return table


@command(
    "show", "cfk budget show ledger.db\ncfk budget show ledger.db --next 0.5 --delta 1e-6", budget
)
def budget_show(
    url: opt.LedgerUrl,
    key_file: opt.KeyFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON, with every ceiling and every fit.")
    ] = False,
    next_epsilon: Annotated[
        float | None, typer.Option("--next", help="ε of a next fit, to see what it would lead to.")
    ] = None,
    delta: Annotated[
        float, typer.Option(help="δ of the next fit, which then has Gaussian noise.")
    ] = 0.0,
) -> int:
    """Show every account: its ceiling, what was spent, what is left, and what a next fit would lead
    to.
    """
    from cfk_plugin.records.account import accounts
    from cfk_plugin.records.composition import Spend, largest_rho

    if next_epsilon is None and delta:
        raise InputError("--delta is that of the next fit; give its ε, too, with --next")
    next_fit = None
    if next_epsilon is not None:
        next_fit = Spend.read(next_epsilon, delta, largest_rho(next_epsilon, delta))
    with _opened(url, key_file) as book:
        known = accounts(book)
    accounts_then: list[Account | None] = [None] * len(known)
    if next_fit is not None:
        accounts_then = [account.after(next_fit) for account in known]
    if as_json:
        plain = [_plain_account(*pair) for pair in zip(known, accounts_then, strict=True)]
        console().file.write(json.dumps({"accounts": plain}, indent=1) + "\n")
        return 0
    if not known:
        say("no budget was used in this ledger")
        return 0
    heads = ["account", "", "ceiling", "spent", "left", "fits", "last"]
    if next_fit is not None:
        heads.append("then")
    rows: list[tuple[str, ...]] = []
    for account, then in zip(known, accounts_then, strict=True):
        rows += _account_rows(account, then)
    show(heads, rows, box=None, pad_edge=False)
    return 0


def _account_rows(account: Account, then: Account | None) -> list[tuple[str, ...]]:
    """Return the two rows of an account in a table: of its ε, and of its δ.

    `then` is the account after a next fit, which fills one more column.
    """
    from cfk_plugin.records.composition import format_amount

    budgets = [account.ceiling, account.spent, account.left]
    epsilons = [format_amount(budget.epsilon) for budget in budgets]
    deltas = [format_amount(budget.delta) for budget in budgets]
    last = account.spends[-1].at[:10] if account.spends else "–"
    of_epsilon = (account.name, "ε", *epsilons, str(len(account.spends)), last)
    of_delta = ("", "δ", *deltas, "", "")
    if then is None:
        return [of_epsilon, of_delta]
    if then.is_exceeded:
        return [(*of_epsilon, "refused"), (*of_delta, "")]
    return [
        (*of_epsilon, format_amount(then.spent.epsilon)),
        (*of_delta, format_amount(then.spent.delta)),
    ]


def _plain_account(account: Account, then: Account | None) -> dict[str, Any]:
    """Return an account as JSON; `then` is the account after a next fit."""
    plain = {
        "account": account.name,
        "ceiling": account.ceiling._asdict(),
        "spent": account.spent._asdict(),
        "left": account.left._asdict(),
        "fits": len(account.spends),
        "last": account.spends[-1].at if account.spends else None,
        "ceilings": [ceiling._asdict() for ceiling in account.ceilings],
        "spends": [asdict(spend) for spend in account.spends],
    }
    if then is not None:
        plain["next"] = {"spent": then.spent._asdict(), "refused": then.is_exceeded}
    return plain


@command("raise", "cfk budget raise ledger.db --account patients --epsilon 5", budget)
def budget_raise(
    url: opt.LedgerUrl,
    account: Annotated[
        str, typer.Option(help="Name of the account: a scope, or another name that was given.")
    ],
    epsilon: Annotated[float | None, typer.Option(help="New ceiling of the sum of all ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="New ceiling of the sum of all δ.")] = None,
    key_file: opt.KeyFile = None,
) -> int:
    """Raise the ceiling of an account: people may lose more privacy than promised.

    Earlier ceilings stay on record.
    """
    from cfk_plugin.records.account import raise_ceiling

    with _opened(url, key_file) as book:
        now = raise_ceiling(book, account, epsilon, delta)
    say(f"raised from {now.ceilings[-2]} to {now.ceiling}; {now.left} is left")
    return 0


Folder = Annotated[
    Path | None, typer.Option(help="Folder of the spool. Default: CFK_SPOOL, else the user's own.")
]


@command(
    "flush",
    "cfk spool flush\ncfk spool flush --folder /var/lib/cfk/spool",
    spool,
    kept="MLflow has what was delivered by now, and the rest waits",
)
def spool_flush(folder: Folder = None) -> int:
    """Send what ended processes left behind, and show what still waits, since when, and why.

    Exit code 0 when all is delivered, else 3.
    """
    from cfk_plugin.records.shipper import Shipper

    with _existing(folder) as existing:
        return _show_waiting(Shipper(existing).drain())


@contextmanager
def _existing(folder: Path | None) -> Iterator[Spool]:
    from cfk_plugin.records.spool import Spool, SpoolSettings, exists

    settings = SpoolSettings.of(folder)
    if not exists(settings.folder):
        raise InputError(
            f"there is no spool in {settings.folder}; give its folder with --folder, or set"
            " CFK_SPOOL"
        )
    with closing(Spool(settings)) as existing:
        yield existing


def _show_waiting(waiting: Sequence[WaitingStream]) -> int:
    if not waiting:
        say("Nothing waits: MLflow has every record.")
        return 0
    rows = []
    for stream in waiting:
        behind = "–" if stream.oldest is None else _since(time.time() - stream.oldest / 1000)
        problem = stream.problem or "none yet; a process sends it"
        rows.append(
            (stream.mark, f"{stream.n_records:,}", f"{stream.n_bytes / 1000:,.0f}", behind, problem)
        )
    show(("stream", "records", "kB", "behind", "last problem"), rows, box=None)
    return 3


def _since(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(seconds, 0):.0f} s"
