"""The reward keeps the rules of every reward, with the sandbox of this machine."""

import pytest
from rlcore_plugin_code import rlcore_register_rewards
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.reward import CodeReward

from rlcore.api import FinishReason, Message, Outcome, Prompt, RewardInput, Rollout, Segment
from rlcore.testing import Judge, RewardEntry, RewardSuite


def item(program):
    return RewardInput(
        messages=(Message(role="user", content="Add two numbers."),),
        columns={"test_cases": {"inputs": ["1 2\n", "10 20\n"], "outputs": ["3\n", "30\n"]}, "id": "x"},
        text=f"So:\n```python\na, b = map(int, input().split())\n{program}\n```",
    )


class TestCode(RewardSuite):
    (spec,) = rlcore_register_rewards()
    options = CodeOptions(wall_seconds=20)

    @pytest.fixture(autouse=True)
    def _closed(self):
        self.rewards = []
        yield
        for reward in self.rewards:
            reward.close()

    def make(self):
        self.rewards.append(CodeReward(self.options))
        return self.rewards[-1]

    def honest(self):
        return item("print(a + b)")

    def wrong(self):
        return item("print(a - b)")


def rollout(index, text):
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    return Rollout(prompt_id="p", index=index, segments=(segment,), text=text, finish=FinishReason.STOP)


def test_through_the_engine():
    (spec,) = rlcore_register_rewards()
    prompt = Prompt(prompt_id="p", index=0, messages=item("").messages, columns=item("").columns)
    texts = [item(program).text for program in ("print(a + b)", "print(a - b)", "while True: pass", "raise SystemExit('no')")]
    options = CodeOptions(cpu_seconds=1, wall_seconds=20)
    with Judge([RewardEntry(name="code", spec=spec, deadline=spec.deadline, options=options)], workers=1, error_budget=0.0) as judge:
        judge.check([prompt])
        judge.submit(0, prompt, [rollout(index, text) for index, text in enumerate(texts)])
        ((_, scores),) = judge.poll(120.0)
    assert [score.outcome for score in scores] == [Outcome.OK, Outcome.WRONG, Outcome.WRONG, Outcome.WRONG]
    assert [score.value for score in scores] == [10.0, 0.0, 0.0, 0.0]
    assert scores[2].reason.startswith("limit: cpu")
    assert scores[3].reason.endswith("exit code 1: no")
