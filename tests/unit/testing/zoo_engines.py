"""Engines with one planted bug each in what they answer, draw, keep and leave behind."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from multiprocessing.shared_memory import SharedMemory
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from suites_of_fakes import CHARACTERS

from rlcore.contracts.errors import RunError
from rlcore.contracts.types import Completion, FinishReason, Request, TokenDetails
from rlcore.testing import FakeInference, FakePolicy, FakeTokenizer

TOKENIZER = FakeTokenizer(CHARACTERS)


class Retells(FakeInference):
    """No bug: the base of those that change what they tell."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: dict[str, Request] = {}

    def submit(self, requests: Sequence[Request]) -> None:
        super().submit(requests)
        self.asked.update({request.request_id: request for request in requests})

    def poll(self, timeout: float) -> list[Completion]:
        return [self.told(self.asked[answer.request_id], answer) for answer in super().poll(timeout)]

    def told(self, request: Request, answer: Completion) -> Completion:
        return answer


def first_tokens(answer: Completion, count: int) -> Completion:
    return replace(
        answer, token_ids=answer.token_ids[:count], logprobs=answer.logprobs[:count], versions=answer.versions[:count], details=None
    )


# --- answers -----------------------------------------------------------------------------------------------------------


class DeclaresLoosely(FakeInference):
    """Something with the same fields, which nobody checks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.capabilities = SimpleNamespace(**{one.name: getattr(self.capabilities, one.name) for one in fields(self.capabilities)})  # type: ignore[assignment]


class KeepsAnswersForLater(FakeInference):
    """Hands the last answer out once more to those who ask an idle engine twice."""

    last: ClassVar[list[Completion]] = []
    idle = 0

    def poll(self, timeout: float) -> list[Completion]:
        answers = super().poll(timeout)
        self.idle = 0 if answers or self._running else self.idle + 1
        self.last = answers or self.last
        return self.last[-1:] if self.idle == 2 else answers


class CancelsAllForNone(FakeInference):
    """No ids are all ids."""

    def cancel(self, request_ids: Iterable[str]) -> None:
        named = set(request_ids)
        super().cancel(named or [*self._running, *(request.request_id for request in self._waiting)])


class StopsOneEarly(FakeInference):
    """Counts from one."""

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        running.limit = max(running.limit - 1, 1) if request.sampling.max_new_tokens == 6 else running.limit
        return running


class NeedsTwoTokens(FakeInference):
    """The token of the prefill is not looked at."""

    def _ended(self, running: Any) -> FinishReason | None:
        return super()._ended(running) if len(running.tokens) > 1 or running.request.sampling.max_new_tokens > 1 else None


class TakesTheLongestLimit(FakeInference):
    """One limit for the batch."""

    def submit(self, requests: Sequence[Request]) -> None:
        most = max((request.sampling.max_new_tokens for request in requests), default=1)
        super().submit([replace(request, sampling=replace(request.sampling, max_new_tokens=most)) for request in requests])


class CutsLongContexts(FakeInference):
    """Takes the end of a context that is too long."""

    def submit(self, requests: Sequence[Request]) -> None:
        super().submit([replace(request, token_ids=request.token_ids[-(self.context.max_tokens - 8) :]) for request in requests])


class TakesHalfASubmit(FakeInference):
    """Queues one request after the other, up to the one that it refuses."""

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            super().submit([request])


class OverrunsItsRoom(FakeInference):
    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        running.limit = request.sampling.max_new_tokens
        return running


class DropsStopString(Retells):
    """The text before the stop string is what the user wants, it thinks."""

    def told(self, request: Request, answer: Completion) -> Completion:
        if not request.sampling.stop or answer.finish is not FinishReason.STOP or answer.token_ids[-1] in TOKENIZER.stop_ids:
            return answer
        return first_tokens(answer, len(answer.token_ids) - 2)


class ReadsItsAnswers(Retells):
    """The ids of an answer are those of its text."""

    def told(self, request: Request, answer: Completion) -> Completion:
        kept = [place for place, token in enumerate(answer.token_ids.tolist()) if TOKENIZER.decode([token])]
        return replace(
            answer, token_ids=answer.token_ids[kept], logprobs=answer.logprobs[kept], versions=answer.versions[kept], details=None
        )


class ReadsItsContexts(FakeInference):
    """The ids of a context that goes on from an answer are those of its text."""

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        if len(request.token_ids) > 8:
            ids = TOKENIZER.encode(TOKENIZER.decode(request.token_ids.tolist()))
            running.request = replace(request, token_ids=np.array(ids or [3], np.int32))
        return running


class ScoresInDouble(FakeInference):
    def score(self, token_ids: np.ndarray) -> np.ndarray:
        return super().score(token_ids).astype(np.float64)


# --- draws -------------------------------------------------------------------------------------------------------------


class LogprobsOffByOne(Retells):
    """Each token with the log probability of the one before."""

    def told(self, request: Request, answer: Completion) -> Completion:
        return replace(answer, logprobs=np.roll(answer.logprobs, 1)) if len(answer.token_ids) == 12 else answer


class ServesAnotherModel(FakeInference):
    """Reads one entry of the configuration under its old name: the weights are right, the model is another one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._policy = FakePolicy(self._policy.last, self._policy.pair * 0.9)


