"""The torch training backend: a Hugging Face causal language model on one device per rank, whole or divided between the ranks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcore.api import (
    ConfigError,
    ModelRole,
    Need,
    Objective,
    PendingSave,
    RunError,
    TrainBatch,
    TrainingBackend,
    TrainingContext,
    WeightsKind,
)
from rlcore_plugin_torch import CAPABILITIES
from rlcore_plugin_torch.activation_memory import store_activations, tokens_on_cpu
from rlcore_plugin_torch.host_memory import move_module, on_device
from rlcore_plugin_torch.layout import Layout
from rlcore_plugin_torch.loading import check_context, pick_device
from rlcore_plugin_torch.model_files import save_checkpoint
from rlcore_plugin_torch.optimizer import Optimizer
from rlcore_plugin_torch.options import TorchOptions
from rlcore_plugin_torch.passes import (
    Clock,
    MicrobatchPlanner,
    Pace,
    accumulate,
    alone,
    batch_scores,
    tokens_forwarded,
    with_padding_share,
)
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.policy_loading import HUB_COMMIT, PolicyLoader
from rlcore_plugin_torch.progress_file import read_progress, write_progress
from rlcore_plugin_torch.random_state import random_state, restore_random
from rlcore_plugin_torch.ranks import TorchRanks
from rlcore_plugin_torch.reference import mix, reference_tensors
from rlcore_plugin_torch.sharded_state import SHARDS, begin_saving, check_shards, read_tensors
from rlcore_plugin_torch.sharding import reshard
from rlcore_plugin_torch.utilisation import peak_flops, utilisation
from rlcore_plugin_torch.weights import (
    TorchSource,
    adapter_weights,
    exported_weights,
    named_weights,
    save_adapters,
    stored,
)

__all__ = ["TorchBackend"]

_log = logging.getLogger(__name__)
_BELONG = "the adapters of this checkpoint belong on the model that their run began with"


class TorchBackend(TrainingBackend):
    """Training with AdamW in float32, or in bfloat16 compute over float32 weights, gradients and moments.

    In bfloat16 the forward runs under autocast, so that gradients of micro-batches are still summed in float32. Snapshots leave the backend
    in bfloat16, and model checkpoints in float32, which an exact resume reads.

    Several ranks hold the same model, or divide it (``Layout``). Each computes the gradient of its share, and all of them clip and step on
    the sum.

    With ``context.lora`` only adapters are trained, and the reference model is the policy with its adapters switched off. A resumed trainer
    restores the weights below its adapters that its run began with, whichever model ``setup`` received.
    """

    capabilities = CAPABILITIES

    def __init__(self, context: TrainingContext | None = None, options: TorchOptions | None = None) -> None:
        self.options = options or TorchOptions()
        self.layout, self.ranks = Layout(), TorchRanks()
        if context is not None:
            check_context(context)
            Layout.of(context)

    def setup(self, context: TrainingContext) -> None:
        """Meet the other ranks, load the policy and try it. The reference model is loaded on first use, if it is needed.

        Raises ConfigError for a run that this backend cannot train, and RunError if the ranks loaded different weights.
        """
        check_context(context)
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        torch.manual_seed(context.seed)
        self.context = context
        self.device = pick_device(context.device, context.rank)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.layout = Layout.of(context)
        self.ranks = TorchRanks(
            rank=context.rank,
            layout=self.layout,
            rendezvous=context.rendezvous,
            deadline=self.options.ranks_deadline,
            device=self.device,
        )
        self.ranks.open()
        self._pace: Pace = self.ranks.in_step if self.layout.split else alone
        # The device is named, because the current device is set per thread, and updates may come from another thread.
        self.clock = Clock(partial(torch.cuda.synchronize, self.device)) if self.device.type == "cuda" else Clock()
        self._loader = PolicyLoader(context=context, options=self.options, ranks=self.ranks, device=self.device)
        self._reference_path = context.reference or context.model
        self._reference: CausalPolicy | None = None
        self._named = self._reference_path != context.model and not context.resumed  # `load` tells it of a resumed run
        self._moved = False
        self._begin_from(context.model)

    def _begin_from(self, path: str) -> None:
        """Load the model in ``path`` as the policy, with an optimizer that has taken no step."""
        context = self.context
        self.policy = self._load(path)
        self.adapters = self._loader.attach(self.policy, path)
        # Before the model is divided: these calls look at the whole model and at its single weights.
        self._parameters = sum(weight.numel() for weight in self.policy.model.parameters())
        self.policy.check_projection()
        self.cut = MicrobatchPlanner(
            rollouts=context.rollouts_per_forward,
            tokens=self._tokens_per_forward(),
            prompts=context.prompts_per_slice,
            packed=self._packs(),
            cost=self.policy.cost(),
        )
        if self.options.activations == "offload" and self.device.type == "cpu":
            self._tell(
                "activations 'offload' in [training.options]: the model is on the CPU, so layers are recomputed, as with 'recompute'"
            )
        store_activations(self.policy.model, self.options.activations)
        self.ranks.check_equal(self.policy.model)
        self._partial = self._loader.divide(self.policy)
        self.optimizer = Optimizer(self.policy.model, context.optimizer, self.ranks, offload="optimizer" in self.options.offload)

    def _tokens_per_forward(self) -> int:
        """Return the bound of the context; on a CPU at most the useful number, unless layers keep only their inputs."""
        bound = self.context.tokens_per_forward
        return min(bound, tokens_on_cpu(self.policy.model)) if self.device.type == "cpu" and self.options.activations == "keep" else bound

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        """Return float32[N]. Raises RunError if the reference is requested but the context did not declare a need of it."""
        if which == ModelRole.POLICY:
            return self._batch_logprobs(self.policy, batch)
        if Need.REFERENCE not in self.context.needs:
            raise RunError("the torch backend was asked for reference log probabilities, but its context did not declare Need.REFERENCE")
        if self.adapters is not None:
            with self.adapters.off():
                return self._batch_logprobs(self.policy, batch)
        reference = self._reference_policy()
        with on_device(reference, self.device, offload=self._reference_waits):
            return self._batch_logprobs(reference, batch)

    def logprobs_and_entropies(self, batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return both of the policy, float32[N], from one pass."""
        return self._scored(self.policy, batch, entropy=True)

    def _batch_logprobs(self, policy: CausalPolicy, batch: TrainBatch) -> np.ndarray:
        return self._scored(policy, batch, entropy=False)[0]

    def _scored(self, policy: CausalPolicy, batch: TrainBatch, *, entropy: bool) -> tuple[np.ndarray, np.ndarray]:
        with self.ranks.together("computing log probabilities"):
            found = batch_scores(policy, batch, self.cut, self._pace, entropy=entropy)
        reshard(policy)
        return found

    def sync_reference(self, share: float) -> None:
        """Move the reference towards the policy. Raises RunError with adapters, whose reference is the model below them."""
        if self.adapters is not None:
            raise RunError("with adapters the reference is the model without them, which does not move; type --reference-sync-steps 0")
        reference = self._reference_policy()
        with self.ranks.together("moving the reference"), on_device(reference, self.device, offload=self._reference_waits):
            mix(reference.model, self.policy.model, share)
        self._moved = True

    @property
    def _reference_waits(self) -> bool:
        """Whether the reference is in host memory between its uses."""
        return "reference" in self.options.offload

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Plan the forwards; then for each micro-batch: collate, forward, objective, backward. Sum over the ranks, clip and step once."""
        begun = time.monotonic()
        self.optimizer.zero_grad()
        metrics = self.ranks.sum_metrics(lambda: self._accumulate(batch, objective))
        self.ranks.sum_gradients(self.optimizer.parameters, self._partial)
        with self.clock.span("optimizer"):
            stepped = self.optimizer.step()
        return {**with_padding_share(metrics), **self._utilised(metrics, begun), **stepped}

    def _utilised(self, metrics: Mapping[str, float], begun: float) -> Mapping[str, float]:
        """Return ``mfu`` of the update that began at ``begun``, if the peak of the devices is known."""
        peak, tokens = peak_flops(self.device, self.context.dtype), tokens_forwarded(metrics)
        if peak is None or not tokens:
            return {}
        devices = max(1, self.context.world_size)
        return {"mfu": utilisation(self._parameters, tokens, time.monotonic() - begun, devices, peak)}

    def _accumulate(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        with self.ranks.together("computing gradients"):
            return accumulate(self.policy, batch, objective, self.cut, self.clock, self._pace)

    @property
    def data_parallel(self) -> tuple[int, int]:
        """The place on the data axis, and its size: tensor-parallel ranks work on one share together."""
        return self.layout.place(self.ranks.rank)[0], self.layout.data

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all data-parallel ranks, by place."""
        return self.ranks.gather(values)

    def cost(self, batch: TrainBatch, rows: np.ndarray) -> int:
        """Return the operations of linear layers, attention and projection, in units of one pair of tokens that attend to each other."""
        return self.cut.cost_of(batch, rows)

    def weight_source(self) -> TorchSource:
        """Return the weights in the precision of the forward pass; divided weights are gathered bucket by bucket.

        Returns only the adapters if the engines can apply them to the model that this trainer began with; otherwise merged weights.
        """
        lora, adapters, dtype = self.context.lora, self.adapters, self._loader.dtype
        if adapters is not None and lora is not None and lora.adapter_only and adapters.base == self.context.model:
            extra = {"config": adapters.config_text(), "base": adapters.base}
            return TorchSource(adapter_weights(adapters, dtype), self.ranks.rank, WeightsKind.ADAPTER, extra)
        return TorchSource(exported_weights(self.policy.model, dtype, adapters), self.ranks.rank)

    @torch.no_grad()
    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1], at temperature 1."""
        ids = torch.from_numpy(np.array(token_ids, np.int64)).to(self.device)
        with self.ranks.together("probing"):
            values = self.policy.probe(ids).float().cpu().numpy()
        reshard(self.policy)
        return values

    def save_model(self, folder: Path, dtype: str | None = None) -> None:
        """Write a Hugging Face checkpoint of the master weights, rounded to ``dtype`` if it is given.

        Adapters are merged, in the precision of the forward pass. Without ``dtype`` they are also written separately, in full precision.
        """
        model, adapters = self.policy.model, self.adapters
        own = self._loader.master_dtype if adapters is None else self._loader.dtype
        rounded: torch.dtype = own if dtype is None else getattr(torch, dtype)
        apart = adapters if dtype is None else None
        save_checkpoint(model, folder, rounded, exported_weights(model, rounded, adapters), self.ranks)
        if apart is not None:
            with self.ranks.together("gathering the adapters"):
                matrices = stored(adapter_weights(apart, self._loader.master_dtype), keep=self.ranks.rank == 0)
            self.ranks.write(lambda: save_adapters(apart, folder / "adapter", matrices))

    def save(self, folder: Path) -> PendingSave:
        """Save the optimizer, step count, random states, the path of the reference model, that model if it has moved and, in full
        precision, the adapters.

        The adapters are included because ``save_model`` merges them. The tensors of every rank are copied before this returns, and written
        in the background.
        """
        progress = self._progress()
        self.ranks.write(lambda: write_progress(folder, progress))
        return begin_saving(self._tensors(), folder / SHARDS, self.ranks.saving)

    def load(self, folder: Path) -> None:
        """Restore the state, in any layout, after ``setup`` on the model that ``save_model`` wrote next to it.

        Raises RunError if that is another model or has other weights, if the state is of another ``training.dtype``, or if a byte of it has
        changed since it was written.
        """
        state = read_progress(folder)
        if (saved := state["dtype"]) != (own := self.context.dtype):
            raise RunError(
                f"the trainer's state in {folder} was saved under training.dtype {saved}, and this run has {own}; "
                f"type --training-dtype {saved}"
            )
        self.ranks.agree(lambda: check_shards(folder / SHARDS, self.ranks.rank, self.ranks.size), "checking the files of the state")
        begun_with = self.context.reference or state["reference"]
        self._resume_adapters(state["adapters"], begun_with)
        self.optimizer.restore(state["optimizer"])
        # The checkpoint is the policy; the reference stays the model that the run began with, or is what it has moved to.
        self._reference_path, self._reference, self._named = begun_with, None, state.get("named", False)
        self._moved = state.get("moved", False) and Need.REFERENCE in self.context.needs
        read_tensors(self._tensors(), folder / SHARDS, self.ranks.saving)
        self._check_weights(state["weights"], folder)
        restore_random(state["random"], self.device)
        self.ranks.check_equal(self.policy.model)

    def _resume_adapters(self, saved: Mapping[str, Any] | None, base: str) -> None:
        """Put the adapters back on the model that the run began with; ``setup`` read a model into which they are merged."""
        if (saved is None) != (self.adapters is None):
            begun, here = ("without", "with") if saved is None else ("with", "without")
            raise RunError(f"the checkpoint is from a run {begun} adapters, but this run trains {here} them; type the same --lora-rank")
        if self.adapters is None or saved is None:
            return
        self.adapters.check_saved(saved)
        if self.adapters.base != base:
            _check_there(base, saved["base_files"])
            try:
                self._begin_from(base)
            except ConfigError as error:
                raise RunError(f"{_BELONG}: {error}") from error
        self.ranks.agree(partial(self.adapters.check_base, saved), "comparing the model below the adapters")

    def _progress(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.progress(),
            "random": random_state(self.device),
            "reference": self._reference_path,
            "named": self._named,
            "moved": self._moved,
            "dtype": self.context.dtype,
            "weights": self._checksums(),
            "adapters": None if self.adapters is None else self.adapters.saved(),
        }

    def _checksums(self) -> dict[str, int] | None:
        """Return the checksums of the policy's weights.

        Returns None with several ranks, and if the weights are frozen below adapters, because ``check_base`` compares the files of these.
        """
        return None if self.adapters is not None or self.ranks.size > 1 else self.ranks.checksums(named_weights(self.policy.model))

    def _check_weights(self, saved: Mapping[str, int] | None, folder: Path) -> None:
        found = self._checksums()
        if found is None or saved is None or found == saved:
            return
        name = next(name for name in sorted(found.keys() | saved.keys()) if found.get(name) != saved.get(name))
        raise RunError(
            f"the model that this trainer began from is not the one that was saved with the state in {folder}: its tensor {name!r} holds "
            "other values; name the model of the same checkpoint"
        )

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Return the current tensors that ``save`` writes and ``load`` fills."""
        weights = self.adapters.tensors() if self.adapters is not None else {}
        moved = reference_tensors(self._reference_policy().model) if self._moved else {}
        return {**self.optimizer.moments(), **{f"weight.{name}": weight.detach() for name, weight in weights.items()}, **moved}

    def sleep(self) -> None:
        """Move weights, moments and reference to host memory; only the CUDA context stays on the device. Nothing moves on a CPU."""
        self._move(torch.device("cpu"))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.ranks.everyone(np.zeros(0, np.uint8), "going to sleep")

    def wake(self) -> None:
        """Move everything back, except the tensors that the options keep in host memory."""
        self._move(self.device)
        self.ranks.everyone(np.zeros(0, np.uint8), "waking")

    def _move(self, device: torch.device) -> None:
        move_module(self.policy, device)
        self.optimizer.move(device)
        if self._reference is not None and (device.type == "cpu" or not self._reference_waits):
            move_module(self._reference, device)

    def timings(self) -> Mapping[str, float]:
        """Return the seconds in ``forward``, ``backward`` and ``optimizer`` of updates since the last call.

        With several ranks, ``exchange`` has the seconds of communication between them, including waits for slower ranks.
        """
        seconds, self.clock.seconds = self.clock.seconds, {}
        exchange, self.ranks.seconds = self.ranks.seconds, 0.0
        return {**seconds, "exchange": exchange} if self.ranks.size > 1 else seconds

    def close(self) -> None:
        """Leave the other ranks; release the models and their device memory."""
        self.ranks.close()
        self.__dict__.pop("policy", None)
        self.__dict__.pop("optimizer", None)
        self._reference = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _load(self, path: str) -> CausalPolicy:
        return self._loader.read(path)

    def _reference_policy(self) -> CausalPolicy:
        if self._reference is None:
            # A hook makes the first policy from the run's own model; a model that the user named is the reference as it is.
            self._reference = self._loader.read(self._reference_path, keeps_weights=self._named)
            if self.cut.packed:
                self._reference.use_packing(fused=self.policy.fused)
            self._reference.model.requires_grad_(False)
            self._loader.divide(self._reference)
        return self._reference

    def _packs(self) -> bool:
        """Return whether forwards are packed: as the options say, if the model computes the same when packed."""
        if self.options.packing == "off":
            return False
        if not (reason := self.policy.try_packing()):
            return True
        model = type(self.policy.model).__name__
        if self.options.packing == "on":
            raise RunError(f"training.options.packing 'on': {model} cannot be packed ({reason}); use 'auto' or 'off'")
        self._tell(f"forwards are padded, so updates take longer: {model} cannot be packed ({reason}); see padding_share in metrics.jsonl")
        return False

    def _tell(self, text: str) -> None:
        """Show the user one line, once for all ranks. The runtimes show the lines that a trainer writes to standard error."""
        if self.ranks.rank == 0:
            _log.warning("warning: %s", text)


def _check_there(base: str, files: Mapping[str, str]) -> None:
    """Raise RunError if the model below the adapters was read from a folder that no longer exists."""
    if HUB_COMMIT not in files and not Path(base).is_dir():
        raise RunError(
            f"{_BELONG}, and its folder {base} is gone; put it back there, or start a new run from the checkpoint's merged model"
        )
