"""From report data to document: below the first page, the sections of ``texts/sections.yaml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from cfk_plugin.report.data import (
    Attack,
    CheckResult,
    Column,
    Group,
    PolicyInForce,
    ReportData,
    RunLine,
    load,
)
from cfk_plugin.report.disclosure import shown, unit_of
from cfk_plugin.report.first_page import days_of, first_page, on_record, open_checks, shortened
from cfk_plugin.report.inputs import QUESTIONS
from cfk_plugin.report.render import (
    Block,
    Bullets,
    Cell,
    Document,
    Link,
    Mark,
    Paragraph,
    Section,
    TableBlock,
    Text,
    amounts_of,
    bars_of,
    curves_of,
)
from cfk_plugin.report.statements import outdated, receiver_sentence, title_of

Rows = Sequence[Sequence[Cell]]


def compose(data: ReportData, *, address: str | None = None, docs: str | None = None) -> Document:
    """Lay a report out: run ids link to the tracking server's `address`, names to `docs`, the page
    of definitions.
    """
    layout = _Layout(data, address, docs)
    return Document(
        title=shortened(str(data.report["title"]), 120),
        edition=data.report["edition"],
        first=first_page(data),
        sections=[*layout.sections()],
        data=data.to_json(),
    )


# --- the sections below ---

_METRICS = {
    "ncp": "NCP",
    "pureness": "Pureness",
    "withheld": "Share withheld",
    "k": "People behind a region",
}
_MOST_CERTIFICATES = 3
_MOST_CONTROLS = 6


class _Layout:
    def __init__(self, data: ReportData, address: str | None, docs: str | None) -> None:
        self.data, self.address, self.docs = data, address, docs
        told = (
            *(each.id for each in data.metrics if each.id in _DEFINED),
            *(each.id for each in data.attacks),
        )
        # else only in the data
        here = data.definitions if data.report["edition"] == "internal" else ()
        self.defined = [name for name in dict.fromkeys(told) if name in here]
        self.ids = {"definitions": [f"definition-{name}" for name in self.defined]}
        self.ids["open"] = [f"check-{check.id}" for check in open_checks(data)]

    def sections(self) -> Iterator[Section]:
        known = {**self.words(), **self.rows()}
        for each in load("sections"):
            if each.get("internal") and self.data.report["edition"] != "internal":
                continue
            blocks = tuple(self.blocks(each["blocks"], known))
            yield Section(each["number"], each["title"], blocks, folded=each.get("folded", False))

    def blocks(  # noqa: C901 - one case per kind of block
        self, blocks: Iterable[Mapping[str, Any]], known: Mapping[str, Any]
    ) -> Iterator[Block]:
        for block in blocks:
            if ("when" in block and not known[block["when"]]) or (
                "unless" in block and known[block["unless"]]
            ):
                continue
            match block:
                case {"text": text}:
                    yield Paragraph(text.format_map(known))
                case {"bullets": name}:
                    yield Bullets(tuple(known[name]))
                case {"part": name}:
                    yield from known[name]
                case {"chart": name}:
                    if (found := self.data.distribution(name)) is not None:
                        yield bars_of(found, block)
                case {"curves": name}:
                    for each in self.data.distributions:
                        yield from (
                            curves_of(self.data, each, block) if each.id.startswith(name) else ()
                        )
                case {"figures": name, "metrics": metrics}:
                    columns = {"columns": ("Figure", "Value"), "numeric": (1,)}
                    yield _table({**block, **columns}, name, self.figures(metrics))
                case {"table": name}:
                    rows = self.counts(block["counts"]) if "counts" in block else known[name]
                    yield replace(_table(block, name, rows), row_ids=self.ids.get(name, ()))

    def words(self) -> dict[str, Any]:
        """Return the values that sentences use, and the conditions for them."""
        data = self.data
        policy, latency = data.policy, data.releases["latency"]
        dp: Mapping[str, Any] = data.dp or {}
        populations, hidden = data.population.get("populations", 0), len(data.hidden_cells)
        times = [(name, amount) for name, amount in latency.items() if amount.measured]
        old = _outdated_controls(data)
        return {
            "unchanged": data.changes is not None and not data.changes,
            "generators": on_record(", ".join(policy["generators"])),
            "model": on_record(data.environment.get("model")),
            "receiver": receiver_sentence(data),
            "populations": populations if populations > 1 else "",
            "techniques": policy["techniques"],
            "deviations": " ".join(policy["deviations"]),
            "latency": ", ".join(f"{shown(amount, 'seconds')} ({name})" for name, amount in times),
            "unguaranteed": dp.get("guarantee") == "none",
            "guaranteed": dp.get("covers") if dp.get("guarantee") != "none" else None,
            "limits": data.limits,
            "policies": [
                _settings(place, each) for place, each in enumerate(policy["policies"], start=1)
            ],
            "controls": len(data.controls),
            "outdated": _names(old),
            "outdated_of": len(old),
            "hidden": f"{hidden} {'place' if hidden == 1 else 'places'}" if hidden else "",
            "comparison": data.distribution("comparison"),
        }

    def rows(self) -> dict[str, Rows]:
        from cfk_plugin.release.results import WITHHOLDING_REASONS

        data = self.data
        judged, others = (
            [attack for attack in data.attacks if attack.judged is which] for which in (True, False)
        )
        withheld = data.releases["reasons"]
        return {
            "open": [self.check(check) for check in open_checks(data)],
            "passed": [
                (*self.check(check)[:3], amounts_of(check)[1])
                for check in data.checks
                if check.status == "pass"
            ],
            "answers": [*_answers(data)],
            "changes": _texts(data.changes or (), "what", "before", "after"),
            "population": _population(data),
            "attributes": [_attribute(each) for each in data.attributes],
            "thresholds": [
                (each["id"], f"{each['value']:.3g}", each["source"])
                for each in data.policy["thresholds"]
            ],
            "reasons": [
                (WITHHOLDING_REASONS.get(r, r), shown(n, "count")) for r, n in withheld.items()
            ],
            "criteria": [(c["criterion"], Mark(c["status"]), c["text"]) for c in data.criteria],
            "attacks": [
                (
                    self.attack(a),
                    *map(shown, a.rates),
                    f"{a.main.n:,}" if a.main.n else "–",
                    _attacked(a),
                )
                for a in judged
            ],
            "attacks-others": [
                (self.attack(a), a.subject or "–", *map(shown, a.rates)) for a in others
            ],
            "groups": [_group(group) for group in data.groups],
            "dp": _dp(data.dp) if data.dp else [],
            "dp-models": (
                [(name, str(text)) for name, text in data.dp["threat_models"].items()]
                if data.dp
                else []
            ),
            "made": _made(data),
            "runs": [self.logged(run) for run in data.runs],
            "certificates": [
                (
                    c["id"],
                    shown(c["k"], "count"),
                    shown(c["ncp"]),
                    shown(c["pureness"]),
                    c["optimality"],
                )
                for c in data.certificates[:_MOST_CERTIFICATES]
            ],
            "definitions": [
                (title_of(data, name), data.definitions[name].formula.partition("; the check")[0])
                for name in self.defined
            ],
        }

    def check(self, check: CheckResult) -> tuple[Cell, ...]:
        """Return a check as a row that links to its section."""
        title = title_of(self.data, check.id)
        # in full in section 3
        (measured, threshold), source = amounts_of(check), check.source.partition(":")[0]
        parts: list[str | Link] = [check.text]
        if check.id in self.defined or self.docs:
            parts += [" ", Link("Definition", self.definition(check.id))]
        for place, run in enumerate(check.evidence):
            parts += [", " if place else " Evidence: ", self.run(run)]
        return (
            Text.of(Link(title, f"#section-{check.section}"), f" ({check.id})"),
            Mark(check.status),
            measured,
            f"{threshold} ({source})" if check.threshold.measured and source else threshold,
            Text(parts),
        )

    def counts(self, titles: Mapping[str, str]) -> Rows:
        released: Mapping[str, Any] = self.data.releases
        return [(title, shown(released[name], "count")) for name, title in titles.items()]

    def figures(self, names: Iterable[str]) -> Rows:
        found = {metric.id: metric for metric in self.data.metrics}
        return [
            (
                Link(title_of(self.data, name), self.definition(name)),
                shown(of.amount, unit_of(name)),
            )
            for name in names
            if (of := found.get(name))
        ]

    def definition(self, name: str) -> str:
        """Return the link to a name's definition: in the documentation, else in the annex."""
        if self.docs:
            return f"{self.docs}#{name}"
        return f"#definition-{name}" if name in self.defined else ""

    def attack(self, attack: Attack) -> Cell:
        """Return the name of an attack or of its result for one attribute; with a star if it did
        not work.
        """
        whole, _, attribute = attack.id.partition("/")
        star = "" if attack.worked or not attack.main.measured else " *"
        if attack.id in self.data.definitions:
            return Text.of(Link(title_of(self.data, attack.id), self.definition(attack.id)), star)
        return Text.of(Link(f"– {attribute}", self.definition(whole)), star)

    def logged(self, run: RunLine) -> Sequence[Cell]:
        where, audits = self.run(run["run"]), ", ".join(run["audits"]) or "–"
        return (
            where,
            run["name"] or "–",
            run["experiment"],
            str(run["started"]),
            f"{run['asked']:,}",
            audits,
        )

    def run(self, where: str) -> str | Link:
        """Return a run id, or one of its explanations as ``run/step``; as a link if the server's
        address is known.
        """
        if self.address is None:
            return where
        return Link(where, f"{self.address.rstrip('/')}/#/runs/{where.partition('/')[0]}")


