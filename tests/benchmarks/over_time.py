"""Compare releases before and after a change of the table; on six tables.

Run it from the repository's root: ``python tests/benchmarks/over_time.py --data ../shared/data
[--setting quick] [--tables heart,german] [--keys 3] [--people 40] [--k 10]
[--attacks turnover,joining] [--configurations none,old,ledger,previous]``. ``--setting quick`` ends
in about two minutes; the full setting is the default. Options that are given replace those of the
setting. Model and split are those of the other benchmarks, and the same model serves both times.

Configurations, all with the same key: *none* releases twice without a ledger. *old* is the positive
control: the rule of the ledger before it knew who shared a region, simulated here. A record gets
its first region again if that had k people then, and k people of today are inside. For
*reciprocal* this gives, on heart and german, the very figures of that version; for *exact* that
version also asked the model, and withheld more. *ledger* is the ledger of today. *previous* gives the
first catalogue to the second publication, which is for shared values alone. Guarantees:
*reciprocal* protects training rows with the desired outcome as counterfactuals; *exact* and
*shared* publish a catalogue with private values of that kind. Everything is counted again from the
tables and the partitions; no certificate is read.

**Turnover.** A share of the people of the training table is replaced by others. Somebody links the
two releases of one record: by its row (reciprocal) or its private values (exact). Suspects are the
people of the region's group who are still in the second table and, where the region is not kept, in
the group of the second region as well. Columns:

- *replaced*: the share of people who are replaced.
- *linked*: records that were released at both times, over all keys.
- *fewest*: suspects of the linked record that has the fewest.
- *below k*: the share of linked records with fewer than k suspects.
- *withheld*: the share of records of the first release that are not released again. Records whose
  own person left the table do not count. For *exact* this includes those that are no entry of the
  second catalogue for other reasons: see *none*.

With shared values no record is linked, as entries have the values of many people or of nobody.
Instead, of each region that leaves at the second time with an entry or an answer, the people who
share it are counted: those to whom the second partition gives it or, of a region that only the
first partition has, the members of its group who are still there. *regions* says how many
there are, *fewest* how many people share the one that is shared by the fewest, *below k* how many
regions are shared by fewer than k, and *answered* how many queries are answered.

**Joining.** One person with the desired outcome joins. The attacker compares the two published
catalogues. Columns:

- *people*: how many joined, each alone. Of these, *new entry* is the share for whom there is an
  entry with private values that no entry had before and a region that holds them.
- *named* (exact): the mean chance to name all private values of the person. The attacker picks one
  of these entries, or else guesses the most frequent private values.
- *by new*, *by old*, *typical* (shared): the share of private attributes that guesses have right;
  numbers within 5 % of their range. A guess is the most frequent value, or the median, of these
  entries, of the old entries whose region holds the person, or of the table.
- *area*: the attacker has the records of all these people and tells who joined. It is the area
  under the curve of one joiner against all others, averaged over joiners; 0.5 is a coin. The score
  by *values* is how near the private values are to an entry that appeared minus how near they are
  to one that disappeared. The score by *regions* is how many entries appeared with a region that
  holds the person. *Both* adds the two, standardized. That sum was chosen among some 60 scores that
  were tried on heart and german, with shared values and no ledger: areas there may be a little high.

Shares are in %. Intervals are of 95 %: for turnover over keys; for joining over people, each
averaged over keys. Those of *new entry* and *named* are Clopper-Pearson's, with the sum of the
chances in the place of a count, which is wide enough for any chances. Others are t intervals.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.release.explanations import Explanations
from one_person import Figure
from printing import DATA, arguments, heading, line
from tables import LEAVES, TABLES, forest, read, split
from time_attacks import (
    Attributes,
    Difference,
    Guesses,
    Links,
    Moment,
    Naming,
    Published,
    Regions,
    Turnover,
    Values,
    area_of,
    guess_attributes,
    name_values,
    plain,
    plain_rows,
    scores_by_regions,
    scores_by_values,
    standardized,
)

LINKED_HEAD = (
    *("table", "guarantee", "configuration", "replaced", "linked", "fewest", "below k %"),
    "withheld %",
)
REGIONS_HEAD = (
    *("table", "guarantee", "configuration", "replaced", "regions", "fewest", "below k %"),
    "answered %",
)
_AREAS = ("area, values", "area, regions", "area, both")
NAMED_HEAD = ("table", "guarantee", "configuration", "people", "new entry %", "named", *_AREAS)
GUESSED_HEAD = (
    *("table", "guarantee", "configuration", "people", "new entry %"),
    *("by new %", "by old %", "typical %", *_AREAS),
)

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "reciprocal": {"guarantee": "reciprocal"},
    "exact": {"guarantee": "catalogue", "private_values": "exact"},
    "shared": {"guarantee": "catalogue", "private_values": "shared"},
}
"""Settings of the policy by the name of a guarantee in this benchmark."""

CONFIGURATIONS = ("none", "old", "ledger", "previous")
SHARES = (0.1, 0.3, 0.5)

_COUNTERFACTUALS = 300  # most that are protected with the guarantee "reciprocal"
_LEDGER_KEY = b"k" * 32


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table that is split into the first training table and unseen people, with its model."""

    name: str
    schema: Schema
    first: pd.DataFrame
    unseen: pd.DataFrame
    model: Any
    desired: Any

    @classmethod
    def load(cls, name: str, data: Path) -> Table:
        frame, about = read(name, data)
        features = about["features"]
        train, unseen = split(frame, 0.6, 0)
        return cls(
            name=name,
            schema=Schema.from_frame(train[features], quasi_identifiers=about["quasi_identifiers"]),
            first=train[features],
            unseen=unseen[features],
            model=forest(train[features], train[about["target"]], max_leaf_nodes=LEAVES[name]),
            desired=about["desired_outcome"],
        )

    @property
    def private(self) -> list[str]:
        return list(self.schema.private)

    def has_outcome(self, people: pd.DataFrame) -> pd.DataFrame:
        """Return the people with the desired outcome by the model."""
        return people[self.model.predict(people) == self.desired].reset_index(drop=True)

    def lacks_outcome(self, people: pd.DataFrame) -> pd.DataFrame:
        """Return the people without the desired outcome by the model."""
        return people[self.model.predict(people) != self.desired].reset_index(drop=True)


