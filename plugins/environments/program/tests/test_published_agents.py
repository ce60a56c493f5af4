"""Command line agents as they were published, in sessions of the sandbox: one of PyPI and four of npm each work in the files of a row.

They are installed in the user's cache folder, by the hash of their versions, which needs the network. A script plays the policy, because a
tiny model cannot call their tools: it writes the file, and every fourth episode another text.
"""

from __future__ import annotations

import json
import string
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest
from rlcore_plugin_workers.environment_folders import cache_folder

from rlcore.testing import EnvironmentSuite
from rlcore.testing.conversations import environment_suite
from tests.levels import need

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]
EPISODES, WORKERS = 32, 4
ALPHABET = (
    string.printable + "".join(map(chr, (*range(0xA1, 0x180), *range(0x2010, 0x2070), *range(0x2190, 0x2200), *range(0x2500, 0x2800)))) + "️"
)


@dataclass(frozen=True, kw_only=True)
class Published:
    """``packages``: what pip or npm installs. ``path``: the folder of its program below that. ``tool``: what runs its commands."""

    packages: tuple[str, ...]
    path: str
    tool: str
    end: str
    ends_by_call: bool = False
    """Whether ``end`` is a command of the tool, and not the last answer."""

    def folder(self) -> Path:
        """Install it, or find it. A build that failed is begun anew."""
        name = sha256("\n".join(self.packages).encode()).hexdigest()[:12]
        folder = cache_folder() / f"agent-{name}"
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            for command in self._commands(folder):
                subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            (folder / "complete").touch()
        return folder

    def _commands(self, folder: Path) -> Iterator[tuple[str, ...]]:
        if self.path.startswith("node_modules"):
            yield ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), *self.packages)
        else:
            yield (sys.executable, "-m", "venv", str(folder))
            yield (str(folder / "bin" / "pip"), "install", "--quiet", *self.packages)

    def script(self, text: str) -> tuple[str, ...]:
        """What the policy answers so that the agent writes a file and ends."""
        return (self._call(f"printf {text} > answer.txt"), self._call(self.end) if self.ends_by_call else self.end)

    def _call(self, command: str) -> str:
        arguments = {"cmd": command} if self.tool == "exec_command" else {"command": command, "description": "writes"}
        return json.dumps({"name": self.tool, "arguments": arguments})


AGENTS = {
    "mini-swe-agent": Published(
        packages=("mini-swe-agent==2.4.6",),
        path="bin",
        tool="bash",
        end="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        ends_by_call=True,
    ),
    "claude-code": Published(
        packages=("@anthropic-ai/claude-code@2.1.197",), path="node_modules/@anthropic-ai/claude-code-linux-x64", tool="Bash", end="done"
    ),
    "codex": Published(
        packages=("@openai/codex@0.171.0",),
        path="node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin",
        tool="exec_command",
        end="done",
    ),
    "opencode": Published(packages=("opencode-ai@1.18.33",), path="node_modules/opencode-linux-x64/bin", tool="bash", end="done"),
    "qwen-code": Published(packages=("@qwen-code/qwen-code@0.15.10",), path="node_modules/.bin", tool="run_shell_command", end="done"),
}


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def left() -> list[str]:
    """Processes of sessions and of workers."""
    words = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    return [line[:80] for line in words if any(name in line for name in ("bwrap", "rlcore_gateway.host", *AGENTS))]


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_published_agent_works_in_a_session_is_graded_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("namespaces")
    published = AGENTS[name]
    installed = published.folder()
    before = states(installed)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(environment_suite, "_CONTEXT", 400_000)  # a token is a character here, and the first prompts have 77,000

    class _Suite(EnvironmentSuite):
        environment, alphabet, __test__ = "command", ALPHABET, False
        options = {  # noqa: RUF012
            "preset": name,
            "path": [str(installed / published.path)],
            "grader": ("/bin/sh", "-c", "test $(cat answer.txt) = right"),
        }

    sandbox = {"level": "namespaces", "readable": [str(installed)], "memory_mb": 4096}
    wanted = [0.0 if number % 4 == 3 else 1.0 for number in range(EPISODES)]
    with _Suite().table(workers=WORKERS, deadline=900.0, sandbox=sandbox) as table:
        row: dict[str, Any] = {
            "messages": [{"role": "user", "content": "Write the word right into answer.txt."}],
            "files": {"a.txt": "kept"},
        }
        episodes = [table.begin(row, published.script("right" if reward else "wrong")) for reward in wanted]
        ends = table.finish(episodes, 1000)
    assert [(end.extra["outcome"], end.extra["reward"], end.extra["reason"]) for end in ends] == [("ok", reward, "") for reward in wanted]
    tokens = sum(int(segment.policy_mask.sum()) for end in ends for segment in end.segments)
    said = sum(len(answer) + 1 for reward in wanted for answer in published.script("right" if reward else "wrong"))
    assert Counter(len(end.segments) for end in ends) == {1: EPISODES}
    assert tokens == said, "each answer and the token that ends it trains once"
    for end, reward in zip(ends, wanted, strict=True):
        assert end.extra["files"] == {"answer.txt": "right" if reward else "wrong"}
    assert states(installed) == before
    assert not [path for path in tmp_path.rglob("*") if path.suffix != ".lock" and path.is_file()]
    assert not left()
    print(f"{name}: {EPISODES} episodes, {tokens} sampled tokens")
