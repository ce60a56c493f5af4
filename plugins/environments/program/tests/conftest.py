"""Makes the module that plays episodes with a fake engine, which these tests share, importable by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
