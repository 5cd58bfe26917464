"""From report data to document: what stands where is in ``texts/sections.yaml``, and gets its numbers here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cfk_plugin.report.charts import Bars, Curves, Intervals
from cfk_plugin.report.data import (
    Attack,
    CheckResult,
    Column,
    Distribution,
    Group,
    PolicyInForce,
    ReportData,
    RunLine,
    load,
)
from cfk_plugin.report.disclosure import BOUNDS, COIN, Unit, short, shown, unit_of
from cfk_plugin.report.inputs import QUESTIONS
from cfk_plugin.report.render import (
    WORST_FIRST,
    Block,
    Bullets,
    Cell,
    Chart,
    Document,
    Folded,
    Link,
    Mark,
    Open,
    Paragraph,
    Section,
    TableBlock,
    amounts_of,
)
from cfk_plugin.report.statements import receiver_sentence

Rows = Sequence[Sequence[Cell]]
_Curve = tuple[str, Sequence[tuple[float, float]]]


def compose(data: ReportData, *, address: str | None = None) -> Document:
    """Lay a report out; with the address of the tracking server run ids become links. A pure function of the two."""
    known = {**_words(data), **_rows(data, address), **_parts(data)}
    sections = [
        Section(f"section-{each['number']}", each["number"], each["title"], tuple(_blocks(data, each["blocks"], known)))
        for each in load("sections")
    ]
    return Document(
        title=str(data.report["title"]),
        edition=data.report["edition"],
        verdict=data.verdict,
        headline=_headline(data),
        not_covered=tuple(data.report["not_covered"]),
        facts=_facts(data),
        sections=sections,
        data=data.to_json(),
    )


def _blocks(data: ReportData, blocks: Iterable[Mapping[str, Any]], known: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the blocks of a section, filled in."""
    for block in blocks:
        if ("when" in block and not known[block["when"]]) or ("unless" in block and known[block["unless"]]):
            continue
        match block:
            case {"text": text}:
                yield Paragraph(text.format_map(known))
            case {"bullets": name}:
                yield Bullets(tuple(known[name]))
            case {"part": name}:
                yield from known[name]
            case {"chart": name}:
                yield from _chart(_distribution(data, name), block)
            case {"curves": name}:
                yield from (_roc_chart(data, each, block) for each in data.distributions if each.id.startswith(name))
            case {"figures": name, "metrics": metrics}:
                columns = ("Figure", "Value", "Over", "How")
                yield _table({**block, "columns": columns, "numeric": (1, 2)}, name, _figures(data, metrics))
            case {"folded": summary, "table": name}:
                yield Folded(summary.format_map(known), (_table(block, name, known[name]),))
            case {"table": name}:
                yield _table(block, name, known[name])


def _table(block: Mapping[str, Any], name: str, rows: Rows) -> TableBlock:
    numeric, note = block.get("numeric", ()), block.get("note", "")
    return TableBlock(f"table-{name}", block["caption"], block["columns"], rows, numeric=numeric, note=note)


def _headline(data: ReportData) -> str:
    statuses: list[str] = [check.status for check in data.checks]
    said = {"fail": "failed", "review": "need a decision", "not_measured": "were not measured"}
    found = [f"{count} {words}" for status, words in said.items() if (count := statuses.count(status))]
    if not found:
        return f"All {len(statuses)} checks passed."
    failed = [data.definitions[check.id].name for check in data.checks if check.status == "fail"]
    named = f" Failed: {'; '.join(failed)}." if failed else ""
    return f"Of {len(statuses)} checks, {', '.join(found)}.{named}"


def _facts(data: ReportData) -> tuple[tuple[str, str], ...]:
    period, released = data.report["period"], data.releases
    first, last, since, until = (str(period[name] or "")[:10] for name in ("first", "last", "since", "until"))
    facts = {
        "Explanations": f"{first} to {last}" if first else "none in the period",
        "Period asked for": f"{since or '…'} to {until or '…'}" if since or until else "",
        "Asked, released": f"{shown(released['asked'], 'count')}, {shown(released['released'], 'count')}",
        "As of": str(data.report["as_of"] or ""),
        "Why this report": str(data.report["reason"] or ""),
        "Report": str(data.report["id"]),
    }
    return tuple((name, text) for name, text in facts.items() if text)


