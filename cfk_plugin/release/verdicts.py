"""Verdicts: what was decided about a region, and what explanations state of it.

A verdict is `Certified` or `Withheld`; `cfk_plugin.release.certify` makes them.
"""

from __future__ import annotations

from math import isnan
from typing import Any, NamedTuple

from cfk_plugin.data.codes import Codes, Floats, Ints
from cfk_plugin.data.region import Interval, Region, to_text
from cfk_plugin.release.results import Certificate, RegionRecount, Withheld


class Certified(NamedTuple):
    """A region that meets the policy, and what its recount found."""

    region: Region
    certificate: Certificate  # for the recipient of the explanation
    recount: RegionRecount  # for the data holder only

    def with_counts(self, **counts: Any) -> Certified:
        """Return the verdict with counts that were not known when it was made."""
        return self._replace(recount=self.recount.with_counts(**counts))


Verdict = Certified | Withheld


def refused(reason: str, k: int | None = None) -> Withheld:
    """Return the verdict that withholds a region.

    `k` is the number of people if there are too few of them. The query is not known here.
    """
    return Withheld(-1, reason, refused_k=k)


def values_of(codes: Codes, columns: Ints, values: Floats) -> dict[str, Any]:
    """Return values of some columns as plain Python shows them, in the order of the schema.

    `columns` and `values` have the shape (n_columns,); NaN is left out.
    """
    value_of_column = dict(zip(columns.tolist(), values.tolist(), strict=True))
    return {
        codes.names[j]: codes.columns[j].value(value_of_column[j])
        for j in sorted(value_of_column)
        if not isnan(value_of_column[j])
    }


def titles_of(region: Region, codes: Codes) -> dict[str, str]:
    """Return the names of nodes of hierarchies that parts of a region are, by quasi-identifier."""
    titles = {}
    for j in codes.quasi.tolist():
        column = codes.columns[j]
        part = region[column.name]
        hierarchy = column.attribute.hierarchy
        if hierarchy is None or isinstance(part, Interval) or len(part) == 1 or None in part:
            continue
        title = hierarchy.titles[hierarchy.cover([to_text(value) for value in part])]
        if title is not None:
            titles[column.name] = title
    return titles
