"""The folder of a judge: replies by the hash of their question, and accounts of the spending. Safe for threads and processes.

Replies are files that are never changed. Each process writes its own account and rereads those of the others every few seconds. Processes
that judge in parallel may therefore exceed a budget by their spending in that time.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlcore.api import PluginError

__all__ = ["BudgetSpentError", "JudgeFolder", "Spent"]

_SECONDS = 2.0


class BudgetSpentError(RuntimeError):
    """The budget of the folder is spent, so no further request is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Requests, tokens and money; ``cost`` is in the unit of the prices."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Spent) -> Spent:
        return Spent(calls=self.calls + other.calls, tokens=self.tokens + other.tokens, cost=self.cost + other.cost)


class JudgeFolder:
    """Replies and spending. ``folder`` None: nothing is kept, and there is no budget. ``limits``: 0 means no limit."""

    def __init__(self, folder: Path | None, limits: Spent) -> None:
        self._folder, self._limits = folder, limits
        self._lock = threading.Lock()
        self._own, self._open, self._others = Spent(), Spent(), Spent()
        self._read = -_SECONDS
        self._account = f"{uuid.uuid4().hex}.json"
        if folder is not None:
            (folder / "spent").mkdir(parents=True, exist_ok=True)
            (folder / "replies").mkdir(exist_ok=True)

    def find(self, question: Mapping[str, Any]) -> str | None:
        """Return the reply that was kept; None if there is none, or if its file is damaged."""
        if self._folder is None:
            return None
        try:
            reply = json.loads(self._reply(question).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return reply if isinstance(reply, str) else None

    def keep(self, question: Mapping[str, Any], reply: str) -> None:
        """Keep a reply that was a verdict."""
        if self._folder is not None:
            path = self._reply(question)
            path.parent.mkdir(exist_ok=True)
            _write(path, reply)

    def begin(self, most: Spent) -> None:
        """Reserve the cost ``most`` before a request. BudgetSpentError if the budget does not allow it."""
        with self._lock:
            total = self._total().plus(most)
            for name, limit in asdict(self._limits).items():
                if limit and asdict(total)[name] > limit:
                    said = f"{asdict(self._total())[name]:g} of {limit:g} {name}"
                    raise BudgetSpentError(f"the budget of {self._folder} is spent: {said}, and a request may take {asdict(most)[name]:g}")
            self._open = self._open.plus(most)

    def end(self, most: Spent, spent: Spent) -> None:
        """Replace the reservation ``most`` by the actual cost after a request."""
        with self._lock:
            self._open = self._open.plus(Spent(calls=-most.calls, tokens=-most.tokens, cost=-most.cost))
            self._own = self._own.plus(spent)
            if self._folder is not None:
                _write(self._folder / "spent" / self._account, asdict(self._own))

    def total(self) -> Spent:
        """Return the spending of all processes; requests in progress count with their reservations."""
        with self._lock:
            return self._total()

    def _total(self) -> Spent:
        if self._folder is not None and time.monotonic() - self._read >= _SECONDS:
            self._others, self._read = self._of_others(self._folder / "spent"), time.monotonic()
        return self._others.plus(self._own).plus(self._open)

    def _of_others(self, folder: Path) -> Spent:
        whole = Spent()
        for path in folder.glob("*.json"):
            if path.name != self._account:
                whole = whole.plus(_account_of(path))
        return whole

    def _reply(self, question: Mapping[str, Any]) -> Path:
        assert self._folder is not None
        key = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
        return self._folder / "replies" / key[:2] / f"{key}.json"


def _account_of(path: Path) -> Spent:
    try:
        return Spent(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise PluginError(f"{path} is not a readable account, so the spending is unknown; correct or delete it") from error


def _write(path: Path, value: Any) -> None:
    """Write the whole file, or nothing."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)