def _words(data: ReportData) -> dict[str, Any]:
    """Return what is said in sentences, and what decides whether they are said."""
    policy, latency = data.policy, data.releases["latency"]
    dp: Mapping[str, Any] = data.dp or {}
    populations, hidden = data.population.get("populations", 0), len(data.suppressed_cells)
    known = [(name, amount) for name, amount in latency.items() if amount.measured]
    missing = [check.id for check in data.checks if check.id.startswith("attack_") and check.status == "not_measured"]
    return {
        **{verdict: data.verdict == verdict for verdict in ("fail", "review", "pass")},
        "unchanged": data.changes is not None and not data.changes,
        "generators": _on_record(", ".join(policy["generators"])),
        "model": _on_record(data.environment.get("model")),
        "receiver": receiver_sentence(data),
        "populations": populations if populations > 1 else "",
        "techniques": policy["techniques"],
        "deviations": " ".join(policy["deviations"]),
        "latency": ", ".join(f"{shown(amount, 'seconds')} ({name})" for name, amount in known),
        "pool": data.system.get("recipients_pool") or "not known",
        "attacked": bool(data.attacks),
        "missing": ", ".join(name.removeprefix("attack_").replace("_", " ") for name in missing),
        "unguaranteed": dp.get("guarantee") == "none",
        "guaranteed": dp.get("covers") if dp.get("guarantee") != "none" else None,
        "limits": data.limits,
        "hidden": f"{hidden} {'place' if hidden == 1 else 'places'}" if hidden else "",
        "certified": len(data.certificates),
    }


def _parts(data: ReportData) -> dict[str, Sequence[Block]]:
    """Return what is not regular."""
    compared, judged = _distribution(data, "comparison"), [attack for attack in data.attacks if attack.judged]
    open_ = f"{len(data.placeholders)} questions are open that only people can answer: see "
    return {
        "open": [Paragraph((open_, Link("section 12", "#section-12"), "."))] if data.placeholders else [],
        **{f"answers-{section}": tuple(_answers(data, section)) for section in (1, 3, 12)},
        "policies": [_settings(place, each) for place, each in enumerate(data.policy["policies"], start=1)],
        "comparison": [_numbers(compared, "table-comparison", _COMPARED, "", "number", _MEANS)] if compared else [],
        "attack-figures": [_attack_figures(data, each) for each in judged if each.figures and "/" not in each.id],
        "gaps": tuple(_gaps(data)),
        "open-elsewhere": [Open(p.question, p.role) for p in data.placeholders if p.section not in (1, 3, 12)],
        "definitions": [_definition(data, name) for name in data.definitions],
    }


_COMPARED = "The same counterfactuals under this policy, under Mondrian, and without protection"
_MEANS = "Means over what each releases. Close to training rows is good for advice, not for privacy: 0 is a row."
_RELEASES = {
    "asked": "Asked for",
    "released": "Released",
    "generalised": "– of these with generalised quasi-identifiers",
    "exact": "– of these with exact quasi-identifiers that enough people have",
    "prototypes": "– of these prototypes, which stand for nobody",
    "suppressed": "Suppressed",
    "untracked": "Released without a record",
}
_METRICS = {"ncp": "NCP", "pureness": "Pureness", "suppressed": "Share suppressed", "k": "People behind a region"}


