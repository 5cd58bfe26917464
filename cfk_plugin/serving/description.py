"""The tags and the description of a protected model in MLflow and its registry."""

from __future__ import annotations

from cfk_plugin.dp.prototypes import DPPrototypes, policy_of
from cfk_plugin.release.anonymizer import KAnonymizer

_LONGEST = 5_000  # characters that MLflow's registry stores


def tags_of(anonymizer: KAnonymizer | DPPrototypes) -> dict[str, str]:
    """Return the tags of the logged model, of its version, and of the registered model."""
    if isinstance(anonymizer, DPPrototypes):
        policy = policy_of(anonymizer)
        params, tags = policy.settings(anonymizer.certificate_)
        return {**params, **tags, "cfk.policy_sha256": policy.sha256}
    return {
        "cfk.k": str(anonymizer.policy_.k),
        "cfk.guarantee": anonymizer.policy_.guarantee,
        "cfk.policy_sha256": anonymizer.policy_.sha256,
        "cfk.population_fingerprint": anonymizer.fingerprint_,
    }


def description_of(anonymizer: KAnonymizer | DPPrototypes, uri: str) -> str:
    """Return the description of a model at this URI, in Markdown and without values of rows."""
    if isinstance(anonymizer, DPPrototypes):
        promise = f"What epsilon covers: {anonymizer.certificate_.covers}."
    else:
        policy = anonymizer.policy_
        promise = f"{policy.promise}. Not stopped: {', '.join(policy.not_stopped)}."
    columns = ", ".join(f"`{name}`" for name in anonymizer.schema_.quasi_identifiers)
    text = (
        f"Counterfactual explanations, protected before they leave. {promise}\n\n"
        f"```python\nmlflow.pyfunc.load_model({uri!r}).predict(queries)\n```\n\n"
        f"```console\nmlflow models serve -m {uri} --env-manager local\n```\n\n"
        "A query has every feature; `params` may name a `language`. The answer has the form"
        f" `explanations-1`.\n\nQuasi-identifiers: {columns}"
    )
    return text[:_LONGEST]
