"""Makes the module that processes of these tests run importable by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