_DEFINED = (
    *("k_min", "k_desired_min", "k_effective_min", "k_consistent_min", "prosecutor_risk_max"),
    *("attribute_disclosure_max", "pureness_mean", "ncp_mean", "epsilon"),
)
"""Figures whose names do not say how they are computed.

The annex has their formulas; the documentation has all.
"""


def _table(block: Mapping[str, Any], name: str, rows: Rows) -> TableBlock:
    numeric, note = block.get("numeric", ()), block.get("note", "")
    how = {each: block.get(each, False) for each in ("wide", "stacks")}
    return TableBlock(
        f"table-{name}", block["caption"], block["columns"], rows, numeric=numeric, note=note, **how
    )


def _texts(entries: Iterable[Mapping[str, Any]], *names: str) -> Rows:
    return [tuple(str(each[name]) for name in names) for each in entries]


def _answers(data: ReportData) -> Iterator[Sequence[Cell]]:
    """Yield every question with its answer, then the signatures; open ones are marked."""
    for asked in QUESTIONS.values():
        answer = data.system.get(asked.id)
        yield (
            asked.question,
            *((Mark("review", "Open"), asked.role) if answer is None else (answer, "")),
        )
    for each in data.sign_off:
        signed = f"{each['name']}, {each['date']}" if each["name"] and each["date"] else None
        yield (
            "Name and date of the signature",
            Mark("review", "Open") if signed is None else signed,
            each["role"],
        )


