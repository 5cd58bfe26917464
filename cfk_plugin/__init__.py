"""Privacy middleware for counterfactual explainers: k-anonymous explanations with recounted certificates."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfk_plugin.accountant import BudgetAccountant as BudgetAccountant
    from cfk_plugin.anonymizer import KAnonymizer as KAnonymizer
    from cfk_plugin.attribute import Attribute as Attribute
    from cfk_plugin.counterfactual import Certificate as Certificate
    from cfk_plugin.counterfactual import Counterfactual as Counterfactual
    from cfk_plugin.counterfactual import GeneralizedCounterfactual as GeneralizedCounterfactual
    from cfk_plugin.counterfactual import Suppressed as Suppressed
    from cfk_plugin.dp import DPPrototypes as DPPrototypes
    from cfk_plugin.explainer import ProtectedExplainer as ProtectedExplainer
    from cfk_plugin.explanations import Explanations as Explanations
    from cfk_plugin.hierarchy import Hierarchy as Hierarchy
    from cfk_plugin.hookspecs import hookimpl as hookimpl
    from cfk_plugin.ledger import Ledger as Ledger
    from cfk_plugin.pipeline import protect as protect
    from cfk_plugin.pipeline import protected as protected
    from cfk_plugin.policy import PrivacyPolicy as PrivacyPolicy
    from cfk_plugin.population import Population as Population
    from cfk_plugin.prototype import PrototypeCertificate as PrototypeCertificate
    from cfk_plugin.prototype import PrototypeCounterfactual as PrototypeCounterfactual
    from cfk_plugin.prototype import PrototypePolicy as PrototypePolicy
    from cfk_plugin.region import Interval as Interval
    from cfk_plugin.region import Region as Region
    from cfk_plugin.report.privacy_report import PrivacyReport as PrivacyReport
    from cfk_plugin.schema import Schema as Schema
    from cfk_plugin.serving import log_protected_model as log_protected_model
    from cfk_plugin.tracking import RunLogger as RunLogger
    from cfk_plugin.tracking import track as track
    from cfk_plugin.wording import Phrase as Phrase

__version__ = "0.1.0"

_HOME = {
    "BudgetAccountant": "accountant",
    "Attribute": "attribute",
    "Certificate": "counterfactual",
    "Counterfactual": "counterfactual",
    "DPPrototypes": "dp",
    "Explanations": "explanations",
    "GeneralizedCounterfactual": "counterfactual",
    "Hierarchy": "hierarchy",
    "Interval": "region",
    "KAnonymizer": "anonymizer",
    "Ledger": "ledger",
    "Phrase": "wording",
    "Population": "population",
    "PrivacyPolicy": "policy",
    "PrivacyReport": "report.privacy_report",
    "ProtectedExplainer": "explainer",
    "PrototypeCertificate": "prototype",
    "PrototypeCounterfactual": "prototype",
    "PrototypePolicy": "prototype",
    "Region": "region",
    "RunLogger": "tracking",
    "Schema": "schema",
    "Suppressed": "counterfactual",
    "hookimpl": "hookspecs",
    "log_protected_model": "serving",
    "protect": "pipeline",
    "protected": "pipeline",
    "track": "tracking",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import cfk_plugin` stays light."""
    if name not in _HOME:
        raise AttributeError(f"module 'cfk_plugin' has no attribute {name!r}")
    return getattr(import_module(f"cfk_plugin.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*_HOME, "__version__"])
