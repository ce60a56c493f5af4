"""The producer: turns jobs (a prompt with several rollouts) into scored groups, with one engine and one judge.

It does not know the coordinator or the consumers of the groups. A runtime leases, delivers, and decides when to load new weights.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from queue import SimpleQueue
from statistics import mode
from threading import Event
from typing import Any, Protocol

import numpy as np

from rlcore.contracts.conversation import Conversation, Dialogue, Transcript, Turn, rendered
from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import InferenceBackend, Tokenizer
from rlcore.contracts.snapshots import BUCKET_BYTES, Snapshot, WeightsKind
from rlcore.contracts.types import (
    NO_TOKENS,
    Completion,
    FinishReason,
    Outcome,
    Prompt,
    Request,
    Rollout,
    RolloutKind,
    Sampling,
    Score,
    TokenDetails,
)
from rlcore.registry.error_context import error_context
from rlcore.roles.engine_update import update_engine
from rlcore.roles.single_turn import ActiveConversation, Answer
from rlcore.schedule.accounting import TimeAccount

__all__ = ["GroupJob", "JudgeLike", "ProducedGroup", "Producer"]


_EMPTY_POLLS = 20
_MOST_ABORTS = 32
_WAKE_SECONDS = 0.005
"""The longest poll of the engine while a rollout may be woken: only between polls are its requests submitted."""


class JudgeLike(Protocol):
    """The methods of ``rlcore.rewards.Judge`` that the producer calls."""

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None: ...
    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupJob:
    """One group to make: a sampling per rollout, and the noise key without its last number, which is the rollout's."""

    key: int
    prompt: Prompt
    samplings: tuple[Sampling, ...]
    noise: tuple[int, int, int]
    spare: int = 0
    """Additional sampled rollouts: the last to finish are cut. Greedy ones are never cut."""
    counted: bool = True
    """Whether its verdicts enter the reward metrics and the error budget; those of an evaluation do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedGroup:
    """A finished job: rollouts in order, with one score each. ``cut_tokens`` counts the tokens of rollouts that were cut."""

    job: GroupJob
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]
    cut_tokens: int = 0


@dataclass(slots=True, eq=False)
class _OpenGroup:
    """A job in progress. ``talking`` counts its rollouts that are in progress, and those that ended while the engine holds a request of
    theirs; ``wanted`` counts the sampled rollouts that it still needs."""

    job: GroupJob
    talking: int
    wanted: int
    rollouts: list[Rollout] = field(default_factory=list)
    fresh: list[Rollout] = field(default_factory=list)
    """Rollouts that finished in the current poll."""
    failed: list[Rollout] = field(default_factory=list)
    """Sampled rollouts that cannot train. They are in the group only if others are not enough."""
    cut_tokens: int = 0

    def settle(self) -> None:
        """Keep the fresh rollouts that are needed, shorter ones first.

        One poll may cover several steps of the engine, so this order makes the choice independent of timing."""
        for rollout in sorted(self.fresh, key=lambda one: (one.length, one.index)):
            if rollout.kind is RolloutKind.SAMPLED and rollout.verdict is not None and not rollout.verdict.in_statistics:
                self.failed.append(rollout)
            else:
                self._keep(rollout)
        self.fresh.clear()
        if not self.talking:
            for rollout in self.failed:
                self._keep(rollout)
            self.failed.clear()
            self.rollouts.sort(key=lambda rollout: rollout.index)

    def _keep(self, rollout: Rollout) -> None:
        if rollout.kind is RolloutKind.GREEDY or self.wanted:
            self.rollouts.append(rollout)
            self.wanted -= rollout.kind is RolloutKind.SAMPLED
        else:
            self.cut_tokens += rollout.length


@dataclass(slots=True, eq=False)
class _ActiveRollout:
    """A conversation in progress, or one that has ended while the engine holds a request of it."""

    open: _OpenGroup
    index: int
    talk: ActiveConversation
    closes: float
    """When its conversation is closed without an answer, in seconds of ``time.monotonic``."""
    requests: dict[str, _OpenRequest] = field(default_factory=dict)
    """Its requests in the engine, by id."""
    over: bool = False
    """Whether it has ended: by itself, or because it was cut or too late. What the engine still answers is dropped."""


@dataclass(slots=True, eq=False)
class _OpenRequest:
    """A request in the engine."""

    rollout: _ActiveRollout
    turn: Turn
    noise: int
    dropped: bool = False
    """Whether nobody needs its answer."""
    aborts: int = 0
    kept: Completion | None = None
    """The tokens of this turn from before an abort, for an engine that can continue from them."""


class Producer:
    """Owns an engine and the conversations that run on it: one, or one for each source of the run."""

    def __init__(
        self,
        name: str,
        engine: InferenceBackend,
        tokenizer: Tokenizer,
        judge: JudgeLike,
        account: TimeAccount,
        conversation: Conversation | Sequence[Conversation],
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.name = name
        self.version = -1
        self.asleep = False
        """True from ``sleep`` until the next ``load``: the engine has given its device back and does not serve requests."""
        self.torn = False
        """True from an interrupted update until a complete one: the engine's weights may be a mixture of old and new."""
        self._awake = False
        """Whether a sleeping engine was woken by a load that has not succeeded yet."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._judge = judge
        self._account = account
        self._bucket_bytes = bucket_bytes
        self._conversations = conversation if isinstance(conversation, Sequence) else (conversation,)
        self._live: dict[str, _OpenRequest] = {}
        """The requests in the engine, by id."""
        self._rollouts: dict[_ActiveRollout, None] = {}
        """The rollouts that have not ended."""
        self._woken: SimpleQueue[_ActiveRollout] = SimpleQueue()
        self._wake = Event()
        self._judging: dict[int, _OpenGroup] = {}
        self.booking: str | None = None
        """The activity that the time of engine and judge is recorded under, if it is not generation and scoring (an evaluation)."""
        self._requests = 0
        self._generating = 0
        self._empty_polls = 0

    @property
    def busy(self) -> int:
        """The number of jobs that still generate. Jobs that wait for a verdict use no slot of the engine."""
        return self._generating

    @property
    def requests(self) -> int:
        """The number of requests in the engine."""
        return len(self._live)

    @property
    def waits(self) -> bool:
        """Whether it waits for environments alone."""
        return bool(self._rollouts) and not self._live

    @property
    def idle(self) -> bool:
        """Whether no job is in progress."""
        return not self._live and not self._rollouts and not self._judging

    @property
    def serves(self) -> bool:
        """Whether its engine may be asked for tokens."""
        return not (self.asleep or self.torn)

    def sleep(self) -> None:
        """Give the engine's device back until the next ``load``. A second call does nothing. Raises RunError if a job is in progress."""
        if self.asleep:
            return
        if not self.idle:
            talks, jobs = len(self._rollouts), len(self._judging)
            raise RunError(f"producer {self.name} was put to sleep with {talks} conversations and {jobs} jobs open")
        with self._account.span("weights"), self._error_context("going to sleep"):
            self._engine.sleep(2 if self._engine.capabilities.kinds == {WeightsKind.FULL} else 1)
        self.asleep = True

    def load(self, snapshot: Snapshot) -> None:
        """Serve other weights from now on, after checking the version and then the probe. Wakes a sleeping engine."""
        with self._account.span("weights"), self._error_context(f"loading version {snapshot.version}"):
            if self.asleep and not self._awake:  # it is already awake if the group of the transfer broke
                self._engine.wake()
                self._awake = True
            served = update_engine(self._engine, snapshot, self._bucket_bytes, begun=partial(setattr, self, "torn", True))
            if served != snapshot.version:
                raise WeightsError(f"producer {self.name} reports version {served} after it was handed version {snapshot.version}")
            self.version = served
            if self.asleep:
                self._engine.wake_cache()
            if snapshot.probe is not None and self._engine.capabilities.scores:
                snapshot.probe.check(self._engine.score(snapshot.probe.token_ids), version=snapshot.version, producer=self.name)
        self.asleep = self.torn = self._awake = False

    def _refuse_torn(self) -> None:
        if self.torn:
            raise RunError(
                f"an update of the weights of producer {self.name} was interrupted; it cannot generate until a complete version is loaded"
            )

    def accept(self, jobs: Sequence[GroupJob]) -> None:
        """Start jobs. Their prompts are rendered here, once per group."""
        self._refuse_torn()
        with self._account.span(self.booking or "generation"):
            requests: list[Request] = []
            opened_now = []
            for job in jobs:
                context_ids = rendered(self._tokenizer, job.prompt)
                sampled = sum(sampling.temperature > 0 for sampling in job.samplings)
                opened = _OpenGroup(job, talking=len(job.samplings), wanted=sampled - job.spare)
                self._generating += 1
                for index in range(len(job.samplings)):
                    rollout = self._begin(opened, index, context_ids)
                    self._rollouts[rollout] = None
                    rollout.talk.begin()
                    requests += self._follow(rollout)
                opened_now.append(opened)
            self._submit(requests)
            for opened in opened_now:  # a conversation may end at once
                self._settle(opened)

    def _begin(self, opened: _OpenGroup, index: int, context_ids: np.ndarray) -> _ActiveRollout:
        job, conversation = opened.job, self._conversations[opened.job.prompt.source_index]
        closes = time.monotonic() + (conversation.deadline or inf)
        transcript = Transcript(job.prompt, context_ids, job.samplings[index], self._tokenizer, (*job.noise, index))
        rollout = _ActiveRollout(opened, index, ActiveConversation(conversation, transcript), closes)
        transcript.wake = partial(self._wake_up, rollout)
        return rollout

    def _wake_up(self, rollout: _ActiveRollout) -> None:
        """Resume a rollout that waits, at the next step. Any thread may call it."""
        self._woken.put(rollout)
        self._wake.set()

    def close(self) -> None:
        """Close every conversation that is in progress. The producer can do nothing afterwards."""
        for rollout in list(self._rollouts):
            rollout.talk.close()
        self._rollouts.clear()

    def step(self, timeout: float) -> list[ProducedGroup]:
        """Make progress for about ``timeout`` seconds at most. Return the jobs that are generated and scored."""
        self._refuse_torn()
        if self._live or self._rollouts:
            waited = "generation" if self._live else f"waiting for {mode(rollout.talk.waits for rollout in self._rollouts)}"
            with self._account.span(self.booking or waited):
                for opened in self._progress(timeout):  # after the whole poll, because rollouts that finished in it are not cut
                    self._settle(opened)
            timeout = 0.0
        if not self._judging:
            return []
        with self._account.span(self.booking or "scoring"):
            return [self._produced(key, scores) for key, scores in self._judge.poll(timeout)]

    def _progress(self, timeout: float) -> Collection[_OpenGroup]:
        """Resume the rollouts that have an answer, or that were woken. Return the jobs of those, and of rollouts that are too late."""
        if not self._live:
            self._wake.wait(timeout)
        self._wake.clear()
        woken: dict[_ActiveRollout, list[Answer]] = {}
        while not self._woken.empty():
            rollout = self._woken.get()
            if rollout in self._rollouts:
                woken[rollout] = []
        late = self._too_late()
        if any(rollout.talk.waits for rollout in self._rollouts):
            timeout = min(timeout, _WAKE_SECONDS)
        answers = self._answers(timeout) if self._live else {}
        requests: list[Request] = []
        for rollout, came in {**woken, **answers}.items():
            if not rollout.over and (came or (rollout in woken and rollout.talk.waits)):
                rollout.talk.advance(came)
                requests += self._follow(rollout)
        self._submit(requests)
        return dict.fromkeys(rollout.open for rollout in (*answers, *woken, *late))

    def _answers(self, timeout: float) -> dict[_ActiveRollout, list[Answer]]:
        """Poll the engine. Return the whole answers by rollout; a rollout that has ended has none."""
        answers: dict[_ActiveRollout, list[Answer]] = {}
        again = []
        for completion in self._poll(timeout):
            asked = self._live.pop(completion.request_id, None)
            if asked is None:
                raise RunError(f"the engine of producer {self.name} answered request {completion.request_id!r}, which is not open")
            rollout, completion = asked.rollout, _joined(asked.kept, completion)
            del rollout.requests[completion.request_id]
            came = answers.setdefault(rollout, [])
            if asked.dropped:
                rollout.open.cut_tokens += len(completion.token_ids)
                rollout.open.talking -= rollout.over and not rollout.requests
            elif completion.finish is FinishReason.ABORTED:
                again.append(self._ask_again(asked, completion))
            else:
                self._check(completion, asked.turn.sampling)
                came.append((asked.turn, completion))
        self._submit(again)
        return answers

    def _too_late(self) -> list[_ActiveRollout]:
        """End the rollouts whose deadline is over."""
        now = time.monotonic()
        late = [rollout for rollout in self._rollouts if rollout.closes < now]
        for rollout in late:
            reason = f"the conversation had not ended after {rollout.talk.conversation.deadline:g} s"
            rollout.talk.close()
            self._keep(rollout, Dialogue(verdict=Score.failed(Outcome.TIMEOUT, reason)))
        return late

    def _follow(self, rollout: _ActiveRollout) -> list[Request]:
        """Return the requests that a rollout has after its generator ran. Cancel those that nobody needs."""
        talk = rollout.talk
        if talk.said is not None:
            self._keep(rollout, talk.said)
            return []
        self._drop([name for name, asked in rollout.requests.items() if asked.turn in talk.cancels])
        asked_before = talk.asked - len(talk.asks)
        return [
            self._ask(_OpenRequest(rollout, turn, asked_before + place if turn.noise is None else turn.noise))
            for place, turn in enumerate(talk.asks)
        ]

    def _drop(self, names: Sequence[str]) -> None:
        """Cancel requests whose answer nobody needs."""
        for name in names:
            self._live[name].dropped = True
        if names:
            with self._account.span(self.booking or "generation"), self._error_context("cancelling requests"):
                self._engine.cancel(names)

    def _submit(self, requests: Sequence[Request]) -> None:
        if not requests:
            return
        with self._account.span(self.booking or "generation"), self._error_context("taking requests"):
            self._engine.submit(requests)

    def _poll(self, timeout: float) -> list[Completion]:
        start = time.monotonic()
        with self._account.span(self.booking or "generation"), self._error_context("generating"):
            completions = list(self._engine.poll(timeout))
            if strange := [one for one in completions if not isinstance(one, Completion)]:
                raise TypeError(f"poll returned a {type(strange[0]).__name__} among its completions")
        # An empty answer before the timeout means that nothing is in flight. The contract allows it only then.
        early = not completions and time.monotonic() - start < timeout / 2
        self._empty_polls = self._empty_polls + 1 if early else 0
        if self._empty_polls >= _EMPTY_POLLS:
            raise RunError(
                f"the engine of producer {self.name} reports nothing in flight and never answered {len(self._live)} requests, "
                f"{next(iter(self._live))!r} among them"
            )
        return completions

    def _error_context(self, doing: str) -> AbstractContextManager[None]:
        return error_context(f"the inference backend {type(self._engine).__name__} of producer {self.name}", doing, "lower -imbs")

    def _ask(self, asked: _OpenRequest) -> Request:
        self._requests += 1
        request_id, rollout, turn = f"{self.name}-{self._requests}", asked.rollout, asked.turn
        self._live[request_id] = rollout.requests[request_id] = asked
        ids, sampling, continued = turn.context_ids, turn.sampling, 0
        if asked.kept is not None:
            ids, continued = np.concatenate([ids, asked.kept.token_ids]), len(asked.kept.token_ids)
            sampling = replace(sampling, max_new_tokens=sampling.max_new_tokens - continued)
        noise = (*rollout.open.job.noise, rollout.index + (asked.noise << 32))
        group = f"{self.name}-{rollout.open.job.key}"
        return Request(request_id=request_id, token_ids=ids, sampling=sampling, noise=noise, continued=continued, group=group)

    def _settle(self, opened: _OpenGroup) -> None:
        """Cut rollouts that a job no longer needs. Pass the job to the judge once the engine has finished all of it."""
        opened.settle()
        if opened.job.spare and not opened.wanted:
            for rollout in [one for one in self._rollouts if one.open is opened and one.talk.transcript.sampling.temperature > 0]:
                rollout.talk.close()
                self._end(rollout)
                opened.cut_tokens += sum(len(one.token_ids) for one in rollout.talk.sampled)
            opened.settle()
        if not opened.talking and opened.job.key not in self._judging:
            self._generating -= 1
            self._judging[opened.job.key] = opened
            self._judge.submit(opened.job.key, opened.job.prompt, opened.rollouts, counted=opened.job.counted)

    def _end(self, rollout: _ActiveRollout) -> None:
        """Mark a rollout as ended, and cancel its requests."""
        rollout.over = True
        del self._rollouts[rollout]
        self._drop(list(rollout.requests))
        rollout.open.talking -= not rollout.requests

    def _check(self, completion: Completion, sampling: Sampling) -> None:
        """Check an engine's completion, because it is trained on as it is."""
        if len(completion.token_ids) > sampling.max_new_tokens:
            wrong = f"{len(completion.token_ids)} tokens instead of at most {sampling.max_new_tokens}"
        elif not np.isfinite(completion.logprobs).all():
            wrong = "log probabilities that are not finite"
        elif not isinstance(completion.finish, FinishReason):
            wrong = f"finish {completion.finish!r}, which is not one of {', '.join(repr(str(one)) for one in FinishReason)}"
        else:
            return
        raise RunError(f"the inference backend {type(self._engine).__name__} of producer {self.name} returned {wrong}")

    def _ask_again(self, asked: _OpenRequest, left: Completion) -> Request:
        """Return the request to ask again after a weight update aborted a request in flight.

        The same noise key requests the same draw under the new weights: for all tokens or, if the engine continues, for those after
        ``left``."""
        before, kept = len(asked.kept.token_ids) if asked.kept else 0, len(left.token_ids)
        if self._engine.capabilities.continues and before < kept < asked.turn.sampling.max_new_tokens:
            asked.kept, asked.aborts = left, 0
        asked.aborts += 1
        if asked.aborts > _MOST_ABORTS:
            raise RunError(
                f"the engine of producer {self.name} aborted one request of prompt {asked.rollout.open.job.prompt.prompt_id} "
                f"{asked.aborts} times, more than weight updates explain; see its own log for the reason (memory, length)"
            )
        return self._ask(asked)

    def _keep(self, rollout: _ActiveRollout, said: Dialogue) -> None:
        self._end(rollout)
        job, sampled = rollout.open.job, rollout.talk.sampled
        rollout.open.fresh.append(
            Rollout(
                prompt_id=job.prompt.prompt_id,
                index=rollout.index,
                kind=RolloutKind.GREEDY if job.samplings[rollout.index].temperature == 0 else RolloutKind.SAMPLED,
                segments=said.segments or (NO_TOKENS,),
                text=next((message.content for message in reversed(said.messages) if message.policy), "")
                if said.text is None
                else said.text,
                finish=said.finish or (sampled[-1].finish if sampled else FinishReason.STOP),
                temperature=job.samplings[rollout.index].temperature,
                turns=() if [message.plain_answer for message in said.messages] == [True] else said.messages,
                turn_rewards=said.turn_rewards,
                extra=said.extra,
                turn_lengths=said.turn_lengths,
                branches=said.branches,
                verdict=said.verdict,
            )
        )

    def _produced(self, key: int, scores: tuple[Score, ...]) -> ProducedGroup:
        opened = self._judging.pop(key)
        return ProducedGroup(job=opened.job, rollouts=tuple(opened.rollouts), scores=scores, cut_tokens=opened.cut_tokens)


def _joined(kept: Completion | None, completion: Completion) -> Completion:
    """Return a completion that begins with the tokens from before an abort."""
    if kept is None:
        return completion
    names = ("token_ids", "logprobs", "versions")
    joined: dict[str, Any] = {name: np.concatenate([getattr(kept, name), getattr(completion, name)]) for name in names}
    details = TokenDetails.joined([(part.details, len(part.token_ids)) for part in (kept, completion)])
    return replace(completion, details=details, **joined)
