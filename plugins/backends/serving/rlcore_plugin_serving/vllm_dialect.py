"""Servers of vLLM: `vllm serve` with its token endpoints, and with its development endpoints if it takes weights; 0.32 was tested."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcore_plugin_serving.dialect import Dialect, LabelSpan, ServerInfo, ServerMessage
from rlcore_plugin_serving.joined_transfer import FINISH, INIT, START
from rlcore_plugin_serving.server_client import ServerAnswerError, ServerClient, ServerGoneError
from rlcore_plugin_serving.serving_engine import EngineRequest

__all__ = ["VllmServer"]

_GENERATE = "/inference/v1/generate"
_PREFIX = "generate-tokens-"
"""What the server puts before the id of a request; its orders name requests by the whole."""
_NOT_FINITE = -9999.0
"""What it writes for a log probability that JSON cannot carry."""
_COLDEST, _HOTTEST = 0.01, 2.0
"""It raises a lower temperature, and refuses a higher one (vllm/sampling_params.py)."""


class VllmServer(Dialect):
    """Its scheduler keeps requests over an update, and computes their keys and values again."""

    kind = "vLLM"
    start_hint = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs --max-model-len TOKENS"
    keeps = True

    @classmethod
    async def recognises(cls, line: ServerClient) -> bool:
        """Only vLLM answers /version with a version alone."""
        try:
            answer = await line.order("GET", "/version")
        except ServerAnswerError as error:
            if error.status in (401, 403):
                raise
            return False
        return isinstance(answer, dict) and set(answer) == {"version"}

    async def learn(self) -> ServerInfo:
        """Models, and whether the development endpoints are there."""
        (model, *_) = (await self.line.order("GET", "/v1/models"))["data"]
        open_for_weights, dtype = True, ""
        try:
            if (await self.line.order("GET", "/is_paused"))["is_paused"]:
                await self.resume()  # whoever paused it is gone: a server belongs to one producer
            told = await self.line.order("GET", "/server_info", params={"config_format": "json"})
            transfer = told["vllm_config"].get("weight_transfer_config")
            if isinstance(transfer, dict) and transfer.get("backend") == "nccl":
                self.transfers = frozenset({"host", "vllm_nccl"})
            dtype = str(told["vllm_config"]["model_config"]["dtype"]).removeprefix("torch.")
        except ServerAnswerError as error:
            if error.status != 404:
                raise
            open_for_weights = False
        self.facts = ServerInfo(max_tokens=int(model["max_model_len"]), takes_weights=open_for_weights, seeds=True, dtype=dtype)
        return self.facts

    async def label(self) -> str:
        """By an answer of one token, which every server gives."""
        body = {"token_ids": [0], "sampling_params": {"max_tokens": 1, "ignore_eos": True, "detokenize": False}}
        return _label((await self.line.ask(_GENERATE, body))["choices"][0])

    def question(self, ident: str, ask: EngineRequest) -> tuple[str, object]:
        """Its SamplingParams, which the server takes as they are."""
        sampling = ask.sampling
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": ask.seed if sampling.temperature else None,
            "max_tokens": ask.max_tokens,
            "stop_token_ids": list(ask.stop_token_ids),
            "ignore_eos": True,  # the tokenizer says what ends an answer, not the model's configuration
            "logprobs": 0,
            "detokenize": False,
        }
        return _GENERATE, {"request_id": ident, "token_ids": list(ask.token_ids), "stream": True, "sampling_params": parameters}

    def heard(self, ask: EngineRequest, message: Any, before: int) -> ServerMessage:
        """Tokens come one message a step, versions with the last."""
        if "error" in message:
            raise ServerGoneError(f"it broke off an answer: {str(message['error'])[:300]}")
        if not message["choices"]:
            return ServerMessage()
        (choice,) = message["choices"]
        tokens = choice["token_ids"] or []
        entries = (choice["logprobs"] or {}).get("content") or []
        if [entry["token_id"] for entry in entries] != tokens:
            raise ServerGoneError(f"it told {len(entries)} log probabilities of {len(tokens)} tokens")
        logprobs = [entry["logprob"] if entry["logprob"] > _NOT_FINITE else math.nan for entry in entries]
        spans = tuple(LabelSpan(span["version"], span["end"] - span["start"]) for span in choice["weight_versions"] or ())
        return ServerMessage(tokens, logprobs, choice["finish_reason"] or "", spans)

    def unsupported(self, ask: EngineRequest) -> str:
        """Temperatures alone."""
        temperature = ask.sampling.temperature
        if temperature == 0 or _COLDEST <= temperature <= _HOTTEST:
            return ""
        return f"temperature {temperature:g}; vLLM samples at {_COLDEST:g} to {_HOTTEST:g}, and greedily at 0"

    async def knows_token(self, token: int) -> bool:
        """It refuses a log probability of a token that it does not know, while it takes any token id in a prompt."""
        parameters = {"max_tokens": 1, "ignore_eos": True, "logprob_token_ids": [token], "detokenize": False}
        try:
            await self.line.ask(_GENERATE, {"token_ids": [0], "sampling_params": parameters})
        except ServerAnswerError as error:
            if error.status == 400:
                return False
            raise
        return True

    async def drop(self, idents: Iterable[str]) -> None:
        """See Dialect."""
        await self.line.order("POST", "/inference/v1/abort_requests", {"request_ids": [_PREFIX + ident for ident in idents]})

    async def score(self, ident: str, token_ids: Sequence[int]) -> tuple[np.ndarray, str]:
        """The last token is asked for by its id, since a prompt of the greatest length leaves no room for an answer; with another one, for
        the server tells as many entries as ids were given, and the drawn token is the first of them."""
        *prompt, last = token_ids
        parameters = {
            "max_tokens": 1,
            "ignore_eos": True,
            "prompt_logprobs": 0 if len(prompt) > 1 else None,
            "logprobs": 2,
            "logprob_token_ids": [last, 0 if last else 1],
            "detokenize": False,
        }
        answer = await self.line.ask(_GENERATE, {"request_id": ident, "token_ids": prompt, "sampling_params": parameters})
        (choice,) = answer["choices"]
        told = zip((answer["prompt_logprobs"] or [])[1:], prompt[1:], strict=True) if len(prompt) > 1 else ()
        scores = [at[str(token)]["logprob"] for at, token in told]
        entries = choice["logprobs"]["content"][0]["top_logprobs"]
        scores.append(next(entry["logprob"] for entry in entries if entry["token_id"] == last))
        return np.array(scores, np.float32), _label(choice)

    # --- weights -------------------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """What runs stays where it is, without keys and values."""
        await self.line.order("POST", "/pause", params={"mode": "keep"})

    async def load(self, folder: str, label: str) -> None:
        """By every worker, from the folder. Until all have, the weights have the label ``unfinished-…``."""
        await self._call_it(f"unfinished-{label}")
        await self.line.order("POST", "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
        await self._call_it(label)

    async def resume(self) -> None:
        """The cache of prefixes is emptied first, with that of requests that were kept."""
        done = await self.line.order("POST", "/reset_prefix_cache", params={"reset_running_requests": True})
        if not done["success"]:
            raise ServerGoneError("it did not forget the keys and values of older weights")
        await self.line.order("POST", "/resume")

    async def checksums(self) -> dict[str, str]:
        """Of each parameter; on the CPU most are packed, and those are not seen."""
        return dict((await self.line.order("POST", "/weight_checker", {"action": "checksum"}))["checksums"])

    async def ranks(self) -> int:
        """All of its workers, whose number its development endpoints tell."""
        return int((await self.line.order("GET", "/get_world_size"))["world_size"])

    async def carry_out(self, method: str, words: Mapping[str, Any], label: str) -> Any:
        """By the endpoints of the same names. An order is sent once: a second one would wait for a group that has gone."""
        body = dict(words)
        if method == "compute_weight_checksums":
            return [await self.checksums()]
        if method == INIT:  # the server was started for one transfer, and does not want to hear which
            body = {"init_info": {name: value for name, value in words["init_info"].items() if name != "backend"}}
        if method == START:
            await self._call_it(f"unfinished-{label}")
        if method == FINISH:
            body = {"weight_version": label}
        await self.line.order("POST", f"/{method}", body, tries=1)
        return [None]

    async def _call_it(self, label: str) -> None:
        await self.line.order("POST", "/update_weight_version", {"new_version": label})


def _label(choice: Any) -> str:
    spans = choice["weight_versions"] or [{"version": ""}]
    return str(spans[-1]["version"])
