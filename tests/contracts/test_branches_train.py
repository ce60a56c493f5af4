"""From an agent's HTTP requests to the gradient: forks, rewrites, compaction and sub-agents train each token once, in its own context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import numpy as np
import pytest
import torch
from rlcore_gateway.gateway import Ask, Gateway
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_plugin_torch.passes import Clock, MicrobatchPlanner, accumulate
from rlcore_plugin_torch.policy import CausalPolicy
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.api import Completion, FinishReason, Group, Rollout, Score
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective, assemble_batch
from rlcore.testing import FakeTokenizer

TOKENIZER = FakeTokenizer()
SYSTEM, TASK = {"role": "system", "content": "play"}, {"role": "user", "content": "guess"}
HINT = {"role": "user", "content": "higher"}
ADVANTAGES = (1.5, -0.5)


@dataclass
class Agent:
    """An engine that draws random tokens, with the log probabilities of an older policy, and a client.

    ``ids``: each call's id, by the name that the agent gives it.
    """

    policy: CausalPolicy
    random: np.random.Generator
    asked: dict[str, tuple[list[int], Completion]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    client: httpx2.AsyncClient = field(init=False)

    async def generate(self, ask: Ask) -> Completion:
        await asyncio.sleep(0.01)  # so that concurrent calls are open together
        context = ask.context_ids.tolist()
        ids = np.array([*self.random.integers(5, len(TOKENIZER), self.random.integers(1, 6)), 0], np.int32)
        with torch.no_grad():
            now = logprobs(self.policy, context, ids).numpy()
        old = (now + self.random.normal(0, 0.2, len(ids))).astype(np.float32)  # some ratios are beyond the clipping range
        said = Completion(request_id=ask.call, token_ids=ids, logprobs=old, versions=np.zeros(len(ids)), finish=FinishReason.STOP)
        self.asked[ask.call] = context, said
        return said

    async def ask(self, name: str, *messages: Any, retry: bool = False) -> dict[str, Any]:
        """Return the answer as the message that a client sends back."""
        answer = await self.client.post(
            "/v1/chat/completions", json={"messages": messages}, headers={"x-stainless-retry-count": "1"} if retry else {}
        )
        assert answer.status_code == 200, answer.text
        found = answer.json()
        self.ids[name] = found["id"]
        return {"role": "assistant", "content": found["choices"][0]["message"]["content"]}


Play = Callable[[Agent], Coroutine[Any, Any, None]]


async def main_chat(agent: Agent) -> None:
    """Two turns, and a second way to go on after the first. A request is repeated, and a title is made beside it."""
    chat = [SYSTEM, TASK]
    chat.append(await agent.ask("first", *chat))
    await agent.ask("second", *chat, HINT)
    await agent.ask("fork", *chat, {"role": "user", "content": "lower"})
    await agent.ask("second", *chat, HINT, retry=True)
    await agent.ask("title", {"role": "user", "content": "a title"})


async def rewritten(agent: Agent) -> None:
    """The agent shortens the answer that it got, and later replaces its history by a summary, with and without the first message."""
    chat = [SYSTEM, TASK, {"role": "assistant", "content": "short"}, HINT]
    chat.append(await agent.ask("rewrite", *chat))
    await agent.ask("rewrite again", *chat, HINT)
    await agent.ask("compact", SYSTEM, TASK, {"role": "user", "content": "a summary"})
    chat = [SYSTEM, {"role": "user", "content": "a summary"}]
    chat.append(await agent.ask("other", *chat))
    await agent.ask("other again", *chat, HINT)


async def sub_agents(agent: Agent) -> None:
    """Three at the same time, two of them with equal messages."""

    async def one(number: int, task: str) -> None:
        chat = [{"role": "system", "content": "help"}, {"role": "user", "content": task}]
        chat.append(await agent.ask(f"helper {number}", *chat))
        await agent.ask(f"helper {number} again", *chat, HINT)

    await asyncio.gather(one(1, "count"), one(2, "count"), one(3, "add"))


async def whole(agent: Agent) -> None:
    await main_chat(agent)
    await asyncio.gather(rewritten(agent), sub_agents(agent))


HELPERS = [f"helper {number}{again}" for number in (1, 2, 3) for again in ("", " again")]
CASES: list[tuple[Play, list[str] | None, list[str], int]] = [
    (main_chat, None, ["first", "second", "fork"], 2),
    (rewritten, None, ["rewrite", "rewrite again", "compact"], 2),
    (sub_agents, HELPERS, HELPERS, 3),
    (sub_agents, ["helper 2 again", "helper 3"], ["helper 2 again", "helper 3"], 2),
    (whole, None, ["first", "second", "fork", "rewrite", "rewrite again", "compact"], 4),
    (whole, ["fork", "other", "other again", *HELPERS], ["fork", "other", "other again", *HELPERS], 5),
]
"""What an agent does, the calls that its environment names, the calls that train, and the number of segments."""


def played(agent: Agent, play: Play, named: Sequence[str] | None) -> Any:
    """Return what the ledger gives to training."""

    async def run() -> Any:
        gateway = Gateway(TOKENIZER, agent.generate)
        key = gateway.open("game", EpisodeLimits(tokens=1000, context=1000))
        headers = {"authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(gateway.app), base_url="http://gateway", headers=headers) as client:
            agent.client = client
            await play(agent)
        return gateway.close(key).trained(None if named is None else [agent.ids[name] for name in named])

    return asyncio.run(run())


@pytest.fixture(scope="module")
def policy() -> CausalPolicy:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(TOKENIZER), num_key_value_heads=1, initializer_range=0.3, **shape)
    policy = CausalPolicy(model=Qwen2ForCausalLM(config).eval().double())
    assert policy.try_packing() == ""
    return policy


def logprobs(policy: CausalPolicy, context: Sequence[int], answer: np.ndarray) -> torch.Tensor:
    """Return the log probability of each token of an answer, from a forward of its own."""
    ids = torch.tensor([[*context, *answer.tolist()]])
    rows = policy.model(input_ids=ids).logits[0, len(context) - 1 : -1].log_softmax(-1)
    return rows.gather(1, ids[0, len(context) :, None])[:, 0]


def expected_loss(policy: CausalPolicy, calls: Sequence[tuple[Sequence[int], Completion]], advantage: float) -> torch.Tensor:
    """The clipped surrogate of each call alone, as a mean over the tokens of all calls."""
    total = torch.zeros((), dtype=torch.float64)
    for context, said in calls:
        ratio = (logprobs(policy, context, said.token_ids) - torch.tensor(said.logprobs.astype(np.float64))).exp()
        total = total - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).sum()
    return total / sum(len(said.token_ids) for _, said in calls)


def taken(policy: CausalPolicy) -> torch.Tensor:
    """Return the gradient, and forget it."""
    found = torch.cat([weight.grad.flatten() for weight in policy.model.parameters() if weight.grad is not None])
    policy.model.zero_grad()
    return found


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("play", "named", "trains", "rows"), CASES)
def test_the_gradient_is_that_of_each_trained_call_in_its_own_context(
    policy: CausalPolicy, play: Play, named: list[str] | None, trains: list[str], rows: int, packed: bool
) -> None:
    rollouts = []
    for index, advantage in enumerate(ADVANTAGES):
        agent = Agent(policy, np.random.default_rng(index))
        result = played(agent, play, named)
        assert sorted(result.calls) == sorted(agent.ids[name] for name in trains)
        assert len(result.segments) == len(result.branches) == rows <= result.counts["forks"] + 1
        words: dict[str, Any] = {"text": "", "finish": FinishReason.STOP, "turn_lengths": result.turn_lengths}
        rollouts.append(Rollout(prompt_id="p", index=index, segments=result.segments, **words))
        (expected_loss(policy, [agent.asked[agent.ids[name]] for name in trains], advantage) / len(ADVANTAGES)).backward()
    expected = taken(policy)
    group = Group(prompt_id="p", episode=0, prompt_index=0, rollouts=tuple(rollouts), scores=(Score(value=1.0),) * len(rollouts))
    batch = assemble_batch([group], np.array(ADVANTAGES), BatchSettings(max_new_tokens=999)).by_segment()
    batch = replace(batch, old_logprobs=batch.rollout_logprobs)
    cut = MicrobatchPlanner(rollouts=2, tokens=60, prompts=1, packed=packed)
    accumulate(policy, batch, PolicyObjective(loss=ClippedSurrogate()), cut, Clock())
    found = taken(policy)
    assert float((found - expected).norm() / expected.norm()) < 1e-5  # the weights of tokens are float32
