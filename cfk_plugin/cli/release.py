"""cfk demo, protect, verify, sign, plugins."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer
from rich.markup import escape

from cfk_plugin.cli import frame as opt
from cfk_plugin.cli.frame import command, console, say, show
from cfk_plugin.errors import InputError, PolicyError, WrongSignatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population
    from cfk_plugin.protection.partition.microaggregation import Effort
    from cfk_plugin.release.explanations import Explanations
    from cfk_plugin.release.recount import Recount


@command(
    "demo",
    "cfk demo\ncfk demo --k 5 --patients 40 --folder /tmp/cfk",
    kept="what is logged by now stays in the folder",
)
def demo(
    k: Annotated[
        int, typer.Option("--k", help="Least number of people behind an explanation.")
    ] = 10,
    patients: Annotated[int, typer.Option(help="Patients to explain.", min=1)] = 20,
    folder: Annotated[Path, typer.Option(help="Where the MLflow store is written.")] = Path(),
) -> int:
    """Protect the explanations of real patients, before and after, and log them to MLflow."""
    from cfk_plugin._files import progress_bar
    from cfk_plugin.demo import run

    return run(k=k, patients=patients, folder=folder, console=console(), progress=progress_bar)


@command("schema", "cfk schema train.csv -o schema.json")
def schema(
    train: opt.Train,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file, .json. Default: stdout.")
    ] = None,
) -> int:
    """Write a schema to fill in, and show how each column is read and how many rows it singles out.

    Which columns others can know of a person is not guessed: quasi_identifiers is left empty, and
    nothing can be protected until you fill it in. Columns that are named like sex or age are
    proposed as immutable: look at them, too.
    """
    import json

    from cfk_plugin._files import check_output, read_table, write_report
    from cfk_plugin.data.misreadings import misread_texts
    from cfk_plugin.data.personal import age_columns, personal_columns

    check_output(output, "schema", (".json",))
    if output is not None and output.exists():
        raise InputError(
            f"{output}: is there already; give another name, so that nothing that was filled in is"
            " lost"
        )
    rows = read_table(train)
    personal = personal_columns(map(str, rows.columns))
    empty: dict[str, Any] = {
        "quasi_identifiers": [],
        "sensitive": [],
        "identifiers": [],
        "subject": None,
    }
    empty |= {
        "target": None,
        "nominal": [],
        "ordinal": {},
        "hierarchies": {},
        "bounds": {},
        "bins": {},
    }
    empty |= {"immutable": personal, "monotone": {}, "never_advise": {}}
    text = json.dumps(empty, indent=2)
    if output is None:
        console().file.write(text + "\n")
    else:
        write_report(output, text + "\n")
    columns = ("column", "read as", "values", "alone", "with those above", "look at it")
    show(columns, _exposure(rows), stderr=True, box=None, pad_edge=False)
    for misreading in misread_texts(rows, list(rows.columns)):
        say(f"warning: {misreading.warning.text_for_file}", stderr=True)
    say(
        "Alone: share of the rows whose value no other row has; with those above: whose values in"
        " this column and all above it together. Fill in"
        f" quasi_identifiers{f' in {output}' if output is not None else ''}: every column that"
        " others can know of a person, however harmless it looks; those far up single out the"
        " most.",
        stderr=True,
    )
    if personal:
        say(
            f"immutable has {', '.join(personal)}, by their names: nobody should be told to change"
            " these. Add other columns that a person cannot change.",
            stderr=True,
        )
    if ages := age_columns(personal):
        say(
            f'To let answers say "when you are older", take {ages[0]} out of immutable and write'
            f' "monotone": {{"{ages[0]}": "increase"}}.',
            stderr=True,
        )
    return 0


def _exposure(rows: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield each column with how it is read, its number of values, and the share of rows that it
    singles out.
    """
    import pandas as pd
    from pandas.api import types

    from cfk_plugin.data.personal import personal_columns
    from cfk_plugin.data.values import are_days

    codes = {str(name): pd.factorize(rows[name])[0] for name in rows}
    alone = {name: _share_alone(own) for name, own in codes.items()}
    together = np.zeros(len(rows), dtype=np.int64)
    for name in sorted(codes, key=lambda name: (-alone[name], name)):
        column, values = rows[name], len(np.unique(codes[name]))
        is_number = types.is_numeric_dtype(column) and not types.is_bool_dtype(column)
        is_date = types.is_datetime64_any_dtype(column) or are_days(column)
        kind = "dates" if is_date else "numbers" if is_number else "categories"
        is_own = values == len(rows) > 1 and not types.is_float_dtype(column)
        if not is_own:
            together = np.unique(np.stack([together, codes[name]]), axis=1, return_inverse=True)[
                1
            ].reshape(-1)
        hint = ""
        if is_own:
            hint = "every row its own: identifiers?"
        elif personal_columns([name]):
            hint = "nobody can change it: immutable"
        elif values == 2:
            hint = "two values: the target?"
        elif is_number and values <= _FEW and not types.is_float_dtype(column):
            hint = "codes? then nominal"
        figures = (
            f"{values:,}",
            f"{alone[name]:.0%}",
            "–" if is_own else f"{_share_alone(together):.0%}",
        )
        yield name, kind, *figures, hint


