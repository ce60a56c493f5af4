"""The light path loads nothing heavy: a reward author's machine may not even have torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "ray", "datasets", "pyarrow", "pandas", "math_verify")

RUN = """
import contextlib, io
from rlcore.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main({})
"""
STEPS = {
    "api": "import rlcore.api",
    "sandbox": "import rlcore.api.sandbox",
    "code_options": "import rlcore_plugin_code.options",
    "learning": "import rlcore.learning",
    "testing": "import rlcore.testing",
    "config": "import rlcore.config",
    "discovery": "from rlcore.registry.plugin_registry import Registry; Registry.discover()",
    "help": RUN.format("['--help']"),
    "plugins": RUN.format("['plugins']"),
    "show": RUN.format("['show', 'loss', 'clipped']"),
    "score": RUN.format("['score', 'absent.jsonl', '--reward', 'boxed']"),
    "audit": RUN.format("['audit', '--reward', 'boxed', '--data', 'absent.jsonl']"),
}
"""One process takes them in this order: what is heavy shows at the step that loads it, and at those after it."""
TAKE = f"""
import json, sys, traceback
for name, code in json.loads(sys.argv[1]).items():
    try:
        exec(code, {{"__name__": name}})
        found = sorted(set(sys.modules) & set({HEAVY!r}))
    except BaseException:
        found = traceback.format_exc()
    print("\\n" + json.dumps({{name: found}}), flush=True)
"""


UNKEPT = {**os.environ, "XDG_CACHE_HOME": os.devnull}
"""No list of commands is kept: see rlcore/cli/help_text.py."""


def loaded(steps: dict[str, str]) -> dict[str, list[str] | str]:
    """What is heavy and loaded after each step, or how the step failed."""
    done = subprocess.run([sys.executable, "-c", TAKE, json.dumps(steps)], env=UNKEPT, capture_output=True, text=True, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {name: found for step in said for name, found in step.items()}


@pytest.fixture(scope="module")
def after() -> dict[str, list[str] | str]:
    return loaded(STEPS)


@pytest.mark.parametrize("name", STEPS)
def test_loads_nothing_heavy(name: str, after: dict[str, list[str] | str]) -> None:
    assert after[name] == []


def test_the_list_of_commands_loads_no_numpy() -> None:
    """With every plugin of this repository installed: their entry modules and their hook for commands are light."""
    code = f"{RUN.format(['--help'])}\nprint(sorted({{'asyncio', 'numpy', 'pydantic', 'rich'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], env=UNKEPT, capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


CHECKS = """
import sys
from rlcore.config import RunConfig
from rlcore.registry.plugin_registry import Registry
registry = Registry.discover()
before = set(sys.modules)
assert not registry.check_run(RunConfig()) + registry.check_run(RunConfig(), "rlcore_note_run")
print(*sorted(name for name in set(sys.modules) - before if name.startswith("rlcore_plugin_")))
"""


def test_the_checks_of_backends_import_nothing_for_a_run_that_does_not_use_them() -> None:
    done = subprocess.run([sys.executable, "-c", CHECKS], env=UNKEPT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_test_sees_a_heavy_import_and_a_step_that_fails() -> None:
    steps = {"light": "", "heavy": "import sys, types; sys.modules['torch'] = types.ModuleType('torch')", "fails": "1 / 0", "after": ""}
    found = loaded(steps)
    assert (found["light"], found["heavy"], found["after"]) == ([], ["torch"], ["torch"])
    assert "ZeroDivisionError" in found["fails"]
