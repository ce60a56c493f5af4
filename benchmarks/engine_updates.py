"""`make bench-vllm-updates`: updates of the vllm engine while it generates, in each of its forms, and of a server of vLLM that the backend
endpoint asks: does a process of it grow, does it stall, is the probe right each time?

Two versions of the weights of a tiny model in turns; new requests before each update, so that it meets some that wait, some that run and
some that have just ended. `grown`: resident memory of each process at the end over that after a tenth of the updates, in MB. `probe`: the
largest difference of a score from the first one of the same weights. The last line is one JSON object; exit code 1 if a request is lost or
a probe is off. Runs itself in the environment of the engine; the form `served` runs in the project's, and its server in the engine's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

FORMS: dict[str, dict[str, Any]] = {"in process": {}, "own process": {"own_process": True}, "split in two": {"tensor_parallel": 2}}
SERVED = "served"
REQUESTS, TOLERANCE = 4, 1e-4
_SERVER_SECONDS = 300.0
ROOT = Path(__file__).parents[1]


def main() -> int:
    """In the project's environment: start it in the engine's. There: measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path, help="folder of the engine's environment: rlcore env path vllm-cpu")
    parser.add_argument("--updates", type=int, default=200, help="of each form [200]")
    parser.add_argument("--form", choices=[*FORMS, SERVED], action="append", help="measure this one; again for another [all]")
    parser.add_argument("--inside", action="store_true", help="it runs in the engine's environment")
    asked = parser.parse_args()
    forms = asked.form or [*FORMS, SERVED]
    inside = [form for form in forms if form != SERVED]
    if asked.inside:
        found = {form: measured(FORMS[form], asked.updates) for form in inside}
        print(json.dumps({"updates": asked.updates, "forms": found}))
        return 0
    found = elsewhere(asked.environment, inside, asked.updates) if inside else {}
    if SERVED in forms:
        found[SERVED] = served(asked.environment, asked.updates)
    print(json.dumps({"updates": asked.updates, "forms": found}))
    whole = all(row["answered"] == row["asked"] and row["probe"] <= TOLERANCE for row in found.values())
    return 0 if whole else 1


def elsewhere(environment: Path, forms: list[str], updates: int) -> dict[str, Any]:
    """Figures of these forms, by the interpreter of that environment."""
    from rlcore.host.environments import interpreter, link_own_packages

    with TemporaryDirectory(prefix="rlcore-") as packages:
        link_own_packages(Path(packages))
        python, variables = interpreter(environment, Path(packages))
        words = [word for form in forms for word in ("--form", form)]
        command = [python, "-m", "benchmarks.engine_updates", str(environment), "--updates", str(updates), *words, "--inside"]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["forms"]
    return figures


def measured(form: dict[str, Any], updates: int) -> dict[str, Any]:
    """The figures of a form of the backend vllm."""
    from rlcore_plugin_vllm.options import VllmOptions
    from rlcore_plugin_vllm.vllm_backend import VllmBackend

    from rlcore.api import InferenceContext
    from rlcore.testing import FakeTokenizer

    tokenizer = FakeTokenizer()
    options = {name: value for name, value in form.items() if name != "tensor_parallel"}
    with TemporaryDirectory(prefix="rlcore-") as folder:
        versions = saved_model(Path(folder), len(tokenizer))
        context = InferenceContext(
            model=folder, tokenizer=tokenizer, prompts_per_forward=8, max_tokens=128, tensor_parallel=form.get("tensor_parallel", 1)
        )
        return figures_of(VllmBackend(context, VllmOptions(**options)), versions, updates)


def served(environment: Path, updates: int) -> dict[str, Any]:
    """The figures of the backend endpoint, over a server of vLLM on loopback that ends with this."""
    from rlcore_plugin_serving.endpoint_backend import EndpointBackend
    from rlcore_plugin_serving.endpoint_options import EndpointOptions

    from rlcore.api import InferenceContext
    from rlcore.testing import FakeTokenizer

    tokenizer = FakeTokenizer()
    with TemporaryDirectory(prefix="rlcore-") as folder, socket.socket() as found, TemporaryDirectory(prefix="rlcore-") as shared:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        versions = saved_model(Path(folder), len(tokenizer))
        context = InferenceContext(model=folder, tokenizer=tokenizer, prompts_per_forward=8, max_tokens=128)
        found.close()
        server = subprocess.Popen(
            server_command(environment, folder, port), env={**os.environ, **SERVER_SETTINGS}, stdout=sys.stderr, start_new_session=True
        )
        try:
            options = EndpointOptions(addresses=(f"http://127.0.0.1:{port}",), shared_folder=Path(shared), start_seconds=_SERVER_SECONDS)
            return figures_of(EndpointBackend(context, options), versions, updates)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


SERVER_SETTINGS = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
    "OMP_NUM_THREADS": "1",
}


def server_command(environment: Path, folder: str, port: int) -> list[str]:
    """`vllm serve` by its module: the environment of the CPU wheel has no distribution of the name that the command asks for."""
    return [
        *(f"{environment}/bin/python", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", folder, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"),
        *("--skip-tokenizer-init", "--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--no-enable-chunked-prefill"),
        *("--max-model-len", "128", "--max-num-seqs", "64", "--kv-cache-memory-bytes", str(64 << 20), "--disable-uvicorn-access-log"),
    ]


def figures_of(engine: Any, versions: list[Any], updates: int) -> dict[str, Any]:
    """One form's figures; the engine is closed then."""
    from rlcore.api import Request, Sampling
    from rlcore.testing import update_engine

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
    engine.close()
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
