"""Privacy middleware for counterfactual explainers: k-anonymous explanations with recounted
certificates.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfk_plugin._protect import protect as protect
    from cfk_plugin._protect import protected as protected
    from cfk_plugin.data.policy import PrivacyPolicy as PrivacyPolicy
    from cfk_plugin.data.population import Population as Population
    from cfk_plugin.data.region import Interval as Interval
    from cfk_plugin.data.region import Region as Region
    from cfk_plugin.data.schema import Attribute as Attribute
    from cfk_plugin.data.schema import Hierarchy as Hierarchy
    from cfk_plugin.data.schema import Schema as Schema
    from cfk_plugin.data.wording import Unit as Unit
    from cfk_plugin.data.wording import Wording as Wording
    from cfk_plugin.dp import DPPrototypes as DPPrototypes
    from cfk_plugin.dp.budget import BudgetAccountant as BudgetAccountant
    from cfk_plugin.hookspecs import hookimpl as hookimpl
    from cfk_plugin.release.anonymizer import KAnonymizer as KAnonymizer
    from cfk_plugin.release.catalogue import Catalogue as Catalogue
    from cfk_plugin.release.explainer import ProtectedExplainer as ProtectedExplainer
    from cfk_plugin.release.explanations import Explanations as Explanations
    from cfk_plugin.release.files import recount as recount
    from cfk_plugin.release.results import Certificate as Certificate
    from cfk_plugin.release.results import GeneralizedCounterfactual as GeneralizedCounterfactual
    from cfk_plugin.release.results import PrototypeCertificate as PrototypeCertificate
    from cfk_plugin.release.results import PrototypeCounterfactual as PrototypeCounterfactual
    from cfk_plugin.release.results import Withheld as Withheld
    from cfk_plugin.report.privacy_report import PrivacyReport as PrivacyReport
    from cfk_plugin.serving import load_protected as load_protected
    from cfk_plugin.serving import log_protected_model as log_protected_model

__version__ = "0.1.0"

_HOME = {
    "BudgetAccountant": "dp.budget",
    "Attribute": "data.schema",
    "Catalogue": "release.catalogue",
    "Certificate": "release.results",
    "DPPrototypes": "dp",
    "Explanations": "release.explanations",
    "GeneralizedCounterfactual": "release.results",
    "Hierarchy": "data.schema",
    "Interval": "data.region",
    "KAnonymizer": "release.anonymizer",
    "Population": "data.population",
    "PrivacyPolicy": "data.policy",
    "PrivacyReport": "report.privacy_report",
    "ProtectedExplainer": "release.explainer",
    "PrototypeCertificate": "release.results",
    "PrototypeCounterfactual": "release.results",
    "Region": "data.region",
    "Schema": "data.schema",
    "Unit": "data.wording",
    "Withheld": "release.results",
    "Wording": "data.wording",
    "hookimpl": "hookspecs",
    "load_protected": "serving",
    "log_protected_model": "serving",
    "protect": "_protect",
    "protected": "_protect",
    "recount": "release.files",
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