@dataclass(frozen=True, eq=False, repr=False)
class Holder:
    """A data holder, who releases one table after the other with one key and one guarantee."""

    table: Table
    guarantee: str
    key: int
    k: int

    def fit(self, people: pd.DataFrame, ledger: Ledger | None = None) -> KAnonymizer:
        """Fit for the people who are in the table now."""
        policy = PrivacyPolicy(k=self.k, **POLICIES[self.guarantee])
        key = bytes([self.key]) * 16
        population = Population.from_frame(people, self.table.schema, key=key)
        return KAnonymizer(policy=policy, ledger=ledger).fit(
            population, self.table.model, self.table.desired
        )

    def identify(self, row: Values) -> Values:
        """Return what of a row an attacker recognizes in a release: all of it, or private values.

        With the guarantee "reciprocal", the private values of a counterfactual leave. That the
        attacker knows the whole row makes no difference to who shared a region.
        """
        if self.guarantee == "reciprocal":
            return row
        features = list(self.table.schema.features)
        columns = list(self.table.first.columns)
        if columns != features:
            raise ValueError("the columns of the table are not in the order of the schema")
        return tuple([row[features.index(name)] for name in self.table.private])


@dataclass(frozen=True)
class LedgerState:
    """A ledger after the first release, from which several second releases go on."""

    path: Path

    @classmethod
    def made_by(cls, path: Path, release: Callable[[Ledger], object]) -> LedgerState:
        """Make a ledger, and release something with it."""
        with Ledger(path, key=_LEDGER_KEY, create=True) as ledger:
            release(ledger)
        return cls(path=path)

    @contextmanager
    def continued(self) -> Iterator[Ledger]:
        """Open a copy."""
        with tempfile.TemporaryDirectory() as folder:
            copied = shutil.copy(self.path, Path(folder) / "ledger.db")
            with Ledger(copied, key=_LEDGER_KEY) as ledger:
                yield ledger


# --- turnover


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """The second table: some of the first people, and others in the place of those who left."""

    share: float
    people: pd.DataFrame
    others: pd.DataFrame  # who are in neither table

    @classmethod
    def draw(cls, table: Table, share: float, key: int) -> Change:
        n_replaced = round(share * len(table.first))
        rng = np.random.default_rng([key, round(100 * share)])
        staying = np.sort(rng.permutation(len(table.first))[n_replaced:])
        order = rng.permutation(len(table.unseen))
        joining = order[:n_replaced]
        people = [table.first.iloc[staying], table.unseen.iloc[joining]]
        return cls(
            share=share,
            people=pd.concat(people, ignore_index=True),
            others=table.unseen.iloc[order[n_replaced:]].reset_index(drop=True),
        )


