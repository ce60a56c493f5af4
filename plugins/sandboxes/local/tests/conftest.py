"""Makes the shared kit of this folder importable, whatever pytest's import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kit_sandbox import box, host  # noqa: F401
from kit_sessions import gateway, sandbox, walled  # noqa: F401
