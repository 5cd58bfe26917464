"""What only people can say, read strictly."""

from cfk_plugin.report.inputs.human import HumanInputs, placeholders, promised, template

__all__ = ["HumanInputs", "placeholders", "promised", "template"]
