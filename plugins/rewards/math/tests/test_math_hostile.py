"""Hostile answers through the real engine: every one ends within its deadline, with a typed outcome that is no accident."""

import json
from collections import Counter
from pathlib import Path

import pytest
from rlcore_plugin_math import rlcore_register_rewards
from rlcore_plugin_math.options import BoxedOptions

from rlcore.api import Finish, Message, Outcome, Prompt, Rollout, Segment
from rlcore.testing import Judge, RewardEntry

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "math_hostile.jsonl").read_text(encoding="utf-8").splitlines()]


def rollout(text):
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    return Rollout(prompt_id="p", index=0, segments=(segment,), text=text, finish=Finish.STOP)


def prompt(key, gold):
    return Prompt(prompt_id=str(key), index=key, messages=(Message(role="user", content="?"),), columns={"gt_answer": gold})


@pytest.mark.full
def test_hostile_answers_get_a_verdict():
    spec = next(spec for spec in rlcore_register_rewards() if spec.name == "boxed")
    options = BoxedOptions(time_limit=1.5, max_chars=200_000)  # so that the other guards are tried too
    with Judge([RewardEntry(name="boxed", spec=spec, deadline=4.0, options=options)], workers=1, error_budget=0.0) as judge:
        for key, row in enumerate(ROWS):
            judge.submit(key, prompt(key, row["gold"]), [rollout(rf"\boxed{{{row['answer']}}}"), rollout(row["answer"])])
        outcomes = {}
        while len(outcomes) < len(ROWS):
            for key, scores in judge.poll(60.0):
                outcomes[key] = scores
        assert judge.metrics()["reward/timeouts"] == 0
    counted = Counter(score.outcome for scores in outcomes.values() for score in scores)
    assert sum(counted.values()) == 2 * len(ROWS)
    assert all(score.outcome.judged and score.outcome is not Outcome.OK for scores in outcomes.values() for score in scores), counted
