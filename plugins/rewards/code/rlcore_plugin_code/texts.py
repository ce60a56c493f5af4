"""The Python texts that travel into the sandbox: modules of ``inside``, joined to one."""

from __future__ import annotations

import functools
from importlib.resources import files

__all__ = ["program_side", "test_side"]

_OURS = "from rlcore_plugin_code."


@functools.cache
def program_side() -> bytes:
    """The program's process."""
    return _joined("wire", "program_side") + b"\nserve()\n"


@functools.cache
def test_side() -> bytes:
    """The process of the tests."""
    return _joined("wire", "stand_ins", "stand_in_pytest", "test_side") + b"\njudge()\n"


def _joined(*names: str) -> bytes:
    texts = [(files("rlcore_plugin_code") / "inside" / f"{name}.py").read_text(encoding="utf-8") for name in names]
    return "\n".join(line for text in texts for line in text.split("\n") if not line.startswith(_OURS)).encode()