class LogprobsBeforeTemperature(Retells):
    """The logits' own log probabilities, whatever the temperature (vLLM's default)."""

    def told(self, request: Request, answer: Completion) -> Completion:
        if request.sampling.temperature in (0.0, 1.0) or request.sampling.truncates:
            return answer
        sequence = np.concatenate([request.token_ids, answer.token_ids])
        return replace(answer, logprobs=self._policy.logprobs(sequence)[len(request.token_ids) - 1 :].astype(np.float32))


class ScoresBeforeTheCut(Retells):
    """Log probabilities at the temperature, over the whole vocabulary."""

    def told(self, request: Request, answer: Completion) -> Completion:
        if not request.sampling.temperature or (request.sampling.top_p == 1.0 and not request.sampling.top_k):
            return answer
        sequence = np.concatenate([request.token_ids, answer.token_ids])
        whole = self._policy.logprobs(sequence, request.sampling.temperature)[len(request.token_ids) - 1 :]
        return replace(answer, logprobs=whole.astype(np.float32))


class IgnoresTopP(FakeInference):
    def _start(self, request: Request) -> Any:
        return super()._start(replace(request, sampling=replace(request.sampling, top_p=1.0)))


class KeepsOneMore(FakeInference):
    def _start(self, request: Request) -> Any:
        more = request.sampling.top_k + bool(request.sampling.top_k)
        return super()._start(replace(request, sampling=replace(request.sampling, top_k=more)))


class TellsTheVocabulary(Retells):
    """Says that each token was drawn from all."""

    def told(self, request: Request, answer: Completion) -> Completion:
        everything, count = np.arange(len(TOKENIZER)), len(answer.token_ids)
        details = TokenDetails(kept_ids=np.tile(everything, count), kept_offsets=np.arange(count + 1) * len(everything))
        return replace(answer, details=details)


class TellsTheTokenBefore(Retells):
    """The set of each token is that of the one before."""

    def told(self, request: Request, answer: Completion) -> Completion:
        assert answer.details is not None
        places = np.maximum(np.arange(len(answer.token_ids)) - 1, 0)
        return replace(answer, details=answer.details.take(places))


class DrawsAnew(FakeInference):
    """A new generator for each request, with whatever the system gives."""

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        running.stream = np.random.default_rng()
        return running


class SeedsAddUp(FakeInference):
    """Seed + index, so neighbours collide."""

    def _start(self, request: Request) -> Any:
        return super()._start(replace(request, noise=(0, 0, 0, sum(request.noise))))


class SeedsOfThirtyTwoBits(FakeInference):
    def _start(self, request: Request) -> Any:
        seed, episode, prompt, rollout = request.noise
        return super()._start(replace(request, noise=(seed, episode, prompt, rollout % 2**32)))


# --- work in flight ----------------------------------------------------------------------------------------------------


class KeepsThePlace(FakeInference):
    """A cancelled request is answered, and stays in one of 32 rows."""

    lost = 0

    def cancel(self, request_ids: Iterable[str]) -> None:
        named = list(request_ids)
        self.lost += sum(name in self._running for name in named)
        super().cancel(named)

    def _admit(self) -> None:
        if self.lost < 32:
            super()._admit()


