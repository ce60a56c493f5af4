"""Servers of SGLang: `python -m sglang.launch_server`; written by the sources of 0.5.23."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlcore.api import Sampling
from rlcore_plugin_serving.dialect import Dialect, LabelSpan, ServerInfo, ServerMessage
from rlcore_plugin_serving.partial_completions import OTHER_STOP
from rlcore_plugin_serving.server_client import ServerAnswerError, ServerClient, ServerGoneError
from rlcore_plugin_serving.serving_engine import EngineRequest

__all__ = ["SglangServer"]

_ALL = 1 << 29
"""A bound of top-k that cuts nothing, below the number by which SGLang knows that there is none."""


class SglangServer(Dialect):
    """Its requests cannot stay over an update with their keys and values forgotten one by one, so they are dropped and asked for again. A
    draw depends on seed and position, so what goes on draws as it would have."""

    kind = "SGLang"
    start_hint = "python -m sglang.launch_server --model-path MODEL --context-length TOKENS --enable-deterministic-inference"
    keeps = False

    def __init__(self, line: ServerClient) -> None:
        super().__init__(line)
        self._increments = False
        self._most_kept = 0

    @classmethod
    async def recognises(cls, line: ServerClient) -> bool:
        """By what it tells of its model."""
        try:
            answer = await line.order("GET", "/model_info")
        except ServerAnswerError as error:
            if error.status in (401, 403):
                raise
            return False
        return isinstance(answer, dict) and {"model_path", "weight_version"} <= set(answer)

    async def learn(self) -> ServerInfo:
        """Its arguments as they were resolved, with what its scheduler tells."""
        told = await self.line.order("GET", "/server_info")
        self._increments = bool(told.get("incremental_streaming_output"))
        self._most_kept = int(told.get("sampling_mask_max_tokens") or 0)
        self.facts = ServerInfo(
            max_tokens=int(told["max_req_input_len"]) - 1,  # what it scores is a prompt, and a prompt stays below that
            takes_weights=True,  # its orders for weights are always there; a key may guard them
            seeds=bool(told.get("enable_deterministic_inference")),
            dtype=str(told.get("dtype") or "").replace("auto", ""),
        )
        return self.facts

    async def label(self) -> str:
        """As its model page says."""
        return str((await self.line.order("GET", "/model_info"))["weight_version"])

    def question(self, ident: str, ask: EngineRequest) -> tuple[str, object]:
        """Log probabilities of a distribution that is cut come with the ids that are left, for which it wants a bound."""
        sampling, parameters = ask.sampling, self._parameters(ask)
        cut = bool(sampling.temperature) and (sampling.top_k > 0 or sampling.top_p < 1)
        body = {"rid": ident, "input_ids": list(ask.token_ids), "sampling_params": parameters, "return_logprob": True, "stream": True}
        if cut:
            body |= {"return_sampling_mask": True}
        return "/generate", body

    def heard(self, ask: EngineRequest, message: Any, before: int) -> ServerMessage:
        """Each message has the whole answer so far, or what is new, as the server was started."""
        if "error" in message:
            raise ServerGoneError(f"it broke off an answer: {str(message['error'])[:300]}")
        told, tokens = message["meta_info"], list(message["output_ids"] or ())
        ending = told.get("finish_reason") or {}
        count = int(told["completion_tokens"])
        values = told.get("output_token_sampling_logprobs")
        if values is None:
            values = [entry[0] for entry in told.get("output_token_logprobs") or ()]
        whole = not self._increments or len(values) == count  # an abort brings all of them, whatever the mode
        new, logprobs = (tokens[-(count - before) :] if count > before else []), values[before:count] if whole else values
        if not len(new) == len(logprobs) == max(0, count - before):
            raise ServerGoneError(
                f"it told {len(logprobs)} log probabilities of {len(new)} tokens, of an answer of {count} with {before} known"
            )
        finish = str(ending.get("type", ""))
        if finish == "stop" and ending.get("matched") not in ask.stop_token_ids:
            finish = OTHER_STOP
        if finish == "abort" and ending.get("status_code"):
            finish = f"error: {ending.get('message')}"  # it refused the request, and nobody dropped it
        spans = told.get("weight_versions") or [{"version": told["weight_version"], "start": 0, "end": count}]
        labels = tuple(LabelSpan(str(span["version"]), span["end"] - span["start"]) for span in spans) if finish else ()
        return ServerMessage(new, [math.nan if value is None else value for value in logprobs], finish, labels)

    def unsupported(self, ask: EngineRequest) -> str:
        """It cuts by top-p what top-k has not renormalised, and tells the cut distribution only within a bound of its own."""
        sampling = ask.sampling
        if not sampling.temperature:
            return ""
        if sampling.top_k > 0 and sampling.top_p < 1:
            return "top_k with top_p; SGLang cuts both of the same probabilities, and rlcore top_p of what top_k leaves; type one of them"
        if _kept(sampling, self.vocabulary) > self._most_kept:
            return (
                f"top_k {sampling.top_k}, top_p {sampling.top_p:g}; SGLang tells log probabilities of what it samples from only with top_k "
                f"up to --sampling-mask-max-tokens ({self._most_kept}); type a smaller --top-k, or start the server with a larger bound"
            )
        return ""

    async def knows_token(self, token: int) -> bool:
        """It refuses a log probability of a token that it does not know."""
        body = {
            "input_ids": [0],
            "sampling_params": {"max_new_tokens": 1, "ignore_eos": True},
            "return_logprob": True,
            "token_ids_logprob": [token],
        }
        try:
            await self.line.ask("/generate", body)
        except ServerAnswerError as error:
            if error.status == 400:
                return False
            raise
        return True

    async def drop(self, idents: Iterable[str]) -> None:
        """One by one: it takes a name that begins like others for all of them, so names must not."""
        for ident in idents:
            await self.line.order("POST", "/abort_request", {"rid": ident})

    async def score(self, ident: str, token_ids: Sequence[int]) -> tuple[np.ndarray, str]:
        """The prompt's own log probabilities; from its first token on, so that no cache is used."""
        body = {
            "rid": ident,
            "input_ids": list(token_ids),
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": 0,
        }
        told = (await self.line.ask("/generate", body))["meta_info"]
        scores = [entry[0] for entry in told["input_token_logprobs"][1:]]
        if len(scores) != len(token_ids) - 1:
            raise ServerGoneError(f"it told {len(scores)} log probabilities of a prompt of {len(token_ids)} tokens")
        return np.array(scores, np.float32), str(told["weight_version"])

    # --- weights -------------------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Nothing runs, since all requests were dropped, and none is sent."""

    async def load(self, folder: str, label: str) -> None:
        """It answers success and message; the cache is emptied with the old weights. It waits for requests to end, and they have."""
        body = {"model_path": folder, "flush_cache": True, "weight_version": label, "abort_all_requests": False}
        answer = await self.line.order("POST", "/update_weights_from_disk", body, admin=True)
        if not answer["success"]:
            raise ServerAnswerError("/update_weights_from_disk", 400, str(answer["message"]))

    async def resume(self) -> None:
        """``load`` has emptied its cache, and nothing is held back there."""

    async def checksums(self) -> dict[str, str]:
        """Of each tensor on each rank."""
        answer = await self.line.order("POST", "/weights_checker", {"action": "checksum"}, admin=True)
        ranks = enumerate(answer.get("ranks") or ())
        return {f"{rank}:{name}": digest for rank, told in ranks for name, digest in told["checksums"].items()}

    def _parameters(self, ask: EngineRequest) -> dict[str, Any]:
        sampling = ask.sampling
        parameters: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            # Of all tokens, not -1: SGLang draws by places of sorted tokens if one request of a batch has such a bound, and else by
            # their ids, so what a request draws would depend on its neighbours (layers/sampler.py).
            "top_k": _kept(sampling, self.vocabulary) or _ALL,
            "max_new_tokens": ask.max_tokens,
            "stop_token_ids": list(ask.stop_token_ids) or None,
            "ignore_eos": not ask.stop_token_ids,  # which are ignored with it
            "skip_special_tokens": False,
        }
        if sampling.temperature:
            parameters["sampling_seed"] = ask.seed
        return parameters


def _kept(sampling: Sampling, vocabulary: int) -> int:
    """How many tokens top-k or top-p may keep; 0 if nothing is cut."""
    return min(sampling.top_k or vocabulary, vocabulary) if sampling.top_k or sampling.top_p < 1 else 0
