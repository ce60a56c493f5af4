"""A tester that runs ``rlcore`` command lines in a folder and returns exit code, output and files.

>>> tester = RunTester(tmp_path)
>>> tester.with_fakes()
>>> tester.run("train", "--dry-run", tester.fake_run()).assert_ok()
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any
from unittest import mock

import tomli_w

from rlcore.registry import discovery
from rlcore.testing.plugin_folder import PluginFolder
from rlcore.testing.tokens import write_fake_model

__all__ = ["RunOutcome", "RunTester"]

PROGRAM = "import sys; from rlcore.cli import main; sys.exit(main(sys.argv[1:]))"
QUIET = {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200", "PYTHONUTF8": "1"}


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one command line; ``written`` are the files that it made or changed, relative to the folder, sorted."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    written: tuple[Path, ...]

    @property
    def lines(self) -> list[str]:
        """Standard output, line by line."""
        return self.stdout.splitlines()

    @property
    def json(self) -> dict[str, Any]:
        """The last line of standard output, which must be one JSON object."""
        assert self.lines, f"no output\n{self}"
        value = json.loads(self.lines[-1])
        assert isinstance(value, dict), f"the last line is not a JSON object\n{self}"
        return value

    def assert_ok(self) -> RunOutcome:
        """Assert exit code 0; return itself."""
        assert self.exit_code == 0, f"exit code {self.exit_code}\n{self}"
        return self

    def assert_refused(self, *words: str) -> RunOutcome:
        """Assert exit code 2, one line on standard error that holds every word, and no file written; return itself."""
        assert self.exit_code == 2, f"exit code {self.exit_code}, 2 expected\n{self}"
        said = [line for line in self.stderr.splitlines() if line.strip()]
        assert len(said) == 1, f"{len(said)} lines on standard error, one sentence expected\n{self}"
        for word in words:
            assert word in said[0], f"{word!r} is not in the message\n{self}"
        assert not self.written, f"refused, and wrote {[str(path) for path in self.written]}\n{self}"
        return self

    def __str__(self) -> str:
        return f"$ rlcore {' '.join(self.argv)}\n[exit code {self.exit_code}]\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class RunTester:
    """A project in a folder: write files into it, offer plugins, run command lines.

    ``in_process`` runs them by ``rlcore.cli.main`` in this process, which has loaded torch already. This saves a second or two for each,
    and suits a debugger. By default each has a process of its own, as tests of signals, exits, output of libraries and module state need.
    """

    def __init__(self, folder: Path, *, in_process: bool = False) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.in_process = in_process
        self.plugins = PluginFolder(folder / ".plugins")
        self._only: list[Distribution] | None = None

    def with_fakes(self) -> RunTester:
        """Offer ``fake`` of every kind (``rlcore.testing.fake_plugin``) to every command; return itself."""
        self.plugins.install("fakes", target="rlcore.testing.fake_plugin")
        return self

    def with_only(self, *installed: str) -> RunTester:
        """Let commands in this process see only the plugins of these installed distributions and of its own folder; return itself."""
        self._only = [distribution(name) for name in installed]
        return self

    def write(self, name: str, text: str) -> Path:
        """Write a text file into the folder; return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def write_jsonl(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        """Write a data file, one row a line; return its path."""
        return self.write(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    def write_toml(self, name: str, config: Mapping[str, Any]) -> Path:
        """Write a configuration file; return its path."""
        return self.write(name, tomli_w.dumps(config))

    def fake_data(self, name: str = "train.jsonl", letters: str = "abcdef") -> Path:
        """Write one row for each letter: the task is to repeat it. A FakePolicy, which sees the prompt's last letter, can learn it."""
        return self.write_jsonl(name, [{"messages": {"role": "user", "content": letter}, "gt_answer": letter} for letter in letters])

    def fake_run(self, **sections: Mapping[str, Any]) -> str:
        """Write a configuration of fakes with model and data beside it; ``sections`` override key by key; return its path.

        ``schedule.max_staleness`` is 0 unless they say otherwise: one process, the same numbers each time."""
        model = write_fake_model(self.folder / "model", "abcdef")
        config: dict[str, dict[str, Any]] = {
            "run": {"num_episodes": 2, "max_steps": 3},
            "model": {"model": str(model)},
            "data": {"dataset": str(self.fake_data())},
            "sampling": {"num_generations": 8, "max_new_tokens": 2},
            "inference": {"name": "fake"},
            "training": {"name": "fake", "train_batch_size": 3, "learning_rate": 0.1},
            "algorithm": {"name": "fake"},
            "schedule": {"max_staleness": 0},
        }
        for section, values in sections.items():
            config[section] = {**config.get(section, {}), **values}
        return str(self.write_toml("run.toml", {**config, "rewards": [{"name": "fake"}]}))

    def run(self, *argv: str, stdin: str = "", timeout: float = 240.0, env: Mapping[str, str] | None = None) -> RunOutcome:
        """Run ``rlcore argv`` in the folder. ``env`` is added to the environment; ``timeout`` ends a separate process only."""
        before = self._files()
        run = self._inside(argv, stdin, env or {}) if self.in_process else self._outside(argv, stdin, timeout, env or {})
        code, stdout, stderr = run
        after = self._files()
        written = sorted(path for path, stamp in after.items() if before.get(path) != stamp)
        return RunOutcome(argv=argv, exit_code=code, stdout=stdout, stderr=stderr, written=tuple(written))

    def interrupt(self, *argv: str, on: Callable[[str], bool], signals: int = 1) -> RunOutcome:
        """Run ``rlcore argv`` in a new process and press Ctrl-C, ``signals`` times, each at the next line for which ``on`` is true.

        ``stdout`` holds both streams, in the order of their lines.
        """
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *argv],
            cwd=self.folder,
            env={**self.plugins.environment, **QUIET},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        ) as process:
            lines = []
            for line in process.stdout or ():
                lines.append(line)
                if signals and on(line):
                    process.send_signal(signal.SIGINT)
                    signals -= 1
        return RunOutcome(argv=argv, exit_code=process.returncode, stdout="".join(lines), stderr="", written=())

    def _outside(self, argv: tuple[str, ...], stdin: str, timeout: float, env: Mapping[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *argv],
            cwd=self.folder,
            env={**self.plugins.environment, **QUIET, **env},
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def _inside(self, argv: tuple[str, ...], stdin: str, env: Mapping[str, str]) -> tuple[int, str, str]:
        from rlcore.cli import main  # the top floor: only a tester of command lines reaches up to it

        out, err = io.StringIO(), io.StringIO()
        seen: AbstractContextManager[Any] = contextlib.nullcontext()
        if self._only is not None:
            own = distributions(path=[str(self.plugins.root)])
            seen = mock.patch.object(discovery, "distributions", return_value=[*own, *self._only])
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch.object(sys, "stdin", io.StringIO(stdin))
        with self.plugins, seen, mock.patch.dict(os.environ, env), contextlib.chdir(self.folder), streams[0], streams[1], streams[2]:
            try:
                code = main(list(argv))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return code or 0, out.getvalue(), err.getvalue()

    def _files(self) -> dict[Path, tuple[int, int]]:
        """Return relative path -> (size, time of change) of every file that a command may have written."""
        found = {}
        for path in self.folder.rglob("*"):
            relative = path.relative_to(self.folder)
            if path.is_file() and relative.parts[0] != ".plugins" and "__pycache__" not in relative.parts:
                state = path.stat()
                found[relative] = (state.st_size, state.st_mtime_ns)
        return found