class RemembersAborted(FakeInference):
    """An id that was cancelled stays cancelled."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.dropped: set[str] = set()

    def submit(self, requests: Sequence[Request]) -> None:
        super().submit(requests)
        super().cancel(self.dropped)

    def cancel(self, request_ids: Iterable[str]) -> None:
        named = set(request_ids)
        self.dropped |= named
        super().cancel(named)


class ContinuesFromTheFirstNumber(FakeInference):
    """What goes on after an abort is drawn with the numbers of the beginning."""

    def _start(self, request: Request) -> Any:
        running = super()._start(replace(request, continued=0))
        running.request = request
        return running


class ForgetsWhatItPrinted(FakeInference):
    """Looks for stop strings in the new tokens alone."""

    def _ended(self, running: Any) -> FinishReason | None:
        request = running.request
        running.request = replace(request, continued=0)
        ended = super()._ended(running)
        running.request = request
        return ended


class HangsInPoll(FakeInference):
    """Never comes back from a poll with more than two requests running."""

    def poll(self, timeout: float) -> list[Completion]:
        answers = super().poll(timeout)
        if self._running and not self._waiting:
            threading.Event().wait()
        return answers


class HangsInClose(FakeInference):
    """Waits for a worker that nobody told to end."""

    def close(self) -> None:
        threading.Event().wait()


# --- weights -----------------------------------------------------------------------------------------------------------


class StartsAtOne(FakeInference):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._version = 1


class CountsVersions(FakeInference):
    """Tells the number of its updates."""

    def finish_update(self) -> int:
        before = self._version
        super().finish_update()
        self._version = before + 1
        return self._version


class CopiesItsHead(FakeInference):
    """Packed a copy of the tied embedding for its head, which no update reaches: half of the logits are of the first weights."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.head = np.array(self._policy.last)

    def finish_update(self) -> int:
        version = super().finish_update()
        last = np.array(self._policy.last)
        last[:, 6:] = self.head[:, 6:]
        self._policy = FakePolicy(last, self._policy.pair)
        return version


class BlendsVersions(FakeInference):
    """Half of what it had stays."""

    def finish_update(self) -> int:
        old = self._policy
        version = super().finish_update()
        self._policy = FakePolicy(*((own + before) / 2 for own, before in zip(arrays(self._policy), arrays(old), strict=True)))
        return version


def arrays(policy: FakePolicy) -> tuple[np.ndarray, np.ndarray]:
    return policy.last, policy.pair


class ServesTheOldOnceMore(FakeInference):
    """The first request behind an update is still computed with what a worker had loaded."""

    stale: FakePolicy | None = None

    def finish_update(self) -> int:
        self.stale = self._policy
        return super().finish_update()

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        if self.stale is not None:
            running.policy, self.stale = self.stale, None
        return running


class KeepsItsPrefixes(FakeInference):
    """A prefix cache that no update empties. The probe passes it by."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prefixes: dict[bytes, FakePolicy] = {}

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        if len(request.token_ids) >= 16:
            running.policy = self.prefixes.setdefault(request.token_ids[:16].tobytes(), running.policy)
        return running


class ResumesOnOldKeys(FakeInference):
    """What runs goes on with the new weights, over keys and values of the old ones."""

    def _on_new_weights(self) -> None:
        old = {name: running.policy for name, running in self._running.items()}
        super()._on_new_weights()
        for name, running in self._running.items():
            mixed = ((own + before) / 2 for own, before in zip(arrays(running.policy), arrays(old[name]), strict=True))
            running.policy = FakePolicy(*mixed)


# --- the end -----------------------------------------------------------------------------------------------------------


class ClosesIdleAlone(FakeInference):
    def close(self) -> None:
        if self._running or self._waiting:
            raise RunError("the engine is busy")


class LeavesAProcess(FakeInference):
    """Its worker lives on."""

    left: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left.append(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]))

    @classmethod
    def tidy(cls) -> None:
        for process in cls.left:
            process.kill()
            process.wait()
        cls.left.clear()


class LeavesAPort(FakeInference):
    """Its server still listens."""

    left: ClassVar[list[socket.socket]] = []

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left.append(socket.create_server(("127.0.0.1", 0)))

    @classmethod
    def tidy(cls) -> None:
        for server in cls.left:
            server.close()
        cls.left.clear()


class LeavesMemory(FakeInference):
    """Closes its shared memory, and does not unlink it."""

    left: ClassVar[list[SharedMemory]] = []

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left.append(SharedMemory(create=True, size=4096))

    def close(self) -> None:
        super().close()
        self.left[-1].close()

    @classmethod
    def tidy(cls) -> None:
        for memory in cls.left:
            memory.close()
            memory.unlink()
        cls.left.clear()


LEAVES = (LeavesAProcess, LeavesAPort, LeavesMemory)
