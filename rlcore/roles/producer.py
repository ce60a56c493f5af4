"""The producer: turns jobs (a prompt with several rollouts) into scored groups, with one engine and one judge.

It does not know the coordinator or the consumers of the groups. A runtime leases, delivers, and decides when to load new weights.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from rlcore.contracts.conversation import Conversation, Dialogue, Transcript, rendered
from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import InferenceBackend, Tokenizer
from rlcore.contracts.snapshots import BUCKET_BYTES, Snapshot, WeightsKind
from rlcore.contracts.types import Completion, FinishReason, Prompt, Request, Rollout, RolloutKind, Sampling, Score, TokenDetails
from rlcore.registry.error_context import error_context
from rlcore.roles.engine_update import update_engine
from rlcore.roles.single_turn import ActiveConversation
from rlcore.schedule.accounting import TimeAccount

__all__ = ["GroupJob", "JudgeLike", "ProducedGroup", "Producer"]


_EMPTY_POLLS = 20
_MOST_ABORTS = 32


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
    """A job in progress. ``talking`` counts its conversations that are in the engine, including cut ones; ``wanted`` counts the sampled
    rollouts that it still needs."""

    job: GroupJob
    talking: int
    wanted: int
    rollouts: list[Rollout] = field(default_factory=list)
    fresh: list[Rollout] = field(default_factory=list)
    """Rollouts that finished in the current poll."""
    cut_tokens: int = 0

    def settle(self) -> None:
        """Keep the fresh rollouts that are needed, shorter ones first.

        One poll may cover several steps of the engine, so this order makes the choice independent of timing."""
        for rollout in sorted(self.fresh, key=lambda one: (one.length, one.index)):
            if rollout.kind is RolloutKind.GREEDY or self.wanted:
                self.rollouts.append(rollout)
                self.wanted -= rollout.kind is RolloutKind.SAMPLED
            else:
                self.cut_tokens += rollout.length
        self.fresh.clear()


@dataclass(slots=True)
class _ActiveRollout:
    """A conversation that waits for a completion."""

    open: _OpenGroup
    index: int
    talk: ActiveConversation
    cut: bool = False
    """Its request is cancelled, and it ends with whatever the engine answers."""
    aborts: int = 0
    kept: Completion | None = None
    """The tokens of this turn from before an abort, for an engine that can continue from them."""


class Producer:
    """Owns an engine and the conversations that run on it."""

    def __init__(
        self,
        name: str,
        engine: InferenceBackend,
        tokenizer: Tokenizer,
        judge: JudgeLike,
        account: TimeAccount,
        conversation: Conversation,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.name = name
        self.version = -1
        self.asleep = False
        """True from ``sleep`` until the next ``load``: the engine has given its device back and does not serve requests."""
        self.torn = False
        """True from an interrupted update until a complete one: the engine's weights may be a mixture of old and new."""
        self._woken = False
        self._engine = engine
        self._tokenizer = tokenizer
        self._judge = judge
        self._account = account
        self._bucket_bytes = bucket_bytes
        self._conversation = conversation
        self._live: dict[str, _ActiveRollout] = {}
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
    def idle(self) -> bool:
        """Whether no job is in progress."""
        return not self._live and not self._judging

    @property
    def serves(self) -> bool:
        """Whether its engine may be asked for tokens."""
        return not (self.asleep or self.torn)

    def sleep(self) -> None:
        """Give the engine's device back until the next ``load``. A second call does nothing. Raises RunError if a job is in progress."""
        if self.asleep:
            return
        if not self.idle:
            raise RunError(f"producer {self.name} was put to sleep with {len(self._live)} conversations and {len(self._judging)} jobs open")
        with self._account.span("weights"), self._error_context("going to sleep"):
            self._engine.sleep(2 if self._engine.capabilities.kinds == {WeightsKind.FULL} else 1)
        self.asleep = True

    def load(self, snapshot: Snapshot) -> None:
        """Serve other weights from now on, after checking the version and then the probe. Wakes a sleeping engine."""
        with self._account.span("weights"), self._error_context(f"loading version {snapshot.version}"):
            if self.asleep and not self._woken:  # it is already awake if the group of the transfer broke
                self._engine.wake()
                self._woken = True
            served = update_engine(self._engine, snapshot, self._bucket_bytes, begun=partial(setattr, self, "torn", True))
            if served != snapshot.version:
                raise WeightsError(f"producer {self.name} reports version {served} after it was handed version {snapshot.version}")
            self.version = served
            if self.asleep:
                self._engine.wake_cache()
            if snapshot.probe is not None and self._engine.capabilities.scores:
                snapshot.probe.check(self._engine.score(snapshot.probe.token_ids), version=snapshot.version, producer=self.name)
        self.asleep = self.torn = self._woken = False

    def _refuse_torn(self) -> None:
        if self.torn:
            raise RunError(
                f"an update of the weights of producer {self.name} was interrupted; it cannot generate until a complete version is loaded"
            )

    def accept(self, jobs: Sequence[GroupJob]) -> None:
        """Start jobs. Their prompts are rendered here, once per group."""
        self._refuse_torn()
        requests = []
        with self._account.span(self.booking or "generation"):
            for job in jobs:
                context_ids = rendered(self._tokenizer, job.prompt)
                sampled = sum(sampling.temperature > 0 for sampling in job.samplings)
                opened = _OpenGroup(job, talking=len(job.samplings), wanted=sampled - job.spare)
                self._generating += 1
                for index, sampling in enumerate(job.samplings):
                    transcript = Transcript(job.prompt, context_ids, sampling, self._tokenizer, (*job.noise, index))
                    talk = ActiveConversation(self._conversation, transcript)
                    talk.advance()
                    requests.append(self._ask(_ActiveRollout(opened, index, talk)))
            self._submit(requests)

    def step(self, timeout: float) -> list[ProducedGroup]:
        """Make progress for about ``timeout`` seconds at most. Return the jobs that are generated and scored."""
        self._refuse_torn()
        if self._live:
            with self._account.span(self.booking or "generation"):
                answered = [self._advance(completion) for completion in self._poll(timeout)]
                for opened in dict.fromkeys(answered):  # after the whole poll, because rollouts that finished in it are not cut
                    self._settle(opened)
            timeout = 0.0
        if not self._judging:
            return []
        with self._account.span(self.booking or "scoring"):
            return [self._produced(key, scores) for key, scores in self._judge.poll(timeout)]

    def _submit(self, requests: Sequence[Request]) -> None:
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

    def _ask(self, live: _ActiveRollout) -> Request:
        self._requests += 1
        request_id = f"{self.name}-{self._requests}"
        self._live[request_id] = live
        turn, continued = live.talk.turn, 0
        ids, sampling = turn.context_ids, turn.sampling
        if live.kept is not None:
            ids, continued = np.concatenate([ids, live.kept.token_ids]), len(live.kept.token_ids)
            sampling = replace(sampling, max_new_tokens=sampling.max_new_tokens - continued)
        noise = (*live.open.job.noise, live.index + (len(live.talk.sampled) << 32))
        group = f"{self.name}-{live.open.job.key}"
        return Request(request_id=request_id, token_ids=ids, sampling=sampling, noise=noise, continued=continued, group=group)

    def _advance(self, completion: Completion) -> _OpenGroup:
        """Pass a completion to its conversation, and return its job."""
        live = self._live.pop(completion.request_id, None)
        if live is None:
            raise RunError(f"the engine of producer {self.name} answered request {completion.request_id!r}, which is not open")
        if live.kept is not None:
            names = ("token_ids", "logprobs", "versions")
            joined: dict[str, Any] = {name: np.concatenate([getattr(live.kept, name), getattr(completion, name)]) for name in names}
            details = TokenDetails.joined([(part.details, len(part.token_ids)) for part in (live.kept, completion)])
            completion = replace(completion, details=details, **joined)
        if live.cut:
            live.open.talking -= 1
            live.open.cut_tokens += sum(len(one.token_ids) for one in (*live.talk.sampled, completion))
            return live.open
        if completion.finish is FinishReason.ABORTED:
            self._ask_again(live, completion)
            return live.open
        live.kept = None
        self._check(completion, live.talk.turn.sampling)
        live.talk.advance(completion)
        if live.talk.said is not None:
            self._keep(live, completion, live.talk.said)
        else:
            self._submit([self._ask(live)])
        return live.open

    def _settle(self, opened: _OpenGroup) -> None:
        """Cut rollouts that a job no longer needs. Pass the job to the judge once the engine has finished all of it."""
        opened.settle()
        if opened.job.spare and not opened.wanted:
            self._cut({name: live for name, live in self._live.items() if live.open is opened})
        if not opened.talking:
            self._generating -= 1
            opened.rollouts.sort(key=lambda rollout: rollout.index)
            self._judging[opened.job.key] = opened
            self._judge.submit(opened.job.key, opened.job.prompt, opened.rollouts, counted=opened.job.counted)

    def _cut(self, lives: Mapping[str, _ActiveRollout]) -> None:
        late = {name: live for name, live in lives.items() if not live.cut and live.talk.transcript.sampling.temperature > 0}
        for live in late.values():
            live.cut = True
        if late:
            with self._account.span(self.booking or "generation"), self._error_context("cancelling requests"):
                self._engine.cancel(list(late))

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

    def _ask_again(self, live: _ActiveRollout, left: Completion) -> None:
        """Ask again after a weight update aborted a request in flight.

        The same noise key requests the same draw under the new weights: for all tokens or, if the engine continues, for those after
        ``left``."""
        before, kept = len(live.kept.token_ids) if live.kept else 0, len(left.token_ids)
        if self._engine.capabilities.continues and before < kept < live.talk.turn.sampling.max_new_tokens:
            live.kept, live.aborts = left, 0
        live.aborts += 1
        if live.aborts > _MOST_ABORTS:
            raise RunError(
                f"the engine of producer {self.name} aborted one request of prompt {live.open.job.prompt.prompt_id} {live.aborts} times, "
                "more than weight updates explain; see its own log for the reason (memory, length)"
            )
        self._submit([self._ask(live)])

    def _keep(self, live: _ActiveRollout, completion: Completion, said: Dialogue) -> None:
        job = live.open.job
        live.open.talking -= 1
        live.open.fresh.append(
            Rollout(
                prompt_id=job.prompt.prompt_id,
                index=live.index,
                kind=RolloutKind.GREEDY if job.samplings[live.index].temperature == 0 else RolloutKind.SAMPLED,
                segments=said.segments,
                text=[message.content for message in said.messages if message.policy][-1],
                finish=said.finish or completion.finish,
                temperature=job.samplings[live.index].temperature,
                turns=said.messages if len(said.messages) > 1 else (),
                turn_rewards=said.turn_rewards,
                extra=said.extra,
            )
        )

    def _produced(self, key: int, scores: tuple[Score, ...]) -> ProducedGroup:
        opened = self._judging.pop(key)
        return ProducedGroup(job=opened.job, rollouts=tuple(opened.rollouts), scores=scores, cut_tokens=opened.cut_tokens)