_FEW = 20  # more whole numbers than this are hardly codes


def _share_alone(codes: NDArray[np.int64]) -> float:
    return float((np.unique(codes, return_counts=True)[1] == 1).sum() / max(len(codes), 1))


@command(
    "protect",
    "cfk protect train.csv cf.csv -s schema.json -m model.joblib --desired low -o"
    " released.json\ncfk protect train.parquet cf.csv -s schema.json -m models:/credit/3 --k 5"
    " --track -o released.csv",
    kept="nothing was written; what a ledger has on record by now stays there",
)
def protect(
    given: opt.RawInputs,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=".json, .csv or .parquet. Default: JSON on stdout."),
    ] = None,
    max_changes: Annotated[
        int | None,
        typer.Option(
            help="Withhold what asks for more changes; needs --factuals.", show_default="any number"
        ),
    ] = None,
    ledger: opt.Ledger = None,
    track: opt.Track = False,
    experiment: opt.Experiment = None,
) -> int:
    """Turn raw counterfactuals into k-anonymous explanations.

    Exit code 0 when all are released, 3 when some are withheld, 1 when all are. Whoever has the
    desired outcome already needs none and does not count.
    """
    from contextlib import nullcontext

    from cfk_plugin._files import check_output, json_with_sentences, progress_bar, write_released
    from cfk_plugin.data.constraints import most_changes
    from cfk_plugin.data.outcome import ALREADY_DESIRED
    from cfk_plugin.records.ledger import Ledger
    from cfk_plugin.release.anonymizer import KAnonymizer

    check_output(output)
    if max_changes is not None and given.factuals is None:
        raise InputError(
            "--max-changes counts what a person changes; give --factuals, the instance behind each"
            " counterfactual"
        )
    most_changes(max_changes)
    case = given.read()
    with Ledger(ledger) if ledger else nullcontext() as book:
        anonymizer = KAnonymizer(policy=case.policy, method=given.method, ledger=book)
        anonymizer.fit(case.population, model=case.model, desired=case.desired)
        with progress_bar("protecting", console(stderr=True)) as told:
            explanations = anonymizer.transform(
                case.raw, case.factuals, max_changes=max_changes, progress=told
            )
    if output is not None:
        write_released(output, explanations, case.factuals)
    else:
        console().file.write(json_with_sentences(explanations, case.factuals) + "\n")
    opt.ReportPlace(track=track, experiment=experiment).keep(explanations)
    _show_summary(explanations, output)
    if all(entry.reason == ALREADY_DESIRED for entry in explanations.withheld):
        return 0
    return 3 if explanations.released else 1


def _show_summary(explanations: Explanations, output: Path | None) -> None:
    from cfk_plugin.release.withheld import REASONS

    summary = explanations.summary()
    where = f" in {output}" if output is not None else ""
    say(f"{summary['released']} released, {summary['withheld']} withheld{where}", stderr=True)
    for reason, count in summary["reasons"].items():
        why = REASONS[reason]
        say(f"  {count} withheld: {why.meaning}; {why.remedy}", stderr=True)
    if summary["released"]:
        say(
            f"  smallest region {summary['k_min']:.0f} people, information loss"
            f" {summary['ncp_mean']:.3f}, pureness {summary['pureness_mean']:.1%}",
            stderr=True,
        )