def _population(data: ReportData) -> Rows:
    facts = data.population
    who = (
        "distinct values of the subject key"
        if facts["subject_key"]
        else "each row is assumed to be one person"
    )
    return [
        ("People", shown(facts["people"], "count")),
        ("Rows", shown(facts["rows"], "count")),
        ("What counts as a person", on_record(None if facts["subject_key"] is None else who)),
        ("People who are alone in their class", shown(facts["unique"], "share")),
        (
            f"People in a class of fewer than {on_record(facts['k'], 'k')}",
            shown(facts["below_k"], "share"),
        ),
        ("Keyed fingerprint", on_record(facts["fingerprint"])),
    ]


def _attribute(each: Column) -> Sequence[str]:
    bounds, distinct = (
        each["bounds_source"].removeprefix("not needed"),
        shown(each["distinct"], "count"),
    )
    return each["name"], each["role"], each["kind"], distinct, bounds


def _group(group: Group) -> Sequence[str]:
    metric, amounts = _METRICS.get(group.metric, group.metric), (group.mean, group.rest, group.gap)
    return (
        f"{group.attribute}: {group.group}",
        metric,
        shown(group.n, "count"),
        *map(shown, amounts),
    )


def _dp(dp: Mapping[str, Any]) -> Rows:
    nothing, bound = dp["guarantee"] == "none", dp["membership_bound"]
    total = f"not stated: {'nothing is guaranteed' if nothing else 'the model is not covered'}"
    rows = {
        "Guarantee": dp["guarantee"],
        "Epsilon, delta of the answers": f"{dp['epsilon']:g}, {dp['delta']:g}",
        "Epsilon, delta of everything that is released": (
            total if dp["total"] is None else "{:g}, {:g}".format(*dp["total"])
        ),
        "Unit of privacy": dp["unit"],
        "Neighbouring tables": dp["neighbours"],
        "Mechanism and accountant": dp["mechanism"],
        "What recipients may know of the model": dp["model_access"],
        "Noise was seeded": _yes_no(dp["seeded"]),
        "Domains read from the rows": ", ".join(dp["inferred"]) or "none",
        "Largest balanced accuracy of a membership attack": (
            "no bound" if bound is None else f"{bound:.3g}"
        ),
    }
    return [(name, str(value)) for name, value in rows.items()]


