"""Engines with one planted bug each in what they answer, draw, keep and leave behind."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from multiprocessing.shared_memory import SharedMemory
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from suites_of_fakes import CHARACTERS

from rlcore.contracts.errors import RunError
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import Completion, Finish, Request, TokenDetails
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

    def _ended(self, running: Any) -> Finish | None:
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
        if not request.sampling.stop or answer.finish is not Finish.STOP or answer.token_ids[-1] in TOKENIZER.stop_ids:
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
        if request.sampling.top_p == 1.0 and not request.sampling.top_k:
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

    def _ended(self, running: Any) -> Finish | None:
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


@dataclass(frozen=True)
class Bug:
    """An engine, the rule that must find what is wrong with it, what the rule must say, and how the suite that points at it is set."""

    engine: type[FakeInference]
    rule: str
    says: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


RESUMES, CONTINUES, TELLS = {"in_flight": InFlight.RESUME}, {"in_flight": InFlight.ABORT, "continues": True}, {"tells": True}
HURRIES = {"deadline": 0.3}

ENGINES = [
    Bug(DeclaresLoosely, "test_capabilities_are_declared", "must be an InferenceCapabilities"),
    Bug(KeepsAnswersForLater, "test_poll_of_an_idle_engine_returns_nothing"),
    Bug(CancelsAllForNone, "test_an_empty_list_of_requests_is_nothing", r"cancel\(\[\]\) aborted a request"),
    Bug(StopsOneEarly, "test_length_and_finish", "finish is length after 5 tokens of 6"),
    Bug(NeedsTwoTokens, "test_one_token_is_an_answer", "2 tokens where 1 are the limit"),
    Bug(TakesTheLongestLimit, "test_each_request_has_its_own_limit", "6 tokens where [12] are the limit"),
    Bug(CutsLongContexts, "test_refuses_a_context_that_leaves_no_room", "submit took a context of 64 tokens"),
    Bug(TakesHalfASubmit, "test_refuses_a_context_that_leaves_no_room"),
    Bug(OverrunsItsRoom, "test_an_answer_ends_where_the_room_ends", "where [123] are the limit"),
    Bug(DropsStopString, "test_stop_strings", "neither a stop token nor the stop string"),
    Bug(ReadsItsAnswers, "test_token_ids_are_not_read_as_text", "they were read as text"),
    Bug(ReadsItsContexts, "test_token_ids_are_not_read_as_text", "whose context does not survive"),
    Bug(ScoresInDouble, "test_score_is_a_log_probability", "scores are float64"),
    Bug(LogprobsOffByOne, "test_logprobs_are_those_of_score", "off by"),
    Bug(ServesAnotherModel, "test_score_is_the_trainers_forward_pass", "nats from the trainer's"),
    Bug(LogprobsBeforeTemperature, "test_logprobs_are_at_the_sampling_temperature", "temperature alone at temperature 0.5"),
    Bug(ScoresBeforeTheCut, "test_top_p_keeps_the_likeliest_tokens", "over what is kept it is"),
    Bug(ScoresBeforeTheCut, "test_top_k_keeps_the_likeliest_tokens", "over what is kept it is"),
    Bug(IgnoresTopP, "test_top_p_keeps_the_likeliest_tokens"),
    Bug(KeepsOneMore, "test_top_k_keeps_the_likeliest_tokens"),
    Bug(TellsTheVocabulary, "test_kept_sets_are_what_was_drawn_from", "and the set is told as", TELLS),
    Bug(TellsTheTokenBefore, "test_kept_sets_are_what_was_drawn_from", "", TELLS),
    Bug(DrawsAnew, "test_noise_repeats", "asked twice with one noise"),
    Bug(SeedsAddUp, "test_no_two_requests_share_a_stream", "draw the same 8 tokens"),
    Bug(SeedsOfThirtyTwoBits, "test_no_two_requests_share_a_stream", "draw the same 8 tokens"),
    Bug(KeepsThePlace, "test_a_cancelled_request_frees_its_place", "were never answered"),
    Bug(RemembersAborted, "test_an_aborted_request_can_be_asked_again", "comes back aborted"),
    Bug(ContinuesFromTheFirstNumber, "test_a_continued_request_goes_on_as_if_nothing_had_been_aborted", "drew other tokens", CONTINUES),
    Bug(ForgetsWhatItPrinted, "test_a_stop_string_may_begin_in_what_is_continued", "was not seen", CONTINUES),
    Bug(HangsInPoll, "test_every_call_comes_back_in_time", "poll takes longer than the deadline", HURRIES),
    Bug(HangsInClose, "test_every_call_comes_back_in_time", "close takes longer than the deadline", HURRIES),
    Bug(StartsAtOne, "test_serves_version_zero_first"),
    Bug(CountsVersions, "test_update_serves_the_new_weights", "update to version 5 reports 2"),
    Bug(CountsVersions, "test_a_late_engine_takes_the_newest_version"),
    Bug(CopiesItsHead, "test_after_an_update_it_is_the_trainers_model", "nats from the trainer's"),
    Bug(BlendsVersions, "test_an_update_is_a_fresh_engine", "score differently"),
    Bug(ServesTheOldOnceMore, "test_update_serves_the_new_weights", "log probabilities after the update"),
    Bug(KeepsItsPrefixes, "test_no_cached_prefix_outlives_an_update", "keys and values of the old weights were used"),
    Bug(ResumesOnOldKeys, "test_resumed_tokens_are_of_the_new_weights_alone", "labels version 1", RESUMES),
    Bug(ClosesIdleAlone, "test_close_with_requests_in_flight", "the engine is busy"),
    Bug(LeavesAProcess, "test_close_leaves_nothing_behind", "there is still process"),
    Bug(LeavesAPort, "test_close_leaves_nothing_behind", "there is still listening port"),
    Bug(LeavesMemory, "test_close_leaves_nothing_behind", "there is still shared memory"),
]

ALSO = {
    "KeepsAnswersForLater": "cancel",
    "NeedsTwoTokens": "each_request_has_its_own_limit",
    "TakesTheLongestLimit": "noise_does_not_depend_on_batching",
    "CutsLongContexts": "an_answer_ends_where_the_room_ends",
    "ReadsItsContexts": "no_cached_prefix_outlives_an_update",
    "ContinuesFromTheFirstNumber": "a_stop_string_may_begin_in_what_is_continued",
    "HangsInClose": "close_leaves_nothing_behind close_with_requests_in_flight serves_nothing_between_sleep_and_update",
    "StartsAtOne": "an_update_that_breaks_off_serves_nothing_torn refuses_a_snapshot_that_is_not_whole refuses_a_tensor_of_another_shape "
    "update_with_requests_in_flight",
    "ServesTheOldOnceMore": "after_an_update_it_is_the_trainers_model no_cached_prefix_outlives_an_update",
    "RunsToTheEnd": "update_with_requests_in_flight",
    "DropsStopToken": "an_answer_ends_where_the_room_ends one_token_is_an_answer stop_strings",
    "ForgetsCancelled": "a_cancelled_request_frees_its_place an_aborted_request_can_be_asked_again",
    "LabelsByNewest": "resumed_tokens_are_of_the_new_weights_alone",
    "KeepsTheLastBucket": "an_update_keeps_nothing_of_a_bucket names_a_tensor_that_did_not_come",
    "NamesNoTensor": "refuses_a_tensor_of_another_shape",
    "SwapsHalf": "refuses_a_bucket_that_comes_twice",
    "ServesTorn": "names_a_tensor_that_did_not_come serves_nothing_between_sleep_and_update",
    "JoinsOnce": "the_spec_declares_the_capabilities_of_the_class",
    "TakesNothing": "after_an_update_it_is_the_trainers_model every_tensor_is_taken the_spec_declares_the_capabilities_of_the_class "
    "update_serves_the_new_weights",
    "faulty-stale": "after_an_update_it_is_the_trainers_model every_tensor_is_taken",
    "faulty-partial": "after_an_update_it_is_the_trainers_model",
}
"""What else a bug breaks that has one rule of its own: other rules go through the same place."""
BASIC = {
    "ReadsItsAnswers": "every answer is another",
    "ServesAnotherModel": "every log probability is another",
    "DrawsAnew": "no draw is repeated",
    "SharesNoise": "no draw is repeated",
    "IgnoresNoise": "all draws are one",
    "HangsInPoll": "whoever polls waits",
    "CountsVersions": "versions are wrong after every update",
    "BlendsVersions": "weights are wrong after every update",
    "faulty-behind": "versions are wrong after every update",
    "faulty-torn": "it dies in its second update",
    "faulty-loses": "an answer is missing everywhere",
    "faulty-repeats": "an answer comes twice everywhere",
}
"""Bugs in what most rules go through: they are found by more than their own."""
