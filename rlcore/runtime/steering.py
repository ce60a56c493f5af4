"""The controllers of a run: they see its updates and evaluations in order, and their decisions become one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError

from rlcore.config import Plan
from rlcore.config.control_rules import OF_LOSS
from rlcore.config.layers import as_typed, get_path, replaced
from rlcore.config.setting_table import core_settings, expected
from rlcore.contracts.control import Controller, Decision
from rlcore.contracts.errors import PluginError, RunError
from rlcore.contracts.runtime_interface import Runtime
from rlcore.contracts.specs import LABELS, PluginKind
from rlcore.registry.error_context import error_context
from rlcore.roles.part_states import load_state, save_state

__all__ = ["Control", "with_settings"]

T = TypeVar("T")

_SECONDS = 1.0
"""The seconds of one wait of the main thread, which runs the handlers of signals between two waits."""


class Control:
    """The controllers of a run, in the order in which the run names them. Without controllers, every method returns at once.

    ``settings`` holds the values that differ from the plan, by path. ``stopped`` is the reason that ended the run, "" if none did.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._deadline = plan.config.run.controller_deadline
        self._controllers: dict[str, Controller] = {}
        self._owners: dict[str, str] = {}
        for word, options in zip(plan.config.run.controllers, plan.controller_options, strict=True):
            name = plan.registry.spec(PluginKind.CONTROLLER, word).name  # the word may be the path of a file
            self._controllers[name] = plan.registry.make(PluginKind.CONTROLLER, word, options=options)
            self._owners[name] = plan.registry.owner(PluginKind.CONTROLLER, word)
        self._chosen: dict[str, dict[str, Any]] = {name: {} for name in self._controllers}
        """The values that each controller has set, as it gave them."""
        self.settings: dict[str, Any] = {}
        self.stopped = ""
        self._unseen: dict[int, Mapping[str, float]] = {}
        self._shown: int | None = None
        self._evaluation = -1
        """The newest evaluation that the controllers have seen; ``_unseen`` are later ones."""
        self.lacks_evaluation = False
        """Whether the evaluation of the checkpoint's step was asked for and is lost."""

    def __bool__(self) -> bool:
        return bool(self._controllers)

    def resume(self, runtime: Runtime, *, finished: bool) -> None:
        """Continue from the checkpoint of the plan, if it has one. A controller that the run did not have begins without a state.

        :param finished: the run had ended, and the user trains it further, so that a stop does not count."""
        if (point := self._plan.resume) is None or not self:
            return
        state = point.state.get("control", {})
        for name in self._controllers:
            path = point.checkpoint / "control" / f"{name}.npz"
            self._called(name, "restoring its state", partial(load_state, path, who=self._who(name)))
            self._chosen[name] = dict(state.get("chosen", {}).get(name, {}))
        self.settings, self._evaluation = self._combined(), state.get("evaluation", -1)
        self.stopped = "" if finished else state.get("stopped", "")
        self.lacks_evaluation = state.get("awaited") == point.step and point.step not in self._unseen
        if self.settings:
            runtime.control(point.step, self.settings)

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Keep an evaluation for the controllers, which see it before their next decision."""
        self._unseen[step] = MappingProxyType(dict(figures))

    def decide(self, step: int, figures: Mapping[str, float]) -> Decision:
        """Return what the controllers decide together after update ``step``: a stop wins, and evaluations and saves are or-ed."""
        self._shown = self._show_evaluations()
        seen, reasons, evaluate, save = MappingProxyType(dict(figures)), [], False, False
        for name, controller in self._controllers.items():
            given = self._called(name, f"deciding after update {step}", lambda one: one.step_finished(step, seen))
            decision = self._checked(name, controller, Decision() if given is None else given)
            self._chosen[name] |= {path: value.item() if isinstance(value, np.generic) else value for path, value in decision.set.items()}
            reasons += [f"{name}: {decision.stop}"] * bool(decision.stop)
            evaluate, save = evaluate or decision.evaluate, save or decision.save
        settings = self._combined()
        with_settings(self._plan, settings)
        self.settings, self.stopped = settings, "; ".join(reasons)
        return Decision(stop=self.stopped, evaluate=evaluate, save=save, set=settings)

    def _show_evaluations(self) -> int | None:
        """Show the controllers the evaluations that they have not seen, and return the step of the last one."""
        shown = None
        for step in sorted(step for step in self._unseen if step > self._evaluation):
            for name in self._controllers:
                self._called(name, f"seeing the evaluation of step {step}", partial(_evaluated, step, self._unseen[step]))
            self._evaluation = shown = step
        self._unseen.clear()
        return shown

    def figures(self, decision: Decision) -> dict[str, float]:
        """Return the decision as metrics: numbers that differ from the plan, 1 for a stop, an evaluation or a checkpoint, and the step of
        the evaluation that the controllers saw before it."""
        asked = {"stop": decision.stop, "evaluate": decision.evaluate, "save": decision.save}
        numbers = {name: 1.0 for name, value in asked.items() if value}
        numbers |= {} if self._shown is None else {"seen_evaluation": float(self._shown)}
        for path, value in decision.set.items():
            parts = {f"{path}/{place}": part for place, part in enumerate(value)} if isinstance(value, tuple | list) else {path: value}
            numbers |= {name: float(part) for name, part in parts.items() if isinstance(part, int | float)}
        return {f"control/{name}": number for name, number in numbers.items()}

    def begin_checkpoint(self, step: int) -> None:
        """Tell the controllers that a checkpoint of this step begins."""
        for name in self._controllers:
            self._called(name, f"seeing the checkpoint of step {step}", lambda one: one.checkpoint_begun(step))

    def save(self, checkpoint: Path) -> None:
        """Write the states of the controllers into a new checkpoint."""
        for name in self._controllers:
            (checkpoint / "control").mkdir(exist_ok=True)
            path = checkpoint / "control" / f"{name}.npz"
            self._called(name, "returning its state", partial(save_state, path, who=self._who(name), write=True))

    def state(self, awaited: int | None) -> dict[str, Any]:
        """Return JSON values for a checkpoint, under ``control``. ``awaited``: the step of an evaluation that is under way."""
        chosen = {name: dict(values) for name, values in self._chosen.items()}  # a checkpoint is written while the run continues
        state = {"chosen": chosen, "stopped": self.stopped, "evaluation": self._evaluation, "awaited": awaited}
        return {"control": state} if self else {}

    def _checked(self, name: str, controller: Controller, decision: Any) -> Decision:
        who = self._who(name)
        if not isinstance(decision, Decision):
            raise PluginError(f"{who} returned a {type(decision).__name__} from step_finished; it must return a Decision or None")
        for path, value in decision.set.items():
            if path not in {*controller.sets, *controller.scales}:
                raise PluginError(f"{who} changed {path}, which it does not declare; name it in sets or scales of its class")
            factor = isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0 <= value < float("inf")
            if path in controller.scales and not factor:
                raise RunError(f"{who} scaled {path} by {value!r}; a factor must be a finite number of at least 0")
        return decision

    def _combined(self) -> dict[str, Any]:
        """Return the values of all controllers: those that they set, or the plan's, times the factors."""
        combined: dict[str, Any] = {}
        for name, controller in self._controllers.items():
            combined |= {path: value for path, value in self._chosen[name].items() if path in controller.sets}
        for path in {path for name, one in self._controllers.items() for path in one.scales if path in self._chosen[name]}:
            factors = [self._chosen[name].get(path, 1.0) for name, one in self._controllers.items() if path in one.scales]
            combined[path] = combined.get(path, _value(self._plan, path)) * prod(factors)
        return combined

    def _who(self, name: str) -> str:
        return f"{LABELS[PluginKind.CONTROLLER]} {name!r} of {self._owners[name]}"

    def _called(self, name: str, doing: str, call: Callable[[Controller], T]) -> T:
        """Call a controller in a thread of its own. Raise RunError if it raises, or does not return in time."""
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(call(self._controllers[name]))
            except BaseException as error:  # it is raised again in the thread of the loop
                answer.set_exception(error)

        threading.Thread(target=work, name=f"controller {name}", daemon=True).start()
        waited = 0.0
        while not wait((answer,), _SECONDS).done:
            if (waited := waited + _SECONDS) >= self._deadline:
                raise RunError(
                    f"{self._who(name)} did not return in {self._deadline:g} s from {doing}; mend it, leave it out of --controllers, or "
                    "raise --controller-deadline"
                )
        with error_context(self._who(name), doing):
            return answer.result()


