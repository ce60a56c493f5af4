"""The light path loads nothing heavy: a reward author's machine may not even have torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "ray", "datasets", "pyarrow", "pandas", "math_verify")

PRINT_HEAVY = f"import sys; print(sorted(set(sys.modules) & set({HEAVY!r})))"
RUN = """
import contextlib, io
from rlcore.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main({})
"""


@pytest.mark.parametrize(
    "code",
    [
        "import rlcore.api",
        "import rlcore.api.sandbox",
        "import rlcore_plugin_code.options",
        "import rlcore.learning",
        "import rlcore.testing",
        "import rlcore.config",
        "from rlcore.host.registry import Registry; Registry.discover()",
        RUN.format("['--help']"),
        RUN.format("['plugins']"),
        RUN.format("['show', 'loss', 'clipped']"),
        RUN.format("['score', 'absent.jsonl', '--reward', 'boxed']"),
        RUN.format("['audit', '--reward', 'boxed', '--data', 'absent.jsonl']"),
    ],
    ids=["api", "sandbox", "code_options", "learning", "testing", "config", "discovery", "help", "plugins", "show", "score", "audit"],
)
def test_loads_nothing_heavy(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"{code}\n{PRINT_HEAVY}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_the_list_of_commands_loads_no_numpy() -> None:
    """With every plugin of this repository installed: their entry modules and their hook for commands are light."""
    code = f"{RUN.format(['--help'])}\nprint(sorted({{'asyncio', 'numpy', 'pydantic', 'rich'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_the_test_sees_a_heavy_import() -> None:
    code = f"import sys, types; sys.modules['torch'] = types.ModuleType('torch'); {PRINT_HEAVY}"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "['torch']"
