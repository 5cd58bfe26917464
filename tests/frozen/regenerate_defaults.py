"""Record the settings of the product's defaults again, and store what changed.

    python tests/frozen/regenerate_defaults.py [part of a setting's name ...]

Commit changed records together with the change of the product that caused them, and with nothing
else.
"""

from __future__ import annotations

import sys
import warnings

from default_settings import RECORDS, SETTINGS
from frozen_records import regenerate

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    regenerate(SETTINGS, sys.argv[1:], RECORDS)
