"""The torch training backend: a Hugging Face causal language model on one device of each rank, whole or divided between them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcore.api import Need, Objective, RunError, Saving, TrainBatch, TrainingBackend, TrainingContext, Which
from rlcore_plugin_torch import CAPABILITIES
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.loading import check_context, load_model, pick_device
from rlcore_plugin_torch.optimizer import Optimizer
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.passes import Clock, Cut, Pace, accumulate, alone, batch_logprobs
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.progress_file import read_progress, write_progress
from rlcore_plugin_torch.random_state import random_state, restore_random
from rlcore_plugin_torch.ranks import TorchRanks
from rlcore_plugin_torch.sharded_state import SHARDS, begin_saving, read_tensors
from rlcore_plugin_torch.sharding import divide, reshard
from rlcore_plugin_torch.tensor_plan import slice_layers
from rlcore_plugin_torch.weights import TorchSource, named_weights, save_checkpoint, whole_state

__all__ = ["TorchBackend"]

_log = logging.getLogger(__name__)


class TorchBackend(TrainingBackend):
    """Trains with AdamW in float32, or in bfloat16 compute over float32 weights, gradients and moments.

    In bfloat16 the forward runs under autocast, so that gradients of micro-batches are still summed in float32; weights leave the backend
    (snapshots, model checkpoints) in bfloat16, and ``save`` keeps the float32 ones for exact resume.

    Several ranks hold the same model, or divide it (``Layout``); each computes the gradient of its share, and the sum over all of them
    is what every one clips and steps on.
    """

    capabilities = CAPABILITIES

    def __init__(self, context: TrainingContext | None = None, options: TorchOptions | None = None) -> None:
        self.options = options or TorchOptions()
        self.layout, self.ranks = Layout(), TorchRanks()
        if context is not None:
            check_context(context)
            Layout.of(context)

    def setup(self, context: TrainingContext) -> None:
        """Meet the other ranks, load the policy and try it; ConfigError for what cannot be trained, RunError where the ranks loaded
        different weights. The reference model is loaded on first use, where needed."""
        check_context(context)
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        torch.manual_seed(context.seed)
        self.context = context
        self.device = pick_device(context.device, context.rank)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.dtype = getattr(torch, context.dtype)
        self.layout = Layout.of(context)
        self.ranks = TorchRanks(
            rank=context.rank,
            layout=self.layout,
            rendezvous=context.rendezvous,
            deadline=self.options.ranks_deadline,
            device=self.device,
        )
        self.ranks.open()
        self.policy = self._load(context.model)
        # Before it is divided: these look at the model as it is, and at its weights one by one.
        self.policy.check_projection()
        shared_row = self._shared_row()
        self.ranks.check_equal(self.policy.model)
        self._partial = self._divide(self.policy)
        self.optimizer = Optimizer(self.policy.model, context.optimizer, self.ranks)
        self.cut = Cut(
            rollouts=context.rollouts_per_forward,
            tokens=context.tokens_per_forward,
            prompts=context.prompts_per_slice,
            share_prompts=shared_row,
        )
        self._pace: Pace = self.ranks.in_step if self.layout.split else alone
        # The device is named, since the current one belongs to a thread and updates may come from another than this.
        self.clock = Clock(partial(torch.cuda.synchronize, self.device)) if self.device.type == "cuda" else Clock()
        self._reference_path = context.model
        self._reference: CausalPolicy | None = None

    def logprobs(self, batch: TrainBatch, which: Which) -> np.ndarray:
        """float32[N]; RunError where the reference is asked for and no need of it was declared."""
        policy = self.policy if which == Which.POLICY else self._reference_policy()
        with self.ranks.together("computing log probabilities"):
            values = batch_logprobs(policy, batch, self.cut, self._pace)
        reshard(policy)
        return values

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Plan, then per micro-batch: collate, forward, objective, backward; add up over the ranks, clip and step once."""
        self.optimizer.zero_grad()
        metrics = self.ranks.sum_metrics(lambda: self._accumulate(batch, objective))
        self.ranks.sum_gradients(self.optimizer.parameters, self._partial)
        with self.clock.span("optimizer"):
            return {**metrics, **self.optimizer.step()}

    def _accumulate(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        with self.ranks.together("computing gradients"):
            return accumulate(self.policy, batch, objective, self.cut, self.clock, self._pace)

    @property
    def data_parallel(self) -> tuple[int, int]:
        """The place on the data axis: tensor-parallel ranks work on one share together."""
        return self.layout.place(self.ranks.rank)[0], self.layout.data

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """The arrays of all ranks, by rank."""
        return self.ranks.gather(values)

    def weight_source(self) -> TorchSource:
        """The weights in the precision that the forward computes with; what is divided is gathered bucket by bucket."""
        return TorchSource(self.policy.model, self.dtype, self.ranks.rank)

    @torch.no_grad()
    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1], at temperature 1."""
        ids = torch.from_numpy(np.array(token_ids, np.int64)).to(self.device)
        with self.ranks.together("probing"):
            values = self.policy.probe(ids).float().cpu().numpy()
        reshard(self.policy)
        return values

    def save_model(self, folder: Path) -> None:
        """Hugging Face checkpoint in the precision that the forward computes with."""
        state = None
        if self.layout.split:
            with self.ranks.together("gathering the model"):
                state = whole_state(self.policy.model, self.dtype, keep=self.ranks.rank == 0)
        self.ranks.write(lambda: save_checkpoint(self.policy.model, folder, self.dtype, state))

    def save(self, folder: Path) -> Saving:
        """Optimizer, step count, random states, where the reference model is, and float32 weights if ``save_model`` rounds them. What every
        rank holds is copied when this returns, and written in the background."""
        self.ranks.write(lambda: write_progress(folder, self._progress()))
        return begin_saving(self._tensors(), folder / SHARDS, self.ranks.saving)

    def load(self, folder: Path) -> None:
        """After ``setup`` on the model that ``save_model`` wrote beside it, in any layout. RunError if the state is of another model."""
        state = read_progress(folder)
        self.optimizer.restore(state["optimizer"])
        if state["rounded"] != self._rounds:
            raise RunError(f"the trainer's state in {folder} was saved under another training.dtype; resume with that one")
        read_tensors(self._tensors(), folder / SHARDS, self.ranks.saving)
        restore_random(state["random"], self.device)
        # The checkpoint is the policy; the reference stays the model that the run began with.
        self._reference_path, self._reference = state["reference"], None
        self.ranks.check_equal(self.policy.model)

    def _progress(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.progress(),
            "random": random_state(self.device),
            "reference": self._reference_path,
            "rounded": self._rounds,
        }

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Those that ``save`` writes and ``load`` fills, as they stand."""
        weights = named_weights(self.policy.model) if self._rounds else {}
        return {**self.optimizer.moments(), **{f"weight.{name}": weight for name, weight in weights.items()}}

    @property
    def _rounds(self) -> bool:
        """Whether weights leave in a lower precision than they are kept in."""
        return self.dtype != self._master_dtype

    def timings(self) -> Mapping[str, float]:
        """Seconds in ``forward``, ``backward`` and ``optimizer`` of updates since the last call; with several ranks also in ``exchange``
        between them, waits for slower ones included."""
        seconds, self.clock.seconds = self.clock.seconds, {}
        exchange, self.ranks.seconds = self.ranks.seconds, 0.0
        return {**seconds, "exchange": exchange} if self.ranks.size > 1 else seconds

    def close(self) -> None:
        """Leave the other ranks; let go of the models and their device memory."""
        self.ranks.close()
        self.__dict__.pop("policy", None)
        self.__dict__.pop("optimizer", None)
        self._reference = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @property
    def _master_dtype(self) -> torch.dtype:
        """Of weights, gradients and moments."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    def _load(self, path: str) -> CausalPolicy:
        trusted = self.context.trust_remote_code
        # What is divided comes to the device part by part: a device need not hold the whole.
        device = torch.device("cpu") if self.layout.split else self.device
        model = load_model(path, self.options.attention, device, self._master_dtype, trust_remote_code=trusted)
        compute = None if not self._rounds else self.dtype
        return CausalPolicy(model=model, compute=compute, chunk=self.options.logits_chunk)

    def _divide(self, policy: CausalPolicy) -> list[torch.nn.Parameter]:
        """As the layout says; the parameters whose gradient one tensor rank has a part of."""
        if not self.layout.split:
            return []
        partial: list[torch.nn.Parameter] = []
        if self.layout.tensor > 1:
            partial = slice_layers(policy.model, self.ranks.mesh["tensor"], self.device)
        names = {id(item): name for name, item in policy.named_parameters()}
        if self.layout.sharded:
            divide(policy, self.ranks.mesh["data"], reshards=self.layout.reshards)
        chosen = {names[id(item)] for item in partial}  # by name: FSDP2 puts others in their place
        return [item for name, item in policy.named_parameters() if name in chosen]

    def _reference_policy(self) -> CausalPolicy:
        if Need.REFERENCE not in self.context.needs:
            raise RunError("reference log probabilities were asked of the torch backend, and its context did not declare Need.REFERENCE")
        if self._reference is None:
            self._reference = self._load(self._reference_path)
            self._reference.model.requires_grad_(False)
            self._divide(self._reference)
        return self._reference

    def _shared_row(self) -> int:
        """The widest row in which completions share their prompt, 0 where they do not."""
        if self.options.share_prompts == "off":
            return 0
        # A row inside the window of sliding attention sees all of itself.
        config = self.policy.model.config.get_text_config(decoder=True)
        width = min(self.options.shared_row_tokens, getattr(config, "sliding_window", None) or self.options.shared_row_tokens)
        if self.policy.shares_prompts(width):
            return width
        if self.options.share_prompts == "on":
            raise RunError(
                f"training.options.share_prompts 'on': {type(self.policy.model).__name__} computes other log probabilities in shared rows; "
                "use 'auto' or 'off'"
            )
        _log.info("prompts are not shared: %s computes other log probabilities in shared rows", type(self.policy.model).__name__)
        return 0
