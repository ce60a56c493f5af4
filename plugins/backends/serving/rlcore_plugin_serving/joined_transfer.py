"""The engine's side of a weight transfer of vLLM's own: the engine's workers carry out the commands of the trainer's side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from typing import Any

from rlcore.api import RunError
from rlcore.api.weights import GroupBrokenError

__all__ = ["FINISH", "INIT", "START", "UPDATE", "JoinedTransfer"]

INIT, START, UPDATE, FINISH = "init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"
"""Methods of vLLM's workers (v1/worker/gpu_worker.py of 0.32), in the order in which they are called."""
END = "end"
"""The last command of an update."""


class JoinedTransfer:
    """A member of one epoch. ``call`` calls a method of all workers: ``engine.collective_rpc``.

    >>> joined = JoinedTransfer(info, engine.collective_rpc)
    >>> joined.receive(); joined.finish()
    """

    def __init__(self, info: Mapping[str, Any], call: Callable[..., Any]) -> None:
        """Join; the workers have met the trainer when this returns. Raises GroupBrokenError if the group breaks meanwhile."""
        self._call = call
        self._patience = 2 * float(info["deadline"])  # the trainer finds out first
        self._started = self._whole = self._failed = False
        try:
            self._channel = Client(tuple(info["address"]), authkey=info["key"])
            self._channel.send(("engine", info["group"], info["member"]))
        except (OSError, EOFError, AuthenticationError) as error:
            raise GroupBrokenError(f"the group of the weights could not be joined: {error}") from error
        self._carry_out(INIT, *self._order())

    def receive(self) -> None:
        """Receive the weights of one version: the workers write them over the old ones."""
        self._whole = False
        self._carry_out(START, *self._order())
        self._started = True
        method, words = self._order()
        while method == UPDATE:
            self._carry_out(UPDATE, method, words)
            method, words = self._order()
        self._last, self._whole = (method, words), True

    def finish(self) -> None:
        """Let the workers use the weights, and carry out the other commands of the trainer. Raises RunError before ``receive``."""
        if not self._whole:
            raise RunError("the weights of the vllm engine did not arrive completely: call receive first")
        method, words = self._last
        self._carry_out(FINISH, method, words)
        self._started = self._whole = False
        while (order := self._order())[0] != END:
            self._carry_out(order[0], *order)

    def leave(self) -> None:
        """Leave the group. Raises RunError if an update broke off within a command: vLLM's workers are then unusable.

        An update that broke off between two commands is ended, so that the workers can begin another one; they then hold the part that had
        come.
        """
        self._channel.close()
        if self._failed:
            raise RunError("an update failed in vLLM's workers, which only a new engine fixes")
        if self._started:
            self._call(FINISH)
            self._started = False

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _order(self) -> tuple[str, dict[str, Any]]:
        try:
            if not self._channel.poll(self._patience):
                raise GroupBrokenError(f"the trainer sent no weights for {self._patience:g} s; check whether it is stopped or overloaded")
            method, words = self._channel.recv()
        except (OSError, EOFError) as error:
            raise GroupBrokenError(f"the group of the weights broke: {error}") from error
        return method, words

    def _carry_out(self, due: str, method: str, words: dict[str, Any]) -> None:
        if method != due:
            raise RunError(f"the trainer's side of the transfer asks vLLM for {method}, but {due} is due")
        try:
            result = self._call(method, kwargs=words)
        except Exception as error:
            self._failed = True
            self._tell("failed", f"{type(error).__name__}: {error}")
            raise RunError(f"vLLM's workers failed in {method}: {type(error).__name__}: {error}") from error
        self._tell("done", result)

    def _tell(self, *word: Any) -> None:
        try:
            self._channel.send(word)
        except OSError as error:
            raise GroupBrokenError(f"the group of the weights broke: {error}") from error
