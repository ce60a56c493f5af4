"""The environment ``command``: a command line agent, which knows nothing of rlcore, works in a folder."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from rlcore_gateway.process_tree import MARK, Orphans, kill_tree, new_mark
from rlcore_gateway.worker_process import ending

from rlcore.api import InfrastructureError
from rlcore.api.environments import Environment, EpisodeResult, Model
from rlcore_plugin_agents.agent_files import EpisodeFolders, changed_files, episode_folders, file_states, remove_left_folders, write_files
from rlcore_plugin_agents.command_options import CommandOptions

__all__ = ["CommandLineAgent"]

_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_LOCAL = "127.0.0.1,localhost"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_TAIL = 8192  # kept bytes at the end of what an agent wrote
_PR_SET_DUMPABLE = 4
_TICK = 0.2  # seconds between two looks for orphans that ended
_ORPHANS = Orphans()
_INTERPRETER = re.compile(r"(python|pypy|node|perl|ruby|(ba|da|k|z)?sh)[\d.]*")
_MODULE_SECONDS = 20  # to look for a module
_PYTHON_FLAGS = re.compile(r"-[BEIOSsu]+")


@dataclass(frozen=True, slots=True)
class _Ended:
    """``code``: exit code, or minus the signal; None: it was killed because it took too long."""

    code: int | None
    output: str
    errors: str

    def words(self) -> str:
        return "took too long" if self.code is None else ending(self.code, (self.errors or self.output).splitlines())


class CommandLineAgent(Environment):
    """Runs an agent with a home, a PATH and variables of its own. Nothing that it started is left, not even if the episode is cancelled."""

    def __init__(self, options: CommandOptions) -> None:
        self._options = options
        remove_left_folders()
        if sys.platform == "linux":  # an agent of the same user must not write on the descriptors of this process, such as its own reward
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        """See Environment."""
        closing = ExitStack()
        try:
            try:
                folders = await _whole(closing.enter_context, episode_folders())
                before = await _whole(self._make_workspace, folders.workspace, row)
            except OSError as error:
                raise InfrastructureError(f"the folders of the episode cannot be made: {error}") from error
            had_script = await _whole(self._has_script, folders.workspace)
            return await self._played(model, row, folders, before, had_script)
        finally:
            await _whole(closing.close)

    def _make_workspace(self, workspace: Path, row: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        source = self._options.folder
        if name := row.get("folder"):
            source = (source or Path()) / str(name)
        if source is not None:
            shutil.copytree(source, workspace, symlinks=True, dirs_exist_ok=True)
        write_files(workspace, row.get("files") or {}, "column files")
        return file_states(workspace) if self._options.files_kb else {}

    async def _played(
        self, model: Model, row: Mapping[str, Any], folders: EpisodeFolders, before: Mapping[str, Any], had_script: bool
    ) -> EpisodeResult:
        options, agent = self._options, self._options.agent
        values = {
            "prompt": _prompt(row),
            "workspace": str(folders.workspace),
            "home": str(folders.home),
            "base_url": model.base_url,
            "root_url": model.base_url.removesuffix("/v1"),
            "key": model.api_key,
            "model": model.name,
        }
        write_files(folders.home, {name: _filled(text, values) for name, text in agent.files.items()}, "home_files")
        words = [_filled(word, values) for word in agent.command]
        env = {**self._variables(folders.home, words[0]), **{name: _filled(text, values) for name, text in agent.env.items()}}
        stdin = _filled(options.stdin, values)
        ended = await _run(words, folders, env, options.agent_seconds, stdin)
        if not folders.sound():
            return EpisodeResult(outcome="crashed", reason="the agent moved or replaced the folders of its episode")
        extra: dict[str, Any] = {"output": ended.output}
        if options.files_kb:
            files, left_out = await _whole(changed_files, folders.workspace, before, options.files_kb << 10)
            extra.update(files=files, files_left_out=left_out)
        if ended.code in options.exit_codes:
            return EpisodeResult(reward=await self._graded(row, folders, ended.output, had_script), extra=extra)
        try:
            reward = await self._graded(row, folders, ended.output, had_script)
        except InfrastructureError:  # the agent's own failure came first
            reward = None
        outcome, reason = ("timeout" if ended.code is None else "crashed"), f"the agent {words[0]} {ended.words()}"
        return EpisodeResult(outcome=outcome, reward=reward, extra=extra, reason=reason)  # type: ignore[arg-type]

    def _variables(self, home: Path, program: str) -> dict[str, str]:
        """Return the environment variables of each agent or grader. A program on the PATH of this process has its folder on PATH."""
        path = [*map(str, self._options.path), *_PATH]
        if shutil.which(program, path=os.pathsep.join(path)) is None and (found := shutil.which(program)) is not None:
            path.insert(0, str(Path(found).parent))
        for name in (".config", ".cache", ".local/share", ".local/state", "tmp"):
            (home / name).mkdir(parents=True, exist_ok=True)
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_STATE_HOME": str(home / ".local/state"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_PROXY": _LOCAL,
            "no_proxy": _LOCAL,
        }

    def _has_script(self, workspace: Path) -> bool:
        """Return whether the script or module that the grader's interpreter runs is there, also if there is none to look for."""
        words = [_filled(word, {"workspace": str(workspace)}) for word in self._options.grader]
        if len(words) > 2 and "python" in Path(words[0]).name and words[1] == "-m":
            return _has_module(words[0], words[2].partition(".")[0], workspace, os.pathsep.join([*map(str, self._options.path), *_PATH]))
        script = next((word for word in words[1:] if not ("python" in words[0] and _PYTHON_FLAGS.fullmatch(word))), "-")
        try:
            return not _INTERPRETER.fullmatch(Path(words[0]).name) or script.startswith("-") or (workspace / script).exists()
        except (IndexError, OSError):  # no grader, or the agent locked the folder: then it is for the grader to say
            return True

    async def _graded(self, row: Mapping[str, Any], folders: EpisodeFolders, output: str, had_script: bool) -> float | None:
        """Return the reward of the grader, which runs with a home without the agent's files. Raise InfrastructureError if it fails."""
        options = self._options
        if not options.grader:
            return None
        home = folders.notes / "home"
        notes = {"row.json": json.dumps(row), "output.txt": output}
        await _whole(folders.renew_notes)
        await _whole(write_files, folders.notes, notes, "notes")
        await _whole(write_files, folders.workspace, row.get("grader_files") or {}, "column grader_files")
        if not await _whole(self._has_script, folders.workspace):
            if not had_script:  # no agent could lose it, and one that has to write it would grade itself
                raise InfrastructureError(
                    f"the grader {shlex.join(options.grader)} names a script or module that does not exist; correct the option grader"
                )
            if options.grade == "exit_code":  # the agent removed it; the interpreter's exit code would not tell that
                return 0.0
        values = {
            "workspace": str(folders.workspace),
            "row": str(folders.notes / "row.json"),
            "output": str(folders.notes / "output.txt"),
        }
        words = [_filled(word, values) for word in options.grader]
        ended = await _run(words, folders, self._variables(home, words[0]), options.grader_seconds)
        if ended.code is None and options.on_grader_timeout == "zero":
            return 0.0
        if ended.code is None or ended.code < 0:
            raise InfrastructureError(f"the grader {options.grader[0]} {ended.words()}")
        if options.grade == "exit_code":
            if ended.code not in (0, *options.grader_zero_codes):
                rule = f"reward 0 has exit code {', '.join(map(str, options.grader_zero_codes))} (grader_zero_codes)"
                raise InfrastructureError(f"the grader {options.grader[0]} {ended.words()}; {rule}")
            return float(ended.code == 0)
        last = ended.output.strip().rpartition("\n")[2]
        try:
            reward = float(last)
        except ValueError:
            reward = nan
        if ended.code or not isfinite(reward):
            raise InfrastructureError(
                f"the grader {options.grader[0]} {ended.words()}; with grade last_line it must end with exit code 0 and a line that is a "
                f"number, and its last line is {last!r:.100}"
            )
        return reward


