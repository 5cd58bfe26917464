"""Texts that a report is made with, as data: corrected without touching code."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def load(name: str) -> Any:
    """Return the content of a file of this folder.

    Parameters
    ----------
    name : str
        Of the file, without ``.yaml``.

    Returns
    -------
    mapping or list
        Shared by all callers: not to be changed.
    """
    return yaml.safe_load((files(__name__) / f"{name}.yaml").read_text("utf-8"))
