"""Run folders as a run writes them, without running one: of the rows that a test names. ``synthetic_runs`` makes whole ones that learn."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

__all__ = ["HOSTILE", "a_rollout", "an_answer", "an_update", "write_document", "write_lines", "write_run"]

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\x00\u202eevil\ud800\u2028end"
"""A title, a cleared screen, a C1 sequence, DEL, a carriage return, NUL, a mark of direction, half a surrogate pair, a line separator."""


def an_update(step: int, reward: float, **figures: float) -> dict[str, Any]:
    """A line of metrics.jsonl of an update of two seconds and 100 tokens."""
    return {"step": step, "reward/mean": reward, "response_tokens": 100.0, "seconds": 2.0, **figures}


def a_rollout(index: int = 0, **values: Any) -> dict[str, Any]:
    """A row of rollouts/step-N.jsonl.gz."""
    return {
        "step": 1,
        "prompt_id": "train:1",
        "prompt_index": 0,
        "episode": 0,
        "prompt": [{"role": "user", "content": "1 + 2?"}],
        "gold": "3",
        "index": index,
        "kind": "sampled",
        "temperature": 1.0,
        "text": "it is 3",
        "finish": "stop",
        "length": 4,
        "version": 0,
        "reward": 1.0,
        "accuracy": 1.0,
        "format_ok": True,
        "parsed": "3",
        "parts": {"correct": 1.0, "format": 0.0},
        "outcome": "ok",
        "reason": "",
        "advantage": 0.5,
        "masked": False,
        **values,
    }


def an_answer(number: int, accuracy: float | None, index: int = 0, **values: Any) -> dict[str, Any]:
    """A row of eval/TASK/step-N.jsonl."""
    return {
        "prompt_id": f"test:{number}",
        "prompt": [{"role": "user", "content": f"{number}?"}],
        "index": index,
        "prediction": f"answer {number}",
        "gold": str(number),
        "parsed": None,
        "format_valid": True,
        "ans_valid": accuracy,
        "response_length": 3,
        "reward": accuracy,
        "outcome": "ok" if accuracy else "wrong",
        "reason": "",
        "finish": "stop",
        **values,
    }


def write_run(
    folder: Path,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    metrics: Sequence[Mapping[str, Any]] = (),
    manifest: Mapping[str, Any] | None = None,
    rollouts: Mapping[int, Iterable[Mapping[str, Any]]] | None = None,
    answers: Mapping[str, Mapping[int, Iterable[Mapping[str, Any]]]] | None = None,
    finished: bool = True,
) -> Path:
    """Write it and return its folder; a run of two planned updates with seed 0 unless the settings say otherwise."""
    config: dict[str, dict[str, Any]] = {"run": {"project": folder.parent.name, "seed": 0, "max_steps": 2}}
    for section, values in (settings or {}).items():
        config[section] = {**config.get(section, {}), **values}
    folder.mkdir(parents=True)
    (folder / "run.toml").write_text(tomli_w.dumps(config))
    told = {"rlcore": "0.1.0", "data": {"train": "aaaa"}, "plugins": [], "origins": {}, "packages": {"numpy": "2.0"}, "python": "3.11"}
    write_document(folder / "manifest.json", {**told, **(manifest or {})})
    write_lines(folder / "metrics.jsonl", metrics)
    for step, rows in (rollouts or {}).items():
        write_lines(folder / "rollouts" / f"step-{step}.jsonl.gz", rows)
    for task, of_task in (answers or {}).items():
        for step, rows in of_task.items():
            write_lines(folder / "eval" / task / f"step-{step}.jsonl", rows)
    if finished:
        write_document(folder / "summary.json", {"interrupted": False, "steps": 2})
    return folder


def write_document(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A file of JSON lines, compressed if it is called so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
