"""A training backend of two pipeline stages in one process, in torch, with a micro-batch loop of its own.

The model is the FakePolicy, so that the fake engine serves its weights: stage 0 embeds the last token (table ``last``), stage 1 adds what
the last two tokens say (table ``pair``) and projects by a head that is the identity. Micro-batches run one forward, one backward, two in
flight; activations are cut at the boundary and their gradient is handed back, as between two devices. Only the last stage's output ever
meets the objective. Axes: ``B`` rows, ``T`` width, ``V`` vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import ModelRole, Need, Objective, TrainingBackend, TrainingContext
from rlcore.contracts.training_settings import OptimizerSettings
from rlcore.learning import MicroBatch, collate, learning_rate, plan_micro_batches
from rlcore.testing.fake_plugin import PIPELINE_TRAINING
from rlcore.testing.policy import FakePolicy
from rlcore.testing.weights import HostSource

__all__ = ["FakePipeline", "one_forward_one_backward"]

STATE = "fake_pipeline.pt"


def one_forward_one_backward(count: int) -> Iterator[tuple[str, int]]:
    """Yield the schedule of two stages: F0 F1 B0 F2 B1 … so that two micro-batches at most are between forward and backward."""
    for place in range(count + 1):
        if place < count:
            yield "forward", place
        if place > 0:
            yield "backward", place - 1


class FirstStage(torch.nn.Module):
    """int64[B, T] -> [B, T, V]: the row of each token."""

    def __init__(self, last: torch.Tensor) -> None:
        super().__init__()
        self.last = torch.nn.Parameter(last)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(input_ids, self.last)


class LastStage(torch.nn.Module):
    """[B, T, V] -> [B, T, V]: the input plus the row of each pair of tokens; ``head`` is the projection that follows."""

    head: torch.Tensor

    def __init__(self, pair: torch.Tensor) -> None:
        super().__init__()
        self.pair = torch.nn.Parameter(pair)
        self.register_buffer("head", torch.eye(pair.shape[1], dtype=pair.dtype))

    def forward(self, arrived: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        vocabulary = self.pair.shape[1]
        before = torch.nn.functional.pad(input_ids[:, :-1], (1, 0), value=vocabulary)
        return arrived + torch.nn.functional.embedding(before * vocabulary + input_ids, self.pair)


@dataclass
class MicroInFlight:
    """A micro-batch between its forward on stage 0 and its backward: the output of stage 0, and the copy that crossed the boundary."""

    micro: MicroBatch
    made: torch.Tensor
    crossed: torch.Tensor


class FakePipeline(TrainingBackend):
    """TrainingBackend over the two stages; ``context.model`` is a folder of ``write_fake_model``."""

    capabilities = PIPELINE_TRAINING

    def __init__(self, context: TrainingContext | None = None, options: None = None) -> None:
        self.most_in_flight = 0
        self.moved = False

    def setup(self, context: TrainingContext) -> None:
        """Build both stages, their optimizer, and a second pair as the reference if it is needed."""
        self.context = context
        self.stages = self._load(context.model)
        self.reference = self._load(context.reference or context.model) if Need.REFERENCE in context.needs else None
        settings = context.optimizer
        self.parameters = [parameter for stage in self.stages for parameter in stage.parameters()]
        self.optimizers = self._built(settings)
        self.steps = 0

    def _built(self, settings: OptimizerSettings) -> Sequence[torch.optim.Optimizer]:
        if settings.optimizer is not None:
            named = dict(zip(self.policy.arrays(), self.parameters, strict=True))
            return settings.optimizer.build(named, settings, tables=set(list(named)[:1]))
        return [torch.optim.AdamW(self.parameters, lr=1.0, betas=settings.betas, weight_decay=settings.weight_decay)]

    def _load(self, model: str) -> tuple[FirstStage, LastStage]:
        policy, dtype = FakePolicy.load(model), getattr(torch, self.context.dtype)
        return FirstStage(torch.tensor(policy.last, dtype=dtype)), LastStage(torch.tensor(policy.pair, dtype=dtype))

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        """Return log probabilities, float32[N], by a forward through both stages."""
        stages = self.stages if which is ModelRole.POLICY else self.reference
        if stages is None:
            raise RunError("the fake pipeline holds no reference model: Need.REFERENCE was not declared")
        return self._scored(batch, stages)[0]

    def logprobs_and_entropies(self, batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return both of the policy, float32[N]."""
        return self._scored(batch, self.stages)

    def _scored(self, batch: TrainBatch, stages: tuple[FirstStage, LastStage]) -> tuple[np.ndarray, np.ndarray]:
        result, entropies = np.zeros((2, len(batch.advantages)), np.float32)
        with torch.no_grad():
            for rows in self._plan(batch, everything=True):
                micro = collate(batch, rows)
                hidden = stages[1](stages[0](micro.input_ids), micro.input_ids)
                result[micro.index], entropies[micro.index] = self._project(hidden, micro, stages[1], entropy=True)
        return result, entropies

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Take one optimizer step: the schedule over the micro-batches, then clipping and AdamW."""
        plan = self._plan(batch)
        flying: dict[int, MicroInFlight] = {}
        metrics: Counter[str] = Counter()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        for phase, place in one_forward_one_backward(len(plan)):
            if phase == "forward":
                flying[place] = self._forward(collate(batch, plan[place]))
                self.most_in_flight = max(self.most_in_flight, len(flying))
            else:
                metrics.update(self._backward(flying.pop(place), objective))
        return {**metrics, **self._step()}

    def _plan(self, batch: TrainBatch, everything: bool = False) -> list[np.ndarray]:
        return plan_micro_batches(
            batch,
            rollouts=self.context.rollouts_per_forward,
            tokens=self.context.tokens_per_forward,
            prompts=self.context.prompts_per_slice,
            everything=everything,
        )

    def _forward(self, micro: MicroBatch) -> MicroInFlight:
        made = self.stages[0](micro.input_ids)
        return MicroInFlight(micro, made, made.detach().requires_grad_())

    def _backward(self, flight: MicroInFlight, objective: Objective) -> dict[str, float]:
        """Run stage 1 forward, objective and backward, then stage 0 backward from the boundary's gradient."""
        micro, last = flight.micro, self.stages[1]
        hidden = last(flight.crossed, micro.input_ids)
        logprobs, entropy = self._project(hidden, micro, last, entropy=Need.ENTROPY in objective.needs)
        loss, metrics = objective(logprobs, micro.loss_batch(logprobs, entropy))
        loss.backward()  # type: ignore[no-untyped-call]
        flight.made.backward(flight.crossed.grad)  # type: ignore[no-untyped-call]
        return {name: float(value) for name, value in metrics.items()}

    def _project(self, hidden: torch.Tensor, micro: MicroBatch, last: LastStage, entropy: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        chosen = hidden.flatten(0, 1)[micro.select]
        divisor = micro.temperature
        if isinstance(divisor, torch.Tensor):
            divisor = divisor.to(chosen.dtype)[:, None]
        log_p = (chosen @ last.head.t() / divisor).log_softmax(-1)
        logprobs = log_p.gather(1, micro.targets[:, None]).squeeze(1)
        return logprobs, -(log_p.exp() * log_p).sum(-1) if entropy else None

    def _step(self) -> dict[str, float]:
        settings = self.context.optimizer
        rate = learning_rate(settings, self.steps)
        if self.parameters[0].grad is None:  # nothing was in the loss
            return {"grad_norm": 0.0, "learning_rate": rate}
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, settings.max_grad_norm))
        if not math.isfinite(norm):
            return {"grad_norm": norm, "learning_rate": rate, "skipped_steps": 1.0}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("lr_scale", 1.0)
            optimizer.step()
        self.steps += 1
        return {"grad_norm": norm, "learning_rate": rate}

    @property
    def policy(self) -> FakePolicy:
        """The present weights of both stages, copied, as float32."""
        return FakePolicy(*(parameter.detach().numpy() for parameter in self.parameters))

    def sync_reference(self, share: float) -> None:
        """Move both stages of the reference."""
        if self.reference is None:
            raise RunError("the fake pipeline holds no reference model: Need.REFERENCE was not declared")
        with torch.no_grad():
            for stage, new in zip(self.reference, self.stages, strict=True):
                for own, parameter in zip(stage.parameters(), new.parameters(), strict=True):
                    own.lerp_(parameter, share)
        self.moved = True

    def weight_source(self) -> HostSource:
        """Return the weights of both stages as they stand, copied."""
        return HostSource(dict(self.policy.tensors()))

    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """Return log probabilities: int32[T] -> float32[T - 1], at temperature 1."""
        return self.policy.logprobs(token_ids).astype(np.float32)

    def save_model(self, folder: Path, dtype: str | None = None) -> None:
        """Write the policy in the form that ``setup`` loads."""
        self.policy.save(folder)

    def save(self, folder: Path) -> None:
        """Write parameters in their own precision, optimizer, step count, and a reference that has moved."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        state = {"parameters": self.parameters, "optimizers": optimizers, "steps": self.steps}
        if self.moved and self.reference is not None:
            state["reference"] = [stage.state_dict() for stage in self.reference]
        torch.save(state, folder / STATE)

    def load(self, folder: Path) -> None:
        """Read the file that ``save`` wrote; RunError if the file is not whole."""
        try:
            state = torch.load(folder / STATE, weights_only=True)
        except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
            raise RunError(f"the fake trainer's state in {folder} cannot be read: {error}; resume from another checkpoint") from error
        with torch.no_grad():
            for parameter, stored in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(stored)
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        self.steps = state["steps"]
        self.moved = "reference" in state and self.reference is not None
        for stage, stored in zip(self.reference or (), state.get("reference", ()), strict=False):
            stage.load_state_dict(stored)
