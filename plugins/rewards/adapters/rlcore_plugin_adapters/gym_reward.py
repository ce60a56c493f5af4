"""``score_answer`` of a data set of reasoning-gym."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from rlcore.api import DataError, Outcome, Reward, RewardInput, Score
from rlcore_plugin_adapters.adapter_options import GymOptions
from rlcore_plugin_adapters.gym_rows import digest, gym, gym_dataset, gym_entry
from rlcore_plugin_adapters.named_function import column_at

__all__ = ["GymReward"]


class GymReward(Reward):
    """Judges rows of the data source ``gym:``, or exported entries: ``question``, ``answer`` (or ``gt_answer``), ``metadata``."""

    def __init__(self, options: GymOptions | None = None) -> None:
        self.options = options or GymOptions()
        self.requires = ("reasoning_gym", "question", "answer", "gt_answer", "metadata")  # ``check`` says which one is missing

    def open(self) -> None:
        """Import the package; DataError, with what to type, if it is not installed."""
        gym()

    def check(self, columns: Mapping[str, Any]) -> str | None:
        """Return why the entry or its data set cannot be found; None if both can."""
        try:
            self._found(columns)
        except (DataError, IndexError) as error:
            return str(error)
        return None

    def score(self, item: RewardInput) -> Score:
        """Return the score of ``score_answer``, times ``correct_score``; right if it is 1."""
        dataset, entry = self._found(item.columns)
        found = self.options.extract.find(item.text)
        if found.answer is None:
            return Score(value=0.0, accuracy=0.0, format_ok=False, outcome=Outcome.MALFORMED, reason=found.reason)
        share, reason = _share(dataset, found.answer, entry)
        return Score(
            value=share * self.options.correct_score,
            accuracy=float(share >= 1.0),
            format_ok=True,
            outcome=Outcome.OK if share >= 1.0 else Outcome.WRONG,
            parsed=found.answer,
            reason=reason,
        )

    def _found(self, columns: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        place = columns.get("reasoning_gym")
        if isinstance(place, Mapping):
            dataset = _dataset(place["dataset"], json.dumps(place["settings"], sort_keys=True), place.get("level"))
            entry = _entry(dataset, int(place["index"]))
            if place.get("digest", digest(entry)) != digest(entry):
                raise DataError(
                    f"gym:{place['dataset']}, entry {place['index']}: reasoning-gym made another entry here than for the rows; "
                    "type PYTHONHASHSEED=0 before the command, and use one version of the package"
                )
            return dataset, entry
        name = self.options.dataset or column_at(columns, "metadata.source_dataset")
        answer = columns.get("answer", columns.get("gt_answer"))
        if not name or answer is None:
            raise DataError(
                "it is not an entry of reasoning-gym: it needs reasoning_gym, or answer and metadata.source_dataset (option dataset)"
            )
        entry = {"question": columns.get("question", ""), "answer": answer, "metadata": columns.get("metadata") or {}}
        return _dataset(name, "{}"), entry


@lru_cache(maxsize=64)
def _dataset(name: str, settings: str, level: int | None = None) -> Any:
    return gym_dataset(name, json.loads(settings), level=level)


@lru_cache(maxsize=1024)
def _entry(dataset: Any, index: int) -> dict[str, Any]:
    return gym_entry(dataset, index)


def _share(dataset: Any, answer: str, entry: dict[str, Any]) -> tuple[float, str]:
    """Return the score of an answer, and why it is 0 if the data set cannot read it: some raise an error then, such as
    prime_factorization. An error that the entry's own answer has too is raised."""
    try:
        return float(dataset.score_answer(answer, entry)), ""
    except Exception as error:  # whatever the data set raises
        dataset.score_answer(entry["answer"], entry)
        return 0.0, f"the data set cannot read this answer: {type(error).__name__}: {str(error)[:200]}"