@command(
    "catalogue",
    "cfk catalogue train.csv -s schema.json -m model.joblib --desired low -o catalogue.parquet\n"
    "cfk catalogue train.csv -s schema.json -m model.joblib --desired low --html catalogue.html",
    kept="nothing was written; what a ledger has on record by now stays there",
)
def catalogue(
    train: opt.Train,
    schema: opt.SchemaFile,
    model: opt.Model,
    desired: opt.Desired = "opposite",
    threshold: opt.Threshold = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=".parquet, .csv or .json, for cfk verify.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="A page on which readers find the nearest explanation.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    within: Annotated[
        float | None,
        typer.Option(
            help="Publish the smallest part that brings refused people so much further at most,"
            " 0.03 for 3 %."
        ),
    ] = None,
    k: opt.K = None,
    policy: opt.Policy = None,
    ledger: opt.Ledger = None,
    previous: opt.Previous = None,
) -> int:
    """Publish every explanation there can be: the catalogue of a policy with guarantee="catalogue".

    It holds private values of people, and nothing else of the rows. If one was published before,
    give it with --previous, or use a ledger for all of them: else the difference tells about who
    joined or left. With --within, only the entries that refused people need most are published.
    Exit code 1 when it has no entry.
    """
    from contextlib import nullcontext

    import cfk_plugin._files as files
    from cfk_plugin.data.population import Population
    from cfk_plugin.records.ledger import Ledger
    from cfk_plugin.release.anonymizer import KAnonymizer
    from cfk_plugin.release.publication import catalogue_page, table_of
    from cfk_plugin.release.short_catalogue import check_within

    if output is None and html is None:
        raise InputError("give --output or --html, the file to write")
    files.check_output(output)
    files.check_output(html, "page", (".html",))
    rules = files.read_policy(policy, {"k": k, "guarantee": "catalogue"})
    if within is not None:
        check_within(within)
    earlier = _previous(previous)
    rows = files.read_table(train)
    roles = files.read_schema(schema, rows)
    explained = files.load_model(model, threshold)
    outcome = files.wanted(desired, explained, rows[list(roles.features)])
    population = Population.from_frame(rows, roles)
    with Ledger(ledger) if ledger else nullcontext() as book:
        anonymizer = KAnonymizer(policy=rules, ledger=book)
        anonymizer.fit(population, explained, outcome)
        published = anonymizer.published(previous=earlier, within=within)
    if html is not None:
        files.write_report(html, catalogue_page(published, population, title=title))
    if output is not None and output.suffix.lower() == ".json":
        files.write_report(output, published.to_json(indent=1))
    elif output is not None:
        files.write_table(output, table_of(published.to_json()))
    _show_summary(published, output or html)
    if published.short_catalogue is not None:
        say(f"  {published.short_catalogue}", stderr=True)
    return 0 if len(published) else 1


