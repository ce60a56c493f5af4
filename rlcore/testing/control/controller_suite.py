"""Conformance suite for controllers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from rlcore.contracts.control import Controller, Decision

__all__ = ["ControllerSuite"]


class ControllerSuite(ABC):
    """The rules of a controller. A subclass defines how to make it, and the figures that it sees."""

    @abstractmethod
    def make(self) -> Controller:
        """Return a fresh controller."""

    def figures(self) -> Sequence[Mapping[str, float]]:
        """Return the figures of a run, one mapping for each update. By default the reward rises, stays for long, then falls."""
        return [
            {"reward/mean": min(step, 6) / 8 - max(step - 18, 0) / 9, "kl_reference": 0.02 * step, "loss": 0.1, "entropy": 2.0 / step}
            for step in range(1, 25)
        ]

    def evaluations(self) -> Mapping[int, Mapping[str, float]]:
        """Return the figures of evaluations by their step. By default one after every second update, which soon stays the same."""
        return {step: {"eval/heldout": min(step, 6) / 12} for step in range(0, 24, 2)}

    def test_it_decides_something(self) -> None:
        """Some update leads to a decision: otherwise the other rules compare nothing. Override ``figures`` or ``evaluations`` for it."""
        assert any(decision != Decision() for _, decision in self._walk(self.make(), 0)), (
            "no update of the run led to a decision; override figures and evaluations with such as lead to one"
        )

    def test_decisions_are_of_the_contract(self) -> None:
        """Each decision is a ``Decision`` or None, sets what the class declares, and scales by finite numbers of at least 0."""
        controller = self.make()
        declared = {*controller.sets, *controller.scales}
        for step, decision in self._walk(controller, 0):
            assert isinstance(decision, Decision), f"update {step}: step_finished returned {decision!r}, a Decision or None is due"
            undeclared = set(decision.set) - declared
            assert not undeclared, f"update {step}: it changes {min(undeclared)}, which is in neither sets nor scales of its class"
            for path in decision.set.keys() & set(controller.scales):
                factor = decision.set[path]
                assert isinstance(factor, int | float), f"update {step}: the factor of {path} is {factor!r}"
                assert 0 <= factor < math.inf, f"update {step}: the factor of {path} is {factor!r}"
            assert isinstance(decision.stop, str), f"update {step}: the reason to stop is {decision.stop!r}, a text is due"

    def test_the_same_run_has_the_same_decisions(self) -> None:
        """Two controllers that see the same figures decide the same. They use no clock and no random numbers, and share nothing."""
        first, second = list(self._walk(self.make(), 0)), list(self._walk(self.make(), 0))
        assert first == second, f"the first run decided {first}, the same run again {second}"

    def test_a_resumed_run_decides_the_same(self) -> None:
        """A controller that continues from the state after any update decides as the one that was not interrupted."""
        whole = list(self._walk(self.make(), 0))
        walked = self.make()
        for step, _ in self._walk(walked, 0):
            state = {name: np.asarray(value) for name, value in walked.state().items()}
            strange = [name for name, value in state.items() if value.dtype.kind not in "biufU"]
            assert not strange, f"{strange[0]} of the state is of type {state[strange[0]].dtype}; numbers and texts can be saved"
            resumed = self.make()
            if state:
                resumed.restore(state)
            rest = list(self._walk(resumed, step))
            assert rest == whole[step:], f"resumed after update {step} it decided {rest}, without the interruption {whole[step:]}"

    def _walk(self, controller: Controller, done: int) -> Iterator[tuple[int, Decision]]:
        evaluations = self.evaluations()
        for step, figures in enumerate(self.figures(), start=1):
            if step <= done:
                continue
            if step - 1 in evaluations:
                controller.evaluated(step - 1, MappingProxyType(dict(evaluations[step - 1])))
            decision = controller.step_finished(step, MappingProxyType(dict(figures)))
            yield step, Decision() if decision is None else decision
