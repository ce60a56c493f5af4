"""The Python texts that travel into the sandbox: modules of ``inside``, joined to one, and compiled, since each run would compile them."""

from __future__ import annotations

import functools
import importlib.util
import marshal
from collections.abc import Mapping
from importlib.resources import files

from rlcore_plugin_code.digits import MOST_DIGITS

__all__ = ["LIMITS", "LOADER", "as_judged", "program_side", "test_side"]

MOST_FRAMES = 550_000
"""Of Python calls within each other: what LeetCode allows; LiveCodeBench allows 50,000. The sandbox gives the stack for so many."""

LIMITS = b"""import sys
sys.setrecursionlimit(%d)
sys.set_int_max_str_digits(%d)
del sys
""" % (MOST_FRAMES, MOST_DIGITS)
"""Runs before any Python that is judged, or that judges. A program may set others."""

LOADER = (
    b"""%simport marshal
from _frozen_importlib_external import MAGIC_NUMBER
with open("side.bin", "rb") as file:
    side = file.read()
if side.startswith(MAGIC_NUMBER):
    side = marshal.loads(side[len(MAGIC_NUMBER):])
else:
    with open("side.py", "rb") as file:
        side = compile(file.read(), "side.py", "exec")
exec(side)
"""
    % LIMITS
)
"""What runs first: it takes the compiled text if this Python compiled it, the text itself in a sandbox with another one."""


def as_judged(program: bytes) -> bytes:
    """Return a source that runs the program, in the same module, with the limits of such judges."""
    return b"%sexec(compile(%r, 'solution.py', 'exec', dont_inherit=True))\n" % (LIMITS, program)


_OURS = "from rlcore_plugin_code."


@functools.cache
def program_side() -> Mapping[str, bytes]:
    """Files of the program's process."""
    return _joined("serve()", "wire", "program_side")


@functools.cache
def test_side() -> Mapping[str, bytes]:
    """Files of the process of the tests."""
    return _joined("judge()", "wire", "stand_ins", "stand_in_pytest", "stand_in_numpy", "test_side")


def _joined(start: str, *names: str) -> Mapping[str, bytes]:
    texts = [(files("rlcore_plugin_code") / "inside" / f"{name}.py").read_text(encoding="utf-8") for name in names]
    text = "\n".join([*(line for text in texts for line in text.split("\n") if not line.startswith(_OURS)), start, ""])
    return {"side.py": text.encode(), "side.bin": importlib.util.MAGIC_NUMBER + marshal.dumps(compile(text, "side.py", "exec"))}
