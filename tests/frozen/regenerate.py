"""Record settings anew, store what changed, and print it.

    python tests/frozen/regenerate.py [part of a setting's name ...]

All settings but the one on Spark, which `test_frozen_on_spark.py` stores. Commit changed records
together with the change of the product that they record, and with nothing else.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "frozen"), str(TESTS / "servers")]

from frozen_records import regenerate  # noqa: E402
from frozen_settings import SETTINGS  # noqa: E402

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(regenerate(SETTINGS, sys.argv[1:]))