def _prompt(row: Mapping[str, Any]) -> str:
    """Return the text of the last message of the user."""
    for message in reversed(row["messages"]):
        if message["role"] == "user":
            content = message["content"]
            return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    raise InfrastructureError("the row has no message of the user, which is the task of the agent")


def _has_module(python: str, module: str, workspace: Path, path: str) -> bool:
    """Return whether ``python -m`` finds a module. It imports nothing of the workspace. True if it cannot be known."""
    code = "import importlib.util, os, sys; sys.path.insert(0, os.getcwd()); sys.exit(3 * (importlib.util.find_spec(sys.argv[1]) is None))"
    try:
        words = [shutil.which(python, path=path) or python, "-I", "-c", code, module]
        done = subprocess.run(words, cwd=workspace, env={"PATH": path}, capture_output=True, timeout=_MODULE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return True
    return done.returncode != 3


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Replace placeholders. Other braces stay, as in JSON, and so do those in values."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


async def _whole(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function in a thread. A cancelled caller waits for its end, because it changes files or ends processes."""
    task = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _run(words: Sequence[str], folders: EpisodeFolders, env: Mapping[str, str], seconds: float, stdin: str = "") -> _Ended:
    """Run a program in the workspace until it ends or is too late; 0 seconds: without a limit. End all that it started.

    :raises InfrastructureError: it cannot be started, or something that it started cannot be ended.
    """
    mark = new_mark()
    _ORPHANS.expect(mark)
    try:
        return await _run_marked(mark, words, folders, env, seconds, stdin)
    finally:
        await _whole(_ORPHANS.end, mark)


async def _run_marked(
    mark: str, words: Sequence[str], folders: EpisodeFolders, env: Mapping[str, str], seconds: float, stdin: str
) -> _Ended:
    program = shutil.which(words[0], path=env["PATH"])
    if program is None:
        raise InfrastructureError(f"there is no program {words[0]!r} in {env['PATH']}; add its folder to path, or type its path")
    with ExitStack() as files:  # without names: what a grader says must not be a file that the graded code can open
        given, output, errors = (files.enter_context(TemporaryFile(dir=folders.notes)) for _ in range(3))
        given.write(stdin.encode())
        given.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *words[1:],
                cwd=folders.workspace,
                env={**env, MARK: mark},
                stdin=given,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise InfrastructureError(f"{words[0]} cannot be started: {error}") from error
        _ORPHANS.started(mark, process.pid)
        late = False
        try:
            await asyncio.wait_for(_end_of(process), seconds or None)
        except TimeoutError:
            late = True
        finally:
            await _whole(kill_tree, process.pid, mark)
            code = await process.wait()
        return _Ended(None if late else code, _tail(output), _tail(errors))


async def _end_of(process: Process) -> None:
    while process.returncode is None:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _TICK)
        _ORPHANS.reap()


def _tail(file: IO[bytes]) -> str:
    """Return the end of a file."""
    file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
    return file.read(_TAIL).decode(errors="replace")