def _rows(data: ReportData, address: str | None) -> dict[str, Rows]:
    """Return the rows of every table."""
    from cfk_plugin.release.results import SUPPRESSION_REASONS

    checks = sorted(data.checks, key=lambda check: WORST_FIRST.index(check.status))
    failed = [check for check in checks if check.status != "pass"]
    judged, others = ([attack for attack in data.attacks if attack.judged is which] for which in (True, False))
    released: Mapping[str, Any] = data.releases
    return {
        "checks": [_check(data, check) for check in checks],
        "evidence": [(_named(data, each.id), _run_link(run, address)) for each in failed for run in each.evidence],
        "changes": _texts(data.changes or (), "what", "before", "after"),
        "population": _population(data),
        "attributes": [_attribute(each) for each in data.attributes],
        "thresholds": [(each["id"], f"{each['value']:.3g}", each["source"]) for each in data.policy["thresholds"]],
        "releases": [(title, shown(released[name], "count")) for name, title in _RELEASES.items()],
        "reasons": [(SUPPRESSION_REASONS.get(r, r), r, shown(n, "count")) for r, n in released["reasons"].items()],
        "criteria": [(c["criterion"], c["evidence"], Mark(c["status"]), c["text"]) for c in data.criteria],
        "attacks": [
            (_attack(data, a), *map(shown, a.rates), _number(a.main.n), _yes_no(a.worked), _attacker(a)) for a in judged
        ],
        "attacks-others": [(_attack(data, a), a.subject or "–", *map(shown, a.rates)) for a in others],
        "groups": [_group(group) for group in data.groups],
        "dp": _dp(data.dp) if data.dp else [],
        "dp-models": [(name, str(text)) for name, text in data.dp["threat_models"].items()] if data.dp else [],
        "sign-off": [(each["role"], each["name"] or "open", each["date"] or "open") for each in data.sign_off],
        "made": _made(data),
        "runs": [_run(run, address) for run in data.runs],
        "certificates": [
            (c["id"], shown(c["k"], "count"), shown(c["ncp"]), shown(c["pureness"]), c["optimality"])
            for c in data.certificates
        ],
        "controls": _texts(data.controls, "control", "requires", "section", "status", "verified", "checked_on"),
    }


def _texts(entries: Iterable[Mapping[str, Any]], *names: str) -> Rows:
    return [tuple(str(each[name]) for name in names) for each in entries]


def _check(data: ReportData, check: CheckResult) -> tuple[Cell, ...]:
    """Return a check as a row: it leads to its section, and its meaning to the definition."""
    (measured, asked), source = amounts_of(check), check.source.partition(":")[0]  # section 3 has it in full
    return (
        Link(data.definitions[check.id].name, f"#section-{check.section}"),
        Mark(check.status),
        measured,
        "–" if not check.threshold.measured else f"{asked} ({source})" if source else asked,
        (f"{check.text} ", Link("Definition", f"#definition-{check.id}")),
    )


def _population(data: ReportData) -> Rows:
    facts = data.population
    who = "distinct values of the subject key" if facts["subject_key"] else "each row is assumed to be a person"
    fewer = f"People in a class of fewer than {_on_record(facts['k'], 'k')}, before protection"
    return [
        ("People", shown(facts["people"], "count")),
        ("Rows", shown(facts["rows"], "count")),
        ("Who counts as a person", _on_record(None if facts["subject_key"] is None else who)),
        ("People alone in their class, before protection", shown(facts["unique"], "share")),
        (fewer, shown(facts["below_k"], "share")),
        ("Keyed fingerprint of the population", _on_record(facts["fingerprint"])),
    ]


def _attribute(each: Column) -> Sequence[str]:
    weight, distinct = f"{each['weight']:.3g}" if each["weight"] else "–", shown(each["distinct"], "count")
    return each["name"], each["role"], each["kind"], distinct, each["bounds_source"], weight


def _group(group: Group) -> Sequence[str]:
    metric, amounts = _METRICS.get(group.metric, group.metric), (group.mean, group.rest, group.gap)
    return f"{group.attribute}: {group.group}", metric, shown(group.n, "count"), *map(shown, amounts)


