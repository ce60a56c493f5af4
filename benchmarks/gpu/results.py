"""The results file: one JSON line a part, the newest; a part whose line says ``done`` need not run again. Standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FILE", "Results"]

FILE = "results.jsonl"
_FIELDS = {"part", "status", "said", "seconds", "date", "commit", "device", "tiny", "machine", "figures", "rows"}
"""What is read of a line, here and in the tables."""


@dataclass(frozen=True, slots=True)
class Results:
    """Lines of ``path``, by the name of their part."""

    path: Path

    def lines(self) -> dict[str, dict[str, Any]]:
        """Part -> line. What is no whole line (the machine went away in the middle) does not count; its part runs again."""
        if not self.path.exists():
            return {}
        read: dict[str, dict[str, Any]] = {}
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and line.keys() >= _FIELDS:
                read[line["part"]] = line
        return read

    def done(self) -> set[str]:
        """Parts that need not run again. One that failed, or that could not be run, may do better next time."""
        return {name for name, line in self.lines().items() if line["status"] == "done"}

    def write(self, line: dict[str, Any]) -> None:
        """Put ``line`` in place of its part's earlier one. The file is replaced as a whole, so that no moment has half of one."""
        lines = {**self.lines(), line["part"]: line}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f".{self.path.name}.writing")
        aside.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in lines.values()), encoding="utf-8")
        aside.replace(self.path)
