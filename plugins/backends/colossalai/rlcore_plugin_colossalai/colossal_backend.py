"""The ColossalAI training backend: a Hugging Face causal language model, whole or divided between ranks by ColossalAI's plugins."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcore.api import ConfigError, ModelRole, Need, Objective, RunError, TrainBatch, TrainingBackend, TrainingContext
from rlcore.learning import MicroBatch, collate, plan_micro_batches
from rlcore_plugin_colossalai import CAPABILITIES
from rlcore_plugin_colossalai.boosted_model import BoostedModel, check_model, configuration_file, load_model, make_plugin
from rlcore_plugin_colossalai.checkpoint_files import SavedState, write_head, write_state_head, write_tensors
from rlcore_plugin_colossalai.colossal_layout import ColossalLayout
from rlcore_plugin_colossalai.colossal_optimizer import ColossalOptimizer, make_adamw
from rlcore_plugin_colossalai.cpu_shim import activate
from rlcore_plugin_colossalai.gradient_pass import GradientPass, PassClock
from rlcore_plugin_colossalai.options import ColossalOptions
from rlcore_plugin_colossalai.rank_group import RankGroup
from rlcore_plugin_colossalai.sharded_weights import ColossalSource, Weights, outline

__all__ = ["ColossalBackend"]


class ColossalBackend(TrainingBackend):
    """Training with AdamW in float32. In bfloat16 ColossalAI's ZeRO keeps weights and gradients in bfloat16, masters and moments in
    float32.

    Gradients of all ranks are summed. If ColossalAI averages them (ZeRO, its pipeline), the loss is multiplied by the divisor.
    """

    capabilities = CAPABILITIES

    def __init__(self, context: TrainingContext | None = None, options: ColossalOptions | None = None) -> None:
        self.options = options or ColossalOptions()
        if context is not None:
            _check(context, self.options)

    def setup(self, context: TrainingContext) -> None:
        """Meet the other ranks, load the policy and let ColossalAI divide it. The reference is loaded on first use."""
        _check(context, self.options)
        warnings.filterwarnings("ignore", message="Please install")  # about packages that would make ColossalAI faster, at each import
        warnings.filterwarnings("ignore", category=FutureWarning, module="colossalai")  # about its calls to a newer torch
        activate()
        torch.manual_seed(context.seed)
        self.context, self.layout = context, ColossalLayout.of(context, self.options.sequence_parallel)
        check_model(context.model, self.layout)
        self.device = _device(context)
        self.group = RankGroup(context, self.options.ranks_deadline, self.device)
        self.clock = PassClock()
        self._boost()
        self._reference_path, self._reference = context.reference or context.model, None

    def _boost(self) -> None:
        from colossalai.booster import Booster

        context, layout = self.context, self.layout
        model = load_model(context.model, self.options.attention, context).to(self.device)
        self._configuration = configuration_file(context.model).read_text(encoding="utf-8")
        vocabulary = int(model.get_output_embeddings().weight.shape[0])
        shapes, embedding = outline(model), model.get_input_embeddings().weight
        tied = next((name for name, weight in model.named_parameters() if weight is embedding), "")
        adamw = make_adamw(model, context.optimizer, self.options.adam)
        self.plugin = make_plugin(layout, context.dtype, self.options.sequence_parallel)
        self.booster = Booster(plugin=self.plugin)
        try:
            boosted, wrapper, *_ = self.booster.boost(model, adamw)
        except (AssertionError, NotImplementedError, KeyError) as error:
            raise ConfigError(f"ColossalAI does not divide model {context.model!r} ({type(model).__name__}): {error}") from error
        boosted.eval()
        multiple = layout.tensor if self.options.sequence_parallel != "none" else 1
        self.policy = BoostedModel(boosted, self.plugin, layout, vocabulary, multiple)
        weights = self._weights(boosted, shapes, tied)
        self.optimizer = ColossalOptimizer(wrapper, layout.stage(context.dtype), weights, layout, self.group, context.optimizer)

    def _weights(self, boosted: Any, shapes: Mapping[str, torch.Size], tied: str) -> Weights:
        from colossalai.tensor.d_tensor import is_distributed_tensor

        # A tied head alone on its stage has the name of the head.
        own = {(name if name in shapes else tied): weight for name, weight in boosted.unwrap().named_parameters()}
        names, stages = list(shapes), {}
        held = self.group.everyone(np.array([name in own for name in names]), "comparing the ranks' parameters")
        for rank in reversed(range(self.layout.size)):
            stages |= {name: self.layout.place(rank)[1] for name, there in zip(names, held[rank], strict=True) if there}
        return Weights(
            shapes=shapes,
            own=own,
            owners=stages,
            layout=self.layout,
            rank=self.group.rank,
            tensor_group=getattr(self.plugin, "tp_group", None),
            pipeline_group=getattr(self.plugin, "pp_group", None),
            data_group=getattr(self.plugin, "dp_group", None),
            sliced=frozenset(name for name, weight in own.items() if self.layout.tensor > 1 and is_distributed_tensor(weight)),
        )

    # --- log probabilities -------------------------------------------------------------------------------------------------

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        """Return float32[N]. Raises RunError if the reference is requested but the context did not declare a need of it."""
        if which == ModelRole.REFERENCE and Need.REFERENCE not in self.context.needs:
            raise RunError(
                "the colossalai backend was asked for reference log probabilities, but its context did not declare Need.REFERENCE"
            )
        model = self.policy if which == ModelRole.POLICY else self._reference_model()
        return self._forward_all(model, batch)

    @torch.no_grad()
    def _forward_all(self, model: BoostedModel, batch: TrainBatch) -> np.ndarray:
        micros = [collate(batch, rows, device=model.device) for rows in self._plan(batch, everything=True)]
        values = np.zeros(int(batch.offsets[-1]), np.float32)

        def keep(number: int, output: Any) -> torch.Tensor:
            if number < len(micros):
                micro = micros[number]
                found = model.logprobs(output, micro, entropy=False)[0]
                values[micro.index] = found.float().cpu().numpy()
            return torch.zeros((), device=model.device)

        self._run(model, [micro.input_ids for micro in micros], keep)
        return self._from_last_stage(values)

    def _run(self, model: BoostedModel, inputs: list[torch.Tensor], keep: Any) -> None:
        """Run only forwards; tensor-parallel ranks and pipeline stages of one replica have the same ``inputs``."""
        if not inputs:
            return
        if self.layout.pipeline > 1:
            model.run_pipeline(inputs, keep)
            return
        for number, token_ids in enumerate(inputs):
            keep(number, model.forward(token_ids))

    def _from_last_stage(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the last stage of this rank's replica."""
        if self.layout.pipeline == 1:
            return values
        place, _, tensor = self.layout.place(self.group.rank)
        shards = self.layout.tensor * self.layout.pipeline
        return self.group.everyone(values, "distributing log probabilities")[place * shards + shards - self.layout.tensor + tensor].copy()

    @torch.no_grad()
    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """int32[T] -> float32[T-1], at temperature 1."""
        ids = torch.from_numpy(np.array(token_ids, np.int64)).to(self.policy.device)
        values = np.zeros(len(ids) - 1, np.float32)

        def keep(number: int, output: Any) -> torch.Tensor:
            if number == 0:
                log_p = self.policy.logits(output, torch.arange(len(values), device=ids.device)).log_softmax(-1)
                values[:] = log_p.gather(1, ids[1:, None]).squeeze(1).cpu().numpy()
            return torch.zeros((), device=ids.device)

        self._run(self.policy, [ids[None]], keep)
        return self._from_last_stage(values)

    def _plan(self, batch: TrainBatch, everything: bool = False) -> list[np.ndarray]:
        return plan_micro_batches(
            batch,
            rollouts=self.context.rollouts_per_forward,
            tokens=self.context.tokens_per_forward,
            prompts=self.context.prompts_per_slice,
            everything=everything,
        )

    def _reference_model(self) -> BoostedModel:
        if self._reference is None:
            model: Any = load_model(self._reference_path, self.options.attention, self.context).to(self.device)
            if self.layout.tensor * self.layout.pipeline > 1:
                model, *_ = self.booster.boost(model)
            else:
                model = model.to(getattr(torch, self.context.dtype))
            self._reference = BoostedModel(model.eval(), self.plugin, self.layout, self.policy.vocabulary, self.policy.multiple)
        return self._reference

    # --- one step ----------------------------------------------------------------------------------------------------------

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Plan the forwards; then run forward, objective and backward of each micro-batch, and step.

        Every replica makes as many forwards as the one with the most.
        """
        plans: list[list[np.ndarray]] = []

        def plan() -> Mapping[str, float]:
            plans.append(self._plan(batch))
            return {"forwards": len(plans[0])}

        most = int(max(found["forwards"] for found in self.group.agreed(plan, "planning forwards")))
        if most == 0:
            return self.optimizer.skip()
        micros: list[MicroBatch] = [collate(batch, rows, device=self.policy.device) for rows in plans[0]]
        work = GradientPass(self.policy, self.booster, self.optimizer, objective, self.clock)
        work.run(micros, most)
        metrics = self._summed(work)
        with self.clock.span("optimizer"):
            return {**metrics, **self.optimizer.step()}

    def _summed(self, work: GradientPass) -> dict[str, float]:
        """Return the sum of the metrics of the last stages, one rank per replica. An error of one rank is raised on all."""
        totals: dict[str, float] = {}
        for rank, found in enumerate(self.group.agreed(work.metrics, "adding up the metrics of the shares")):
            _, stage, tensor = self.layout.place(rank)
            if stage == self.layout.pipeline - 1 and tensor == 0:
                for name, value in found.items():
                    totals[name] = totals.get(name, 0.0) + value
        return totals

    @property
    def data_parallel(self) -> tuple[int, int]:
        """The place on the data axis, and its size."""
        return self.layout.place(self.group.rank)[0], self.layout.data

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all data-parallel ranks, by place."""
        return self.group.everyone(values)[:: self.layout.tensor * self.layout.pipeline]

    def timings(self) -> Mapping[str, float]:
        """Return the seconds of updates since the last call in ``forward``, ``backward`` and ``optimizer``.

        With pipeline stages, whose forwards and backwards alternate, ``pipeline`` has both. Waits for other ranks count in the part in
        which they occur.
        """
        seconds, self.clock.seconds = self.clock.seconds, {}
        return seconds

    # --- saving, loading ----------------------------------------------------------------------------------------------------

    def weight_source(self) -> ColossalSource:
        """Return the weights in the precision of the forward pass, gathered bucket by bucket."""
        return ColossalSource(self.optimizer.weights, self.context.dtype)

    def save_model(self, folder: Path, dtype: str | None = None) -> None:
        """Write a Hugging Face checkpoint of the weights of the forward pass; the float32 masters of bfloat16 are in the state."""
        weights = self.optimizer.weights
        sizes = {info.name: info.nbytes for info in self.weight_source().manifest().tensors}

        def write() -> None:
            whole = (weights.whole(name, weights.own.get(name)) for name in sizes)
            placed = write_tensors(folder, "model", sizes, whole, writes=self.group.rank == 0)
            if self.group.rank == 0:
                write_head(folder, self._configuration, self.context.dtype, placed, sizes)

        self.group.together(write, "saving the model")

    def save(self, folder: Path) -> None:
        """Save whole moments and masters, by Hugging Face name, so that any layout can resume; also steps, random state, and the
        reference's path."""
        head = {"dtype": self.context.dtype, "reference": self._reference_path, "random": torch.get_rng_state()}

        def write() -> None:
            sizes, whole = self.optimizer.sizes(), self.optimizer.whole()
            placed = write_tensors(folder, "state", sizes, whole, writes=self.group.rank == 0)
            if self.group.rank == 0:
                write_state_head(folder, {**head, "steps": self.optimizer.steps}, placed)

        self.group.together(write, "saving the state")

    def load(self, folder: Path) -> None:
        """Restore the state after ``setup`` on the model that ``save_model`` wrote next to it.

        Raises RunError for a state that is damaged or of another dtype.
        """
        state = SavedState(folder)
        if state.head["dtype"] != self.context.dtype:
            raise RunError(
                f"the trainer's state in {folder} was saved under training.dtype {state.head['dtype']}, and this run has "
                f"{self.context.dtype}; type --training-dtype {state.head['dtype']}"
            )
        self.optimizer.restore(state.head["steps"], state.tensor)
        torch.set_rng_state(state.head["random"])
        self._reference_path, self._reference = self.context.reference or state.head["reference"], None

    def close(self) -> None:
        """Leave the other ranks; release the models."""
        for name in ("policy", "optimizer", "booster", "plugin", "_reference"):
            self.__dict__.pop(name, None)
        if group := self.__dict__.pop("group", None):
            group.close()


def _check(context: TrainingContext, options: ColossalOptions) -> None:
    if context.lora is not None:
        raise ConfigError("training.lora_rank: the colossalai backend trains whole weights only; type --lora-rank 0, or --trainer torch")
    if context.dtype not in CAPABILITIES.dtypes:
        raise ConfigError(f"training.dtype {context.dtype!r} is not supported by the colossalai backend; use bfloat16 or float32")
    ColossalLayout.of(context, options.sequence_parallel)


def _device(context: TrainingContext) -> torch.device:
    """Return the device of this rank. ColossalAI uses CUDA whenever it is available."""
    kind = context.device.split(":")[0]
    there = torch.cuda.is_available()
    if kind not in ("auto", "cpu", "cuda") or (kind == "cuda" and not there):
        raise ConfigError(f"training.device {context.device!r}: the colossalai backend finds no such device here; use cpu or auto")
    if kind == "cpu" and there:
        raise ConfigError(
            "training.device 'cpu': ColossalAI uses the CUDA device of this machine; hide it (CUDA_VISIBLE_DEVICES=) or use auto"
        )
    if not there:
        return torch.device("cpu")
    device = torch.device("cuda", context.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
