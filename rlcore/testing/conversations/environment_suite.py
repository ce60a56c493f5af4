"""Conformance suite for environments. Scripts play the policy; the gateway and the processes are real, so it needs ``rlcore[agents]``."""

from __future__ import annotations

import os
import signal
import string
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from rlcore.contracts.conversation import Conversation, ConversationContext, Dialogue, Transcript, Turn
from rlcore.contracts.environment import ChosenEnvironment
from rlcore.contracts.specs import EnvironmentSpec, PluginKind
from rlcore.contracts.types import Completion, FinishReason, Message, Prompt, Sampling
from rlcore.registry.plugin_registry import Registry
from rlcore.roles.single_turn import ActiveConversation
from rlcore.testing.leftovers import Leftovers
from rlcore.testing.tokens import FakeTokenizer

__all__ = ["EnvironmentSuite", "EpisodeTable"]

_CONTEXT, _TOKENS = 65_536, 16_384
_ENDS = ("ok", "exhausted")


@dataclass(eq=False)
class _ScriptedEpisode:
    """An episode in progress. The script answers call ``n`` with text ``n``, and with the last one after its end; None leaves it open."""

    active: ActiveConversation
    script: Sequence[str | None]
    asked: int = 0
    open: list[Turn] = field(default_factory=list)

    def begin(self, tokenizer: FakeTokenizer) -> None:
        """Begin it. Its first call may be there at once."""
        self.active.begin()
        self._answer(tokenizer)

    def step(self, tokenizer: FakeTokenizer) -> None:
        """Answer what was asked since the last step."""
        self.active.advance()
        self._answer(tokenizer)

    def _answer(self, tokenizer: FakeTokenizer) -> None:
        while self.active.asks and self.active.said is None:
            asks, answers = self.active.asks, []
            for turn in asks:
                text = self.script[min(self.asked, len(self.script) - 1)]
                self.asked += 1
                if text is None:
                    self.open.append(turn)
                else:
                    answers.append((turn, _completion(turn, text, self.asked, tokenizer)))
            if not answers:
                return
            self.active.advance(answers)


def _completion(turn: Turn, text: str, number: int, tokenizer: FakeTokenizer) -> Completion:
    whole = [*tokenizer.encode(text), *tokenizer.stop_ids]
    ids = whole[: turn.sampling.max_new_tokens]
    return Completion(
        request_id=str(number),
        token_ids=np.array(ids, np.int32),
        logprobs=-np.linspace(0.5, 0.6, len(ids), dtype=np.float32) - number,
        versions=np.zeros(len(ids), np.int32),
        finish=FinishReason.STOP if len(ids) == len(whole) else FinishReason.LENGTH,
    )


class EpisodeTable(ExitStack):
    """Plays episodes of an environment with the conversation ``agent``, as a producer does. On exit, everything is ended."""

    def __init__(self, registry: Registry, environment: str, environment_options: Mapping[str, Any], alphabet: str, **options: Any) -> None:
        """:param options: those of the conversation ``agent``."""
        super().__init__()
        self.tokenizer, self.said = FakeTokenizer(alphabet), list[str]()
        kind = PluginKind.ENVIRONMENT
        spec = registry.spec(kind, environment)
        assert isinstance(spec, EnvironmentSpec)
        chosen = ChosenEnvironment(
            name=spec.name,
            owner=registry.owner(kind, environment),
            spec=spec,
            payload=registry.payload(kind, environment),
            options=_options(registry, kind, environment, environment_options),
        )
        agent = _options(registry, PluginKind.CONVERSATION, "agent", {"tool_parser": "json", **options})
        self.conversation: Conversation = registry.make(PluginKind.CONVERSATION, "agent", options=agent)
        self.conversation.who, self.conversation.max_context_tokens = "conversation 'agent'", _CONTEXT
        self._woken = threading.Event()
        self.callback(self.conversation.close)
        self.conversation.open(
            ConversationContext(
                producer="producer-0",
                tokenizer=self.tokenizer,
                seed=0,
                max_context_tokens=_CONTEXT,
                max_new_tokens=_TOKENS,
                lease_deadline=3600.0,
                environment=chosen,
                say=self.said.append,
            )
        )

    def begin(self, row: Mapping[str, Any], script: Sequence[str | None], tokens: int = _TOKENS) -> _ScriptedEpisode:
        """Begin an episode. ``row``: its columns, and its ``messages`` if it has some."""
        columns = {name: value for name, value in row.items() if name != "messages"}
        messages = tuple(Message(**message) for message in row.get("messages", ({"role": "user", "content": "?"},)))
        prompt = Prompt(prompt_id="p0", index=0, messages=messages, columns=columns)
        sampling = Sampling(temperature=0.7, max_new_tokens=tokens)
        transcript = Transcript(prompt, self.tokenizer.render(messages), sampling, self.tokenizer)
        transcript.wake = self._woken.set
        episode = _ScriptedEpisode(ActiveConversation(self.conversation, transcript), script)
        episode.begin(self.tokenizer)
        return episode

    def finish(self, episodes: Sequence[_ScriptedEpisode], seconds: float) -> list[Dialogue]:
        """Play until all have ended. AssertionError if that takes longer."""
        until = time.monotonic() + seconds
        while any(one.active.said is None for one in episodes):
            assert time.monotonic() < until, f"an episode had not ended after {seconds:g} s; rlcore said: {self.said}"
            self.step(episodes)
        return [one.active.said for one in episodes if one.active.said is not None]

    def step(self, episodes: Sequence[_ScriptedEpisode]) -> None:
        """Wait a moment for news, and answer."""
        self._woken.wait(0.05)
        self._woken.clear()
        for one in episodes:
            if one.active.said is None:
                one.step(self.tokenizer)


