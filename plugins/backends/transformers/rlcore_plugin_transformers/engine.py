"""The engine: admit prompts, decode all rows one token at a time, and drop the rows that end.

The composition of batches depends on timing. The result of a request does not: it depends on its context, its sampling, its noise and the
weights (and, up to rounding, on the shape of the batch).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from rlcore.api import (
    Bucket,
    Completion,
    FinishReason,
    InferenceBackend,
    InferenceContext,
    InFlight,
    Request,
    RunError,
    Sampling,
    WeightsManifest,
)
from rlcore_plugin_transformers import CAPABILITIES
from rlcore_plugin_transformers.checks import check_decoding, check_request
from rlcore_plugin_transformers.decode_path import DecodePath
from rlcore_plugin_transformers.device_weights import DeviceWeights
from rlcore_plugin_transformers.fused_decoder import FusedDecoder
from rlcore_plugin_transformers.fused_path import FusedPath
from rlcore_plugin_transformers.loading import load_model, pick_device
from rlcore_plugin_transformers.options import TransformersOptions
from rlcore_plugin_transformers.prompts import PendingPrompts
from rlcore_plugin_transformers.rows import Rows
from rlcore_plugin_transformers.sampling import RowSettings, draw
from rlcore_plugin_transformers.stopping import StopMatcher
from rlcore_plugin_transformers.windows import LayerWindows

__all__ = ["TransformersBackend"]


class TransformersBackend(InferenceBackend):
    """Inference with a Hugging Face causal language model of attention layers, on one device.

    After an update, requests in flight continue (RESUME): their tokens stay, and their keys and values are computed again under the new
    weights. Later tokens carry the new version, and are drawn from the new weights' distribution over the whole context.

    New weights are copied over the old ones, so after an update that breaks off the engine refuses work until another update has ended.
    ``sleep`` frees weights, keys and values; the engine then serves nothing until ``wake`` and an update.
    """

    capabilities = CAPABILITIES

    def __init__(self, context: InferenceContext, options: TransformersOptions | None = None) -> None:
        options = options or TransformersOptions()
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self._context = context
        self._max_rows = options.max_rows
        self._device = pick_device(context.device)
        self._model = load_model(context, options, self._device)
        self._residence = DeviceWeights(self._model, self._device)
        windows = LayerWindows.of(self._model.config.get_text_config(decoder=True), context.max_tokens)
        assert isinstance(windows, LayerWindows)  # load_model refuses other models
        bool_masks = options.attention == "sdpa" and self._device.type != "cpu"
        plain = DecodePath(self._model, windows, self._device, bool_masks=bool_masks)
        fuses = options.fused and options.attention == "sdpa" and FusedDecoder.serves(self._model)
        self._path = FusedPath(self._model, windows, self._device, max_tokens=context.max_tokens) if fuses else plain
        self._vocabulary = int(self._model.get_output_embeddings().weight.shape[0])
        self._stops = np.zeros(self._vocabulary, np.bool_)
        self._matchers: dict[tuple[str, ...], int] = {}
        self._matcher_list: list[StopMatcher] = []
        self._version = self._coming = 0
        self._rows = Rows()
        self._settings: RowSettings | None = None
        self._waiting = PendingPrompts()
        self._open: set[str] = set()
        self._running: Counter[int] = Counter()
        self._next_group = 0
        self._done: list[Completion] = []
        check_decoding(self, context, self._vocabulary, type(self._model).__name__, windows.sliding)
        self._path.clear()
        self._stops[[token for token in context.tokenizer.stop_ids if 0 <= token < self._vocabulary]] = True

    # --- the interface -------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests. Raises RunError for an id that is in flight, and ConfigError for a context that cannot be served."""
        self._residence.require_weights("take requests")
        known = set(self._open)
        for request in requests:
            check_request(request, known, max_tokens=self._context.max_tokens, vocabulary=self._vocabulary)
            known.add(request.request_id)
        self._open = known
        self._waiting.add(requests)

    @torch.inference_mode()
    def poll(self, timeout: float) -> list[Completion]:
        """Decode until a request finishes or ``timeout`` seconds have passed, at least one step; return [] at once if nothing is in flight.

        The work happens only here, in the calling thread. Raises RunError if the model gives logits that are not finite, or if an update of
        the weights broke off.
        """
        deadline = time.monotonic() + timeout
        while not self._done and (self._rows.count or self._waiting):
            self._residence.require_weights("generate")
            self._step()
            if time.monotonic() >= deadline:
                break
        done, self._done = self._done, []
        self._open.difference_update(completion.request_id for completion in done)
        return done

    @torch.inference_mode()
    def cancel(self, request_ids: Iterable[str]) -> None:
        """Drop requests. ``poll`` returns them as ABORTED with their tokens so far, which are none if they had not started."""
        wanted = set(request_ids)
        for request in self._waiting.drop(wanted):
            none = np.zeros(0)
            self._done.append(
                Completion(request_id=request.request_id, token_ids=none, logprobs=none, versions=none, finish=FinishReason.ABORTED)
            )
        rows = [row for row, request in enumerate(self._rows.requests) if request.request_id in wanted]
        if rows:
            self._end(np.array(rows), [FinishReason.ABORTED] * len(rows))

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Begin to receive the weights of a version; requests in flight continue under them.

        Raises WeightsError if the manifest does not fit the model; the engine then continues as before.
        """
        self._residence.begin(version, manifest)
        self._coming = version

    def receive(self, bucket: Bucket) -> None:
        """Copy a bucket's tensors over the old ones."""
        self._residence.take(bucket)

    @torch.inference_mode()
    def finish_update(self) -> int:
        """Serve the new weights. Raises WeightsError, which names the tensor, if one did not come."""
        self._residence.finish()
        if self._rows.count:
            self._path.recompute(self._rows, self._context.prompts_per_forward)
        else:
            self._path.clear()
        self._version = self._coming
        return self._version

    @torch.inference_mode()
    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1], by one plain forward pass without the decode loop's cache, at temperature 1."""
        self._residence.require_weights("score")
        ids = torch.from_numpy(np.array(token_ids, np.int64)).to(self._device)[None]
        logits = self._model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        logprobs = torch.log_softmax(logits, dim=-1).gather(1, ids[0, 1:, None])
        return np.asarray(logprobs.squeeze(1).cpu().numpy(), np.float32)

    def sleep(self, level: int = 1) -> None:
        """Free the weights, the keys and the values, at either level. Raises RunError if a request is in flight, or finished but not
        polled."""
        if self._open:
            raise RunError(f"the engine cannot sleep with {len(self._open)} requests in flight; poll until every one is answered")
        self._path.release()
        self._residence.offload()

    def wake(self) -> None:
        """Allocate the weights again, without values: an update follows, and nothing is served before it."""
        self._residence.onload()
        self._path.bind()

    def close(self) -> None:
        """Discard every request and free keys and values; the model is freed with this object."""
        self._path.clear()
        self._rows, self._waiting, self._open, self._done = Rows(), PendingPrompts(), set(), []
        self._running.clear()

    # --- one step ------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        groups = self._admissible()
        if groups:
            self._start(groups)
        else:
            self._draw(0, self._path.decode(self._rows))

    def _admissible(self) -> list[list[Request]]:
        """Return the groups to start now. Prompts are computed several at a time, so this waits until an eighth of the places is free."""
        if not self._waiting:
            return []
        places = self._context.prompts_per_forward - len(self._running)
        if self._running and places < max(1, self._context.prompts_per_forward // 8):
            return []
        groups = self._waiting.take(places, None if self._max_rows is None else self._max_rows - self._rows.count)
        if not groups and not self._rows.count and self._max_rows is not None:
            groups = self._waiting.take_part(self._max_rows)
        return groups

    def _start(self, groups: list[list[Request]]) -> None:
        """Compute each group's prompt once, give its keys and values to the group's rows, and draw their first tokens."""
        first = self._rows.count
        for requests in groups:
            room = self._context.max_tokens - len(requests[0].token_ids)
            self._rows.add(
                requests,
                group=self._next_group,
                limits=[min(request.sampling.max_new_tokens, room) for request in requests],
                matchers=[self._matcher(request.sampling) for request in requests],
            )
            self._running[self._next_group] = len(requests)
            self._next_group += 1
        self._settings = None
        contexts = [requests[0].token_ids for requests in groups]
        owner = np.repeat(np.arange(len(groups)), [len(requests) for requests in groups])
        self._draw(first, self._path.start(contexts, owner, self._rows, first))

    def _draw(self, first: int, logits: torch.Tensor) -> None:
        """Draw the next token of each row from ``first`` on, record it, and end the rows that it completes."""
        rows = self._rows
        uniforms = torch.from_numpy(rows.uniforms(first)).to(self._device)
        if self._settings is None or first:
            settings = RowSettings.of([request.sampling for request in rows.requests[first:]], self._device)
            self._settings = None if first else settings
        else:
            settings = self._settings
        drawn, chosen = draw(logits, uniforms, settings)
        tokens, logprobs = torch.stack([drawn.double(), chosen.double()]).cpu().numpy()
        tokens = tokens.astype(np.int64)
        if not np.isfinite(logprobs).all():
            bad = rows.requests[first + int(np.flatnonzero(~np.isfinite(logprobs))[0])]
            raise RunError(
                f"request {bad.request_id}: the model of version {self._version} gives logits that are not finite; training diverged"
            )
        rows.append(first, tokens, logprobs, self._version)
        self._end_finished(first, tokens)

    def _end_finished(self, first: int, tokens: np.ndarray) -> None:
        rows = self._rows
        stopped = self._stops[tokens]
        if self._matcher_list:
            for number in np.unique(rows.matcher[first : rows.count][rows.matcher[first : rows.count] >= 0]).tolist():
                stopped |= self._completed(self._matcher_list[number], rows.matcher[first : rows.count] == number, first, tokens)
        ended = stopped | (rows.generated[first : rows.count] >= rows.limit[first : rows.count])
        if ended.any():
            places = np.flatnonzero(ended)
            self._end(first + places, [FinishReason.STOP if stopped[place] else FinishReason.LENGTH for place in places])

    def _completed(self, matcher: StopMatcher, rows: np.ndarray, first: int, tokens: np.ndarray) -> np.ndarray:
        """Return bool[n]: of the given rows, those whose new token completed a stop string."""
        candidates = np.flatnonzero(rows)
        candidates = candidates[matcher.candidates(tokens[candidates])]
        completed = np.zeros(len(tokens), np.bool_)
        for place in candidates.tolist():
            row = first + place
            completed[place] = matcher.found(self._rows.tokens[row, : self._rows.generated[row]].tolist())
        return completed

    def _end(self, ended: np.ndarray, finishes: Sequence[FinishReason]) -> None:
        for row, finish in zip(ended.tolist(), finishes, strict=True):
            self._done.append(self._rows.completion(row, finish))
            self._running[int(self._rows.group[row])] -= 1
        self._running = +self._running
        self._path.moved(self._rows, *self._rows.remove(ended))
        self._settings = None

    # --- small parts ---------------------------------------------------------------------------------------------------

    def _matcher(self, sampling: Sampling) -> int:
        if not sampling.stop:
            return -1
        if sampling.stop not in self._matchers:
            self._matchers[sampling.stop] = len(self._matcher_list)
            self._matcher_list.append(StopMatcher(sampling.stop, self._context.tokenizer, self._vocabulary))
        return self._matchers[sampling.stop]
