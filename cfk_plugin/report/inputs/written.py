"""Reading YAML that people write by hand: every scalar is the text that stands there, and every key stands once."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from cfk_plugin.errors import InputError

LARGEST = 200_000
"""Bytes of the largest file that is read."""


class _Written(yaml.BaseLoader):
    """A loader that makes mappings, lists and text alone, whatever tags say, and refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping whose keys each stand there once."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise InputError(f"{shown(key.value)} stands there twice (line {key.start_mark.line + 1}); keep one")
            seen.add(key.value)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return made


def read_written(path: str | Path) -> Any:
    """Read a YAML file as mappings, lists and text.

    Parameters
    ----------
    path : path

    Returns
    -------
    mapping, list or str
        None for a file without content.

    Raises
    ------
    InputError
        If it cannot be read, is too large, or is no YAML. The message tells the line and shows nothing of the content
        but a key.
    """
    path, problem = Path(path), ""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give the file that people filled in") from None
    if len(content) > LARGEST:
        raise InputError(f"{path} is larger than {LARGEST:,} bytes; answers are short texts")
    try:
        return _Written(content.decode("utf-8-sig")).get_single_data()
    except InputError:
        raise
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        problem = f"is no valid YAML{line}; put quotes around texts with a colon or a number sign"
    except (yaml.YAMLError, ValueError, RecursionError):
        problem = "is no valid YAML, or holds characters that cannot be printed"
    raise InputError(f"{path} {problem}")


def shown(key: object) -> str:
    """Return a key as messages name it: short and printable."""
    text = key if isinstance(key, str) else type(key).__name__
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= 40 else f"{plain[:37]}..."
