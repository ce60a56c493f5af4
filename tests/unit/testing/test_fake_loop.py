"""Fakes from end to end: rollouts, verdicts, advantages, updates, new weights, and the reward goes up. No torch anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlcore.contracts.interfaces import InferenceContext, OptimizerSettings, TrainingContext
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, Group, Message, Prompt, Request, RewardInput, Rollout, Sampling, Segment
from rlcore.learning import BatchSettings, assemble_batch, assemble_rewards, run_estimator
from rlcore.testing import FakeInference, FakeInferenceOptions, FakeTraining, load_fake_tokenizer, update_engine, write_fake_model
from rlcore.testing.algorithms.fake_algorithms import FakeEstimator
from rlcore.testing.rewards.fake_reward import FakeReward
from rlcore.testing.weights import snapshot_of

LETTERS = "abcd"
SAMPLES = 8


def learn(folder: Path, updates: int, in_flight: InFlight = InFlight.FINISH, gold: str = LETTERS) -> list[float]:
    """Mean reward of each update on the task 'say the letter that the prompt says'."""
    model = str(write_fake_model(folder, LETTERS))
    tokenizer = load_fake_tokenizer(model)
    context = InferenceContext(model=model, tokenizer=tokenizer, prompts_per_forward=2, max_tokens=8)
    engine, reward, estimator = FakeInference(context, FakeInferenceOptions(in_flight=in_flight)), FakeReward(), FakeEstimator()
    trainer = FakeTraining()
    optimizer = OptimizerSettings(learning_rate=0.2, total_steps=updates)
    trainer.setup(TrainingContext(model=model, optimizer=optimizer, rollouts_per_forward=4, tokens_per_forward=999, prompts_per_slice=9))
    prompts = [
        Prompt(prompt_id=letter, index=n, messages=(Message(role="user", content=letter),), columns={"gt_answer": gold[n]})
        for n, letter in enumerate(LETTERS)
    ]
    settings = BatchSettings(max_new_tokens=2)
    means = []
    for version in range(updates):
        engine.submit([request for prompt in prompts for request in requests_of(prompt, tokenizer.render(prompt.messages), version)])
        answers: dict[str, Completion] = {}
        while len(answers) < len(prompts) * SAMPLES:
            answers |= {completion.request_id: completion for completion in engine.poll(0.0)}
        groups = [judged(prompt, tokenizer, answers, reward, version) for prompt in prompts]
        rewards = assemble_rewards(groups, settings)
        batch = assemble_batch(groups, run_estimator("fake", estimator, rewards), settings, version=version)
        trainer.update(batch, objective=None)  # type: ignore[arg-type]
        update_engine(engine, snapshot_of(version + 1, trainer))
        means.append(float(rewards.rewards.mean()))
    return means


def requests_of(prompt: Prompt, token_ids: np.ndarray, version: int) -> list[Request]:
    sampling = Sampling(max_new_tokens=2)
    return [
        Request(request_id=f"{prompt.prompt_id}{n}", token_ids=token_ids, sampling=sampling, noise=(0, version, prompt.index, n))
        for n in range(SAMPLES)
    ]


def judged(prompt: Prompt, tokenizer: object, answers: dict[str, Completion], reward: FakeReward, version: int) -> Group:
    context = tokenizer.render(prompt.messages)  # type: ignore[attr-defined]
    rollouts = []
    for n in range(SAMPLES):
        answer = answers[f"{prompt.prompt_id}{n}"]
        assert set(answer.versions.tolist()) == {version}
        segment = Segment(
            context_ids=context,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            versions=answer.versions,
            policy_mask=np.ones(len(answer.token_ids), bool),
        )
        text = tokenizer.decode(answer.token_ids)  # type: ignore[attr-defined]
        rollouts.append(Rollout(prompt_id=prompt.prompt_id, index=n, segments=(segment,), text=text, finish=answer.finish))
    scores = [reward.score(RewardInput(messages=prompt.messages, columns=prompt.columns, text=rollout.text)) for rollout in rollouts]
    return Group(prompt_id=prompt.prompt_id, episode=0, prompt_index=prompt.index, rollouts=tuple(rollouts), scores=tuple(scores))


@pytest.mark.parametrize("in_flight", list(InFlight))
def test_the_reward_goes_up(tmp_path: Path, in_flight: InFlight) -> None:
    means = learn(tmp_path, 60, in_flight)
    assert np.mean(means[:5]) < 0.3
    assert np.mean(means[-5:]) > 0.9


def test_a_task_that_cannot_be_solved_is_not_learned(tmp_path: Path) -> None:
    """A test of the test: no text of these letters is right."""
    assert np.max(learn(tmp_path, 20, gold="zzzz")) == 0.0


def test_two_runs_are_the_same(tmp_path: Path) -> None:
    assert learn(tmp_path / "one", 8) == learn(tmp_path / "two", 8)


def test_the_loop_loads_no_torch(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from pathlib import Path\n"
        f"import test_fake_loop as loop; loop.learn(Path({str(tmp_path)!r}), 2)\n"
        "heavy = {'torch', 'transformers', 'ray'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