@command(
    "verify",
    "cfk verify released.json train.csv -s schema.json --desired low\n"
    "cfk verify released.json train.csv -s schema.json --key release.key.pub\n"
    "cfk verify released.json train.csv -s schema.json -m model.joblib --desired low --rerun\n"
    "cfk verify released.json train.csv -s schema.json -m new.joblib --queries queries.csv\n"
    "cfk verify released.json --key release.key.pub",
)
def verify(  # noqa: C901 - one check after the other
    released: Annotated[Path, typer.Argument(help="Released explanations, JSON; or a catalogue.")],
    train: Annotated[
        Path | None, typer.Argument(help="The people to count, CSV or Parquet.")
    ] = None,
    schema: opt.OptionalSchemaFile = None,
    key: Annotated[
        Path | None, typer.Option(help="Public key of the signer; an unsigned file fails.")
    ] = None,
    signature: Annotated[Path | None, typer.Option(help="Default: RELEASED.sig.")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="JSON with the policy that it must have been made under.")
    ] = None,
    k: opt.K = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="As for protect, or a newer one: recounts pureness, and which answers are true.",
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="With --model: the instances that were answered, in their order."),
    ] = None,
    desired: opt.Desired = "opposite",
    threshold: opt.Threshold = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Build the guarantee's regions again, and compare.")
    ] = False,
    effort: opt.Effort = "balanced",
    previous: opt.Previous = None,
    ledger: opt.Ledger = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout, with all that was found.")
    ] = False,
) -> int:
    """Check released explanations: form, signature, people, values, and what the certificates say.

    With the model it counts the answers that are still true: those whose person would get the
    outcome. A catalogue needs no queries for that. An answer that is not true fails if its
    guarantee promises that it is.

    Exit code 0 when nothing is wrong, 1 when the file must not be relied on, 3 when a person has to
    look: nothing was released, the table is another one, or it holds prototypes, which cannot be
    counted. What was not checked is listed. For --rerun, give --previous or --ledger as it was
    given for the catalogue.
    """
    from contextlib import nullcontext

    from cfk_plugin._files import (
        load_model,
        read_bytes,
        read_policy,
        read_released,
        read_schema,
        read_table,
        wanted,
    )
    from cfk_plugin.data.population import Population
    from cfk_plugin.records.ledger import Ledger
    from cfk_plugin.release import signing
    from cfk_plugin.release.recount import Judge, examine
    from cfk_plugin.release.released_file import require_answered, require_version

    if k is not None and k < 2:
        raise PolicyError(f"k must be a whole number >= 2, got {k}")
    if (train is None) != (schema is None):
        raise InputError("give the training rows and --schema together")
    if train is None and key is None:
        raise InputError(
            "give the training rows and --schema, or --key to check the signature alone"
        )
    if train is None and (model is not None or k is not None):
        raise InputError("--model and --k need the training rows and --schema")
    if queries is not None and model is None:
        raise InputError("--queries needs --model, which says whether answers are true for them")
    if not rerun and (previous is not None or ledger is not None):
        raise InputError("--previous and --ledger say what --rerun needs; give that as well")
    if signature is not None and key is None:
        raise InputError("--signature needs --key, the public key of whoever signed")
    if previous is not None and previous.resolve() == released.resolve():
        raise InputError(
            "--previous is the file itself; give the catalogue that was published before"
        )
    if rerun and model is None:
        raise InputError("--rerun needs --model, and --desired as it was for the release")
    try:
        content = read_bytes(released) if key is None else signing.verify(released, key, signature)
    except WrongSignatureError as error:
        if as_json:
            _write_json({"verdict": "fail", "signature": str(error)})
        else:
            say(f"[bold]fail[/]: {escape(str(error))}", markup=True)
        return 1
    read = read_released(content, released)
    said = read.content
    try:
        require_version(said)
    except InputError as error:
        raise InputError(f"{released}: {error}") from None
    population = judge = None
    if train is not None and schema is not None:
        population = Population.from_frame(rows := read_table(train), read_schema(schema, rows))
        if model is not None:
            asked, features = load_model(model, threshold), list(population.schema.features)
            judge = Judge(
                population,
                asked,
                wanted(desired, asked, rows[features]),
                cast("Effort", effort),
                _previous(previous),
            )
    answered = None
    if queries is not None and population is not None:
        answered = require_answered(said, read_table(queries), population)
    with Ledger(ledger) if ledger else nullcontext() as book:
        found = examine(
            said,
            population,
            judge and replace(judge, ledger=book),
            agreed=None if policy is None else read_policy(policy, {}),
            k=k,
            outcome=desired,
            rerun=rerun,
            signed=key is not None,
            table=read.table,
            queries=answered,
        )
    found.unchecked += read.not_checked
    if as_json:
        _write_json(_plain_recount(found))
    else:
        _show_recount(found, said, population)
    return opt.EXIT[found.verdict]