def _options(registry: Registry, kind: PluginKind, name: str, values: Mapping[str, Any]) -> BaseModel | None:
    model = registry.options_model(kind, name)
    return None if model is None else model(**values)


class EnvironmentSuite:
    """The rules of an environment, which scripts lead through each of its ends.

    A subclass names the environment, and gives rows and scripts. Each rule starts real processes, so a rule takes some seconds.
    """

    environment: str = ""
    """A name of ``rlcore plugins``, or ``FILE.py:NAME``; a relative path is one from the current folder."""
    options: Mapping[str, Any] = {}
    """Of the environment."""
    rows: tuple[Mapping[str, Any], ...] = ({},)
    """The columns of the rows that it plays, and their ``messages``. Each script is played with each row."""
    scripts: tuple[tuple[str, ...], ...] = (("a",), ("b",))
    """What the policy answers in one episode, call by call; after that the last text again. With a call of a tool as JSON:
    ``{"name": …, "arguments": {…}}``."""
    rewards: tuple[float, ...] | None = None
    """The reward of each script with each row, row by row; None to check only that there is one."""
    alphabet: str = string.printable
    """Characters of rows, scripts and environment."""
    repeats: bool = True
    """Equal answers give an equal episode. False for an environment that draws at random and does not say ``deterministic``."""
    seconds: float = 60.0
    """The longest time of one episode with a policy that answers at once."""
    cancel_seconds: float = 5.0
    """The time in which it ends a cancelled episode."""

    def table(self, **options: Any) -> EpisodeTable:
        """Return a table with processes of its own. ``options``: of the conversation ``agent``."""
        given = {"deadline": self.seconds, "cancel_seconds": self.cancel_seconds, "error_budget": 1.0, "workers": 4, **options}
        return EpisodeTable(Registry.discover(), self.environment, self.options, self.alphabet, **given)

    def played(self, table: EpisodeTable, *scripts: Sequence[str | None], tokens: int = _TOKENS) -> list[Dialogue]:
        """Play each script with each row, all at the same time."""
        episodes = [table.begin(row, script, tokens) for row in self.rows for script in scripts or self.scripts]
        return table.finish(episodes, 2 * self.seconds * len(episodes))

    def _until_asked(self, table: EpisodeTable, episode: _ScriptedEpisode) -> float:
        """Return when, in seconds of ``time.monotonic``, an episode has a call that the script leaves open."""
        until = time.monotonic() + self.seconds
        while not episode.open:
            assert episode.active.said is None, f"the episode ended without a call of the policy: {': '.join(_end(episode.active.said))}"
            assert time.monotonic() < until, f"the episode did not ask the policy within {self.seconds:g} s"
            table.step([episode])
        return time.monotonic()

    def test_each_script_ends_with_a_reward(self) -> None:
        """Each episode asks the policy, ends by itself or because a budget is used up, and has the reward of its script. Nothing is left
        after the processes of the environment have ended; rlcore kills what they started."""
        before = Leftovers()
        with self.table() as table:
            talks = self.played(table)
            before.look()
        for place, talk in enumerate(talks):
            script = self.scripts[place % len(self.scripts)]
            assert talk.extra["outcome"] in _ENDS, f"{script}: the episode ended as {': '.join(_end(talk))}"
            reward = talk.extra["reward"]
            assert reward is not None or talk.extra["outcome"] == "exhausted", f"{script}: the episode has no reward"
            assert self.rewards is None or reward == self.rewards[place], f"{script}: the reward is {reward}, not {self.rewards[place]}"
        if Leftovers.known():
            assert not before.found(), f"the environment left {', '.join(before.found())}"

    def test_an_episode_depends_on_its_row_and_its_answers_alone(self) -> None:
        """Episodes one after the other in one process give what they give at the same time. Not checked with ``repeats = False``."""
        if not self.repeats:
            return
        with self.table() as table:
            together = self.played(table)
        with self.table(workers=1, episodes_per_process=1) as table:
            pairs = [(row, script) for row in self.rows for script in self.scripts]
            for number, (row, script) in enumerate(pairs):
                (alone,) = table.finish([table.begin(row, script)], 2 * self.seconds)
                assert _told(alone) == _told(together[number]), (
                    f"{script}: alone, the episode is {_told(alone)}, not {_told(together[number])}"
                )

    def test_any_answer_will_do(self) -> None:
        """An answer that is empty, nonsense or very long fails neither the environment nor the agent."""
        nonsense = ("", " ", "{[(\\", "9" * 200, "\n\n", '{"name": "no_such_tool", "arguments": {}}')
        with self.table(max_calls=32) as table:
            for answer, talk in zip(nonsense * len(self.rows), self.played(table, *((one,) for one in nonsense)), strict=True):
                assert talk.extra["outcome"] in _ENDS, f"{answer!r}: it ended as {': '.join(_end(talk))}"

    def test_a_budget_that_is_used_up_ends_the_episode(self) -> None:
        """After a refusal, the episode ends without hanging, and no failure is reported: with one call, and with few tokens."""
        with self.table(max_calls=1) as table:
            ends = self.played(table)
        with self.table() as table:
            ends += self.played(table, tokens=2)
        for talk in ends:
            assert talk.extra["outcome"] in _ENDS, f"a used-up budget ended an episode as {talk.extra['outcome']}: {talk.extra['reason']}"

    def test_a_cancelled_episode_ends_by_itself_and_the_process_plays_on(self) -> None:
        """If the policy does not answer, the episode ends at its deadline, well before it would be killed. The next episode plays."""
        deadline = min(self.seconds, 3.0)
        with self.table(deadline=deadline, workers=1, episodes_per_process=1) as table:
            table.finish([table.begin(self.rows[0], self.scripts[0])], 2 * self.seconds)
            episode = table.begin(self.rows[0], (None,))
            begun = self._until_asked(table, episode)
            (late,) = table.finish([episode], deadline + 2 * self.cancel_seconds)
            took, (outcome, reason) = time.monotonic() - begun, _end(late)
            assert outcome == "timeout", f"without an answer of the policy, the episode ended as {outcome}: {reason}"
            assert took < deadline + 0.75 * self.cancel_seconds, f"it did not end a cancelled episode within {self.cancel_seconds:g} s"
            (after,) = table.finish([table.begin(self.rows[0], self.scripts[0])], 2 * self.seconds)
            assert _end(after)[0] in (*_ENDS, "timeout"), f"the episode after a cancelled one ended as {': '.join(_end(after))}"

    def test_an_episode_whose_process_dies_is_played_again_as_if_it_had_not_begun(self) -> None:
        """A process is killed in the middle of an episode; in another one, the episode has the reward of its script."""
        with self.table(workers=1, episodes_per_process=1) as table:
            episode = table.begin(self.rows[0], (None, *self.scripts[0]))
            self._until_asked(table, episode)
            for pid in _playing():
                os.kill(pid, signal.SIGKILL)
            (talk,) = table.finish([episode], 2 * self.seconds)
        assert talk.extra["outcome"] in _ENDS, f"played again, the episode ended as {': '.join(_end(talk))}"
        reward = talk.extra["reward"]
        assert not self.repeats or self.rewards is None or reward == self.rewards[0], f"played again, its reward is {reward}"


def _end(talk: Dialogue) -> tuple[str, str]:
    return talk.extra["outcome"], talk.extra["reason"]


def _told(talk: Dialogue) -> tuple[Any, ...]:
    """Return the facts of an episode that must be equal if it is played again: all but the ids of its calls."""
    return talk.extra["outcome"], talk.extra["reward"], talk.turn_rewards, [(one.role, one.content, one.policy) for one in talk.messages]


def _playing() -> list[int]:
    """Return the ids of the processes below the gateway processes of this one, which are below their guards. Linux alone."""
    below = [os.getpid()]
    for _ in range(3):
        lists = [path.read_text("utf-8") for pid in below for path in Path(f"/proc/{pid}/task").glob("*/children")]
        below = [int(pid) for children in lists for pid in children.split()]
    return below
