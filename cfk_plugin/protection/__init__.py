"""Regions, private values and answers: how explanations become k-anonymous."""

from cfk_plugin.protection.protectors import ExactProtector, GraspProtector, MondrianProtector

BUILT_IN = {"exact": ExactProtector, "grasp": GraspProtector, "mondrian": MondrianProtector}
"""Protectors by their name in `KAnonymizer`."""

__all__ = ["BUILT_IN", "ExactProtector", "GraspProtector", "MondrianProtector"]
