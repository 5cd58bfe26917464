"""Every JSON Schema says what the code writes, and refuses what is missing, misspelt or too much."""

from __future__ import annotations

import copy
import gzip
import inspect
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

import reported
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.audit import epsilon as audit_epsilon
from cfk_plugin.audit import result as audit_result
from cfk_plugin.audit.epsilon import EpsilonAudit
from cfk_plugin.audit.result import AttackReport, AuditReport, AuditResult, Check, Curve, Rate
from cfk_plugin.audit.suite import LeftOut
from cfk_plugin.cli import app
from cfk_plugin.data.columns import Change, Role
from cfk_plugin.data.eligibility import OUTCOMES
from cfk_plugin.data.formats import faults, schemas
from cfk_plugin.data.margin import SEALED as REQUIREMENT
from cfk_plugin.data.schema import Attribute, Hierarchy, Kind
from cfk_plugin.data.sealing import BUNDLE_VERSION
from cfk_plugin.data.wording import Unit, Wording, shipped_languages
from cfk_plugin.frontier import SCHEMA_VERSION as FRONTIER_VERSION
from cfk_plugin.frontier import Baseline, Frontier, Point, frontier
from cfk_plugin.hookspecs import NativeStatus
from cfk_plugin.metrics import provenance
from cfk_plugin.metrics.intervals import Estimate
from cfk_plugin.records import record
from cfk_plugin.records.rule import Outcome
from cfk_plugin.records.summary import SUMMARY_VERSION
from cfk_plugin.records.tables import public_kind, recount_kind
from cfk_plugin.records.tally import Tally
from make_sealed import HERE as SEALED
from prototyped import prototypes
from spooled import explanations

STORED = Path(__file__).parents[1] / "stored" / "runs"
OWN = [name for name in schemas() if not name.startswith("report-")]
KINDS_OF_JSON = {
    "numbers": {"number", "integer", "null"},
    "whole numbers": {"integer"},
    "times": {"integer"},
    "flags": {"boolean", "null"},
    "text": {"string", "null"},
}


# --- what is written ---