@dataclass(frozen=True)
class LinkedResult:
    """Links of one guarantee, configuration, share and key."""

    guarantee: str
    configuration: str
    share: float
    links: Links

    @property
    def case(self) -> tuple[str, str, float]:
        return self.guarantee, self.configuration, self.share


@dataclass(frozen=True)
class RegionsResult:
    """How many people share each region that left, and how many queries were answered."""

    guarantee: str
    configuration: str
    share: float
    people: Sequence[int]  # for each region
    answered: float

    @property
    def case(self) -> tuple[str, str, float]:
        return self.guarantee, self.configuration, self.share

    def below(self, k: int) -> float:
        return 100 * float(np.mean(np.array(self.people) < k))


def released_rows(anonymizer: KAnonymizer, rows: pd.DataFrame) -> Regions:
    """Protect rows as counterfactuals, and return the region of each that is released."""
    released: Regions = {}
    protected = anonymizer.transform(rows)
    for row, entry in zip(plain_rows(rows), protected, strict=True):
        if entry.status == "released":
            released.setdefault(row, set()).add(entry.region)
    return released


def released_values(published: Explanations, private: Sequence[str]) -> Regions:
    """Return the regions of the private values of entries."""
    released: Regions = {}
    for entry in published.generalized:
        values = tuple([plain(entry.released.get(name)) for name in private])
        released.setdefault(values, set()).add(entry.region)
    return released


def turnover_of_rows(
    holder: Holder, changes: Sequence[Change], options: argparse.Namespace
) -> Iterator[LinkedResult]:
    """Release counterfactuals under the guarantee "reciprocal", and those still there again."""
    table = holder.table
    asked = table.has_outcome(table.first).drop_duplicates()
    rng = np.random.default_rng([holder.key, 0])
    asked = asked.take(rng.permutation(len(asked))[:_COUNTERFACTUALS])
    anonymizer = holder.fit(table.first)
    before = Moment.of(table.first, anonymizer.guarantee_.partition)
    first = released_rows(anonymizer, asked)
    with tempfile.TemporaryDirectory() as folder:
        state = None
        if "ledger" in options.configurations:
            state = LedgerState.made_by(
                Path(folder) / "ledger.db",
                lambda ledger: released_rows(holder.fit(table.first, ledger), asked),
            )
        for change in changes:
            second = holder.fit(change.people)
            after = Moment.of(change.people, second.guarantee_.partition)
            comparison = Turnover(before=before, after=after, recognized_by=holder.identify)
            is_there = [row in after.everybody for row in plain_rows(asked)]
            again = asked[is_there]
            for configuration in options.configurations:
                if configuration == "none":
                    later = released_rows(second, again)
                elif configuration == "old":
                    later = comparison.by_old_rule(first, plain_rows(again), options.k)
                elif configuration == "ledger" and state is not None:
                    with state.continued() as ledger:
                        later = released_rows(holder.fit(change.people, ledger), again)
                else:
                    continue  # there is no catalogue to publish
                yield LinkedResult(
                    guarantee=holder.guarantee,
                    configuration=configuration,
                    share=change.share,
                    links=comparison.linked(first, later, keeps_regions=configuration != "none"),
                )


def turnover_of_exact_values(
    holder: Holder, changes: Sequence[Change], options: argparse.Namespace
) -> Iterator[LinkedResult]:
    """Publish the catalogue of the first table, and then that of the second, with exact values."""
    table = holder.table
    anonymizer = holder.fit(table.first)
    before = Moment.of(table.first, anonymizer.guarantee_.partition)
    first = released_values(anonymizer.published(), table.private)
    with tempfile.TemporaryDirectory() as folder:
        state = None
        if "ledger" in options.configurations:
            state = LedgerState.made_by(
                Path(folder) / "ledger.db",
                lambda ledger: holder.fit(table.first, ledger).published(),
            )
        for change in changes:
            second = holder.fit(change.people)
            after = Moment.of(change.people, second.guarantee_.partition)
            comparison = Turnover(before=before, after=after, recognized_by=holder.identify)
            without_ledger = released_values(second.published(), table.private)
            for configuration in options.configurations:
                if configuration == "none":
                    later = without_ledger
                elif configuration == "old":
                    later = comparison.by_old_rule(first, without_ledger, options.k)
                elif configuration == "ledger" and state is not None:
                    with state.continued() as ledger:
                        published = holder.fit(change.people, ledger).published()
                    later = released_values(published, table.private)
                else:
                    continue  # exact values have no `previous`
                yield LinkedResult(
                    guarantee=holder.guarantee,
                    configuration=configuration,
                    share=change.share,
                    links=comparison.linked(first, later, keeps_regions=configuration != "none"),
                )


