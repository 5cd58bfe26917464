"""Membership inference: telling from what a service answers whether a person is in its training table."""

from cfk_plugin.audit.membership.attacks import ATTACKS
from cfk_plugin.audit.membership.bounds import (
    bound_curves,
    largest_balanced_accuracy,
    largest_tpr,
    published_balanced_accuracy,
    replace_one,
)
from cfk_plugin.audit.membership.distance import Distance, HeomSum, l1
from cfk_plugin.audit.membership.game import Adversary, Draw, play
from cfk_plugin.audit.membership.membership import membership, membership_work
from cfk_plugin.audit.membership.parts import Parts
from cfk_plugin.audit.membership.roc import ALARMS, OperatingPoint, Roc, detectable_auc, measure_roc
from cfk_plugin.audit.membership.scores import (
    Direction,
    confidence_ratio_scores,
    confidence_scores,
    distance_ratio_scores,
    distance_scores,
    random_scores,
)
from cfk_plugin.audit.membership.synthetic import HypercubePopulation

__all__ = [
    "ALARMS",
    "ATTACKS",
    "Adversary",
    "Direction",
    "Distance",
    "Draw",
    "HeomSum",
    "HypercubePopulation",
    "OperatingPoint",
    "Parts",
    "Roc",
    "bound_curves",
    "confidence_ratio_scores",
    "confidence_scores",
    "detectable_auc",
    "distance_ratio_scores",
    "distance_scores",
    "l1",
    "largest_balanced_accuracy",
    "largest_tpr",
    "measure_roc",
    "membership",
    "membership_work",
    "play",
    "published_balanced_accuracy",
    "random_scores",
    "replace_one",
]
