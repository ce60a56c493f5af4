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
from rlcore.config.algorithm_rules import range_without_groups
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
            self._owners[name] = plan.registry.owner(PluginKind.CONTROLLER, word)
            make = partial(plan.registry.make, PluginKind.CONTROLLER, word, options=options)
            self._controllers[name] = self._in_time(name, "being made", make)
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

        What a controller had set that the run no longer names returns to the plan.

        :param finished: the run had ended, and the user trains it further, so that a stop does not count."""
        if (point := self._plan.resume) is None or not (self or "control" in point.state):
            return
        state = point.state.get("control", {})
        for name in self._controllers:
            path = point.checkpoint / "control" / f"{name}.npz"
            self._called(name, "restoring its state", partial(load_state, path, who=self._who(name)))
            self._chosen[name] = dict(state.get("chosen", {}).get(name, {}))
        self.settings, self._evaluation = self._combined(), state.get("evaluation", -1)
        self.stopped = "" if finished else state.get("stopped", "")
        self.lacks_evaluation = state.get("awaited") == point.step and point.step not in self._unseen
        if self.settings or any(state.get("chosen", {}).values()):
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
            self._chosen[name].update({path: _plain(value) for path, value in decision.set.items()})
            reasons += [f"{name}: {decision.stop}"] * bool(decision.stop)
            evaluate, save = evaluate or decision.evaluate, save or decision.save
        settings = self._combined()
        with_settings(self._plan, settings, self._setter)
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
        if not (isinstance(decision.set, Mapping) and isinstance(decision.stop, str)):
            raise PluginError(f"{who} returned {decision!r} from step_finished; stop must be a text, and set values by path")
        for path, given in decision.set.items():
            value = _plain(given)
            if path not in {*controller.sets, *controller.scales}:
                raise PluginError(f"{who} changed {path}, which it does not declare; name it in sets or scales of its class")
            if path in controller.scales and not (_is_number(value) and 0 <= value < float("inf")):
                raise RunError(f"{who} scaled {path} by {value!r}; a factor must be a finite number of at least 0")
        return decision

    def _combined(self) -> dict[str, Any]:
        """Return the values of all controllers: those that they set, or the plan's, times the factors."""
        combined: dict[str, Any] = {}
        for name, controller in self._controllers.items():
            combined |= {path: value for path, value in self._chosen[name].items() if path in controller.sets}
        for path in {path for name, one in self._controllers.items() for path in one.scales if path in self._chosen[name]}:
            factors = [self._chosen[name].get(path, 1.0) for name, one in self._controllers.items() if path in one.scales]
            if not _is_number(value := combined.get(path, _value(self._plan, path))):
                raise RunError(f"{self._setter(path)} scaled {path}, and {as_typed(value)} is not a number; name it in sets of the class")
            combined[path] = value * prod(factors)
        return combined

    def _setter(self, path: str) -> str:
        """Return the controllers that change the setting, for errors."""
        return " and ".join(self._who(name) for name, one in self._controllers.items() if path in {*one.sets, *one.scales})

    def _who(self, name: str) -> str:
        return f"{LABELS[PluginKind.CONTROLLER]} {name!r} of {self._owners[name]}"

    def _called(self, name: str, doing: str, call: Callable[[Controller], T]) -> T:
        return self._in_time(name, doing, partial(call, self._controllers[name]))

    def _in_time(self, name: str, doing: str, call: Callable[[], T]) -> T:
        """Call code of a controller in a thread of its own. Raise RunError if it raises, or does not return in time."""
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(call())
            except KeyboardInterrupt as error:  # nobody pressed Ctrl-C: the signal reaches the main thread alone
                answer.set_exception(RuntimeError(f"it raised {error!r}"))
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


def _plain(value: Any) -> Any:
    """Return numbers and arrays of numpy as those of Python, which checkpoints and validation take."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def with_settings(plan: Plan, settings: Mapping[str, Any], setter: Callable[[str], str] = lambda path: "a controller") -> Plan:
    """Return the plan with other values of settings that may change. Raises RunError for a value that a setting cannot have.

    :param setter: names the controllers that change a setting, for the error."""
    config, loss = plan.config, plan.loss_options
    of_loss = {path.removeprefix(OF_LOSS): value for path, value in settings.items() if path.startswith(OF_LOSS)}
    for path, value in settings.items():
        section, _, key = path.partition(".")
        if not path.startswith(OF_LOSS):
            part = getattr(config, section)
            config = replaced(config, section, _valid(type(part), part, f"{section}.", {key: value}, setter))
    if range_without_groups(config.algorithm.filter_range):
        path = "algorithm.filter_range"
        raise RunError(f"{setter(path)} set {path} to {as_typed(settings[path])}, which lets no group pass; the range must hold accuracies")
    if of_loss and loss is not None:  # at once, because a loss may compare its options with each other
        loss = _valid(type(loss), loss, OF_LOSS, of_loss, setter)
    return replace(plan, config=config, loss_options=loss) if settings else plan


def _valid(model: type[BaseModel], old: BaseModel, prefix: str, given: Mapping[str, Any], setter: Callable[[str], str]) -> Any:
    try:
        return model.model_validate({**old.model_dump(), **given})
    except ValidationError as error:
        found = error.errors()[0]
        key = next((str(place) for place in found["loc"][:1] if place in given), min(given))
        path, setting = f"{prefix}{key}", core_settings().get(f"{prefix}{key}")
        rule = f"it must be {expected(setting.type)}" if setting is not None else found["msg"]
        raise RunError(f"{setter(path)} set {path} to {as_typed(given[key])}; {rule}") from None


def _value(plan: Plan, path: str) -> Any:
    return getattr(plan.loss_options, path.removeprefix(OF_LOSS)) if path.startswith(OF_LOSS) else get_path(plan.config, path)
