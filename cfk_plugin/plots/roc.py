"""The plot of how well membership attacks work, above all for the few people of whom they are sure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import roc_height
from cfk_plugin.plots._drawing import INK, MARK, clean, new_axes, nothing
from cfk_plugin.report.statements.curves import BOUNDS, COIN, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cfk_plugin.audit.attack_report import AttackReport, Curve

_STYLES = ("-", "--", ":", "-.")
_SHADES = (INK, "0.45")
_GUIDES = {"bound_tight": (0, (6, 2)), "bound_paper": (0, (1, 2))}
_FEW = 1_000  # people; with fewer of them, rates of 0.1 % cannot be seen


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    name: str
    curve: Curve
    others: int | None  # not trained on


def plot_roc(
    report: AttackReport | Sequence[AttackReport] | Mapping[str, Curve],
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    log: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of members that attacks find over the share of others whom they take for members.

    For the data holder: each step of a curve is one person, so few people show where single ones stand. A privacy
    report's external edition has the same curves in steps of 11 people.

    Parameters
    ----------
    report : AttackReport, sequence of AttackReport, or mapping of str to Curve
        Whose curves are drawn. Curves of several reports are named with what was attacked.
    epsilon, delta : float, optional
        A claim for neighbours of whom one person is *replaced*, as membership attacks tell them apart; what it admits
        is drawn as a line. Default: the lines that the reports hold, where they know of a claim.
    log : bool
        Logarithmic axes, from 1 / n of the n people who were not trained on. Attacks that are right about a few people
        show on these alone.
    ax : matplotlib Axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        If something has no curves, or epsilon or delta is outside of its range.

    Notes
    -----
    A bound on the balanced accuracy B is no curve. The published bound is drawn as what it implies, TPR at most
    FPR + 2 B - 1, where a report holds it.
    """
    lines, claims = _given(report)
    ax = ax or new_axes(4.4)
    if not lines:
        return nothing(ax, "no attack with a curve")
    least = min(_least(line) for line in lines) if log else 0.0
    at = np.geomspace(least, 1.0, 200) if log else np.linspace(0.0, 1.0, 201)
    ax.plot(at, at, color=MARK, linewidth=0.8, label=COIN, zorder=1)
    if epsilon is not None:
        ax.plot(
            at,
            _admitted(at, epsilon, delta),
            linestyle=_GUIDES["bound_tight"],
            color=MARK,
            linewidth=1,
            label=_claimed(epsilon, delta),
        )
    else:
        for name, bound in claims.items():
            ax.plot(
                at,
                roc_height(bound.fpr, bound.tpr, at),
                linestyle=_GUIDES[name],
                color=MARK,
                linewidth=1,
                label=BOUNDS[name],
            )
    for i, line in enumerate(lines):
        _draw(ax, line, i, least)
    _axes(ax, lines, least)
    return ax


def _given(report: AttackReport | Sequence[AttackReport] | Mapping[str, Curve]) -> tuple[list[_Line], dict[str, Curve]]:
    """Return the curves of attacks, and those of what is claimed."""
    from cfk_plugin.audit.attack_report import AttackReport, Curve

    if isinstance(report, Mapping):
        if not all(isinstance(curve, Curve) for curve in report.values()):
            raise InputError("a mapping must be of names to Curve, such as an AttackReport's curves")
        drawn = [_Line(short(name), curve, None) for name, curve in report.items() if name not in BOUNDS]
        return drawn, {name: report[name] for name in BOUNDS if name in report}
    reports = [report] if isinstance(report, AttackReport) else list(report)
    if not all(isinstance(each, AttackReport) for each in reports):
        raise InputError("plot_roc draws an AttackReport, several, or curves by name")
    claims = {name: each.curves[name] for each in reports for name in BOUNDS if name in each.curves}
    return [line for each in reports for line in _lines(each, several=len(reports) > 1)], claims


def _lines(report: AttackReport, *, several: bool) -> Iterator[_Line]:
    for name, curve in report.curves.items():
        if name in BOUNDS:
            continue
        found = next((result for result in report.results if result.attack == name), None)
        others = None if found is None else found.figures.get("others")
        area = found is not None and not name.startswith("membership_surrogate")  # whose success is no area
        title = f"{short(name)}, AUC {found.main.value:.2f}" if found is not None and area else short(name)
        known = others is not None and np.isfinite(others) and others > 0
        yield _Line(f"{report.subject}: {title}" if several else title, curve, int(others or 0) if known else None)


def _least(line: _Line) -> float:
    """Return the smallest rate of false alarms that could be seen."""
    if line.others:
        return 1 / line.others
    return min((rate for rate in line.curve.fpr if rate > 0), default=0.1)


def _draw(ax: Axes, line: _Line, place: int, least: float) -> None:
    start = max(least, _least(line)) if least else 0.0
    inside = [rate for rate in line.curve.fpr if rate >= start]
    at = np.unique([start, *inside, 1.0])
    heights = roc_height(line.curve.fpr, line.curve.tpr, at)
    shown = heights > 0 if least else np.ones(len(at), dtype=bool)
    ax.plot(
        at[shown],
        heights[shown],
        _STYLES[place % len(_STYLES)],
        color=_SHADES[place // len(_STYLES) % len(_SHADES)],
        linewidth=1.8,
        label=line.name,
        zorder=3,
    )


def _axes(ax: Axes, lines: list[_Line], least: float) -> None:
    if least:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(least, 1.0)
        ax.set_ylim(least, 1.25)
    else:
        ax.set_xlim(0.0, 1.0)
        ax.set_ylim(0.0, 1.02)
    ax.set_xlabel("share of others taken for members (FPR)")
    ax.set_ylabel("share of members found (TPR)")
    known = [line.others for line in lines if line.others]
    if known and min(known) < _FEW:
        words = f"{min(known):,} people who are no members:\nnothing below {1 / min(known):.2g} can be seen"
        ax.set_title(words, loc="left", fontsize=8, color=MARK)
    ax.legend(loc="lower right", fontsize=8, frameon=False, handlelength=3)
    clean(ax)


def _admitted(at: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
    from cfk_plugin.audit.membership.bounds import largest_tpr, replace_one

    return largest_tpr(at, *replace_one(epsilon, delta, "replace-one"))


def _claimed(epsilon: float, delta: float) -> str:
    return f"most that ε = {epsilon:g} admits" if not delta else f"most that ε = {epsilon:g}, δ = {delta:g} admits"
