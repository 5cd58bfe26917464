"""The owners that are compared: raw explainers, every guarantee, and differentially private rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cfk_plugin.audit.attacked.protected import ProtectedOwner
from cfk_plugin.audit.attacked.prototypes import PrototypeOwner, measured_schema
from cfk_plugin.audit.attacked.raw import ExplainerFactory, RawOwner
from cfk_plugin.audit.attacked.sample import Sample
from cfk_plugin.audit.attacked.service import Owner
from cfk_plugin.data.policy import Guarantee, PrivacyPolicy
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError

_GUARANTEES: Mapping[str, Guarantee] = {"exact": "nominal", "reciprocal": "reciprocal", "catalogue": "catalogue"}


def standard_owners(
    sample: Sample,
    model: Any,
    explainers: Mapping[str, ExplainerFactory],
    quasi_identifiers: Sequence[str],
    *,
    protects: str | None = None,
    k: int = 10,
    epsilon: float = 1.0,
    schema: Schema | None = None,
    repeatable: bool = False,
) -> list[Owner]:
    """Return one owner per way to answer, who all train the same model.

    Parameters
    ----------
    sample : Sample
        Whose columns they are trained on.
    model : scikit-learn classifier or pipeline
        Not fitted; takes a DataFrame.
    explainers : mapping
        Name to factory; each is a raw owner of that name.
    quasi_identifiers : sequence of str
    protects : str, optional
        The explainer whose answers are protected. Default: the first.
    k : int
    epsilon : float
        Of the differentially private rows, for every training.
    schema : Schema, optional
        Declares public domains. Default: `measured_schema`, with which nothing is guaranteed.
    repeatable : bool
        See `PrototypeOwner`.

    Returns
    -------
    list of Owner
        The raw ones; ``exact`` (nominal k), ``reciprocal``; ``catalogue``, which answers queries without an explainer;
        ``dp`` and ``dp-reverted``.

    Raises
    ------
    InputError
        If there is no explainer, or none of the name to protect.
    """
    if not explainers or (protects is not None and protects not in explainers):
        raise InputError(f"`protects` must be one of the explainers given: {', '.join(explainers) or 'there is none'}")
    found = explainers[protects or next(iter(explainers))]
    raw = [RawOwner(name, model, explainer) for name, explainer in explainers.items()]
    protected = [
        ProtectedOwner(
            name,
            model,
            None if guarantee == "catalogue" else found,
            tuple(quasi_identifiers),
            rules=PrivacyPolicy(k=k, guarantee=guarantee),
        )
        for name, guarantee in _GUARANTEES.items()
    ]
    domains = schema or measured_schema(sample, quasi_identifiers)
    prototypes = [
        PrototypeOwner(name, model, domains, epsilon, revert=revert, repeatable=repeatable)
        for name, revert in (("dp", False), ("dp-reverted", True))
    ]
    return [*raw, *protected, *prototypes]
