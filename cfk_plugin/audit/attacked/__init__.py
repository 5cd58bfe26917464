"""What attacks on models and explainers attack: people with outcomes, and whoever trains on them and answers."""

from cfk_plugin.audit.attacked.models import full_depth_forest, network
from cfk_plugin.audit.attacked.protected import ProtectedOwner
from cfk_plugin.audit.attacked.prototypes import PrototypeOwner, measured_schema
from cfk_plugin.audit.attacked.raw import ExplainerFactory, RawOwner
from cfk_plugin.audit.attacked.sample import Sample
from cfk_plugin.audit.attacked.service import Answers, KnownArchitecture, Owner, Service
from cfk_plugin.audit.attacked.standard import standard_owners

__all__ = [
    "Answers",
    "ExplainerFactory",
    "KnownArchitecture",
    "Owner",
    "ProtectedOwner",
    "PrototypeOwner",
    "RawOwner",
    "Sample",
    "Service",
    "full_depth_forest",
    "measured_schema",
    "network",
    "standard_owners",
]
