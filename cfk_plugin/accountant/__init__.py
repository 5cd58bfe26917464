"""The accountant: how much differential privacy may be spent on a population, and what was spent."""

from cfk_plugin.accountant.accountant import BudgetAccountant
from cfk_plugin.accountant.amounts import Budget
from cfk_plugin.accountant.books import Spend
from cfk_plugin.accountant.overview import Account, accounts, raise_ceiling

__all__ = ["Account", "Budget", "BudgetAccountant", "Spend", "accounts", "raise_ceiling"]
