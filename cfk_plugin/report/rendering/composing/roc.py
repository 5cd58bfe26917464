"""The chart of membership attacks: members found over false alarms, both on logarithmic axes."""

from __future__ import annotations

from cfk_plugin.report.data import Amount, Attack, Distribution, ReportData
from cfk_plugin.report.rendering.document import Cell, Chart, Curves, Table
from cfk_plugin.report.rendering.text import shown
from cfk_plugin.report.statements.curves import BOUNDS, COIN, short

_TOLD = ("0.1", "0.01", "0.001")
_TITLE = "Members found, by false alarms"
_DESCRIPTION = (
    "Read it so: an attacker who takes this share of the people who were not trained on for members (horizontal) finds "
    "this share of those who were (vertical). Both axes are logarithmic, since an attacker who is sure of a few people "
    "works on the left. On the line of the coin nobody learns anything."
)
_BELOW = " Where an epsilon is claimed no attack may be above its line."


def roc_charts(data: ReportData) -> list[Chart]:
    """Return a chart for every distribution of curves."""
    attacks = {attack.id: attack for attack in data.attacks if attack.judged}
    found = [each for each in data.distributions if each.id == "roc" or each.id.startswith("roc-")]
    return [_chart(each, attacks) for each in found]


def _chart(found: Distribution, attacks: dict[str, Attack]) -> Chart:
    curves = {name: _points(found, amounts) for name, amounts in found.series.items() if name not in BOUNDS}
    bounds = {name: _points(found, found.series[name]) for name in BOUNDS if name in found.series}
    drawn = sorted({x for points in curves.values() for x, _ in points})
    coin = [(x, x) for x in (drawn[0], drawn[-1])] if drawn else []
    within = {name: [point for point in points if drawn and point[0] >= drawn[0]] for name, points in bounds.items()}
    picture = Curves(
        series=tuple(curves.items()),
        guides=((COIN, coin), *within.items()),
        legend=(*(_said(name, attacks) for name in curves), COIN, *(BOUNDS[name] for name in bounds)),
        x="share of others taken for members (FPR)",
        y="share of members found (TPR)",
        logarithmic=True,
    )
    return Chart(
        id=f"chart-{found.id}",
        title=_TITLE,
        description=_DESCRIPTION + (_BELOW if bounds else ""),
        picture=picture,
        table=_table(found, [*curves, *bounds]),
    )


def _points(found: Distribution, amounts: tuple[Amount, ...]) -> list[tuple[float, float]]:
    pairs = zip(found.labels, amounts, strict=True)
    return [(float(label), amount.value) for label, amount in pairs if amount.value is not None and amount.value > 0]


def _table(found: Distribution, names: list[str]) -> Table:
    told = [rate for rate in _TOLD if rate in found.labels]
    places = [found.labels.index(rate) for rate in told]
    rows: list[list[Cell]] = [
        [BOUNDS.get(name) or short(name), *(shown(found.series[name][place]) for place in places)] for name in names
    ]
    rows.append([COIN, *told])
    return Table(
        id=f"data-{found.id}",
        caption=f"{_TITLE}: the shares that matter most",
        columns=("", *(f"Found at {float(rate) * 100:g} % false alarms" for rate in told)),
        rows=rows,
        numeric=tuple(range(1, len(told) + 1)),
        note=" ".join(filter(None, (found.note, "All points are in the data of the report."))),
    )


def _said(name: str, attacks: dict[str, Attack]) -> str:
    """Write the name of a curve with the area below it, where the attack's success is that area."""
    attack = attacks.get(name)
    if attack is None or name.startswith("membership_surrogate"):
        return short(name)
    area = attack.main
    return f"{short(name)}: AUC {shown(area)}" if area.measured else short(name)