def _dp(dp: Mapping[str, Any]) -> Rows:
    nothing, bound = dp["guarantee"] == "none", dp["membership_bound"]
    total = f"not stated: {'nothing is guaranteed' if nothing else 'the model is not covered'}"
    if dp["total"] is not None:
        total = f"{dp['total'][0]:g}, {dp['total'][1]:g}"
    most = "no bound" if bound is None else f"{bound:.3g} (e^ε + δ over 1 + e^ε)"
    return [
        ("Guarantee", str(dp["guarantee"])),
        ("Epsilon, delta of the answers", f"{dp['epsilon']:g}, {dp['delta']:g}"),
        ("Epsilon, delta of everything that leaves", total),
        ("Unit of privacy", str(dp["unit"])),
        ("Neighbouring tables", str(dp["neighbours"])),
        ("Mechanism and accountant", str(dp["mechanism"])),
        ("What may be known of the model", str(dp["model_access"])),
        ("Noise seeded", _yes_no(dp["seeded"])),
        ("Domains read from rows", ", ".join(dp["inferred"]) or "none"),
        ("Largest balanced accuracy of a membership attack", most),
    ]


def _made(data: ReportData) -> Rows:
    environment = data.environment
    packages = ", ".join(f"{name} {version}" for name, version in sorted(environment["packages"].items()))
    return [
        ("Report", data.report["id"]),
        ("Command", data.report["command"] or "not in this edition"),
        ("Latest evidence", data.report["as_of"] or "none"),
        ("Clock", "the times in the records; the report has none of its own"),
        ("Fingerprint of the population", _on_record(data.population["fingerprint"])),
        ("Seed", _on_record(", ".join(data.policy["seed"]))),
        ("Python", _on_record(environment["python"])),
        ("Packages", _on_record(packages)),
        ("Plugins", _on_record(", ".join(environment["plugins"]))),
    ]


def _run(run: RunLine, address: str | None) -> Sequence[Cell]:
    where, asked, audits = _run_link(run["run"], address), f"{run['asked']:,}", ", ".join(run["audits"]) or "–"
    return where, run["name"] or "–", run["experiment"], str(run["started"]), asked, audits


def _figures(data: ReportData, names: Iterable[str]) -> Rows:
    """Return figures; what was not measured is there and says so."""
    found = {metric.id: metric for metric in data.metrics}
    return [
        (_named(data, name), shown(of.amount, unit_of(name)), _number(of.amount.n), of.method or "–")
        for name in names
        if (of := found.get(name))
    ]


def _named(data: ReportData, name: str) -> Link:
    """Return the name of something that is defined, as a link to its definition."""
    return Link(data.definitions[name].name, f"#definition-{name}")


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _on_record(value: object, otherwise: str = "not on record") -> str:
    return otherwise if value is None or value == "" else str(value)


def _yes_no(value: object) -> str:
    return "not known" if value is None else "yes" if value else "no"


def _run_link(where: str, address: str | None) -> str | Link:
    """Return a run id, or one explanation of it as ``run/step``; a link where the server's address is known."""
    return where if address is None else Link(where, f"{address.rstrip('/')}/#/runs/{where.partition('/')[0]}")


def _answers(data: ReportData, section: int) -> Iterator[Block]:
    """Yield the answers of people to the questions of a section, open ones as such."""
    asked = [q for q in QUESTIONS.values() if q.section == section and data.system.get(q.id)]
    if asked:
        rows = [(q.question, str(data.system[q.id]), q.role) for q in asked]
        yield TableBlock(f"table-answers-{section}", "What people said", ("Question", "Answer", "Role"), rows)
    yield from (Open(p.question, p.role) for p in data.placeholders if p.section == section)


def _settings(place: int, policy: PolicyInForce) -> Folded:
    settings = {name: value for name, value in policy["settings"].items() if value is not None}
    rows = [(name, _yes_no(value) if isinstance(value, bool) else str(value)) for name, value in settings.items()]
    first, last = (str(day)[:10] for day in (policy["first"], policy["last"]))
    title, note = f"Settings of policy {place}", f"SHA-256 {policy['sha256']}"
    table = TableBlock(f"table-policy-{place}", title, ("Setting", "Value"), rows, note=note)
    return Folded(f"Policy {place}: {shown(policy['asked'], 'count')} explanations, {first} to {last}", (table,))


def _definition(data: ReportData, name: str) -> TableBlock:
    found = data.definitions[name]
    rows = [
        ("Formula", found.formula),
        ("Range", f"{found.range}; {found.direction}"),
        ("Source", found.source),
        ("Does not say", found.does_not_say),
    ]
    return TableBlock(f"definition-{name}", f"{found.name} ({name})", ("", ""), rows)