def _previous(path: Path | None) -> Mapping[str, Any] | None:
    """Read a catalogue that was published before, if its form is right."""
    from cfk_plugin._files import read_bytes, read_released
    from cfk_plugin.release.released_file import require_version, unfit

    if path is None:
        return None
    content = read_released(read_bytes(path), path).content
    try:
        require_version(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if unfit(content, ()):
        raise InputError(
            f"{path}: is not in the form of a catalogue; cfk verify says what is wrong"
        )
    return content


_SHOWN = 20


def _show_recount(
    found: Recount, content: Mapping[str, Any], population: Population | None
) -> None:
    if found.findings:
        show(
            ("where", "problem"),
            [(finding.where, finding.problem) for finding in found.findings[:_SHOWN]],
        )
        if len(found.findings) > _SHOWN:
            say(f"... and {len(found.findings) - _SHOWN} more")
    withheld = sum(
        isinstance(e, dict) and e.get("status") == "withheld" for e in content["explanations"]
    )
    said = [f"{len(content['explanations']) - withheld} released, {withheld} withheld"]
    if content.get("kind") == "catalogue":
        said = [f"catalogue of {len(content['explanations'])} entries"]
    if population is not None:
        said.append(f"{population.n_people} people in the table")
    if found.counts:
        said.append(f"at least {min(found.counts)} in a region")
    say(f"[bold]{found.verdict}[/]: {', '.join(said)}", markup=True)
    if found.still_true is not None:
        say(f"{found.still_true}")
    if found.not_stopped:
        say(f"not stopped: {', '.join(found.not_stopped)}")
    for what in found.unchecked:
        say(f"not checked: {what}")


def _plain_recount(found: Recount) -> dict[str, Any]:
    """Return what was found, as JSON holds it."""
    still_true = None
    if found.still_true is not None:
        still_true = {
            "answers": found.still_true.answers,
            "still_true": found.still_true.still_true,
            "share": found.still_true.share,
            "broken": list(found.still_true.broken),
            "queries": list(found.still_true.queries),
        }
    return {
        "verdict": found.verdict,
        "findings": [
            {"where": each.where, "problem": each.problem, "fails": each.fails}
            for each in found.findings
        ],
        "still_true": still_true,
        "fewest_people": min(found.counts, default=None),
        "not_stopped": found.not_stopped,
        "not_checked": found.unchecked,
    }


def _write_json(content: Mapping[str, Any]) -> None:
    import json

    console().file.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


@command("sign", "cfk sign --new-key release.key\ncfk sign released.json --key release.key")
def sign(
    path: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to sign, byte by byte.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Your private key.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(help="Make a private key here, and a public one beside it.")
    ] = None,
) -> int:
    """Sign a file with Ed25519, for cfk verify --key; the signature is FILE.sig.

    The private key is encrypted and opened with CFK_SIGN_PASSPHRASE, if it is set.
    """
    from cfk_plugin.release import signing

    passphrase = os.environ.get("CFK_SIGN_PASSPHRASE")
    if new_key is not None:
        if path is not None or key is not None:
            raise InputError("--new-key makes keys and signs nothing; sign with --key then")
        public = signing.new_key(new_key, passphrase)
        say(f"{new_key}: keep it to yourself\n{public}: give it to those who verify")
        return 0
    if path is None or key is None:
        raise InputError(
            "give a file and --key, your private key; cfk sign --new-key PATH makes one"
        )
    say(f"{signing.sign(path, key, passphrase)}")
    return 0


@command("plugins", "cfk plugins\nCFK_DISABLE_PLUGINS=nice cfk plugins")
def plugins() -> int:
    """List installed plugins, their versions and what they add."""
    from cfk_plugin.plugins import generators, load_plugins

    manager = load_plugins()
    if not manager.infos:
        say("no plugins are installed")
        return 0
    rows = [
        (i.name, i.distribution or "–", i.version, ", ".join(i.hooks))
        for i in reversed(manager.infos)
    ]
    show(("plugin", "distribution", "version", "hooks"), rows)
    if protectors := sorted(manager.protectors()):
        say(f"protectors that plugins bring: {', '.join(protectors)}")
    if found := generators():
        say(f"generators, by name: {', '.join(found)}")
    return 0
