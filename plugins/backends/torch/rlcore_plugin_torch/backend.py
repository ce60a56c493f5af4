"""The torch training backend: a Hugging Face causal language model, whole on the one device of each rank."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rlcore.api import Need, Objective, RunError, TrainBatch, TrainingBackend, TrainingContext, Which
from rlcore_plugin_torch import CAPABILITIES
from rlcore_plugin_torch.loading import check_context, load_model, pick_device
from rlcore_plugin_torch.optimizer import Optimizer
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.passes import Clock, Cut, accumulate, batch_logprobs, with_padding_share
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.random_state import random_state, restore_random
from rlcore_plugin_torch.ranks import TorchRanks
from rlcore_plugin_torch.weights import TorchSource, save_checkpoint

__all__ = ["TorchBackend"]

_STATE = "trainer.pt"
_log = logging.getLogger(__name__)


class TorchBackend(TrainingBackend):
    """Trains with AdamW in float32, or in bfloat16 compute over float32 weights, gradients and moments.

    In bfloat16 the forward runs under autocast, so that gradients of micro-batches are still summed in float32; weights leave the backend
    (snapshots, model checkpoints) in bfloat16, and ``save`` keeps the float32 ones for exact resume.

    Several ranks hold the same model, optimizer and random state; each computes the gradient of its share, and the sum over all of them
    is what every one clips and steps on.
    """

    capabilities = CAPABILITIES

    def __init__(self, context: TrainingContext | None = None, options: TorchOptions | None = None) -> None:
        self.options = options or TorchOptions()
        self.ranks = TorchRanks()
        if context is not None:
            check_context(context)

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
        self.ranks = TorchRanks(
            rank=context.rank,
            size=context.world_size,
            rendezvous=context.rendezvous,
            deadline=self.options.ranks_deadline,
            device=self.device,
        )
        self.ranks.open()
        self.policy = self._load(context.model)
        self.policy.check_projection()
        self.ranks.check_equal(self.policy.model)
        self.optimizer = Optimizer(self.policy.model, context.optimizer)
        self.cut = Cut(
            rollouts=context.rollouts_per_forward,
            tokens=context.tokens_per_forward,
            prompts=context.prompts_per_slice,
            packed=self._packs(),
            cost=self.policy.cost(),
        )
        # The device is named, since the current one belongs to a thread and updates may come from another than this.
        self.clock = Clock(partial(torch.cuda.synchronize, self.device)) if self.device.type == "cuda" else Clock()
        self._reference_path = context.model
        self._reference: CausalPolicy | None = None

    def logprobs(self, batch: TrainBatch, which: Which) -> np.ndarray:
        """float32[N]; RunError where the reference is asked for and no need of it was declared."""
        policy = self.policy if which == Which.POLICY else self._reference_policy()
        return batch_logprobs(policy, batch, self.cut)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Plan, then per micro-batch: collate, forward, objective, backward; add up over the ranks, clip and step once."""
        self.optimizer.zero_grad()
        metrics = self.ranks.sum_metrics(lambda: accumulate(self.policy, batch, objective, self.cut, self.clock))
        self.ranks.sum_gradients(self.optimizer.parameters)
        with self.clock.span("optimizer"):
            return {**with_padding_share(metrics), **self.optimizer.step()}

    @property
    def data_parallel(self) -> tuple[int, int]:
        """Every rank holds the whole model."""
        return self.ranks.rank, self.ranks.size

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """The arrays of all ranks, by rank."""
        return self.ranks.gather(values)

    def cost(self, batch: TrainBatch, rows: np.ndarray) -> int:
        """Operations of linear layers, attention and projection, in units of one pair of tokens that attend to each other."""
        return self.cut.cost_of(batch, rows)

    def weight_source(self) -> TorchSource:
        """The weights in the precision that the forward computes with; the same on every rank, so that nothing is gathered."""
        return TorchSource(self.policy.model, self.dtype)

    @torch.no_grad()
    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1], at temperature 1."""
        ids = torch.from_numpy(np.array(token_ids, np.int64)).to(self.device)
        return self.policy.probe(ids).float().cpu().numpy()

    def save_model(self, folder: Path) -> None:
        """Hugging Face checkpoint in the precision that the forward computes with."""
        self.ranks.write(lambda: save_checkpoint(self.policy.model, folder, self.dtype))

    def save(self, folder: Path) -> None:
        """Optimizer, step count, random states, where the reference model is, and float32 weights where ``save_model`` rounds them."""
        self.ranks.write(lambda: self._save(folder))

    def _save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "optimizer": self.optimizer.state(),
            "random": random_state(self.device),
            "reference": self._reference_path,
            "weights": None if self.dtype == self._master_dtype else self.policy.model.state_dict(),
        }
        torch.save(state, folder / _STATE)

    def load(self, folder: Path) -> None:
        """After ``setup`` on the model that ``save_model`` wrote beside it. RunError where the state is of another model."""
        # Load to host memory first: loading to the device would hold the optimizer moments twice.
        state = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
        self.optimizer.restore(state["optimizer"])
        if state["weights"] is not None:
            self.policy.model.load_state_dict(state["weights"])
        restore_random(state["random"], self.device)
        # The checkpoint is the policy; the reference stays the model that the run began with.
        self._reference_path, self._reference = state["reference"], None
        self.ranks.check_equal(self.policy.model)

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
        model = load_model(path, self.options.attention, self.device, self._master_dtype, trust_remote_code=trusted)
        compute = None if self.dtype == self._master_dtype else self.dtype
        return CausalPolicy(model=model, compute=compute, chunk=self.options.logits_chunk)

    def _reference_policy(self) -> CausalPolicy:
        if Need.REFERENCE not in self.context.needs:
            raise RunError("reference log probabilities were asked of the torch backend, and its context did not declare Need.REFERENCE")
        if self._reference is None:
            self._reference = self._load(self._reference_path)
            if self.cut.packed:
                self._reference.use_packing()
            self._reference.model.requires_grad_(False)
        return self._reference

    def _packs(self) -> bool:
        """Whether forwards are packed: as the options say, if the model computes the same so."""
        if self.options.packing == "off":
            return False
        if not (reason := self.policy.try_packing()):
            return True
        model = type(self.policy.model).__name__
        if self.options.packing == "on":
            raise RunError(f"training.options.packing 'on': {model} cannot be packed ({reason}); use 'auto' or 'off'")
        _log.info("forwards are padded, for %s cannot be packed: %s", model, reason)
        return False
