"""Forwards and backwards of one optimizer step, through the wrappers that ColossalAI has put around model and optimizer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from rlcore.api import Need, Objective
from rlcore.learning import MicroBatch
from rlcore_plugin_colossalai.boosted_model import BoostedModel
from rlcore_plugin_colossalai.colossal_optimizer import ColossalOptimizer

__all__ = ["GradientPass", "PassClock"]


class PassClock:
    """Seconds by part, each measured once the device has finished the work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def span(self, part: str) -> Iterator[None]:
        """Add the time of the body to ``part``."""
        start = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


class GradientPass:
    """The forwards and backwards of one step.

    An error of the objective is kept until this rank has made every forward and backward that other ranks wait for; ``metrics`` then raises
    it.
    """

    def __init__(self, policy: BoostedModel, booster: Any, optimizer: ColossalOptimizer, objective: Objective, clock: PassClock) -> None:
        self.policy, self.booster, self.optimizer, self.objective, self.clock = policy, booster, optimizer, objective, clock
        self.layout = policy.layout
        self._totals: dict[str, torch.Tensor] = {}
        self._failure: Exception | None = None

    def run(self, micros: Sequence[MicroBatch], most: int) -> None:
        """Compute the gradients, summed over all ranks. ``most``: the largest number of forwards of any replica."""
        self.optimizer.zero_grad()
        idle = torch.zeros(1, 2, dtype=torch.int64, device=self.policy.device)
        inputs = [*(micro.input_ids for micro in micros), *[idle] * (most - len(micros))]
        averaged = self.layout.pipeline > 1 or self.optimizer.stage > 0
        scale = self.layout.data if averaged else 1

        def criterion(number: int, output: Any) -> torch.Tensor:
            if number < len(micros):
                return self._loss(output, micros[number]) * scale
            return output.logits.sum().float() * 0

        if self.layout.pipeline > 1:
            with self.clock.span("pipeline"):
                self.policy.run_pipeline(inputs, criterion, self.booster, self.optimizer.wrapper)
            return
        model, wrapper = self.policy.model, self.optimizer.wrapper
        with nullcontext() if self.optimizer.stage else self.booster.no_sync(model, wrapper):
            for number, token_ids in enumerate(inputs):
                with self.clock.span("forward"):
                    loss = criterion(number, self.policy.forward(token_ids))
                with self.clock.span("backward"):
                    wrapper.backward(loss)
        if self.policy.multiple > 1 and not self.optimizer.stage:
            model.sync_sp_grads()  # no_sync left this out; ZeRO has done it
        if not averaged and self.layout.data > 1:
            self._sum_over_data()

    def _sum_over_data(self) -> None:
        for item in self.optimizer.weights.own.values():
            if item.grad is None:
                item.grad = torch.zeros_like(item)
            dist.all_reduce(item.grad, group=self.optimizer.weights.data_group)

    def _loss(self, output: Any, micro: MicroBatch) -> torch.Tensor:
        logprobs, entropy = self.policy.logprobs(output, micro, entropy=Need.ENTROPY in self.objective.needs)
        loss = logprobs.sum() * 0
        try:
            if self._failure is None:
                loss, metrics = self.objective(logprobs, micro.loss_batch(logprobs, entropy))
                for name, value in metrics.items():
                    self._totals[name] = self._totals.get(name, torch.zeros((), dtype=torch.float64)) + value.detach().double().cpu()
        except Exception as error:
            self._failure = error
        return loss

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics of this rank's micro-batches, summed. Raises the error of the objective if it had one."""
        if self._failure is not None:
            raise self._failure
        return {name: float(value) for name, value in self._totals.items()}
