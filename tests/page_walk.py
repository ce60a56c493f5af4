"""Walk through a page of the documentation: write its files, type its commands and run its Python, in order, in one folder.

Commands run in this process. A quickstart is the folder that the tests share, with few rows. A run is short: two updates of a few rows.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest

from rlcore.testing import RunTester
from tests.quickstart_folder import quickstart_in

BLOCK = re.compile(r"(?:<!-- test: (?P<name>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
SMALL = ("-tbs", "4", "-g", "4", "--max-staleness", "0", "-ei", "2", "--max-rows", "8")


class PageWalk:
    """A reader in an empty folder. ``instead``: a line of the page -> the line to type in a test, "" for none."""

    def __init__(self, folder: Path, factory: pytest.TempPathFactory, instead: dict[str, str] | None = None) -> None:
        self.tester = RunTester(folder, in_process=True)
        self.folder = folder
        self.factory = factory
        self.instead = dict(instead or {})
        self.typed: dict[str, str] = {}
        self.names: dict[str, object] = {"__name__": "__main__"}

    def read(self, page: Path) -> dict[str, str]:
        """Do what the page says; return line -> output. Raises AssertionError if a command fails."""
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block["name"]:
                self.tester.write(block["name"], block["text"])
            elif block["language"] == "python":
                self._python(block["text"], self.names)
            elif block["language"] == "sh":
                for line in filter(None, (line.partition(" #")[0].strip() for line in block["text"].splitlines())):
                    self.typed[line] = self._line(self.instead.pop(line, line))
            else:
                assert block["language"] == "text", f"{page.name} has a block of {block['language']} that no test reads: name its file"
        assert not self.instead, f"{page.name} no longer has the lines {list(self.instead)}"
        return self.typed

    def quickstart(self, name: str, task: str = "sort") -> str:
        """Make the folder of a quickstart, if there is none of this name; return its ``run.toml``."""
        with contextlib.chdir(self.folder):
            if not Path(name, "run.toml").exists():
                quickstart_in(Path(name), self.factory, train=64, heldout=8, task=task)
        return f"{name}/run.toml"

    def _line(self, line: str) -> str:
        program, *words = shlex.split(line) or [""]
        if program == "rlcore":
            return self._rlcore(words)
        if program == "python":
            return self._python((self.folder / words[0]).read_text(encoding="utf-8"), {"__name__": "__main__"})
        if program == "pytest":
            return self._pytest(words)
        if program == "head":
            count, source, target = int(words[1]), words[2], words[4]
            rows = (self.folder / source).read_text(encoding="utf-8").splitlines(keepends=True)
            self.tester.write(target, "".join(rows[:count]))
            return ""
        assert not line, f"a page types {program}, which its test does not know"
        return ""

    def _rlcore(self, words: list[str]) -> str:
        command, *rest = words
        if command == "quickstart":
            name, *rest = rest
            task = rest.pop(rest.index("--task") + 1) if "--task" in rest else "sort"
            command, rest = "train", [self.quickstart(name, task), *(word for word in rest if word != "--task")]
        if command in ("train", "resume") and "--dry-run" not in rest:
            if "--max-steps" in rest:
                del rest[rest.index("--max-steps") : rest.index("--max-steps") + 2]
            rest += ["--max-steps", "3"] if command == "resume" else ["--max-steps", "2", *SMALL]
        if command == "eval":
            rest += ["--max-rows", "8"]
        return self.tester.run(command, *rest).assert_ok().stdout

    def _python(self, text: str, names: dict[str, object]) -> str:
        text = re.sub(r"max_steps=\d+", "max_steps=2, train_batch_size=4, num_generations=4, max_staleness=0", text)
        out, path = io.StringIO(), mock.patch.object(sys, "path", [str(self.folder), *sys.path])
        with path, mock.patch.dict(os.environ), contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            exec(text, names)
        self._forget()
        return out.getvalue()

    def _pytest(self, words: list[str]) -> str:
        out, path = io.StringIO(), mock.patch.object(sys, "path", [str(self.folder), *sys.path])
        files = [str(self.folder / word) for word in words]
        with path, contextlib.redirect_stdout(out):
            code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files])
        self._forget()
        assert code == 0, out.getvalue()
        return out.getvalue()

    def _forget(self) -> None:
        """Forget the modules of the folder, and its compiled files: the next page may have others of the same names."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
