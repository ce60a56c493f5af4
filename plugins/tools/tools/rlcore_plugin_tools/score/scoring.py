"""The judging of ``rlcore score``: counts verdicts, writes them, compares them with those of a second reward, and reuses earlier
results."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlcore.api import DataError, UsageError
from rlcore_plugin_tools.score.agreement import Agreement, paired
from rlcore_plugin_tools.score.choice import RewardChoice
from rlcore_plugin_tools.score.items import Item, TextVerdict, verdict_of
from rlcore_plugin_tools.score.results import ResultFile
from rlcore_plugin_tools.score.score_progress import Shown, progress
from rlcore_plugin_tools.score.score_summary import ScoreSummary
from rlcore_plugin_tools.score.scorer import Scorer

__all__ = ["Scoring", "identity_of", "refuse_invalid"]

_LONGEST_PATH = 4096


def identity_of(path: str, choice: RewardChoice, rival: RewardChoice | None, limit: int | None) -> dict[str, Any]:
    """Return plain values that identify the judging: the file and its content, the rewards and the files that they name, and how rows are
    read."""
    data = choice.config.data
    rewards = choice.as_json()["rewards"]
    options = [entry["options"] for entry in rewards]
    return {
        "file": path,
        "content": _digest(Path(path)),
        "rewards": rewards,
        "limit": limit,
        "files": {name: _digest(Path(name)) for name in sorted(_files_in(options))},
        "code": [None if entry.attestation is None else entry.attestation.source_sha256 for entry in choice.entries],
        "against": None if rival is None else rival.as_json()["rewards"],
        "data_format": data.format,
        "columns": dict(data.columns),
    }


def _files_in(value: Any) -> set[str]:
    """Return the files that options name, by path or as ``FILE.py:NAME``, since their content affects verdicts as options do."""
    if isinstance(value, dict | list):
        return {name for part in (value.values() if isinstance(value, dict) else value) for name in _files_in(part)}
    if not isinstance(value, str) or len(value) > _LONGEST_PATH or "\n" in value or "\0" in value:
        return set()
    named = value.rpartition(":")[0] if value.rpartition(":")[0].endswith(".py") else value
    return {named} if named and Path(named).expanduser().is_file() else set()


def _digest(file: Path) -> str | None:
    """Return the hash of a file; None if it is not a file on this machine, such as a data set on the hub."""
    file = file.expanduser()
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def refuse_invalid(found: ScoreSummary) -> None:
    """Raise DataError if a row cannot be judged (``--strict``)."""
    if found.invalid:
        more = found.invalid - len(found.invalid_reasons)
        raise DataError("; ".join(found.invalid_reasons) + (f"; and {more} more rows" if more else ""))


class Scoring:
    """One scoring of a file."""

    def __init__(self, *, choice: RewardChoice, scorer: Scorer, results: ResultFile | None, path: str, strict: bool) -> None:
        self.summary = ScoreSummary(choice.workers)
        self.agreement: Agreement | None = None
        self._name, self._scorer, self._results = choice.names, scorer, results
        self._path, self._strict = path, strict
        self._rival: Iterator[TextVerdict] | None = None
        self._done: set[int] = set()

    def against(self, rival: RewardChoice, scorer: Scorer, items: Iterable[Item]) -> None:
        """Also judge the same rows by a second reward."""
        self.agreement = Agreement(self._name, rival.names)
        self._rival = scorer.run(items)

    def resume(self) -> None:
        """Load the rows that were judged before the interruption; UsageError if they belong to another scoring."""
        assert self._results is not None
        kept = self._results.resumed()
        try:
            verdicts = [verdict_of(row, self._path) for row in kept]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"--resume: {self._results.partial} was changed afterwards ({error!r}); leave out --resume") from error
        for verdict in verdicts:
            self.summary.add(verdict)
            self._done.add(verdict.line)
        said = (
            f"{len(kept)} completions were judged before" if kept else f"there is no {self._results.partial.name}, so all rows are judged"
        )
        print(f"--resume: {said}", file=sys.stderr)

    def run(self, items: Iterable[Item], total: Callable[[], int | None]) -> ScoreSummary:
        """Judge every remaining row. KeyboardInterrupt keeps the judged rows; ``total`` returns the number of rows, None if unknown."""
        left = (item for item in items if item.line not in self._done)
        with ExitStack() as closing:
            if self._results is not None:
                closing.enter_context(self._results)
            shown = closing.enter_context(progress(total))
            try:
                self._keep(self._pairs(left), shown)
            except KeyboardInterrupt:
                if self._rival is None:
                    self._keep(((verdict, None) for verdict in self._scorer.finished()), shown)
                kept = f"; judged rows are in {self._results.partial}" if self._results is not None else ""
                print(f"{self.summary.rows} completions were judged{kept}", file=sys.stderr)
                raise
            self.summary.stop()
            if self._strict:
                refuse_invalid(self.summary)
        return self.summary

    def _pairs(self, items: Iterable[Item]) -> Iterator[tuple[TextVerdict, TextVerdict | None]]:
        verdicts = self._scorer.run(items)
        if self._rival is None:
            yield from ((verdict, None) for verdict in verdicts)
        else:
            yield from paired(verdicts, self._rival)

    def _keep(self, pairs: Iterable[tuple[TextVerdict, TextVerdict | None]], shown: Shown) -> None:
        for verdict, other in pairs:
            self.summary.add(verdict)
            more: dict[str, Any] = {}
            if other is not None and self.agreement is not None:
                agrees = self.agreement.add(verdict, other)
                judged = {key: value for key, value in other.as_row().items() if key not in ("line", "id", "completion")}
                more = {"agrees": agrees, "against": judged}
            if self._results is not None:
                self._results.add(verdict, more)
            shown.update(self.summary.rows, self.summary.lines)
