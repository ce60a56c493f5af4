"""The process that owns SGLang's engine: ``python -m rlcore_plugin_sglang.engine_process DESCRIPTOR PID``, with a descriptor of a pipe to
the producer and the producer's process.

Most methods of ``sgl.Engine`` run its event loop themselves, so they must not be called inside it. Only the main thread of this process
calls them: it runs the loop until a command comes, carries the command out, and runs the loop again. Requests are tasks in that loop.

SGLang starts its own processes by ``spawn``, which imports this module first, so they are prepared for a CPU like this one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rlcore_plugin_sglang.producer_death import exit_with_parent

if __name__ == "__main__":
    exit_with_parent(int(sys.argv[2]))  # before anything that takes time
if find_spec("sgl_kernel") is None:
    from rlcore_plugin_sglang.cpu_shim import prepare_cpu

    warnings.simplefilter("ignore")  # about kernels that are not for this machine
    prepare_cpu()

from rlcore_plugin_serving.incoming_weights import Place, mapped
from rlcore_plugin_serving.partial_completions import OTHER_STOP
from rlcore_plugin_serving.serving_engine import EngineRequest

from rlcore_plugin_sglang.adapter_pairs import with_pairs

__all__ = ["EngineProcess", "main"]

_LOOK = 0.5
"""Seconds between two checks whether the engine has sent something."""
_AGAIN = 0.05
"""Seconds after which a request is dropped again, because its scheduler may not have known it yet."""
_BUCKET = 1 << 30
"""Bytes of weights that are passed to the engine's workers at once."""


