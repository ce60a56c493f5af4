"""The example of ``rlcore.api.judging`` judges texts: what a command that owns ``RewardMixer`` has to do, and no more."""

from __future__ import annotations

from typing import Any

import cloudpickle

from rlcore.api import Outcome, RewardInput, RewardSpec, judging


def entry(name: str, weight: float, target: Any) -> judging.RewardEntry:
    spec = RewardSpec(name=name, target="unpackaged:target", summary="")
    return judging.RewardEntry(name=name, spec=spec, weight=weight, deadline=30.0, payload=cloudpickle.dumps(target))


def test_the_example_of_the_page_judges_texts_by_every_reward_and_mixes_the_scores() -> None:
    marked = [line for line in str(judging.__doc__).splitlines() if line.startswith((">>> ", "... "))]
    names: dict[str, Any] = {**vars(judging), "RewardInput": RewardInput}
    exec("\n".join(line[4:] for line in marked), names)

    def length(item: Any) -> float:
        return float(len(item.text))

    def first(item: Any) -> float:
        return float(item.text[0] == "a")

    with names["Scorer"]([entry("length", 0.5, length), entry("first", 2.0, first)], workers=1) as scorer:
        scores = scorer.score(["a", "bbb", ""])
    assert [score.value for score in scores[:2]] == [2.5, 1.5]
    assert dict(scores[0].parts) == {"length": 0.5, "first": 2.0}
    assert scores[2].outcome is Outcome.ERROR