def _evaluated(step: int, figures: Mapping[str, float], controller: Controller) -> None:
    controller.evaluated(step, figures)


def with_settings(plan: Plan, settings: Mapping[str, Any]) -> Plan:
    """Return the plan with other values of settings that may change. Raises RunError for a value that a setting cannot have."""
    config, loss = plan.config, plan.loss_options
    of_loss = {path.removeprefix(OF_LOSS): value for path, value in settings.items() if path.startswith(OF_LOSS)}
    for path, value in settings.items():
        section, _, key = path.partition(".")
        if not path.startswith(OF_LOSS):
            part = getattr(config, section)
            config = replaced(config, section, _valid(type(part), {**part.model_dump(), key: value}, path, value))
    bounds = config.algorithm.filter_range
    if bounds is not None and not bounds[0] < bounds[1]:
        raise RunError(f"a controller set algorithm.filter_range to {as_typed(bounds)}; the first bound must be below the second")
    for key, value in of_loss.items():
        if loss is not None:
            loss = _valid(type(loss), {**loss.model_dump(), key: value}, f"{OF_LOSS}{key}", value)
    return replace(plan, config=config, loss_options=loss) if settings else plan


def _valid(model: type[BaseModel], given: Mapping[str, Any], path: str, value: Any) -> Any:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        setting = core_settings().get(path)
        rule = f"it must be {expected(setting.type)}" if setting is not None else error.errors()[0]["msg"]
        raise RunError(f"a controller set {path} to {as_typed(value)}; {rule}") from None


def _value(plan: Plan, path: str) -> Any:
    return getattr(plan.loss_options, path.removeprefix(OF_LOSS)) if path.startswith(OF_LOSS) else get_path(plan.config, path)