class EngineProcess:
    """Carries out commands from the pipe, one at a time, and sends tokens back as they come."""

    def __init__(self, link: Connection, arguments: dict[str, Any]) -> None:
        from rlcore_plugin_sglang.sglang_api import Engine

        self._link = link
        self._engine: Any = Engine(**arguments)
        self._manager: Any = self._engine.tokenizer_manager
        self._loop: asyncio.AbstractEventLoop = self._engine.loop
        self._orders: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
        self._running: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._dropping: set[str] = set()
        self._numbers = count()
        self._adapter: str | None = None
        self._alone = int(arguments["dp_size"]) == 1

    def vocabulary(self) -> int:
        """Return the number of tokens in the model's vocabulary."""
        return int(self._manager.model_config.vocab_size)

    def shared_names(self) -> list[str]:
        """Return the files of shared memory that this process and its children have mapped. A process that kills them must remove these
        files."""
        pids = ["self", *(str(pid) for pid in self._engine.get_all_child_pids())]
        names = self._mapped(pids)
        if self._alone:  # they report the load of each copy of the model, which nothing reads here
            for name in [name for name in names if name.startswith("sglang_loads")]:
                (Path("/dev/shm") / name).unlink(missing_ok=True)
        return names

    @staticmethod
    def _mapped(pids: Sequence[str]) -> list[str]:
        lines = [line for pid in pids for line in Path("/proc", pid, "maps").read_text(encoding="utf-8").splitlines()]
        return sorted({path for line in lines if (path := line.partition("/dev/shm/")[2]) and not path.endswith("(deleted)")})

    def work(self) -> None:
        """Carry out commands until the producer closes the pipe or sends ``end``."""
        self._run(self._begin())
        threading.Thread(target=self._read, name="orders", daemon=True).start()
        heartbeat = self._loop.create_task(self._heartbeat())
        while True:
            method, arguments = self._loop.run_until_complete(self._orders.get())
            if method == "end":
                break
            try:
                self._link.send(("done", getattr(self, method)(*arguments)))
            except Exception as error:  # any error must reach the producer
                self._link.send(("failed", f"{type(error).__name__}: {' '.join(str(error).split())}"))
        heartbeat.cancel()

    # --- commands: outside the loop -------------------------------------------------------------------------------------

    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Start each request."""
        for ask in asks:
            name = f"{next(self._numbers):015}"  # SGLang drops every request whose name begins with the name of a dropped one
            self._running[ask.name] = name, self._loop.create_task(self._follow(ask, name))

    def abort(self, names: Sequence[str]) -> None:
        """Drop requests, and wait until the engine has dropped each."""
        self._run(self._dropped(dict(self._running[name] for name in names if name in self._running)))

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """See ServingEngine."""
        output = self._run(self._scored(list(token_ids)))
        return [logprob for logprob, *_ in output["meta_info"]["input_token_logprobs"][1:]]

    def load(self, path: str, places: Sequence[Place]) -> None:
        """Write whole weights, from memory that the producer provides, over the old ones."""
        tensors = list(mapped(path, places).items())
        _checked(self._engine.begin_weight_update(), "begin_weight_update")
        try:
            for bucket in _buckets(tensors):
                _checked(self._engine.update_weights_from_tensor(bucket, flush_cache=False), "update_weights_from_tensor")
        finally:
            _checked(self._engine.end_weight_update(), "end_weight_update")
        self._flush()

    def load_folder(self, folder: str) -> None:
        """Load whole weights from a checkpoint, which is the way for several copies of the model."""
        _checked(self._engine.update_weights_from_disk(folder), "update_weights_from_disk")
        self._flush()

    def load_adapter(self, name: str, path: str, places: Sequence[Place], configuration: dict[str, Any]) -> None:
        """Let later requests use this adapter, and unload the previous one."""
        tensors = with_pairs({key: tensor.clone() for key, tensor in mapped(path, places).items()})
        _checked(self._engine.load_lora_adapter_from_tensors(name, tensors, configuration), "load_lora_adapter_from_tensors")
        self.leave_adapter_out()
        self._adapter = name

    def leave_adapter_out(self) -> None:
        """Serve the weights without an adapter."""
        adapter, self._adapter = self._adapter, None
        if adapter is not None:
            _checked(self._engine.unload_lora_adapter(adapter), "unload_lora_adapter")
        self._flush()

    def sleep(self) -> None:
        """Release the device."""
        self._engine.release_memory_occupation()

    def wake_up(self, tags: list[str]) -> None:
        """Take memory back: for ``weights``, for ``kv_cache``."""
        self._engine.resume_memory_occupation(tags=tags)

    def end(self) -> None:
        """End SGLang's processes, as ``Engine.shutdown`` does.

        That method would also kill Python's resource tracker, which removes named shared memory.
        """
        if (watchdog := self._manager._subprocess_watchdog) is not None:
            watchdog.stop()
        for process in multiprocessing.active_children():
            process.kill()
            process.join()

    def _fall(self) -> None:
        self.end()
        os._exit(1)

    def _flush(self) -> None:
        """Drop every key and value."""
        flushed = self._engine.flush_cache()
        _checked((flushed.success, getattr(flushed, "message", "")), "flush_cache")

    def _run(self, order: Any) -> Any:
        return self._loop.run_until_complete(order)

    def _read(self) -> None:
        """Pass commands from the pipe to the loop; runs in its own thread.

        A reader in the loop would make the pipe non-blocking, and then half a message is an error.
        """
        with suppress(EOFError, OSError):
            while True:
                self._loop.call_soon_threadsafe(self._orders.put_nowait, self._link.recv())
        self._loop.call_soon_threadsafe(self._orders.put_nowait, ("end", ()))

    # --- in the loop ---------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Let SGLang start to take answers and set its signal handlers; then set ours, for its processes that fail."""
        self._manager.auto_create_handle_loop()
        self._loop.add_signal_handler(signal.SIGQUIT, self._fall)

    async def _heartbeat(self) -> None:
        """Tell the producer that the engine has sent something: answers come as a whole, and may take long."""
        heard = 0.0
        while True:
            await asyncio.sleep(_LOOK)
            if self._running and heard != (now := self._manager.last_receive_tstamp):
                heard = now
                self._link.send(("alive",))

    async def _follow(self, ask: EngineRequest, name: str) -> None:
        try:
            told = 0
            async for output in self._manager.generate_request(self._request(ask, name), None):
                told = self._tell(ask, name, output, told)
        except Exception as error:  # any error must reach the producer
            self._link.send(("tokens", ask.name, (), (), f"{type(error).__name__}: {' '.join(str(error).split())}"))
        finally:
            self._dropping.discard(name)
            if self._running.get(ask.name, ("",))[0] == name:
                del self._running[ask.name]

    def _request(self, ask: EngineRequest, name: str) -> Any:
        from rlcore_plugin_sglang.sglang_api import GenerateReqInput

        sampling, kept = ask.sampling, _keeps(ask, self.vocabulary())
        return GenerateReqInput(
            rid=name,
            input_ids=list(ask.token_ids),
            sampling_params={
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                # All tokens, not -1: SGLang draws by the places of sorted tokens if one request of a batch has such a bound, and otherwise
                # by token ids. The draws of a request would then depend on the other requests in its batch (layers/sampler.py).
                "top_k": kept or self.vocabulary(),
                "sampling_seed": ask.seed,
                "max_new_tokens": ask.max_tokens,
                "stop_token_ids": list(ask.stop_token_ids) or None,
                "ignore_eos": not ask.stop_token_ids,
            },
            return_logprob=True,
            return_sampling_mask=bool(kept),
            stream=bool(sampling.stop),  # each token is searched for stop strings; otherwise an answer comes as a whole
            lora_path=self._adapter,
        )

    def _tell(self, ask: EngineRequest, name: str, output: dict[str, Any], told: int) -> int:
        about = output["meta_info"]
        finish = about["finish_reason"] or {}
        tokens = list(output["output_ids"])
        if _keeps(ask, self.vocabulary()):
            logprobs = list(about.get("output_token_sampling_logprobs", ()))
        else:
            logprobs = [logprob for logprob, *_ in about.get("output_token_logprobs", ())]
        self._link.send(("tokens", ask.name, tokens[told:], logprobs[told:], _word(finish, ask, dropped=name in self._dropping)))
        return len(tokens)

    async def _dropped(self, found: Mapping[str, asyncio.Task[None]]) -> None:
        """Drop requests repeatedly: SGLang accepts one abort per request, but the scheduler does not know a request that has not reached
        it yet."""
        self._dropping |= set(found)
        while waiting := {name: task for name, task in found.items() if not task.done()}:
            for name in waiting:
                if (state := self._manager.rid_to_state.get(name)) is not None:
                    state.abort_sent = False
                self._manager.abort_request(name)
            await asyncio.wait(waiting.values(), timeout=_AGAIN)

    async def _scored(self, token_ids: list[int]) -> dict[str, Any]:
        from rlcore_plugin_sglang.sglang_api import GenerateReqInput

        request = GenerateReqInput(
            rid=f"{next(self._numbers):015}",
            input_ids=token_ids,
            sampling_params={"temperature": 1.0, "max_new_tokens": 0},
            return_logprob=True,
            logprob_start_len=0,
            lora_path=self._adapter,
        )
        output: dict[str, Any] = {}
        async for answer in self._manager.generate_request(request, None):
            output = answer
        return output


