"""Rules of work in flight: progress, cancellation, draws that do not depend on the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlcore.contracts.types import Completion, Finish
from rlcore.testing.records import make_request
from rlcore.testing.suites.engine import EngineSuite

__all__ = ["StreamingRules"]


class StreamingRules(EngineSuite):
    """Work in flight: progress, cancellation, draws that do not depend on the batch."""

    def test_streams(self) -> None:
        """One poll makes progress without running to the end, and a later short request overtakes long ones."""
        engine = self.make()
        engine.submit(self.requests(8))
        early = {completion.request_id for completion in engine.poll(0.0)}
        assert len(early) < 8, "one poll ran eight long requests to their end: nothing could be admitted or updated meanwhile"
        engine.submit([make_request("short", self.prompts()[0], noise=99, max_new_tokens=1)])
        order = list(self.drain(engine, 9 - len(early)))
        assert order.index("short") < len(order) - 1, "a one-token request came after every long one that ran before it"

    def test_cancel(self) -> None:
        """Cancelled requests come back once, ABORTED, with the tokens they have; unknown ids are ignored; others go on untouched."""
        engine = self.make()
        requests = self.requests(8)
        alone = self.run(engine, requests)
        engine.submit(requests)
        early = {completion.request_id: completion for completion in engine.poll(0.0)}
        victims = [request.request_id for request in requests if request.request_id not in early][:3]
        engine.cancel([*victims, "no such request"])
        answers = self.drain(engine, 8 - len(early))
        for name, completion in answers.items():
            if name in victims:
                assert completion.finish is Finish.ABORTED, f"cancelled request {name!r} ended as {completion.finish}"
                if self.draws_alike(engine):
                    whole = alone[name].token_ids[: len(completion.token_ids)]
                    assert np.array_equal(completion.token_ids, whole), f"cancelled request {name!r} has other tokens than it drew"
            else:
                assert completion.finish is not Finish.ABORTED, f"request {name!r} was aborted, it was not the one cancelled"
                if self.draws_alike(engine):
                    assert np.array_equal(completion.token_ids, alone[name].token_ids), f"cancelling others changed {name!r}"
        engine.cancel(victims)
        assert engine.poll(0.0) == [], "cancelling finished requests brought them back"

    def test_noise_does_not_depend_on_batching(self) -> None:
        """Where ``counter_noise`` is declared: alone, one prompt a forward, reversed, among others, the same draws."""
        engine = self.make()
        if not self.draws_alike(engine):
            return
        requests = self.requests(9, max_new_tokens=10)
        together = self.run(engine, requests)
        narrow = self.make(prompts_per_forward=1)
        alone: dict[str, Completion] = {}
        for request in requests:
            alone |= self.run(narrow, [request])
        reversed_order = self.run(self.make(prompts_per_forward=2), requests[::-1])
        among = self.run(engine, [*self.requests(5, start=50), *requests])
        for name, completion in together.items():
            for label, other in (("alone", alone), ("in reverse", reversed_order), ("among others", among)):
                assert np.array_equal(other[name].token_ids, completion.token_ids), f"{name!r} drew other tokens {label}"
                assert np.allclose(other[name].logprobs, completion.logprobs, atol=self.tolerance), (
                    f"{name!r} has other log probabilities {label}"
                )

    def test_a_continued_request_goes_on_as_if_nothing_had_been_aborted(self) -> None:
        """After any of its tokens: the same tokens follow, with the same log probabilities, up to the same end."""
        if not self.make().capabilities.continues:
            return
        engine = self.make()
        for request in self.requests(4, max_new_tokens=8):
            whole = self.run(engine, [request])[request.request_id]
            for cut in range(1, len(whole.token_ids)):
                rest = replace(
                    request,
                    token_ids=np.concatenate([request.token_ids, whole.token_ids[:cut]]),
                    sampling=replace(request.sampling, max_new_tokens=8 - cut),
                    continued=cut,
                )
                later = self.run(engine, [rest])[request.request_id]
                label = f"{request.request_id!r} continued after {cut} tokens"
                if self.draws_alike(engine):
                    assert np.array_equal(later.token_ids, whole.token_ids[cut:]), f"{label} drew other tokens"
                    assert later.finish is whole.finish, f"{label} ended by {later.finish}, and by {whole.finish} in one piece"
                    assert np.allclose(later.logprobs, whole.logprobs[cut:], atol=self.tolerance), f"{label} has other log probabilities"
                assert cut + len(later.token_ids) <= 8, f"{label}: {len(later.token_ids)} tokens more, 8 in all are the limit"

    def test_noise_differs_between_rollouts(self) -> None:
        """Samples of one prompt are different draws."""
        engine = self.make()
        answers = self.run(engine, [make_request(f"r{n}", self.prompts()[0], noise=n, max_new_tokens=8) for n in range(8)])
        assert len({tuple(answer.token_ids.tolist()) for answer in answers.values()}) > 1, "eight samples of one prompt are all the same"

    def test_close_with_requests_in_flight(self) -> None:
        """``close`` is called also after an error."""
        engine = self.make()
        engine.submit(self.requests(4))
        engine.poll(0.0)
        engine.close()
