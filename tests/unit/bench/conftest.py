"""Makes ``benchmarks``, which is no part of the package, importable by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
