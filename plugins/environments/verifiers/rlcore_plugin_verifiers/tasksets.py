"""Tasksets of verifiers as rows, and rows as tasks. A taskset is named by its package or module, or by the path of a module."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire

from rlcore.api import DataError

__all__ = ["importable", "taskset_rows"]

_EXAMPLE = "env:verifiers:NAME?split=train&select.limit=100"


def taskset_rows(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each task. ``name``: that of a taskset, or the path of its module, then ``?`` and its settings.

    Settings with dots are nested. Those of ``select`` choose tasks, as on the command line of verifiers. Raises DataError.
    """
    ident, _, query = name.partition("?")
    settings = _settings(query)
    select = settings.pop("select", {})
    folder = ""
    if ident.endswith(".py"):
        path = Path(ident).expanduser().absolute()
        if not path.is_file():
            raise DataError(f"there is no file {path}; type the path of the module of a taskset, or its name")
        folder, ident = str(path.parent), path.stem
    importable(folder)
    taskset: dict[str, Any] = {**settings, "id": ident}
    try:
        for data in _tasks(taskset, select):
            yield {
                "messages": _messages(data),
                "task": data.model_dump(mode="json"),
                "taskset": taskset,
                **({"taskset_folder": folder} if folder else {}),
            }
    except (Exception, SystemExit) as error:  # whatever the code of a taskset raises
        raise DataError(f"{_one_line(error)}; an example: -d {_EXAMPLE}") from error


def _tasks(taskset: dict[str, Any], select: Any) -> Iterator[vf.TaskData]:
    made = vf.load_taskset(vf.taskset_config_type(taskset["id"]).model_validate(taskset))
    tasks = made.select(vf.SelectConfig.model_validate(select))
    if not tasks.bounded:
        raise ValueError("the taskset is infinite; choose tasks with select")
    for task in tasks:
        yield task.data


def importable(folder: str) -> None:
    """Let this process, and the servers of tools that it starts, import the modules of a folder."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH", ""))))


def _settings(query: str) -> dict[str, Any]:
    """Return nested settings. A value that is JSON is read as such, so that lists and numbers can be given."""
    settings: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        *outer, last = key.split(".")
        inner = settings
        for part in outer:
            inner = inner.setdefault(part, {})
        try:
            inner[last] = json.loads(text)
        except ValueError:
            inner[last] = text
    return settings


def _messages(data: vf.TaskData) -> list[Mapping[str, Any]]:
    """Return the messages with which the task begins. If the user of an environment speaks first, they are the name of the task."""
    system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    prompt = data.prompt if data.prompt is not None else data.name or data.description or f"task {data.idx}"
    if isinstance(prompt, str):
        return [*system, {"role": "user", "content": prompt}]
    return [*system, *(message_to_wire(message) for message in prompt)]


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
