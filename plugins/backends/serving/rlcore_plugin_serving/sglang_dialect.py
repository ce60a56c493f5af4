"""Servers of SGLang: `python -m sglang.launch_server`; written from the sources of 0.5.23."""

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
"""A bound of top-k that cuts nothing, below the number that means no bound to SGLang."""


class SglangServer(Dialect):
    """An SGLang server. Its requests cannot stay during an update with their keys and values dropped one by one, so they are dropped and
    sent again.

    A draw depends on seed and position, so a continued request draws the same tokens as it would have.
    """

    kind = "SGLang"
    start_hint = "python -m sglang.launch_server --model-path MODEL --context-length TOKENS --enable-deterministic-inference"
    keeps = False

    def __init__(self, line: ServerClient) -> None:
        super().__init__(line)
        self._increments = False
        self._most_kept = 0

    @classmethod
    async def recognises(cls, line: ServerClient) -> bool:
        """Return whether the server reports its model as SGLang does."""
        try:
            answer = await line.order("GET", "/model_info")
        except ServerAnswerError as error:
            if error.status in (401, 403):
                raise
            return False
        return isinstance(answer, dict) and {"model_path", "weight_version"} <= set(answer)

    async def learn(self) -> ServerInfo:
        """Read its resolved arguments, and the facts that its scheduler reports."""
        told = await self.line.order("GET", "/server_info")
        self._increments = bool(told.get("incremental_streaming_output"))
        self._most_kept = int(told.get("sampling_mask_max_tokens") or 0)
        self.facts = ServerInfo(
            max_tokens=int(told["max_req_input_len"]) - 1,  # a sequence to score is a prompt, and a prompt stays below that
            takes_weights=True,  # its commands for weights are always available; a key may guard them
            seeds=bool(told.get("enable_deterministic_inference")),
            dtype=str(told.get("dtype") or "").replace("auto", ""),
        )
        return self.facts

    async def label(self) -> str:
        """Read the label from the model page."""
        return str((await self.line.order("GET", "/model_info"))["weight_version"])

    def question(self, ident: str, ask: EngineRequest) -> tuple[str, object]:
        """Return a request. For a truncated distribution it also asks for the ids that are left, since only then the log probabilities
        are those of that distribution."""
        sampling, parameters = ask.sampling, self._parameters(ask)
        cut = bool(sampling.temperature) and (sampling.top_k > 0 or sampling.top_p < 1)
        body = {"rid": ident, "input_ids": list(ask.token_ids), "sampling_params": parameters, "return_logprob": True, "stream": True}
        if cut:
            body |= {"return_sampling_mask": True}
        return "/generate", body

    def heard(self, ask: EngineRequest, message: Any, before: int) -> ServerMessage:
        """Read a message, which has the whole answer so far or only the new tokens, depending on how the server was started."""
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
                f"it reported {len(logprobs)} log probabilities of {len(new)} tokens, for an answer of {count} with {before} known"
            )
        finish = str(ending.get("type", ""))
        if finish == "stop" and ending.get("matched") not in ask.stop_token_ids:
            finish = OTHER_STOP
        if finish == "abort" and ending.get("status_code"):
            finish = f"error: {ending.get('message')}"  # the server refused the request; no command dropped it
        spans = told.get("weight_versions") or [{"version": told["weight_version"], "start": 0, "end": count}]
        labels = tuple(LabelSpan(str(span["version"]), span["end"] - span["start"]) for span in spans) if finish else ()
        return ServerMessage(new, [math.nan if value is None else value for value in logprobs], finish, labels)

    def unsupported(self, ask: EngineRequest) -> str:
        """Refuse top-k with top-p, because SGLang applies both to the same probabilities, and truncation beyond the server's own bound."""
        sampling = ask.sampling
        if not sampling.temperature:
            return ""
        if sampling.top_k > 0 and sampling.top_p < 1:
            return "top_k with top_p; SGLang applies both to the same probabilities, but rlcore applies top_p after top_k; type only one"
        if _kept(sampling, self.vocabulary) > self._most_kept:
            return (
                f"top_k {sampling.top_k}, top_p {sampling.top_p:g}; SGLang reports log probabilities of what it samples only with top_k "
                f"up to --sampling-mask-max-tokens ({self._most_kept}); type a smaller --top-k, or start the server with a larger bound"
            )
        return ""

    async def knows_token(self, token: int) -> bool:
        """Ask for the log probability of the token: SGLang refuses it for an unknown token."""
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
        """Drop the requests one by one: SGLang drops all requests whose name begins with the given one, so no name may be a prefix of
        another."""
        for ident in idents:
            await self.line.order("POST", "/abort_request", {"rid": ident})

    async def score(self, ident: str, token_ids: Sequence[int]) -> tuple[np.ndarray, str]:
        """Return the prompt's own log probabilities, from its first token on, so that no cache is used."""
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
            raise ServerGoneError(f"it reported {len(scores)} log probabilities of a prompt of {len(token_ids)} tokens")
        return np.array(scores, np.float32), str(told["weight_version"])

    # --- weights -------------------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Do nothing: all requests were dropped, and none is sent."""

    async def load(self, folder: str, label: str) -> None:
        """Load the folder; the cache is emptied with the old weights. SGLang waits until requests have ended, which they have."""
        body = {"model_path": folder, "flush_cache": True, "weight_version": label, "abort_all_requests": False}
        answer = await self.line.order("POST", "/update_weights_from_disk", body, admin=True)
        if not answer["success"]:
            raise ServerAnswerError("/update_weights_from_disk", 400, str(answer["message"]))

    async def resume(self) -> None:
        """Do nothing: ``load`` has emptied the cache, and the server holds nothing back."""

    async def checksums(self) -> dict[str, str]:
        """Return a checksum of each tensor on each rank."""
        answer = await self.line.order("POST", "/weights_checker", {"action": "checksum"}, admin=True)
        ranks = enumerate(answer.get("ranks") or ())
        return {f"{rank}:{name}": digest for rank, told in ranks for name, digest in told["checksums"].items()}

    def _parameters(self, ask: EngineRequest) -> dict[str, Any]:
        sampling = ask.sampling
        parameters: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            # All tokens, not -1: SGLang draws by the places of sorted tokens if one request of a batch has such a bound, and otherwise by
            # token ids. The draws of a request would then depend on the other requests in its batch (layers/sampler.py).
            "top_k": _kept(sampling, self.vocabulary) or _ALL,
            "max_new_tokens": ask.max_tokens,
            "stop_token_ids": list(ask.stop_token_ids) or None,
            "ignore_eos": not ask.stop_token_ids,  # this also ignores stop_token_ids
            "skip_special_tokens": False,
        }
        if sampling.temperature:
            parameters["sampling_seed"] = ask.seed
        return parameters


def _kept(sampling: Sampling, vocabulary: int) -> int:
    """Return how many tokens top-k or top-p may keep; 0 if nothing is cut."""
    return min(sampling.top_k or vocabulary, vocabulary) if sampling.top_k or sampling.top_p < 1 else 0
