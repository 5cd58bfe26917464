"""The tables to work on, from a folder or from OpenML, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cfk_plugin.reproduction.tables.folder import describe, read_table
from cfk_plugin.reproduction.tables.openml import fetch_table, require_copies
from cfk_plugin.reproduction.tables.table import Table


def load(names: Sequence[str], data: Path | None = None, cache: Path | None = None) -> Iterator[Table]:
    """Return the tables in turn; each is loaded when it is asked for, and none is kept.

    What can be checked without rows is checked at once: a name that is not there fails before hours of work.

    Parameters
    ----------
    names : sequence of str
    data : Path, optional
        Folder with ``NAME.csv.gz`` and ``NAME.json`` of each table. Default: OpenML, which has no copy of hospital
        and informs.
    cache : Path, optional
        Where scikit-learn keeps what it loads from OpenML, see `openml.fetch_table`.

    Returns
    -------
    iterator of Table
        In the order of `names`.

    Raises
    ------
    InputError
        At once, or when a table's turn comes, if it cannot be had.
    """
    if data is None:
        require_copies(names)
        return (fetch_table(name, cache) for name in names)
    for name in names:
        describe(name, data)
    return (read_table(name, data) for name in names)