def _made(data: ReportData) -> Rows:
    environment = data.environment
    packages = ", ".join(
        f"{name} {version}" for name, version in sorted(environment["packages"].items())
    )
    return [
        ("Command", data.report["command"] or "not in this edition"),
        ("Latest evidence", data.report["as_of"] or "none"),
        ("Seed", on_record(", ".join(data.policy["seed"]))),
        ("Python, packages", f"{on_record(environment['python'])}; {on_record(packages)}"),
        ("Plugins", on_record(", ".join(environment["plugins"]))),
    ]


def _outdated_controls(data: ReportData) -> Sequence[str]:
    """Return the entries of the control map that were a year old at the date of the report."""
    as_of = data.report["as_of"]
    if as_of is None:
        return ()
    return outdated(data.controls, date.fromisoformat(as_of[:10]))


def _names(found: Sequence[str]) -> str:
    """List names; the JSON has those that the page has no room for."""
    more = len(found) - _MOST_CONTROLS
    if more <= 0:
        return "; ".join(found)
    return f"{'; '.join(found[:_MOST_CONTROLS])}; and {more} more"


def _yes_no(value: object) -> str:
    return "not known" if value is None else "yes" if value else "no"


def _settings(place: int, policy: PolicyInForce) -> TableBlock:
    settings = {name: value for name, value in policy["settings"].items() if value is not None}
    rows = [
        (name, _yes_no(value) if isinstance(value, bool) else str(value))
        for name, value in settings.items()
    ]
    asked = shown(policy["asked"], "count")
    title = f"Policy {place}: {asked} explanation{'s' * (asked != '1')}, {days_of(policy)}"
    return TableBlock(
        f"table-policy-{place}",
        title,
        ("Setting", "Value"),
        rows,
        note=f"SHA-256 {policy['sha256']}",
    )


def _attacked(attack: Attack) -> str:
    """Say what was attacked, and whether that is what is released."""
    told = attack.subject or "the release"
    if not attack.concerns:
        return f"{told}, which is not released"
    return told if attack.covers else f"{told}, under another policy or population"