def _keeps(ask: EngineRequest, vocabulary: int) -> int:
    """Return how many tokens top-k or top-p may keep, which SGLang needs to report log probabilities over them; 0: all, without a bound."""
    if not ask.sampling.temperature or not ask.sampling.truncates:
        return 0
    return min(ask.sampling.top_k or vocabulary, vocabulary)


def _word(finish: dict[str, Any], ask: EngineRequest, *, dropped: bool) -> str:
    """Return why the answer ended, in a word, or an error message. ``dropped``: the producer asked for its end."""
    matched = finish.get("matched")
    kind = str(finish.get("type", ""))
    if kind == "abort" and not dropped:
        return str(finish.get("message") or "abort")
    if kind == "stop" and isinstance(matched, str):
        return matched  # no stop string was given, so this is an error: "NaN happened"
    return OTHER_STOP if kind == "stop" and matched not in ask.stop_token_ids else kind


def _checked(answer: Any, what: str) -> None:
    """Raise RuntimeError for a command that SGLang did not carry out: SGLang raises no error, and continues with the old weights."""
    success, message = (answer.success, getattr(answer, "error_message", "")) if hasattr(answer, "success") else tuple(answer)[:2]
    if not success:
        raise RuntimeError(f"SGLang's {what}: {message}")


def _buckets(tensors: Sequence[tuple[str, Any]]) -> list[list[tuple[str, Any]]]:
    found: list[list[tuple[str, Any]]] = [[]]
    size = 0
    for name, tensor in tensors:
        if found[-1] and size + tensor.nbytes > _BUCKET:
            found.append([])
            size = 0
        found[-1].append((name, tensor))
        size += tensor.nbytes
    return found


def main(words: list[str]) -> int:
    """Create the engine that the first message describes, and carry out commands."""
    with Connection(int(words[0])) as link:
        arguments = link.recv()
        if problem := _unknown(arguments):
            link.send(("refused", problem))
            return 2
        try:
            owner = EngineProcess(link, arguments)
        except (OSError, ValueError, TypeError, NotImplementedError) as error:
            link.send(("refused", f"SGLang cannot create an engine: {type(error).__name__}: {' '.join(str(error).split())}"))
            return 2
        link.send(("done", (owner.vocabulary(), owner.shared_names())))
        owner.work()
        owner.end()
    os._exit(0)  # without SGLang's own shutdown


def _unknown(arguments: dict[str, Any]) -> str:
    """Return a sentence on an argument that the installed engine does not know; "" if it knows all."""
    from difflib import get_close_matches

    from rlcore_plugin_sglang.sglang_api import argument_names

    known = argument_names()
    name = next((name for name in arguments if name not in known), "")
    if not name:
        return ""
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else "see SGLang's page of server arguments"
    return f"inference.options.engine.{name} is not an argument of the installed SGLang's engine; {hint}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
