"""Servers of vLLM: `vllm serve` with its token endpoints, and with its development endpoints if it takes weights; tested with 0.32."""

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
"""The prefix that the server adds to the id of a request; its commands use the whole name."""
_NOT_FINITE = -9999.0
"""The number that it writes for a log probability that JSON cannot represent."""
_COLDEST, _HOTTEST = 0.01, 2.0
"""It raises a lower temperature, and refuses a higher one (vllm/sampling_params.py)."""


class VllmServer(Dialect):
    """A vLLM server, whose scheduler keeps requests during an update and computes their keys and values again."""

    kind = "vLLM"
    start_hint = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs --max-model-len TOKENS"
    keeps = True

    @classmethod
    async def recognises(cls, line: ServerClient) -> bool:
        """Return whether /version answers with only a version, which is true of vLLM only."""
        try:
            answer = await line.order("GET", "/version")
        except ServerAnswerError as error:
            if error.status in (401, 403):
                raise
            return False
        return isinstance(answer, dict) and set(answer) == {"version"}

    async def learn(self) -> ServerInfo:
        """Read the models, and find out whether the development endpoints are available."""
        (model, *_) = (await self.line.order("GET", "/v1/models"))["data"]
        open_for_weights, dtype = True, ""
        try:
            if (await self.line.order("GET", "/is_paused"))["is_paused"]:
                await self.resume()  # the process that paused it is gone: a server belongs to one producer
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
        """Read the label from an answer of one token, which every server gives."""
        body = {"token_ids": [0], "sampling_params": {"max_tokens": 1, "ignore_eos": True, "detokenize": False}}
        return _label((await self.line.ask(_GENERATE, body))["choices"][0])

    def question(self, ident: str, ask: EngineRequest) -> tuple[str, object]:
        """Return a request with vLLM's SamplingParams."""
        sampling = ask.sampling
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": ask.seed if sampling.temperature else None,
            "max_tokens": ask.max_tokens,
            "stop_token_ids": list(ask.stop_token_ids),
            "ignore_eos": True,  # the tokenizer decides what ends an answer, not the model's configuration
            "logprobs": 0,
            "detokenize": False,
        }
        return _GENERATE, {"request_id": ident, "token_ids": list(ask.token_ids), "stream": True, "sampling_params": parameters}

    def heard(self, ask: EngineRequest, message: Any, before: int) -> ServerMessage:
        """Read a message: tokens come in one message per step, versions with the last one."""
        if "error" in message:
            raise ServerGoneError(f"it broke off an answer: {str(message['error'])[:300]}")
        if not message["choices"]:
            return ServerMessage()
        (choice,) = message["choices"]
        tokens = choice["token_ids"] or []
        entries = (choice["logprobs"] or {}).get("content") or []
        if [entry["token_id"] for entry in entries] != tokens:
            raise ServerGoneError(f"it reported {len(entries)} log probabilities of {len(tokens)} tokens")
        logprobs = [entry["logprob"] if entry["logprob"] > _NOT_FINITE else math.nan for entry in entries]
        spans = tuple(LabelSpan(span["version"], span["end"] - span["start"]) for span in choice["weight_versions"] or ())
        return ServerMessage(tokens, logprobs, choice["finish_reason"] or "", spans)

    def unsupported(self, ask: EngineRequest) -> str:
        """Refuse only temperatures outside vLLM's range."""
        temperature = ask.sampling.temperature
        if temperature == 0 or _COLDEST <= temperature <= _HOTTEST:
            return ""
        return f"temperature {temperature:g}; vLLM samples at {_COLDEST:g} to {_HOTTEST:g}, and greedily at 0"

    async def knows_token(self, token: int) -> bool:
        """Ask for the log probability of the token: vLLM refuses it for an unknown token, but accepts any token id in a prompt."""
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
        """Score the prompt, and ask for the last token by its id, since a prompt of the greatest length leaves no room for an answer.

        The request names a second id, because the server reports as many entries as there are ids, and the drawn token is the first of
        them.
        """
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
        """Pause; running requests stay in the server, without keys and values."""
        await self.line.order("POST", "/pause", params={"mode": "keep"})

    async def load(self, folder: str, label: str) -> None:
        """Let every worker load the folder. Until all have, the label of the weights is ``unfinished-…``."""
        await self._call_it(f"unfinished-{label}")
        await self.line.order("POST", "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
        await self._call_it(label)

    async def resume(self) -> None:
        """Empty the prefix cache, including that of kept requests, and continue."""
        done = await self.line.order("POST", "/reset_prefix_cache", params={"reset_running_requests": True})
        if not done["success"]:
            raise ServerGoneError("it did not drop the keys and values of older weights")
        await self.line.order("POST", "/resume")

    async def checksums(self) -> dict[str, str]:
        """Return a checksum of each parameter; on the CPU most parameters are packed, and the checker does not see these."""
        return dict((await self.line.order("POST", "/weight_checker", {"action": "checksum"}))["checksums"])

    async def ranks(self) -> int:
        """Return the number of workers, which the development endpoints report."""
        return int((await self.line.order("GET", "/get_world_size"))["world_size"])

    async def carry_out(self, method: str, words: Mapping[str, Any], label: str) -> Any:
        """Carry out the command by the endpoint of the same name. It is sent once: a second one would wait for a group that no longer
        exists."""
        body = dict(words)
        if method == "compute_weight_checksums":
            return [await self.checksums()]
        if method == INIT:  # the server was started for one transfer and does not accept its name
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
