"""The model card: what a protected model is, protects and does not protect, for those who find it
in a registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from cfk_plugin.tracking.record import SCHEMA_VERSION

if TYPE_CHECKING:
    from cfk_plugin.data.policy import PrivacyPolicy
    from cfk_plugin.data.population import Population

LONGEST = 5_000
"""Most characters of a card: MLflow's registry stores no longer description."""
_NAMES = 400  # characters that a list of column names may take

_CHANGES = (
    "**Releases before and after a change** of policy, model or population can be intersected."
)
_PRIVATE = (
    "**Private values**: each one that is released belongs to at least {} people or to no one, or"
    " is the query's own, or lies between. With a region they say that at least so many people"
    " could have them, not that one of these people has: {}."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Card:
    """The description of a protected model. It has no value of a row."""

    population: Population
    policy: PrivacyPolicy
    desired: Any  # the outcome that is explained, as of a `DesiredOutcome`
    most: int  # queries of one request

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the logged model, of its version in the registry, and of the registered model."""
        return {
            "cfk.schema_version": str(SCHEMA_VERSION),
            "cfk.k": str(self.policy.k),
            "cfk.guarantee": self.policy.guarantee,
            "cfk.policy_sha256": self.policy.sha256,
            "cfk.population_fingerprint": self.population.fingerprint,
        }

    def text(self, name: str, uri: str) -> str:
        """Return the card in Markdown, no longer than a registry stores."""
        parts = [
            self._head(name),
            self._protected(),
            self._open(),
            self._rules(),
            self._answers(),
            self._calls(uri),
        ]
        return "\n\n".join(parts) + "\n"

    def _head(self, name: str) -> str:
        outcome = (
            "another outcome" if self.desired == "opposite" else f"the outcome `{self.desired}`"
        )
        schema, k = self.population.schema, self.policy.k
        return (
            f"# {name[:100]}\n\nSays what would have to be different for {outcome}: counterfactual"
            f" explanations, protected before they leave. Each is k-anonymous, k = {k}, with"
            f" respect to the population `{self.population.fingerprint}`"
            f" ({self.population.n_people:,} people) and the quasi-identifiers"
            f" {_listed(schema.quasi_identifiers)}."
        )

    def _protected(self) -> str:
        return (
            "## What it protects\n\nPeople in the training table, against whoever links an"
            f" explanation to a person by the quasi-identifiers. {self.policy.promise} (guarantee"
            f" `{self.policy.guarantee}`). Code of its own counts them again before anything"
            " leaves; what does not hold is withheld."
        )

    def _open(self) -> str:
        points = [_CHANGES]
        private = self.population.schema.private
        if private:
            points.append(_PRIVATE.format(self.policy.k, _listed(private)))
        points.append(
            "**The artifact store.** It has the catalogue, all values of each quasi-identifier,"
            " and the model; no row."
        )
        points.append("**Membership, and copies of the model.** Neither is measured here.")
        return "## What it does not protect\n\n" + "\n".join(f"* {point}" for point in points)

    def _rules(self) -> str:
        policy = self.policy
        rules = [f"k is {policy.k}", "only people with the desired predicted outcome count"]
        bounds: dict[str, Any] = {
            "pureness is at least {}": policy.least_pureness or None,
            "information loss (NCP) is at most {}": policy.max_ncp,
            "each sensitive attribute has at least {} distinct values in a region": policy.l,
            "a sensitive attribute's distribution in a region is at most {} from the population's"
            " (t-closeness)": policy.t,
        }
        rules += [text.format(bound) for text, bound in bounds.items() if bound is not None]
        identity = f"policy SHA-256 `{policy.sha256}`, cfk-plugin {version('cfk-plugin')}"
        return "## Rules\n\n" + "\n".join(f"* {rule}" for rule in [*rules, identity])

    def _answers(self) -> str:
        return (
            "## Answers\n\nOne record per query: `status` (`released`, or `withheld`"
            " with a `reason`), `sentence`, `features`, and three figures.\n\n| figure | meaning"
            " |\n|---|---|\n| `k` | people of the population who fit the region |\n| `ncp` |"
            " information lost, 0 (nothing) to 1 (everything) |\n| `pureness` | share of the value"
            " combinations in the region for which the model gives the desired outcome, 0 to 1; it"
            " does not say that the model is right |"
        )

    def _calls(self, uri: str) -> str:
        return (
            f"## Use\n\n```python\nmlflow.pyfunc.load_model({uri!r}).predict(queries)\n```"
            f"\n\n```console\nmlflow models serve -m {uri} --env-manager local\n```\n\nA query"
            f" has every feature; a request has at most {self.most:,} queries. Over HTTP send"
            " `dataframe_split` or `dataframe_records`."
        )


def _listed(names: Sequence[str]) -> str:
    """List names of columns; if there are too many, the first ones and how many more there are."""
    shown: list[str] = []
    for name in names:
        if sum(len(each) + 4 for each in [*shown, name]) > _NAMES:
            break
        shown.append(name)
    more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return ", ".join(f"`{name}`" for name in shown) + more
