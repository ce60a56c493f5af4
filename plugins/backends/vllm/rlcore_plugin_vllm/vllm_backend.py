"""The engine of vLLM, whose own scheduler batches: in the producer's process, whose thread steps it in ``poll``, or as processes of its
own, which go on between two calls."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcore.api import (
    Bucket,
    Completion,
    ConfigError,
    Finish,
    InferenceBackend,
    InferenceContext,
    InFlight,
    Request,
    RunError,
    WeightsError,
    WeightsKind,
    WeightsManifest,
)
from rlcore_plugin_vllm import CAPABILITIES
from rlcore_plugin_vllm.answers import NewTokens, RunningAnswer, seed_of
from rlcore_plugin_vllm.arriving import ArrivingWeights
from rlcore_plugin_vllm.checkpoint import HEAD, CheckpointShapes, read_shapes
from rlcore_plugin_vllm.driver import Driver
from rlcore_plugin_vllm.engine_arguments import engine_arguments
from rlcore_plugin_vllm.engine_sleep import EngineSleep
from rlcore_plugin_vllm.in_process import InProcess
from rlcore_plugin_vllm.joined_transfer import JoinedTransfer
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.policy_adapter import PolicyAdapter, check_adapter
from rlcore_plugin_vllm.sampling_bounds import COLDEST, HOTTEST, unserved
from rlcore_plugin_vllm.vllm_api import AsyncEngineArgs, RequestOutputKind, SamplingParams, current_platform

__all__ = ["VllmBackend"]

_FINISHES = {"stop": Finish.STOP, "length": Finish.LENGTH, "abort": Finish.ABORTED}
_PROBE = "rlcore-probe"


class VllmBackend(InferenceBackend):
    """Inference by vLLM, on CPUs or GPUs.

    After an update requests go on (RESUME): their keys and values are computed again under the new weights, and each token carries the
    version that drew it. New weights are collected on the host beside the old ones, which are served until ``finish_update``.
    """

    capabilities = CAPABILITIES

    def __init__(self, context: InferenceContext, options: VllmOptions | None = None) -> None:
        options = options or VllmOptions()
        self._context = context
        arguments = engine_arguments(context, options)
        shapes = read_shapes(_folder_of(context.model))
        self._driver = _driver(arguments, in_processes(arguments, options), context.model)
        self._residence = EngineSleep(self._driver)
        if current_platform.is_cpu():
            self.capabilities = replace(CAPABILITIES, sleeps=False, sleeps_on=frozenset(), transfers=frozenset({"host"}))
        if not context.adapter_rank:
            self.capabilities = replace(self.capabilities, kinds=frozenset({WeightsKind.FULL}))
        self._joined: JoinedTransfer | None = None
        config = self._driver.model_config
        self._vocabulary = config.get_vocab_size()
        tied = bool(getattr(config.hf_text_config, "tie_word_embeddings", False))
        self._checkpoint = CheckpointShapes(shapes, tied=tied)
        self._shapes = shapes
        self._adapter = PolicyAdapter(self._driver, shapes) if context.adapter_rank else None
        self._answers: dict[str, RunningAnswer] = {}
        self._done: list[Completion] = []
        self._arriving: ArrivingWeights | None = None
        self._remote = False
        self._torn = ""
        self._version = 0

    # --- requests ------------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests with the engine's scheduler; RunError for an id that is in flight, ConfigError for one that cannot be served."""
        self._require_weights("take requests")
        self._residence.require_cache("take requests")
        known = set(self._answers) | {completion.request_id for completion in self._done}
        for request in requests:
            self._check(request, known)
            known.add(request.request_id)
        asked = [(request, self._parameters(request)) for request in requests]  # vLLM looks at each before any is queued
        for request, parameters in asked:
            self._driver.add(request.request_id, request.token_ids.tolist(), parameters)
            self._answers[request.request_id] = RunningAnswer(request)

    def poll(self, timeout: float) -> list[Completion]:
        """Wait until something finishes or ``timeout`` seconds have passed, for one token at least; [] if nothing is in flight."""
        deadline = time.monotonic() + timeout
        while self._answers and not self._done:
            self._require_weights("generate")
            self._add(self._driver.take(max(0.0, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                break
        done, self._done = self._done, []
        return done

    def cancel(self, request_ids: Iterable[str]) -> None:
        """Drop requests; ``poll`` returns them as ABORTED with the tokens that they have."""
        self._add(self._driver.abort([name for name in request_ids if name in self._answers]))

    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1], by a request of its own that passes the prefix cache by; what else is in flight goes on meanwhile."""
        self._require_weights("score")
        self._residence.require_cache("score")
        ids = np.asarray(token_ids, np.int32)
        if len(ids) < 2:
            return np.zeros(0, np.float32)
        self._check_tokens(ids, "the sequence to score")
        if len(ids) > self._context.max_tokens:
            raise ConfigError(
                f"the sequence to score has {len(ids)} tokens, and prompt and response may take {self._context.max_tokens} together"
            )
        # The last token is asked for by its id, since a prompt of the greatest length leaves no room for an answer.
        parameters = SamplingParams(
            max_tokens=1,
            ignore_eos=True,
            prompt_logprobs=0 if len(ids) > 2 else None,
            logprob_token_ids=[int(ids[-1])],
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = self._driver.whole(_PROBE, ids[:-1].tolist(), parameters)
        scores = [at[int(token)].logprob for at, token in zip((output.prompt_logprobs or [])[1:], ids[1:-1], strict=True)]
        return np.array([*scores, output.outputs[0].logprobs[0][int(ids[-1])].logprob], np.float32)

    # --- weights -------------------------------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, Any]:
        """How many workers the engine has, and which tensor its head repeats."""
        return {"ranks": self._driver.ranks, "head_of": self._checkpoint.head_of or ""}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        """Have the workers join vLLM's own transfer, with the trainer engine that the trainer's side names."""
        if self.capabilities.transfers <= {"host"}:
            super().connect(info, epoch)
        if self._joined is not None:
            self._joined.leave()
            self._joined = None
        self._joined = JoinedTransfer(info, self._driver.collective_rpc)

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Collect a version beside the one that is served. WeightsError, and on as before, if the manifest does not fit the model."""
        if self._residence.asleep:
            raise RunError("the vllm engine sleeps and takes no weights: call wake() first")
        if manifest.kind is WeightsKind.ADAPTER and self._adapter is not None:
            check_adapter(version, manifest, self._shapes, model=self._context.model, most=self._context.adapter_rank)
        else:
            self._checkpoint.check(version, manifest)
        self._arriving = ArrivingWeights(version, manifest)

    def receive(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors; or have the workers take the version from the trainer's side, which tears the old one."""
        arriving = self._under_way()
        if not bucket.info:
            arriving.take(bucket)
            return
        if self._joined is None:
            raise RunError(f"version {bucket.version} comes by vLLM's own transfer, which the engine has not joined: call connect first")
        self._tear(arriving.version)
        self._joined.receive()
        self._remote = True

    def finish_update(self) -> int:
        """Load the weights into the engine, forget every key and value of the old ones, and serve. WeightsError if one did not come."""
        arriving, self._arriving = self._under_way(), None
        if self._joined is not None and self._remote:
            self._remote = False
            self._joined.finish()
            return self._serve(arriving.version)
        tensors = arriving.whole()
        if arriving.manifest.kind is WeightsKind.ADAPTER and self._adapter is not None:
            self._tear(arriving.version)
            self._adapter.take(arriving.version, tensors, arriving.manifest)
            return self._serve(arriving.version)
        if (embedding := self._checkpoint.head_of) is not None:
            arriving.repeat(HEAD, embedding)  # the engine packs a copy for its head, which would stay the old one
            if HEAD in tensors and not torch.equal(_bits(tensors[HEAD]), _bits(tensors[embedding])):  # bits: NaN is not equal to itself
                raise WeightsError(f"version {arriving.version}: tensor {HEAD!r} is not {embedding!r}, and the model ties the two")
        self._tear(arriving.version)
        self._driver.load(arriving)
        if self._adapter is not None:
            self._adapter.leave_out()
        return self._serve(arriving.version)

    def _tear(self, version: int) -> None:
        """From here until an update has come to its end, no weights are whole."""
        self._torn = f"holds an unfinished version {version} of the weights"
        self._driver.pause()

    def _serve(self, version: int) -> int:
        self._driver.serve(version)
        self._torn, self._version = "", version
        return version

    # --- the device ----------------------------------------------------------------------------------------------------

    def sleep(self, level: int = 1) -> None:
        """Give the GPU back, keys and values lost; RunError with requests in flight. On the CPU vLLM cannot: NotImplementedError."""
        if not self.capabilities.sleeps:
            super().sleep(level)
        if self._answers or self._done:
            raise RunError(f"the vllm engine cannot sleep with {len(self._answers) + len(self._done)} requests in flight")
        self._residence.begin(level)
        self._arriving, self._torn = None, "sleeps, or has just woken,"

    def wake(self) -> None:
        """Take back what the weights need; they follow by an update."""
        if not self.capabilities.sleeps:
            super().wake()
        self._residence.wake_weights()

    def wake_cache(self) -> None:
        """Take back what keys and values need."""
        self._residence.wake_cache()

    def close(self) -> None:
        """End the engine; requests in flight are forgotten."""
        self._answers, self._done = {}, []
        if self._joined is not None:
            self._joined.close()
        self._driver.end()

    # --- small parts ---------------------------------------------------------------------------------------------------

    def _add(self, parts: Sequence[NewTokens]) -> None:
        """Add new tokens to their answers. One that a stop string has ended waits for the engine to let go of it, and takes no more.
        RunError, once all are added, if one cannot be used."""
        stopped, wrong = [], ""
        for part in parts:
            answer = self._answers.get(part.name)
            if answer is None:
                continue
            if answer.add(part, self._context.tokenizer) and not part.finish:
                stopped.append(part.name)
            if part.finish:
                wrong = self._complete(part.name, "stop" if answer.stopped else part.finish) or wrong
        if stopped:
            self._add(self._driver.abort(stopped))
        if wrong:
            raise RunError(wrong)

    def _complete(self, name: str, finish: str) -> str:
        """Keep a completion for ``poll``; a sentence if it cannot be used."""
        answer = self._answers.pop(name)
        if finish not in _FINISHES:
            return f"request {name}: vLLM ended it with {finish!r}, and its log above says why"
        completion = answer.completion(_FINISHES[finish])
        if not np.isfinite(completion.logprobs).all():
            return f"request {name}: the model of version {self._version} gives logits that are not finite; training diverged"
        self._done.append(completion)
        return ""

    def _parameters(self, request: Request) -> SamplingParams:
        sampling = request.sampling
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=seed_of(request.noise) if sampling.temperature else None,
            max_tokens=min(sampling.max_new_tokens, self._context.max_tokens - len(request.token_ids)),
            stop_token_ids=sorted(token for token in self._context.tokenizer.stop_ids if 0 <= token < self._vocabulary),
            ignore_eos=True,  # the tokenizer says what ends an answer, not the model's configuration
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )

    def _check(self, request: Request, known: set[str]) -> None:
        ids, name = request.token_ids, f"request {request.request_id}"
        if request.request_id in known:
            raise RunError(f"{name} is in flight already; a request id is used once")
        if not len(ids):
            raise ConfigError(f"{name} has no context; the chat template must give at least one token")
        if len(ids) >= self._context.max_tokens:
            raise ConfigError(
                f"{name}: its context has {len(ids)} tokens, of the {self._context.max_tokens} that prompt and response may take together; "
                "raise --max-prompt-tokens or --max-new-tokens"
            )
        self._check_tokens(ids, name)
        if unserved(request.sampling.temperature):
            raise ConfigError(
                f"{name}: temperature {request.sampling.temperature:g}; vLLM samples at {COLDEST:g} to {HOTTEST:g}, and greedily at 0"
            )
        if request.sampling.max_new_tokens < 1 or "" in request.sampling.stop:
            raise ConfigError(f"{name}: max_new_tokens must be at least 1 and no stop string empty, got {request.sampling}")

    def _check_tokens(self, ids: np.ndarray, name: str) -> None:
        outside = ids[(ids < 0) | (ids >= self._vocabulary)]
        if len(outside):
            raise ConfigError(
                f"{name}: token {int(outside[0])} is not one of the model's {self._vocabulary}; use the tokenizer that belongs to the model"
            )

    def _under_way(self) -> ArrivingWeights:
        if self._arriving is None:
            raise RunError("no update of the vllm engine has begun: call begin_update first")
        return self._arriving

    def _require_weights(self, doing: str) -> None:
        if self._torn:
            raise RunError(f"the engine {self._torn} and cannot {doing}; update its weights first")


def in_processes(arguments: AsyncEngineArgs, options: VllmOptions) -> bool:
    """Whether the engine runs as processes of its own: it does if the model is spread over several, and if that is asked for."""
    several = arguments.tensor_parallel_size * arguments.pipeline_parallel_size > 1
    if several and options.own_process is False:
        raise ConfigError("inference.options.own_process is false, and a model that is split needs processes; leave the option out")
    return several or bool(options.own_process)


def _driver(arguments: AsyncEngineArgs, own: bool, model: str) -> Driver:
    try:
        if not own:
            return InProcess(arguments)
        from rlcore_plugin_vllm.own_process import OwnProcess

        return OwnProcess(arguments)
    except (OSError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"vLLM does not make an engine of model {model!r}: {' '.join(str(error).split())}") from error


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _folder_of(model: str) -> Path:
    """Where the engine read the model: a folder, or the local cache of the hub."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, local_files_only=True, allow_patterns=["*.json", "*.safetensors"]))