def turnover_of_shared_values(
    holder: Holder, changes: Sequence[Change], options: argparse.Namespace
) -> Iterator[RegionsResult]:
    """Publish the catalogue of the first table, then that of the second, and answer queries."""
    table = holder.table
    anonymizer = holder.fit(table.first)
    before = Moment.of(table.first, anonymizer.guarantee_.partition)
    first = anonymizer.published()
    with tempfile.TemporaryDirectory() as folder:
        state = None
        if "ledger" in options.configurations:
            state = LedgerState.made_by(
                Path(folder) / "ledger.db",
                lambda ledger: holder.fit(table.first, ledger).published(),
            )
        for change in changes:
            second = holder.fit(change.people)
            after = Moment.of(change.people, second.guarantee_.partition)
            comparison = Turnover(before=before, after=after, recognized_by=holder.identify)
            queries = table.lacks_outcome(change.others).head(options.queries)
            for configuration in options.configurations:
                if configuration == "none":
                    published = second.published()
                    answers = second.explain(queries)
                elif configuration == "previous":
                    published = second.published(previous=first)
                    answers = second.explain(queries)
                elif configuration == "ledger" and state is not None:
                    with state.continued() as ledger:
                        with_ledger = holder.fit(change.people, ledger)
                        published = with_ledger.published()
                        answers = with_ledger.explain(queries)
                else:
                    continue  # the old rule is about records
                released = [*published.generalized, *answers.generalized]
                regions = {entry.region for entry in released}
                yield RegionsResult(
                    guarantee=holder.guarantee,
                    configuration=configuration,
                    share=change.share,
                    people=[comparison.count_members(region) for region in regions],
                    answered=100 * len(answers.generalized) / max(len(queries), 1),
                )


def attack_turnover(
    table: Table, options: argparse.Namespace
) -> list[LinkedResult | RegionsResult]:
    """Replace people, for each guarantee and key."""
    found: list[LinkedResult | RegionsResult] = []
    for key in range(options.keys):
        changes = [Change.draw(table, share, key) for share in SHARES]
        for guarantee in POLICIES:
            holder = Holder(table=table, guarantee=guarantee, key=key, k=options.k)
            found += TURNOVERS[guarantee](holder, changes, options)
            print(f"<!-- {table.name} turnover key {key} {guarantee} -->", flush=True)
    return found


TURNOVERS: Mapping[str, Callable[[Holder, Sequence[Change], argparse.Namespace], Iterator[Any]]] = {
    "reciprocal": turnover_of_rows,
    "exact": turnover_of_exact_values,
    "shared": turnover_of_shared_values,
}
"""How turnover is attacked, by the name of a guarantee."""


def mean_text(values: Sequence[float], most: float, decimals: int) -> str:
    """Write the mean of numbers between 0 and `most` with a t interval; a dash without any."""
    figure = Figure.over(values)
    if math.isnan(figure.mean):
        return "–"
    if math.isnan(figure.low):
        return f"{figure.mean:.{decimals}f}"
    low = max(figure.low, 0.0)
    high = min(figure.high, most)
    return f"{figure.mean:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"


def percent(values: Sequence[float]) -> str:
    return mean_text(values, 100.0, 1)


def chance_text(chances: Sequence[float], scale: float, decimals: int) -> str:
    """Write the mean of chances, in [0, 1], times a scale, with an interval for any chances."""
    total = float(np.sum(chances))
    missed = len(chances) - total
    low = stats.beta.ppf(0.025, total, missed + 1) if total > 0 else 0.0
    high = stats.beta.ppf(0.975, total + 1, missed) if missed > 0 else 1.0
    mean = scale * total / len(chances)
    return f"{mean:.{decimals}f} ({scale * low:.{decimals}f} to {scale * high:.{decimals}f})"