# Charts.


def _chart(found: Distribution | None, block: Mapping[str, Any]) -> Iterator[Chart]:
    """Yield the chart of a distribution, if the report has it; the name of an axis says if shares are percentages."""
    if found is None:
        return
    name, title, x, y = found.id, block["title"], block["x"], block["y"]
    if len(found.series) == 1:
        title = title.replace("before and after", "after")
    unit: Unit = "share" if y.endswith("(%)") else "number"
    scale = 100 if unit == "share" else 1
    series = {label: [_times(scale, amount.value) for amount in amounts] for label, amounts in found.series.items()}
    marks = tuple(found.marks.items())
    picture: Bars | Curves
    if name in ("class_sizes", "ncp_by_attribute"):
        texts = [[shown(amount, unit) for amount in amounts] for amounts in found.series.values()]
        picture = Bars(found.labels, list(series.items()), texts, y, top=100.0 if unit == "share" else None)
    elif name == "pureness":
        picture = Curves(_points(found, _with_ends(found)), x, y, horizontals=marks)
    else:
        picture = Curves(_points(found, series), x, y, steps=name == "risk", verticals=marks)
    table = _numbers(found, f"data-{name}", f"{title}: the numbers", x, unit, found.note)
    yield Chart(f"chart-{name}", title, block["description"], picture, table)


def _distribution(data: ReportData, name: str) -> Distribution | None:
    return next((found for found in data.distributions if found.id == name), None)


def _numbers(found: Distribution, name: str, caption: str, heading: str, unit: Unit, note: str) -> TableBlock:
    columns = zip(*([shown(amount, unit) for amount in amounts] for amounts in found.series.values()), strict=True)
    rows = [(label, *texts) for label, texts in zip(found.labels, columns, strict=True)]
    numeric = range(1, len(found.series) + 1)
    return TableBlock(name, caption, (heading, *found.series), rows, numeric=numeric, note=note)


def _times(scale: int, value: float | None) -> float | None:
    return value if value is None or scale == 1 else scale * value


def _points(found: Distribution, series: Mapping[str, Sequence[float | None]]) -> list[_Curve]:
    """Return series over categories that are numbers; a category with a band alone has no point."""
    at = [float(label.rstrip(" %")) for label in found.labels]
    known = {name: [(x, y) for x, y in zip(at, ys, strict=True) if y is not None] for name, ys in series.items()}
    return list(known.items())


def _with_ends(found: Distribution) -> dict[str, list[float | None]]:
    """Return a sorted quantity and, where there are any, the two ends of its interval."""
    amounts = next(iter(found.series.values()))
    ends = {
        "upper end": [a.value if a.high is None else a.high for a in amounts],
        "pureness": [a.value for a in amounts],
        "lower end": [a.value if a.low is None else a.low for a in amounts],
    }
    exact = ends["upper end"] == ends["pureness"] == ends["lower end"]
    return {"pureness": ends["pureness"]} if exact else ends


def _gaps(data: ReportData) -> Iterator[Chart]:
    """Draw a dot and an interval per group that has one, for every metric."""
    tolerance = next((each["value"] for each in data.policy["thresholds"] if each["id"] == "group_gap"), None)
    lines = (("no difference", 0.0), *((("tolerance", -tolerance), ("tolerance", tolerance)) if tolerance else ()))
    axis = "difference of the means"
    for metric, name in _METRICS.items():
        gaps = [(f"{g.attribute}: {g.group}", g.gap) for g in data.groups if g.metric == metric]
        known = [
            ((label, gap.value, gap.low, gap.high), shown(gap))
            for label, gap in gaps
            if gap.value is not None and gap.low is not None and gap.high is not None
        ]
        if metric == "k" or not known:
            continue
        picture = Intervals([row for row, _ in known], [text for _, text in known], axis, lines)
        title = f"{name}: difference between each group and the rest"
        rows = [(row[0], text) for row, text in known]
        table = TableBlock(f"data-groups-{metric}", f"{title}: the numbers", ("", axis), rows, numeric=(1,))
        description = f"Difference of the mean ({name}) with its 95 % interval; no difference is at 0."
        yield Chart(f"chart-groups-{metric}", title, description, picture, table)


