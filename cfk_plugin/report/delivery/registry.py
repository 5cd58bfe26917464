"""A report in the description of a model's version, beside what is there already."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.records.run import LONGEST_DESCRIPTION, client_of, kind_of, tracking_errors
from cfk_plugin.report.rendering.model_card import fitted

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

_START, _END = "<!-- cfk report: replaced by the next one -->", "<!-- end of cfk report -->"
_SECTION = re.compile(rf"\n*{re.escape(_START)}(?:(?!{re.escape(_START)}).)*?{re.escape(_END)}\n*", re.DOTALL)
_HEADING = re.compile(r"^(#{1,5}) ", re.MULTILINE)
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def describe_model_version(name: str, version: str, text: str, tracking_uri: str | None = None) -> None:
    """Put a card into the description of a model's version, in the place of the earlier report's.

    Parameters
    ----------
    name, version : str
        Of a registered model.
    text : str
        The card, from `render_model_card`. Its headings become one level lower, and sections at its end are left out
        where the description has no room for them. What else the description says stays as it is.
    tracking_uri : str, optional
        Default: MLflow's own settings.

    Raises
    ------
    InputError
        If there is no such version, or its description leaves no room for the verdict.
    TrackingError
        If MLflow cannot be asked, or does not take it.
    """
    try:
        client = client_of(tracking_uri)
        found = client.get_model_version(name, version)
    except TrackingError:
        raise
    except Exception as error:
        if getattr(error, "error_code", None) in _UNKNOWN:
            raise InputError(f"the registry has no version {version} of a model {name!r}") from None
        raise TrackingError(f"the registry cannot be read ({kind_of(error)})") from error
    description = _described(found, text)
    with tracking_errors("the registry did not take the description"):
        client.update_model_version(name, version, description)


def _described(found: ModelVersion, text: str) -> str:
    own = _SECTION.sub("\n\n", found.description or "").strip()
    before = f"{own}\n\n{_START}\n" if own else f"{_START}\n"
    after = f"\n{_END}\n"
    # One level lower is one character more: make room for the marks first, then for the headings.
    room = LONGEST_DESCRIPTION - len(before) - len(after)
    card = fitted(text, room - len(_HEADING.findall(text)))
    if not card:
        raise InputError(
            f"the description of version {found.version} of {found.name!r} has {len(own):,} of "
            f"{LONGEST_DESCRIPTION:,} characters and leaves no room for the report's verdict; shorten it"
        )
    return before + _HEADING.sub(r"#\1 ", card).strip() + after