def linked_rows(table: str, results: Sequence[LinkedResult], k: int) -> Iterator[str]:
    """Write a line per guarantee, configuration and share."""
    for case in dict.fromkeys(result.case for result in results):
        links = [result.links for result in results if result.case == case]
        guarantee, configuration, share = case
        suspects = [count for link in links for count in link.suspects]
        yield line(
            table,
            guarantee,
            configuration,
            share,
            len(suspects),
            min(suspects, default="–"),
            percent([link.below(k) for link in links]),
            percent([link.withheld for link in links]),
        )


def regions_rows(table: str, results: Sequence[RegionsResult], k: int) -> Iterator[str]:
    """Write the same of regions of shared values."""
    for case in dict.fromkeys(result.case for result in results):
        of_case = [result for result in results if result.case == case]
        guarantee, configuration, share = case
        people = [count for result in of_case for count in result.people]
        yield line(
            table,
            guarantee,
            configuration,
            share,
            len(people),
            min(people, default="–"),
            percent([result.below(k) for result in of_case if result.people]),
            percent([result.answered for result in of_case]),
        )


# --- joining


@dataclass(frozen=True)
class Joined:
    """What the difference of two catalogues says of one person who joined, with one key."""

    guarantee: str
    configuration: str
    person: int
    told: Naming | Guesses
    area_by_values: float
    area_by_regions: float
    area_by_both: float

    @property
    def case(self) -> tuple[str, str]:
        return self.guarantee, self.configuration


@dataclass(frozen=True, eq=False, repr=False)
class Attacker:
    """Somebody who knows the records of people one of whom joined, and compares catalogues."""

    table: Table
    people: pd.DataFrame

    def entries(self, published: Explanations) -> list[Published]:
        return [Published.of(entry, self.table.private) for entry in published.generalized]

    def compare(
        self, holder: Holder, configuration: str, joiner: int, difference: Difference
    ) -> Joined:
        """Attack the person who joined."""
        private = self.people[self.table.private]
        person = self.people.iloc[joiner]
        own = plain_rows(private.iloc[[joiner]])[0]
        told: Naming | Guesses
        if holder.guarantee == "exact":
            told = name_values(difference, person, own)
        else:
            attributes = Attributes(self.table.first[self.table.private])
            told = guess_attributes(difference, attributes, person, own)
        heom = Heom.fit(self.table.first[self.table.private])
        by_values = scores_by_values(difference, heom, self.people)
        by_regions = scores_by_regions(difference, self.people)
        return Joined(
            guarantee=holder.guarantee,
            configuration=configuration,
            person=joiner,
            told=told,
            area_by_values=area_of(joiner, by_values),
            area_by_regions=area_of(joiner, by_regions),
            area_by_both=area_of(joiner, standardized(by_values) + standardized(by_regions)),
        )


def join(holder: Holder, people: pd.DataFrame, options: argparse.Namespace) -> Iterator[Joined]:
    """Publish the catalogue of the first table, and that of the table with each person added."""
    table = holder.table
    attacker = Attacker(table=table, people=people)
    published = holder.fit(table.first).published()
    with tempfile.TemporaryDirectory() as folder:
        state = None
        published_with_ledger = []
        if "ledger" in options.configurations:
            state = LedgerState.made_by(
                Path(folder) / "ledger.db",
                lambda ledger: published_with_ledger.append(
                    holder.fit(table.first, ledger).published()
                ),
            )
        for joiner in range(len(people)):
            larger = pd.concat([table.first, people.iloc[[joiner]]], ignore_index=True)
            without_ledger = holder.fit(larger)
            for configuration in options.configurations:
                before = published
                if configuration == "none":
                    after = without_ledger.published()
                elif configuration == "previous" and holder.guarantee == "shared":
                    after = without_ledger.published(previous=published)
                elif configuration == "ledger" and state is not None:
                    before = published_with_ledger[0]
                    with state.continued() as ledger:
                        after = holder.fit(larger, ledger).published()
                else:
                    continue  # the old rule is for turnover, and exact values have no `previous`
                difference = Difference(
                    private=table.private,
                    before=attacker.entries(before),
                    after=attacker.entries(after),
                )
                yield attacker.compare(holder, configuration, joiner, difference)


