"""Stands in for ``rlcore_plugin_vllm.vllm_api`` where no vLLM is: an engine that computes nothing and writes down what it was asked.

It keeps the rules of vLLM's own engine that matter here: memory for weights and for keys and values is there or not, and using what is not
there is an error. It computes nothing, so it proves the order of the calls and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

from rlcore.testing.phases import note_phase

ARGUMENTS = [
    "model",
    "dtype",
    "seed",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "trust_remote_code",
    "max_model_len",
    "skip_tokenizer_init",
    "logprobs_mode",
    "async_scheduling",
    "generation_config",
    "disable_log_stats",
    "use_tqdm_on_load",
    "max_num_seqs",
    "enforce_eager",
    "kv_cache_memory_bytes",
    "enable_sleep_mode",
    "enable_chunked_prefill",
    "gpu_memory_utilization",
    "weight_transfer_config",
]
RecordedArguments = make_dataclass("RecordedArguments", [(name, Any, field(default=None)) for name in ARGUMENTS])
MODULES = ("vllm_backend", "in_process", "driver", "engines", "engine_arguments", "policy_adapter", "vllm_api")


@dataclass
class RecordedLogprobs:
    """The engine's flat record: one token."""

    logprobs: list[float]
    start_indices: list[int]


class RecordedEngine:
    """Answers every request with one token, the end."""

    phases = ""
    """The file that gets a line for each call."""
    vocabulary = 16

    def __init__(self, arguments: Any) -> None:
        self.arguments = arguments
        self.model_config = SimpleNamespace(get_vocab_size=lambda: self.vocabulary, hf_text_config=None)
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(world_size_across_dp=1))
        self.engine_core = SimpleNamespace(shutdown=lambda: None)
        self._awake = {"weights", "kv_cache"}
        self._requests: list[str] = []

    @classmethod
    def from_engine_args(cls, arguments: Any) -> RecordedEngine:
        return cls(arguments)

    def add_request(self, name: str, prompt: Any, parameters: Any, lora_request: Any = None) -> None:
        self._requests.append(name)

    def abort_request(self, names: list[str]) -> None:
        self._requests = [name for name in self._requests if name not in names]

    def step(self) -> list[Any]:
        assert self._awake == {"weights", "kv_cache"}, f"it steps, and only {self._awake} have memory"
        note_phase(self.phases, "engine generates")
        part = SimpleNamespace(token_ids=[0], logprobs=RecordedLogprobs([-1.0], [0]), finish_reason="stop")
        done, self._requests = self._requests, []
        return [SimpleNamespace(request_id=name, finished=True, outputs=[part], prompt_token_ids=[0], num_cached_tokens=0) for name in done]

    def collective_rpc(self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        assert "weights" in self._awake, f"{method}, and the weights have no memory"
        assert method == "reload_weights", method
        assert list(kwargs["weights_iterator"])
        note_phase(self.phases, "engine takes weights")
        return [None]

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        return True

    def sleep(self, level: int = 1) -> None:
        assert self.arguments.enable_sleep_mode
        self._awake = set()
        note_phase(self.phases, f"engine sleeps at level {level}")

    def wake_up(self, tags: list[str] | None = None) -> None:
        self._awake |= set(tags or ())
        note_phase(self.phases, f"engine wakes {' and '.join(tags or ())}")


@contextmanager
def recorded(phases: str, *, cpu: bool = False) -> Iterator[None]:
    """The backend's modules are imported anew over this engine inside."""
    api: Any = ModuleType("rlcore_plugin_vllm.vllm_api")
    RecordedEngine.phases = phases
    api.EngineArgs, api.LLMEngine, api.SamplingParams = RecordedArguments, RecordedEngine, SimpleNamespace
    api.AsyncEngineArgs, api.ModelConfig = RecordedArguments, SimpleNamespace
    api.TokensPrompt, api.RequestOutput = dict, SimpleNamespace
    api.RequestOutputKind = SimpleNamespace(DELTA=0, FINAL_ONLY=1)
    api.LoRARequest, api.MaxLoRARanks = SimpleNamespace, Literal[8, 16]
    api.current_platform = SimpleNamespace(is_cpu=lambda: cpu)
    names = [f"rlcore_plugin_vllm.{name}" for name in MODULES]
    kept = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.modules[api.__name__] = api
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(kept)
