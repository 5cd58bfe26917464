"""Errors. Messages name columns and settings, never a value of a row."""


class CFKError(Exception):
    """Base of every error that `cfk_plugin` raises on purpose."""


class SchemaError(CFKError, ValueError):
    """The schema contradicts itself or does not fit the table."""


class PolicyError(CFKError, ValueError):
    """A privacy policy asks for something impossible or unknown."""


class PopulationError(CFKError, ValueError):
    """The training table cannot serve as a population."""


class InputError(CFKError, ValueError):
    """A table of counterfactuals or queries has the wrong shape or columns."""


class ModelError(CFKError, RuntimeError):
    """The model failed, or answered with something that is not one label per row."""


class AdapterError(CFKError, TypeError):
    """No adapter knows the explainer, or the explainer answered with something unreadable."""


class PluginError(CFKError, RuntimeError):
    """A plugin could not be loaded or broke its contract."""


class InfeasibleError(CFKError, RuntimeError):
    """An explanation had to be suppressed and the policy says `on_infeasible="raise"`."""


class NotFittedError(CFKError, RuntimeError):
    """A method was called before `fit`."""


class TrackingError(CFKError, RuntimeError):
    """A run could not be logged, or not be read; the explanations themselves are not affected."""


class LedgerError(CFKError, RuntimeError):
    """The ledger of releases cannot be used; what it would have recorded must not leave."""


class BudgetError(CFKError, ValueError):
    """A privacy budget does not allow what was asked for, or cannot be kept; nothing was spent."""


class BundleError(CFKError, ValueError):
    """A sealed bundle cannot be written, or is not what it was when it was sealed."""


class ReportError(CFKError, RuntimeError):
    """A report cannot be made, read or written."""


class MissingDependencyError(CFKError, ImportError):
    """An optional library, or a browser that prints, is needed and not installed."""


class NominalGuaranteeWarning(UserWarning):
    """A nominal k was chosen: somebody who reruns the algorithm may be left with fewer people."""


class PrivacyLeakWarning(UserWarning):
    """Something that a differentially private release takes for public was learned from protected rows."""
