"""Protectors: from a counterfactual to a region that enough people share."""

from cfk_plugin.protection.protectors import ExactProtector, GraspProtector, MondrianProtector

BUILT_IN = {"exact": ExactProtector, "grasp": GraspProtector, "mondrian": MondrianProtector}
"""Protectors by their name in `KAnonymizer`."""

__all__ = ["BUILT_IN", "ExactProtector", "GraspProtector", "MondrianProtector"]
