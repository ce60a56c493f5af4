"""The programs of ``examples/agents``, and the environments of their frameworks, in the user's cache folder by the hash of their locks."""

from __future__ import annotations

from pathlib import Path

from rlcore_plugin_workers.environment_folders import build, folder_of
from rlcore_plugin_workers.environment_locks import Lock

__all__ = ["AGENTS", "agent_environment", "agent_program"]

AGENTS = Path(__file__).parents[1] / "examples" / "agents"


def agent_program(framework: str) -> Path:
    """The program whose agent is of this framework."""
    return AGENTS / f"{framework}_calculator.py"


def agent_environment(framework: str) -> Path:
    """Build the environment of a framework, or find it. It has nothing of rlcore."""
    lock = Lock(name=f"example-{framework}", owner="the examples", path=AGENTS / f"{framework}.lock")
    build(lock, print)
    folder = folder_of(lock)
    assert not list(folder.glob("lib/python*/site-packages/*rlcore*"))
    return folder