def stored_run(name: str) -> dict[str, Any]:
    """Return the folder of a stored run as one object, as its JSON Schema describes it."""
    folder = STORED / name / "cfk"
    content = {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    for table in ("explanations", "recount"):
        lines = []
        for path in sorted((folder / table).iterdir()):
            lines += gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
        content[table] = [json.loads(line) for line in lines]
    return content


def measured(*, with_baselines: bool) -> Frontier:
    rows = pd.DataFrame({"age": [20 + i % 7 for i in range(42)], "pay": range(42)})
    accepted = rows[rows["pay"] > 20]
    return frontier(
        accepted.head(4),
        population=Population.from_frame(rows, Schema.from_frame(rows, quasi_identifiers=["age"])),
        model=lambda table: (table["pay"] > 20).to_numpy(),
        desired=True,
        policy=PrivacyPolicy(guarantee="lookup", objective="ncp", max_ncp=0.5),
        factuals=rows.head(4) if with_baselines else None,
        ks=[2, 30],
        compare=with_baselines,
    )


def attacked(kind: Any, **more: Any) -> AttackReport:
    result = AuditResult(f"{kind}_x", "Knows.", COIN, COIN, None, {"tpr": float("nan")}, 0, 9)
    curves = {f"{kind}_x": Curve((0.0, 1.0), (0.0, 1.0))}
    settings: dict[str, Any] = {"queries": 9, "copy": "forest", "share": 0.5, "seeded": True}
    return AttackReport(
        kind=kind, subject="nice", results=(result,), settings=settings, curves=curves, **more
    )


COIN = Rate(0.5, 0.4, 0.6, 9)
LINKED = AuditReport(
    results=(AuditResult("linkage", "Knows.", COIN, COIN, COIN, {"k_min": 5.0}, 0, 9),),
    checks=(Check("linkage/k_min", 5.0, 5), Check("model_filter/k_consistent_min", None, 5)),
    policy=PrivacyPolicy(k=5).to_dict(),
    method="reciprocal",
    population="00000000000000aa",
    asked=9,
    released=9,
    seed=0,
)
BOUND = EpsilonAudit(
    attack="epsilon",
    scenario="Knows.",
    relation="add-remove",
    claimed=1.0,
    delta=0.0,
    confidence=0.95,
    epsilon_low=0.5,
    ceiling=3.0,
    needed=None,
    runs=40,
    main=COIN,
    tpr=COIN,
)
LANGUAGES = Path(__file__).parents[2] / "cfk_plugin" / "languages"
ENGLISH = json.loads((LANGUAGES / "en.json").read_text("utf-8"))
ALL = {
    "schema_version": 1,
    "kind": "all",
    "people": 90,
    "left_out": [{"owner": "raw", "audit": "linkage", "reason": "it protects nothing"}],
    "reports": [
        {"owner": "k=5", "audit": "linkage", **LINKED.to_dict()},
        {"owner": "raw", "audit": "membership", **attacked("membership").to_dict()},
    ],
}
"""The form of the file of `cfk audit`, whose real ones tests of the command compare."""


def written() -> dict[str, tuple[str, Any]]:
    """Return a name for each thing that is written, with its schema and what is written."""
    declared = json.loads((STORED / "files" / "schema.json").read_text("utf-8"))
    every_setting = {**declared, "weights": {"age": 2}, "nullable": None, "phrases": {"age": "{}"}}
    of_prototypes = {"policy": stored_run("prototypes")["policy.json"]}
    return {
        "a run of regions": ("run-1", stored_run("regions")),
        "a run of prototypes": ("run-1", stored_run("prototypes")),
        "linkage": ("audit-1", LINKED.to_dict()),
        "membership": ("audit-1", attacked("membership", **of_prototypes).to_dict()),
        "extraction": ("audit-1", attacked("extraction", population="0" * 16).to_dict()),
        "real curves": ("audit-1", reported.membership({"membership_cfd": 1.0}, 50).to_dict()),
        "epsilon": ("audit-1", BOUND.to_dict()),
        "all audits": ("audit-1", ALL),
        "a frontier": ("frontier-1", measured(with_baselines=False).to_dict()),
        "a frontier with baselines": ("frontier-1", measured(with_baselines=True).to_dict()),
        "a schema": ("table-schema-1", declared),
        "a schema with more": ("table-schema-1", every_setting),
        "a policy": ("policy-1", {"k": 7, "guarantee": "catalogue"}),
        "a whole policy": ("policy-1", PrivacyPolicy(l=2, t=0.5).to_dict()),
    }


WRITTEN = written()


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_valid_and_has_its_own_name(name: str) -> None:
    schema = schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert name in OWN or name == "report-1"
    if name in OWN:
        assert schema["$id"] == f"urn:cfk-plugin:{name}"


@pytest.mark.parametrize("what", WRITTEN)
def test_what_is_written_is_valid(what: str) -> None:
    form, content = WRITTEN[what]
    assert faults(json.loads(json.dumps(content, allow_nan=False)), form) == []


def test_a_run_with_audits_and_a_frontier_is_valid() -> None:
    more = {
        "audit-linkage.json": LINKED.to_dict(),
        "audit-epsilon.json": BOUND.to_dict(),
        "frontier.json": measured(with_baselines=False).to_dict(),
    }
    assert faults(stored_run("regions") | more, "run-1") == []
    assert faults(more, "run-1") == []
    assert faults({"audit-linkage.json": {}}, "run-1")


def test_a_table_to_fill_in_is_valid(tmp_path: Path) -> None:
    train, place = tmp_path / "train.csv", tmp_path / "schema.json"
    pd.DataFrame({"age": [1, 2], "pay": [3, 4]}).to_csv(train, index=False)
    assert CliRunner().invoke(app, ["schema", str(train), "-o", str(place)]).exit_code == 0
    assert faults(json.loads(place.read_text("utf-8")), "table-schema-1") == []


def bundle(path: Path) -> tuple[Any, Any]:
    """Return the first line of a bundle and the plain facts in its archive."""
    line, _, archive = path.read_bytes().partition(b"\n")
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        return json.loads(line), json.loads(members.read("facts.json"))


@pytest.mark.parametrize("path", sorted(SEALED.glob("*.cfk")), ids=lambda path: path.stem)
def test_a_sealed_bundle_is_valid(path: Path) -> None:
    seal, facts = bundle(path)
    assert faults(seal, "bundle-1#/$defs/seal") == []
    assert faults(facts, "bundle-1") == []


def test_a_bundle_with_every_declaration_is_valid(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {
            "age": range(20, 44),
            "city": pd.Categorical(["Ghent", "Aalst", "Namur"] * 8),
            "school": ["low", "high", None] * 8,
            "since": pd.to_datetime(["2020-01-01", None] * 12),
            "pay": range(24),
            "smoker": [True, False] * 12,
        }
    )
    schema = Schema.from_frame(
        rows,
        quasi_identifiers=["age", "city", "school", "since", "smoker"],
        ordinal={"school": ["low", "high"]},
        hierarchies={"city": {"Ghent": ["East"], "Aalst": ["East"], "Namur": ["South"]}},
        bounds={"age": [0, 99]},
        bins={"pay": [0, 12, 30]},
        immutable=["smoker"],
        never_advise={"school": ["low", None]},
        phrases={"city": "a home in {}"},
        language={**ENGLISH, "language": "plain"},
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3, private_values="shared"))
    anonymizer.fit(Population.from_frame(rows, schema), lambda table: table["pay"] > 9, "opposite")
    anonymizer.seal(tmp_path / "all.cfk", settings={"title": "Loans", "classes": [0, 1]})
    seal, facts = bundle(tmp_path / "all.cfk")
    assert faults(seal, "bundle-1#/$defs/seal") == []
    assert faults(facts, "bundle-1") == []
    assert set(facts) == set(schemas()["bundle-1"]["properties"])