def attack_joining(table: Table, options: argparse.Namespace) -> list[Joined]:
    """Let people join, each alone, for each kind of private values and key."""
    candidates = table.has_outcome(table.unseen)
    order = np.random.default_rng(0).permutation(len(candidates))
    people = candidates.take(order[: options.people]).reset_index(drop=True)
    found: list[Joined] = []
    for key in range(options.keys):
        for guarantee in ("exact", "shared"):
            holder = Holder(table=table, guarantee=guarantee, key=key, k=options.k)
            found += join(holder, people, options)
            print(f"<!-- {table.name} joining key {key} {guarantee} -->", flush=True)
    return found


def over_people(results: Sequence[Joined], figure: Callable[[Joined], float]) -> list[float]:
    """Return the mean over keys for each person."""
    of_person: dict[int, list[float]] = {}
    for result in results:
        of_person.setdefault(result.person, []).append(figure(result))
    return [float(np.mean(values)) for values in of_person.values()]


def named(result: Joined) -> float:
    return result.told.chance


def has_new_entry(result: Joined) -> float:
    return float(result.told.has_new_entry)


GUESSES: Sequence[Callable[[Joined], float]] = (
    lambda result: 100 * result.told.by_new_entries,
    lambda result: 100 * result.told.by_old_entries,
    lambda result: 100 * result.told.by_typical_values,
)
AREAS: Sequence[Callable[[Joined], float]] = (
    lambda result: result.area_by_values,
    lambda result: result.area_by_regions,
    lambda result: result.area_by_both,
)


def joined_rows(table: str, results: Sequence[Joined]) -> Iterator[str]:
    """Write a line per configuration of one kind of private values."""
    for case in dict.fromkeys(result.case for result in results):
        of_case = [result for result in results if result.case == case]
        cells = [chance_text(over_people(of_case, has_new_entry), 100, 1)]
        if isinstance(of_case[0].told, Naming):
            cells.append(chance_text(over_people(of_case, named), 1, 3))
        else:
            for figure in GUESSES:
                cells.append(percent(over_people(of_case, figure)))
        for figure in AREAS:
            cells.append(mean_text(over_people(of_case, figure), 1.0, 3))
        yield line(table, *case, len({result.person for result in of_case}), *cells)


# --- all of it


@dataclass(frozen=True, slots=True)
class Setting:
    """Sizes of a run."""

    tables: tuple[str, ...]
    keys: int
    people: int  # who join
    queries: int  # that are answered after people were replaced


SETTINGS: Mapping[str, Setting] = {
    "quick": Setting(tables=("heart", "german"), keys=1, people=6, queries=50),
    "full": Setting(tables=TABLES, keys=3, people=40, queries=200),
}


def read_options() -> argparse.Namespace:
    options = arguments(
        __doc__,
        data=DATA,
        setting="full",
        tables=[""],
        attacks=["turnover", "joining"],
        configurations=list(CONFIGURATIONS),
        keys=0,
        people=0,
        queries=0,
        k=10,
    )
    setting = SETTINGS[options.setting]
    options.tables = options.tables or setting.tables
    for name in ("keys", "people", "queries"):
        setattr(options, name, getattr(options, name) or getattr(setting, name))
    return options


def print_turnover(table: Table, options: argparse.Namespace) -> None:
    results = attack_turnover(table, options)
    linked = [result for result in results if isinstance(result, LinkedResult)]
    print(f"\n{heading(*LINKED_HEAD)}")
    for row in linked_rows(table.name, linked, options.k):
        print(row)
    regions = [result for result in results if isinstance(result, RegionsResult)]
    print(f"\n{heading(*REGIONS_HEAD)}")
    for row in regions_rows(table.name, regions, options.k):
        print(row)
    print(flush=True)


def print_joining(table: Table, options: argparse.Namespace) -> None:
    results = attack_joining(table, options)
    print(f"\n{heading(*NAMED_HEAD)}")
    for row in joined_rows(table.name, [one for one in results if one.guarantee == "exact"]):
        print(row)
    print(f"\n{heading(*GUESSED_HEAD)}")
    for row in joined_rows(table.name, [one for one in results if one.guarantee == "shared"]):
        print(row)
    print(flush=True)


PRINTED: Mapping[str, Callable[[Table, argparse.Namespace], None]] = {
    "turnover": print_turnover,
    "joining": print_joining,
}
"""The attacks by name."""


def main() -> None:
    options = read_options()
    warnings.simplefilter("ignore")
    for name in options.tables:
        table = Table.load(name, options.data)
        for attack in options.attacks:
            PRINTED[attack](table, options)


if __name__ == "__main__":
    main()
