"""The ledger: what was released for each record, so that releases of one record never add up to a few people."""

from cfk_plugin.ledger.export import write_rows
from cfk_plugin.ledger.figures import Forgotten, Status
from cfk_plugin.ledger.ledger import Ledger
from cfk_plugin.ledger.rule import Candidate, Decision, Outcome

__all__ = ["Candidate", "Decision", "Forgotten", "Ledger", "Outcome", "Status", "write_rows"]