# --- what is not ---


def objects(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every object; of a list only the first and the last one."""
    if isinstance(node, dict):
        yield path
        for name, value in node.items():
            yield from objects(value, (*path, name))
    if isinstance(node, list):
        for place in sorted({0, len(node) - 1}) if node else ():
            yield from objects(node[place], (*path, place))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        content = content[step]
    return content


FREE = {
    "figures": "audit-1",
    "settings": "audit-1",
    "curves": "audit-1",
    "packages": "run-1",
    "reasons": "frontier-1",
}
"""Keys of objects whose own keys are free, and the format that has them."""
MAY_LACK = {"policy.json", "population.json", "environment.json", "summary.json", "explanations"}
"""Files that a run may lack; with explanations it has some of them."""


@pytest.mark.parametrize("what", WRITTEN)
def test_a_key_that_is_misspelt_or_too_much_is_noticed(what: str) -> None:
    form, content = WRITTEN[what]
    content = json.loads(json.dumps(content))
    for path in objects(content):
        is_free = bool(path) and FREE.get(path[-1]) == form
        is_declared_of_columns = form == "table-schema-1" and path
        is_earlier = path[-1:] == ("earlier",) and not at(content, path)
        if is_free or is_declared_of_columns or is_earlier:
            continue
        more = copy.deepcopy(content)
        at(more, path)["nota"] = 31337
        assert faults(more, form), path
        for name in at(content, path):
            misspelt = copy.deepcopy(content)
            holder = at(misspelt, path)
            holder[f"{name}x"] = holder.pop(name)
            is_name_of_column = name.startswith(("feature.", "ncp."))
            assert is_name_of_column or faults(misspelt, form), (*path, name)


@pytest.mark.parametrize("what", [name for name in WRITTEN if WRITTEN[name][0] != "policy-1"])
def test_a_key_that_is_missing_is_noticed(what: str) -> None:
    form, content = WRITTEN[what]
    content = json.loads(json.dumps(content))
    for path in objects(content):
        is_free = bool(path) and FREE.get(path[-1]) == form
        if is_free or (form == "table-schema-1" and path):
            continue
        for name in at(content, path):
            if name.startswith(("feature.", "ncp.")) or (not path and name in MAY_LACK):
                continue
            if form == "table-schema-1" and name != "quasi_identifiers":
                continue
            less = copy.deepcopy(content)
            at(less, path).pop(name)
            assert faults(less, form), (*path, name)


HARMS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "a run: a k of one": ("a run of regions", lambda run: run["policy.json"].update(k=1)),
    "a run: few people": (
        "a run of regions",
        lambda run: run["population.json"].update(unique="3"),
    ),
    "a run: a finding": ("a run of regions", lambda run: run["recount"][0].update(finding="odd")),
    "a run: a reason for what is released": (
        "a run of regions",
        lambda run: run["explanations"][0].update(reason="infeasible"),
    ),
    "a run: a reason of its own": (
        "a run of regions",
        lambda run: run["explanations"][1].update(reason="age is 24"),
    ),
    "a run: no reason": (
        "a run of regions",
        lambda run: run["explanations"][1].update(reason=None),
    ),
    "a run: a value for a text": (
        "a run of regions",
        lambda run: run["explanations"][0].update({"feature.age": 24}),
    ),
    "a run: half a prototype": (
        "a run of prototypes",
        lambda run: run["explanations"][0].pop("delta"),
    ),
    "a run: explanations without a summary": (
        "a run of regions",
        lambda run: run.pop("summary.json"),
    ),
    "a run: a figure as text": (
        "a run of regions",
        lambda run: run["summary.json"]["figures"].update(asked="3"),
    ),
    "an audit of another kind": ("linkage", lambda audit: audit.update(kind="guessing")),
    "an audit with keys of another kind": ("linkage", lambda audit: audit.update(kind="epsilon")),
    "an audit: the worst of an extraction": (
        "extraction",
        lambda audit: audit.update(worst="extraction_x"),
    ),
    "an audit: a list as a setting": (
        "membership",
        lambda audit: audit["settings"].update(rows=[1, 2]),
    ),
    "an audit: a figure as text": (
        "membership",
        lambda audit: audit["results"][0]["figures"].update(tpr="0.1"),
    ),
    "all audits: a report of a lower bound": (
        "all audits",
        lambda audit: audit["reports"].append(BOUND.to_dict()),
    ),
    "a frontier: an unknown reason": (
        "a frontier",
        lambda found: found["points"][0]["reasons"].update(other=1),
    ),
    "a schema: one name for a list": (
        "a schema",
        lambda schema: schema.update(quasi_identifiers="age"),
    ),
    "a schema: another direction": (
        "a schema",
        lambda schema: schema.update(monotone={"age": "up"}),
    ),
    "a schema: one value for a list": (
        "a schema",
        lambda schema: schema.update(never_advise={"age": None}),
    ),
    "a schema: one bound": ("a schema", lambda schema: schema.update(bounds={"age": [0]})),
    "a schema: another phrase": (
        "a schema",
        lambda schema: schema.update(phrases={"age": {"most": 3}}),
    ),
    "a policy: a k of one": ("a policy", lambda policy: policy.update(k=1)),
    "a policy: k as text": ("a policy", lambda policy: policy.update(k="7")),
}


@pytest.mark.parametrize("harm", HARMS)
def test_other_content_is_refused(harm: str) -> None:
    what, change = HARMS[harm]
    form, content = WRITTEN[what]
    content = json.loads(json.dumps(content))
    change(content)
    assert faults(content, form)


# --- what is said of it ---


def test_a_fault_names_keys_and_never_what_is_there() -> None:
    content = stored_run("regions")
    content["summary.json"]["figures"].update(asked="CANARY", cm=float("nan"))
    content["summary.json"]["earlier"]["CANARY"] = 1
    content["environment.json"]["packages"]["CANARY"] = 2
    content["explanations"][0].pop("delta", None)
    content["explanations"][0]["epsilon"] = 1.0
    del content["population.json"]["rows"]
    told = {str(fault) for fault in faults(content, "run-1")}
    assert told == {
        "summary.json.figures.asked is not of type integer",
        "summary.json.figures.cm is not of type number or null",
        "summary.json.earlier has a key that the format does not know",
        "environment.json.packages.(a name that is not known) is not of type string",
        "explanations.0 lacks delta, prototype, certificate",
        "population.json lacks rows",
    }
    named = [fault.path for fault in faults(content, "run-1", names=["CANARY"])]
    assert ("environment.json", "packages", "CANARY") in named
    assert str(faults([], "run-1")[0]) == "top is not of type object"


# --- that schemas and code have the same keys ---


def keys(form: str, definition: str | None = None) -> set[str]:
    schema = schemas()[form]
    return set((schema if definition is None else schema["$defs"][definition])["properties"])


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}  # type: ignore[arg-type]


def test_a_fault_is_reported_once() -> None:
    found = faults({"schema_version": 1}, "explanations-1")
    assert found
    assert len(found) == len(set(found))


def test_keys_of_a_run_are_those_of_the_code() -> None:
    figures = schemas()["run-1"]["$defs"]["figures"]
    assert set(Tally().plus([]).figures) == set(figures["properties"]) == set(figures["required"])
    of_both = [explanations().to_record(), prototypes().to_record()]
    for form, rows in {
        "explanation": record.rows_of_explanations,
        "recount": record.rows_of_recount,
    }.items():
        names = {name for each in of_both for row in rows([each]) for name in row}
        own = {name for name in names if not name.startswith(("feature.", "ncp."))}
        assert own | ({"true"} if form == "recount" else set()) == keys("run-1", form)
    environment = provenance.environment_of()
    assert {*environment, "generator"} == keys("run-1", "environment")


@pytest.mark.parametrize(
    ("definition", "kind_of"), [("explanation", public_kind), ("recount", recount_kind)]
)
def test_columns_hold_what_reports_read_in_them(definition: str, kind_of: Any) -> None:
    definitions = schemas()["run-1"]["$defs"]
    for name, said in definitions[definition]["properties"].items():
        kind = kind_of(name)
        told = said
        if "$ref" in said and said["$ref"].startswith("#"):
            told = definitions[said["$ref"].removeprefix("#/$defs/")]
        if kind is None or "type" not in told:
            continue
        types = {told["type"]} if isinstance(told["type"], str) else set(told["type"])
        assert types <= KINDS_OF_JSON[kind], name


def test_keys_of_audits_are_those_of_the_code() -> None:
    about = {"schema_version", "kind"}
    assert keys("audit-1") == about
    assert names_of(AuditReport) | {"verdict"} == keys("audit-1", "linkage")
    assert names_of(AttackReport) - {"kind"} == keys("audit-1", "attacks")
    result = names_of(AuditResult) | {"worked"}
    definitions = schemas()["audit-1"]["$defs"]
    assert result == set(definitions["results"]["items"]["properties"])
    assert result | {"verdict", "advice", "warning", "relation"} == keys("audit-1", "epsilon")
    check = definitions["linkage"]["properties"]["checks"]["items"]["properties"]
    assert names_of(Check) | {"holds"} == set(check)
    of_all = definitions["all"]["properties"]
    assert names_of(LeftOut) == set(of_all["left_out"]["items"]["properties"])
    assert set(Estimate._fields) == keys("audit-1", "estimate")


def test_keys_of_a_frontier_are_those_of_the_code() -> None:
    assert names_of(Frontier) | {"schema_version", "kind"} == keys("frontier-1")
    assert names_of(Point) == keys("frontier-1", "point")
    assert names_of(Baseline) == keys("frontier-1", "baseline")


def test_keys_of_what_people_write_are_those_of_the_code() -> None:
    # a file has one form only: the arguments, without `columns`
    parameters = set(inspect.signature(Schema.from_frame).parameters) - {"frame", "columns"}
    assert parameters == keys("table-schema-1")
    assert set(PrivacyPolicy().to_dict()) == keys("policy-1")


def test_keys_of_a_bundle_are_those_of_the_code() -> None:
    assert keys("bundle-1") == {"population", "policy", "settings", OUTCOMES, REQUIREMENT}
    assert names_of(Attribute) == keys("bundle-1", "attribute")
    attribute = schemas()["bundle-1"]["$defs"]["attribute"]["properties"]
    assert names_of(Hierarchy) == set(attribute["hierarchy"]["properties"])
    assert names_of(Wording) == keys("bundle-1", "wording")


def test_keys_of_a_language_are_those_of_the_code() -> None:
    assert set(ENGLISH) == keys("language-1")
    assert names_of(Unit) == set(
        schemas()["language-1"]["properties"]["units"]["additionalProperties"]["properties"]
    )
    for code in shipped_languages():
        language = json.loads((LANGUAGES / f"{code}.json").read_text("utf-8"))
        assert faults(language, "language-1") == []


def written_out(node: Any, definitions: Any) -> Any:
    """Return a part of a schema without descriptions, and with what it refers to in its place."""
    if isinstance(node, list):
        return [written_out(part, definitions) for part in node]
    if not isinstance(node, dict):
        return node
    whole = dict(node)
    if "$ref" in node:
        whole |= definitions[whole.pop("$ref").removeprefix("#/$defs/")]
    whole.pop("description", None)
    return {name: written_out(part, definitions) for name, part in whole.items()}


def test_a_policy_in_a_file_and_one_that_was_applied_agree() -> None:
    """The only difference: a file may leave private_values to the guarantee."""
    definitions = schemas()["explanations-1"]["$defs"]
    applied = written_out(definitions["policy"]["properties"], definitions)
    own = schemas()["policy-1"]
    in_a_file = written_out(own["properties"], own["$defs"])
    in_a_file["private_values"]["enum"].remove(None)
    assert in_a_file == applied


def test_choices_are_those_of_the_code() -> None:
    run = schemas()["run-1"]["$defs"]
    bundle = schemas()["bundle-1"]["$defs"]["attribute"]["properties"]
    assert run["role"]["enum"] == list(get_args(Role))
    assert run["kind"]["enum"] == list(get_args(Kind))
    assert bundle["change"]["enum"] == list(get_args(Change))
    assert run["recount"]["properties"]["finding"]["enum"] == [*get_args(NativeStatus), None]
    ledger = run["recount"]["properties"]["ledger"]["enum"]
    assert set(ledger) == {*get_args(Outcome), "no_record", None}
    attacks = schemas()["audit-1"]["properties"]["kind"]["enum"]
    kinds = {*get_args(audit_result.Kind), *get_args(audit_epsilon.Attack), "linkage", "all"}
    assert set(attacks) == kinds
    verdicts = schemas()["audit-1"]["$defs"]["verdict"]["enum"]
    assert verdicts == list(get_args(audit_result.Verdict))


def test_versions_are_those_of_the_code() -> None:
    run = schemas()[f"run-{record.SCHEMA_VERSION}"]["$defs"]
    for definition, version in {
        "summary": SUMMARY_VERSION,
        "countedPopulation": provenance.SCHEMA_VERSION,
        "declaredPopulation": provenance.SCHEMA_VERSION,
    }.items():
        assert run[definition]["properties"]["schema_version"]["const"] == version
    audit = schemas()[f"audit-{audit_result.SCHEMA_VERSION}"]["properties"]
    assert audit["schema_version"]["const"] == audit_result.SCHEMA_VERSION
    assert audit["schema_version"]["const"] == audit_epsilon.SCHEMA_VERSION
    found = schemas()[f"frontier-{FRONTIER_VERSION}"]["properties"]
    assert found["schema_version"]["const"] == FRONTIER_VERSION
    seal = schemas()[f"bundle-{BUNDLE_VERSION}"]["$defs"]["seal"]["properties"]
    assert seal["version"]["const"] == BUNDLE_VERSION


def descriptions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("description"), str):
            yield node["description"]
        for part in node.values():
            yield from descriptions(part)
    if isinstance(node, list):
        for part in node:
            yield from descriptions(part)


@pytest.mark.parametrize("name", OWN)
def test_descriptions_are_sentences(name: str) -> None:
    for text in descriptions(schemas()[name]):
        assert text.endswith("."), text


@pytest.mark.parametrize("name", [name for name in OWN if name != "explanations-1"])
def test_every_object_of_fixed_keys_is_closed(name: str) -> None:
    def opened(node: Any, path: str = "") -> Iterator[str]:
        if isinstance(node, dict):
            closed = {"additionalProperties", "unevaluatedProperties"} & set(node)
            if node.get("type") == "object" and "properties" in node and not closed:
                yield path
            for key, part in node.items():
                yield from opened(part, f"{path}/{key}")
        if isinstance(node, list):
            for part in node:
                yield from opened(part, path)

    assert list(opened(schemas()[name])) == []
