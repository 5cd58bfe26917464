"""Verdicts: what was decided about each counterfactual, and the explanations made from them.

A verdict is `Certified` or `Withheld`. `cfk_plugin.release.verification` makes verdicts.
`cfk_plugin.release.actionability` may still withhold what it certified, never the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from cfk_plugin.data.encoded_table import EncodedTable
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.region import Part, Region
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.release.results import (
    Certificate,
    Explanation,
    GeneralizedCounterfactual,
    RegionRecount,
    Withheld,
)


class Certified(NamedTuple):
    """A region that meets the policy, and what its recount found."""

    region: Region
    certificate: Certificate  # for the recipient of the explanation
    recount: RegionRecount  # for the data holder alone

    def with_counts(self, **counts: Any) -> Certified:
        """Return the verdict with counts that were not known when it was made."""
        return self._replace(recount=self.recount.with_counts(**counts))


Verdict = Certified | Withheld


def refused(reason: str, k: int | None = None) -> Withheld:
    """Return the verdict that withholds a region.

    `k` is the number of people if there are too few of them. The position of the query is not known
    here; `explanations_of` fills it in.
    """
    return Withheld(-1, reason, refused_k=k)


def explanations_of(
    queries: Sequence[int],
    verdicts: Sequence[Verdict],
    accepted: EncodedTable,
    outcomes: Iterable[Outcome],
    by: Presentation,
) -> Iterator[Explanation]:
    """Yield the explanation that each verdict permits.

    Parameters
    ----------
    queries : position of the query that each verdict answers
    verdicts : one per counterfactual
    accepted : the counterfactuals; their private values are released
    outcomes : the outcome that each certificate is about; may be longer than `verdicts`
    by : how explanations are presented
    """
    titled_regions: dict[int, _TitledRegion] = {}  # by identity, since many verdicts share a region
    for row, (query, verdict, outcome) in enumerate(zip(queries, verdicts, outcomes, strict=False)):
        if isinstance(verdict, Withheld):
            yield Withheld(query, verdict.reason, refused_k=verdict.refused_k)
            continue
        key = id(verdict.region)
        if key not in titled_regions:
            titled_regions[key] = _titled(verdict.region, accepted)
        yield GeneralizedCounterfactual(
            query=query,
            region=titled_regions[key].region,
            released=dict(accepted.private[row]),
            certificate=verdict.certificate,
            recount=verdict.recount,
            titles=titled_regions[key].titles,
            outcome=outcome,
            presentation=by,
        )


class _TitledRegion(NamedTuple):
    region: Region  # its attributes are in the order of the features
    titles: dict[str, str]  # attribute to the name of its node in the attribute's hierarchy


def _titled(region: Region, accepted: EncodedTable) -> _TitledRegion:
    """Return a region in the order of the features, with the names of its hierarchy nodes."""
    encoder = accepted.encoder
    parts: dict[str, Part] = {}
    titles: dict[str, str] = {}
    for name, domain in zip(encoder.schema.features, encoder.columns, strict=True):
        if name not in region.parts:
            continue
        parts[name] = region.parts[name]
        if domain.attribute.hierarchy is None:
            continue
        title = domain.title(parts[name])
        if title is not None:
            titles[name] = title
    return _TitledRegion(Region(parts), titles)
