"""cfk demo, schema, explain, protect, catalogue, verify, plugins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from cfk_plugin.cli import frame as opt
from cfk_plugin.cli.frame import command, console, say, show
from cfk_plugin.errors import InputError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population
    from cfk_plugin.release.explanations import Explanations
    from cfk_plugin.release.files import FileRecount


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
    from cfk_plugin._files import check_output, read_table, write_report
    from cfk_plugin.data.misreadings import misreadings
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
        "target": None,
        "nominal": [],
        "ordinal": {},
        "immutable": personal,
        "monotone": {},
        "never_advise": {},
        "titles": {},
        "units": {},
        "outcomes": {},
        "rules": [],
        "columns": {},
    }
    text = json.dumps(empty, indent=2)
    if output is None:
        console().file.write(text + "\n")
    else:
        write_report(output, text + "\n")
    columns = ("column", "read as", "values", "alone", "with those above", "look at it")
    show(columns, _exposure(rows), stderr=True, box=None, pad_edge=False)
    for text in misreadings(rows, rows.columns):
        say(f"warning: {text}", stderr=True)
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
    from cfk_plugin.data.values import holds_dates, is_numeric

    codes = {str(name): pd.factorize(rows[name])[0] for name in rows}
    alone = {name: _share_alone(own) for name, own in codes.items()}
    together = np.zeros(len(rows), dtype=np.int64)
    for name in sorted(codes, key=lambda name: (-alone[name], name)):
        column, values = rows[name], len(np.unique(codes[name]))
        is_number = is_numeric(column)
        is_date = is_number and holds_dates(column)
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
        elif kind == "numbers" and values <= _FEW and not types.is_float_dtype(column):
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
    "explain",
    "cfk explain train.csv queries.csv -s schema.json -m model.joblib -d yes -o answers.json\n"
    "cfk explain train.parquet queries.csv -s schema.json -m models:/credit/3 -d yes --k 20 --track"
    " -o answers.csv",
)
def explain(
    inputs: opt.CatalogueInputs,
    queries: Annotated[Path, typer.Argument(help="The people to answer, CSV or Parquet.")],
    output: opt.Released = None,
    max_changes: Annotated[
        int | None,
        typer.Option(
            help="Most columns that an answer may ask to change.", show_default="any number"
        ),
    ] = None,
    track: opt.Track = False,
    experiment: opt.Experiment = None,
) -> int:
    """Answer each person with the least change for which the model gives the outcome.

    Answers come from a catalogue of the training table, which is made first; no explainer is
    needed. Each has a sentence for the person, which holds the person's own values.

    Exit code 0 when all are answered, 3 when some are withheld, 1 when all are. Whoever has the
    desired outcome already needs no answer and does not count.
    """
    import cfk_plugin._files as files
    from cfk_plugin.data.call_rules import most_changes

    files.check_output(output)
    most_changes(max_changes)
    people = files.read_table(queries, files.code_columns(inputs.schema))
    anonymizer, _ = inputs.fit()
    with files.progress_bar("answering", console(stderr=True)) as progress:
        explanations = anonymizer.explain(people, max_changes=max_changes, progress=progress)
    _write(explanations, people, output)
    opt.ReportPlace(track=track, experiment=experiment).keep(explanations)
    _show_summary(explanations, output)
    return _exit_code(explanations)


@command(
    "protect",
    "cfk protect train.csv cf.csv -s schema.json -m model.joblib --desired low"
    " --factuals queries.csv -o released.json\n"
    "cfk protect train.parquet cf.csv -s schema.json -m models:/credit/3 --guarantee lookup --k 5"
    " --track -o released.csv",
    kept="nothing was written",
)
def protect(
    given: opt.RawInputs,
    output: opt.Released = None,
    max_changes: Annotated[
        int | None,
        typer.Option(
            help="Withhold what asks for more changes; needs --factuals.", show_default="any number"
        ),
    ] = None,
    track: opt.Track = False,
    experiment: opt.Experiment = None,
) -> int:
    """Turn raw counterfactuals into k-anonymous explanations.

    A catalogue answers the instances behind the counterfactuals, which are only examined: an answer
    near to a counterfactual could reveal a row of the training data. A lookup guarantee generalises
    each counterfactual.

    Exit code 0 when all are released, 3 when some are withheld, 1 when all are. Whoever has the
    desired outcome already needs none and does not count.
    """
    from cfk_plugin._files import check_output, progress_bar
    from cfk_plugin.data.call_rules import most_changes
    from cfk_plugin.release.anonymizer import KAnonymizer

    check_output(output)
    if max_changes is not None and given.factuals is None:
        raise InputError(
            "--max-changes counts what a person changes; give --factuals, the instance behind each"
            " counterfactual"
        )
    most_changes(max_changes)
    case = given.read()
    anonymizer = KAnonymizer(policy=case.policy, method=given.method)
    anonymizer.fit(case.population, model=case.model, desired=case.desired)
    with progress_bar("protecting", console(stderr=True)) as told:
        explanations = anonymizer.transform(
            case.raw, case.factuals, max_changes=max_changes, progress=told
        )
    _write(explanations, case.factuals, output)
    opt.ReportPlace(track=track, experiment=experiment).keep(explanations)
    _show_summary(explanations, output)
    return _exit_code(explanations)


def _write(explanations: Explanations, queries: pd.DataFrame | None, output: Path | None) -> None:
    """Write explanations with their sentences to a file, or to the standard output without one."""
    from cfk_plugin._files import write_released

    if output is not None:
        write_released(output, explanations, queries)
    else:
        console().file.write(explanations.to_json_with_sentences(queries) + "\n")


def _exit_code(explanations: Explanations) -> int:
    """Return the code for what is withheld; who has the desired outcome does not count."""
    from cfk_plugin.data.outcome import ALREADY_DESIRED

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
    "cfk catalogue train.csv -s schema.json -m model.joblib --desired low -o catalogue.json\n"
    "cfk catalogue train.csv -s schema.json -m model.joblib --desired low --html catalogue.html",
    kept="nothing was written",
)
def catalogue(
    inputs: opt.CatalogueInputs,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=".json, for cfk verify.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="A page on which readers find the nearest explanation.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
) -> int:
    """Publish every explanation there can be: the catalogue of a policy with guarantee="catalogue".

    It holds private values of people, and nothing else of the rows. If one was published before,
    the difference tells about who joined or left. Exit code 1 when it has no entry.
    """
    import cfk_plugin._files as files
    from cfk_plugin.release.publication import catalogue_page

    if output is None and html is None:
        raise InputError("give --output or --html, the file to write")
    files.check_output(output, endings=(".json",))
    files.check_output(html, "page", (".html",))
    anonymizer, population = inputs.fit()
    published = anonymizer.published()
    if html is not None:
        files.write_report(html, catalogue_page(published, population, title=title))
    if output is not None:
        files.write_report(output, published.to_json(indent=1))
    _show_summary(published, output or html)
    return 0 if len(published) else 1


@command(
    "verify",
    "cfk verify released.json --train train.csv -s schema.json\n"
    "cfk verify catalogue.json --train train.csv -s schema.json -m model.joblib --desired low\n"
    "cfk verify released.json --train train.csv -s schema.json -m new.joblib --queries queries.csv",
)
def verify(
    released: Annotated[Path, typer.Argument(help="Released explanations or a catalogue, JSON.")],
    train: Annotated[Path, typer.Option(help="The people to count, CSV or Parquet.")],
    schema: opt.OptionalSchemaFile = None,
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
    k: opt.K = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout, with all that was found.")
    ] = False,
) -> int:
    """Count the people of released explanations again, and compare with their certificates.

    Without --schema, columns and quasi-identifiers are those of the file, and each row is a person.

    With the model it counts the answers that are still true: those whose person would get the
    outcome. A catalogue needs no queries for that. An answer that is not true fails if its
    guarantee promises that it is.

    Exit code 0 when nothing is wrong, 1 when the file must not be relied on, 3 when a person has to
    look: nothing was released, the table is another one, or it holds prototypes, which cannot be
    counted. What was not checked is listed.
    """
    import cfk_plugin._files as files
    from cfk_plugin.data.population import Population
    from cfk_plugin.release.files import FileRecount, recount, schema_in_file, wrong_form

    if k is not None and k < 2:
        raise PolicyError(f"k must be a whole number >= 2, got {k}")
    if queries is not None and model is None:
        raise InputError("--queries needs --model, which says whether answers are true for them")
    content = files.read_json(released)
    if schema is not None:
        codes = files.code_columns(schema)
    else:
        codes = set() if wrong_form(content, ()) else files.code_columns_of_release(content)
    rows = files.read_table(train, codes)
    roles = None if schema is None else files.read_schema(schema, rows)
    if roles is None and not wrong_form(content, ()):
        roles = schema_in_file(content, rows)
    if roles is None:
        report = FileRecount(wrong_form(content, ()))
        _show_recount(report, as_json)
        return opt.EXIT[report.verdict]
    population = Population.from_frame(rows, roles)
    asked = None
    outcome = desired
    if model is not None:
        asked = files.load_model(model, threshold)
        outcome = files.wanted(desired, asked, rows[list(roles.features)])
    answered = None if queries is None else files.read_table(queries, codes)
    report = recount(content, population, model=asked, desired=outcome, queries=answered, k=k)
    if schema is None:
        report.unchecked.append("that each row is a person, and its columns (--schema)")
    _show_recount(report, as_json, content, population)
    return opt.EXIT[report.verdict]


_SHOWN = 20


def _show_recount(
    report: FileRecount,
    as_json: bool,
    content: Mapping[str, Any] | None = None,
    population: Population | None = None,
) -> None:
    """Print what is wrong; `content` and `population` are missing if the form is wrong."""
    if as_json:
        text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False)
        console().file.write(text + "\n")
        return
    if report.findings:
        show(
            ("where", "problem"),
            [(finding.where, finding.problem) for finding in report.findings[:_SHOWN]],
        )
        if len(report.findings) > _SHOWN:
            say(f"... and {len(report.findings) - _SHOWN} more")
    counts = ""
    if content is not None and population is not None:
        counts = f": {_counts(report, content, population)}"
    say(f"[bold]{report.verdict}[/]{counts}", markup=True)
    if report.n_answers is not None:
        n_true = report.n_answers - len(report.untrue)
        say(f"{n_true:,} of {report.n_answers:,} answers are true for the model")
    if report.not_stopped:
        say(f"not stopped: {', '.join(report.not_stopped)}")
    for statement in report.unchecked:
        say(f"not checked: {statement}")


def _counts(report: FileRecount, content: Mapping[str, Any], population: Population) -> str:
    """Return how many entries a file has, and how many people the table and its regions have."""
    entries = content["explanations"]
    withheld = sum(entry["status"] == "withheld" for entry in entries)
    counts = f"{len(entries) - withheld} released, {withheld} withheld"
    if content["kind"] == "catalogue":
        counts = f"catalogue of {len(entries)} entries"
    counts += f", {population.n_people} people in the table"
    if report.n_people:
        counts += f", at least {min(report.n_people)} in a region"
    return counts


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
