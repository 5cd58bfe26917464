"""Running an attack's pieces: at the same time, resumable, and with an estimate before they start."""

from cfk_plugin.audit.running.cost import Speed, Work, measure_speed
from cfk_plugin.audit.running.pieces import Kept, Piece, run_pieces

__all__ = ["Kept", "Piece", "Speed", "Work", "measure_speed", "run_pieces"]
