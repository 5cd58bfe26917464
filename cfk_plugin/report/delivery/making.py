"""What a report is made with besides its runs, read before any run is, and the command that makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import InputError
from cfk_plugin.report.data import ReportData

if TYPE_CHECKING:
    from cfk_plugin.report.data import Edition
    from cfk_plugin.report.evidence import Evidence
    from cfk_plugin.report.inputs import HumanInputs
    from cfk_plugin.report.reading.period import Moment


@dataclass(frozen=True, slots=True)
class Settings:
    """As they are given; see `PrivacyReport.of_runs`."""

    since: Moment | None
    until: Moment | None
    edition: Edition
    preset: str | None
    inputs: HumanInputs | str | Path | None
    previous: Any

    def read(self) -> Known:
        """Read the files that are named, and check everything: no run is read for a report that cannot be made."""
        from cfk_plugin.report.inputs import HumanInputs
        from cfk_plugin.report.statements.presets import thresholds

        if self.edition not in ("internal", "external"):
            raise InputError(f"edition must be internal or external, got {self.edition!r}")
        given = self.inputs
        inputs = HumanInputs.read(given) if isinstance(given, str | Path) else given or HumanInputs()
        thresholds(self.preset, inputs)
        earlier = self.previous
        previous = read_json(Path(earlier)) if isinstance(earlier, str | Path) else getattr(earlier, "data", None)
        if previous is not None and previous.report["edition"] != self.edition:
            raise InputError(
                f"the earlier report is the {previous.report['edition']} edition and this one is to be the "
                f"{self.edition}; give one of the same edition"
            )
        return Known(self.edition, self.preset, inputs, previous)


@dataclass(frozen=True, slots=True)
class Known:
    """Settings that were read."""

    edition: Edition
    preset: str | None
    inputs: HumanInputs
    previous: ReportData | None

    def build(self, evidence: Evidence, text: str) -> ReportData:
        """Make the report of what was read from runs, exactly as it will be read back from its JSON."""
        from cfk_plugin.report.build import build

        made = build(
            evidence,
            inputs=self.inputs,
            preset=self.preset,
            edition=self.edition,
            command=text,
            previous=self.previous,
        )
        # The order of keys and the kind of sequences decide what renderings look like: there is one form, the JSON's.
        return ReportData.from_json(made.to_json())


def command(source: Sequence[tuple[str, str]], settings: Settings) -> str:
    """Return the command that makes the report again.

    Names of files stand without their folders, and where things are (tracking server, outputs) is left out: it does
    not change what the report says, and does not belong into it.
    """
    given: list[tuple[str, object]] = [
        *source,
        ("--since", settings.since),
        ("--until", settings.until),
        ("--edition", settings.edition),
        ("--preset", settings.preset),
        ("--inputs", _file(settings.inputs, "inputs.yaml")),
        ("--previous", _file(settings.previous, "previous.json")),
    ]
    words = [word for name, value in given if value is not None for word in (name, str(value))]
    return shlex.join(["cfk", "report", *words])


def read_json(path: Path) -> ReportData:
    """Read a report from its JSON.

    Raises
    ------
    InputError
        If there is no such file, or it is no report that this release reads.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({type(error).__name__})") from None
    try:
        return ReportData.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _file(given: object, name: str) -> str | None:
    if given is None:
        return None
    return Path(given).name if isinstance(given, str | Path) else name