# Attacks.


def _attack(data: ReportData, attack: Attack) -> Link:
    """Return the name of an attack, or of what it found of a single attribute, as a link to the definition."""
    if attack.id in data.definitions:
        return _named(data, attack.id)
    whole, _, attribute = attack.id.partition("/")
    return Link(f"– {attribute}", f"#definition-{whole}")


def _attacker(attack: Attack) -> str:
    scenario = "The same, of one attribute." if "/" in attack.id else attack.scenario  # its attack is the row above
    told = f"Attacked: {attack.subject}. {scenario}" if attack.subject else scenario
    if not attack.concerns:
        return f"{told} What was attacked is not released."
    return told if attack.covers else f"{told} Of another policy or population."


def _attack_figures(data: ReportData, attack: Attack) -> Folded:
    """Return the attack's own figures; the two ends of an interval stand beside its figure."""
    figures = attack.figures
    beside = {f"{name}_{end}" for name in figures for end in ("low", "high")}
    rows: list[tuple[Cell, str]] = []
    for name, amount in figures.items():
        low, high = figures.get(f"{name}_low"), figures.get(f"{name}_high")
        whole = amount if low is None or high is None else replace(amount, low=low.value, high=high.value)
        if name not in beside:
            rows.append((_named(data, name) if name in data.definitions else name, shown(whole)))
    caption, note = f"Figures of the attack {attack.id}", "Defined in the reference of audits."
    table = TableBlock(f"table-attack-{attack.id}", caption, ("Figure", "Value"), rows, numeric=(1,), note=note)
    return Folded(caption, (table,))


_ROC_RATES = ("0.1", "0.01", "0.001")


def _roc_chart(data: ReportData, found: Distribution, block: Mapping[str, Any]) -> Chart:
    """Draw members found over false alarms, both on logarithmic axes."""
    above_zero = {name: [amount.value or None for amount in amounts] for name, amounts in found.series.items()}
    points = dict(_points(found, above_zero))
    curves = {name: of for name, of in points.items() if name not in BOUNDS}
    bounds = [name for name in BOUNDS if name in points]
    drawn = sorted({x for of in curves.values() for x, _ in of})
    guides: list[_Curve] = [(COIN, [(x, x) for x in drawn[:1] + drawn[-1:]])]
    guides += [(name, [point for point in points[name] if drawn and point[0] >= drawn[0]]) for name in bounds]
    legend = (*(_curve_name(data, name) for name in curves), COIN, *(BOUNDS[name] for name in bounds))
    picture = Curves(tuple(curves.items()), block["x"], block["y"], guides=guides, legend=legend, logarithmic=True)
    title, description = block["title"], " ".join([block["description"], *([block["claimed"]] if bounds else [])])
    table = _roc_table(found, f"{title}: the shares that matter most", [*curves, *bounds])
    return Chart(f"chart-{found.id}", title, description, picture, table)


def _roc_table(found: Distribution, caption: str, names: Iterable[str]) -> TableBlock:
    told = {rate: found.labels.index(rate) for rate in _ROC_RATES if rate in found.labels}
    series = {BOUNDS.get(name) or short(name): found.series[name] for name in names}
    rows = [(name, *(shown(amounts[place]) for place in told.values())) for name, amounts in series.items()]
    columns = ("", *(f"Found at {float(rate) * 100:g} % false alarms" for rate in told))
    note = " ".join(filter(None, (found.note, "All points are in the data of the report.")))
    numeric = range(1, len(columns))
    return TableBlock(f"data-{found.id}", caption, columns, [*rows, (COIN, *told)], numeric=numeric, note=note)


def _curve_name(data: ReportData, name: str) -> str:
    """Return the name of a curve with the area below it, where the attack's success is that area."""
    area = next((attack.main for attack in data.attacks if attack.judged and attack.id == name), None)
    if area is None or not area.measured or name.startswith("membership_surrogate"):
        return short(name)
    return f"{short(name)}: AUC {shown(area)}"
