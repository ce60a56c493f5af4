"""The interface of vLLM's engine for the backend, whether it runs in the producer's process or in a separate one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from rlcore_plugin_serving.serving_engine import EngineRequest, ServingEngine

from rlcore_plugin_vllm.vllm_api import LoRARequest, ModelConfig, RequestOutput, RequestOutputKind, SamplingParams

__all__ = ["Driver", "log_probabilities", "sampling_parameters"]

_PROBE = "rlcore-probe"


class Driver(ServingEngine):
    """vLLM's engine."""

    model_config: ModelConfig
    ranks: int
    """The number of its workers."""
    adapter: LoRARequest | None = None
    """The adapter that requests use; None if there is none."""
    context_tokens = cached_tokens = 0
    """The tokens of the contexts of all answers that ended, and how many of them the prefix cache had."""

    @property
    def vocabulary(self) -> int:  # type: ignore[override]
        """The number of tokens in the model's vocabulary."""
        return int(self.model_config.get_vocab_size())

    def score(self, token_ids: Sequence[int]) -> np.ndarray:
        """Score by a request that bypasses the prefix cache.

        The last token is requested by its id, since a prompt of the greatest length leaves no room for an answer.
        """
        parameters = SamplingParams(
            max_tokens=1,
            ignore_eos=True,
            prompt_logprobs=0 if len(token_ids) > 2 else None,
            logprob_token_ids=[token_ids[-1]],
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = self.whole(_PROBE, token_ids[:-1], parameters)
        scores = [at[token].logprob for at, token in zip((output.prompt_logprobs or [])[1:], token_ids[1:-1], strict=True)]
        return np.array([*scores, output.outputs[0].logprobs[0][token_ids[-1]].logprob], np.float32)

    def count(self, output: RequestOutput) -> None:
        """Count the context of an answer, if it has ended."""
        if output.finished:
            self.context_tokens += len(output.prompt_token_ids or ())
            self.cached_tokens += output.num_cached_tokens or 0

    @abstractmethod
    def whole(self, name: str, token_ids: Sequence[int], parameters: SamplingParams) -> RequestOutput:
        """Return the answer to a request whose output is of kind FINAL_ONLY; other requests continue meanwhile."""

    def swap_adapter(self, folder: str) -> None:
        """Let every worker read the adapter in a folder, in place of the previous one; requests then use it."""
        self.add_adapter(LoRARequest("policy", 1, folder, load_inplace=True))
        self.adapter = LoRARequest("policy", 1, folder)  # by its number, under which the workers hold it: the folder is not read again

    @abstractmethod
    def add_adapter(self, adapter: LoRARequest) -> None:
        """Call vLLM's ``add_lora``."""

    @abstractmethod
    def collective_rpc(self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        """Call a method of every worker."""


def sampling_parameters(ask: EngineRequest) -> SamplingParams:
    """Return the request as vLLM's parameters. Raises ValueError for a request that vLLM refuses."""
    sampling = ask.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=ask.seed if sampling.temperature else None,
        max_tokens=ask.max_tokens,
        stop_token_ids=list(ask.stop_token_ids),
        ignore_eos=True,  # the tokenizer decides what ends an answer, not the model's configuration
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def log_probabilities(record: object) -> list[float]:
    """Return the log probability of each new token from the engine's flat record, in which the sampled token comes first at each place."""
    return [record.logprobs[start] for start in record.start_indices]  # type: ignore[attr-defined]
