"""`make bench-weights`: weights from a trainer that computes to two producers, in Ray actors on this machine, by every transport.

Timed end to end: from the last step of the optimizer to both engines having loaded the version, bucket by bucket, checksums of both ends
included; buffers warm, median of the repeats. ``stall``: what ``publish`` costs the trainer, which computes for ``--step`` seconds between
two versions. Timed in the trainer, between the transfers, with one thread: memcpy into warm memory; into fresh memory, which is what the
trainer stood still for under the first contract, and what an engine does that collects a version; checksums. ``peak``: memory of the
trainer's process at its peak, over that before the first version, in copies of the weights. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import xxhash
from rich.console import Console
from rich.table import Table

from rlcore.contracts.snapshots import BUCKET_BYTES, Tensor
from rlcore.registry.plugin_registry import Registry
from rlcore.testing.weights import HostSource

TRANSPORTS = ("shared", "object_store", "collective")
DEFAULT = "shared"
PRODUCERS, TENSORS, WARM_UP, DEADLINE = 2, 48, 3, 120.0


class Trainer:
    """Owns the weights, bfloat16 in uint16, and a publisher."""

    def __init__(self, transport: str, megabytes: float) -> None:
        elements = max(1, int(megabytes * 1e6) // TENSORS // 2)
        self._weights = {f"model.layers.{index}.weight": np.ones(elements, np.uint16) for index in range(TENSORS)}
        self._copy = [np.full_like(array, 1) for array in self._weights.values()]
        self._publisher = Registry.discover().load("transfer", transport)().publisher(deadline=DEADLINE, bucket_bytes=BUCKET_BYTES)

    def address(self) -> Any:
        """The publisher's."""
        return self._publisher.address()

    def size(self) -> int:
        """Bytes of one version."""
        return sum(array.nbytes for array in self._weights.values())

    def memcpy(self) -> float:
        """Seconds that one thread takes to copy a version into memory that is warm."""
        start = time.perf_counter()
        for to, source in zip(self._copy, self._weights.values(), strict=True):
            np.copyto(to, source)
        return time.perf_counter() - start

    def fresh(self) -> float:
        """Seconds that one thread takes to copy a version into memory that nobody has touched."""
        start = time.perf_counter()
        copies = [np.array(source) for source in self._weights.values()]
        seconds = time.perf_counter() - start
        del copies
        return seconds

    def hash(self) -> float:
        """Seconds that one thread takes for the checksums of a version."""
        start = time.perf_counter()
        for array in self._weights.values():
            xxhash.xxh3_64_intdigest(array.data)
        return time.perf_counter() - start

    def peak(self) -> int:
        """The most bytes that this process ever had in memory."""
        return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]

    def publish(self, version: int, step: float) -> tuple[float, float]:
        """Compute for so many seconds, then publish weights that tell their version; when the step ended, on the clock of this machine, and
        the seconds that publishing took the trainer."""
        until, work = time.perf_counter() + step, np.ones((256, 256), np.float32)
        while time.perf_counter() < until:
            work = work @ work / 256
        for array in self._weights.values():
            array[:] = version
        source = HostSource({name: Tensor(dtype="bfloat16", shape=array.shape, data=array) for name, array in self._weights.items()})
        start = time.perf_counter()
        self._publisher.publish(version, source)
        return start, time.perf_counter() - start

    def close(self) -> None:
        """Leave nothing."""
        self._publisher.close()


class Producer:
    """Waits for versions."""

    def __init__(self, transport: str, name: str, address: Any) -> None:
        self._news = threading.Event()
        self._engine: dict[str, np.ndarray] = {}
        transfer = Registry.discover().load("transfer", transport)()
        self._receiver = transfer.receiver(name=name, address=address, deadline=DEADLINE, on_news=self._news.set)

    def take(self, version: int) -> float:
        """Wait for it, and load it into memory of the engine's own; when that was done."""
        while (snapshot := self._receiver.newer_than(version - 1)) is None:
            self._news.wait()
            self._news.clear()
        for bucket in snapshot.buckets(BUCKET_BYTES):
            for name, tensor in bucket.tensors.items():
                np.copyto(self._engine.setdefault(name, np.empty_like(tensor.data)), tensor.data)
        at = time.perf_counter()
        if any(int(tensor.data[0]) != version or int(tensor.data[-1]) != version for tensor in snapshot.tensors.values()):
            raise RuntimeError(f"version {version} holds other weights")
        del snapshot
        self._receiver.release(version)
        return at

    def close(self) -> None:
        """Leave nothing."""
        self._receiver.close()


def measure(transport: str, megabytes: float, repeats: int, step: float) -> dict[str, float]:
    """Medians over the repeats: seconds end to end, of ``publish``, of memcpy into warm and into fresh memory; the peak in copies."""
    trainer = ray.remote(Trainer).options(num_cpus=0).remote(transport, megabytes)
    address = ray.get(trainer.address.remote())
    actor = ray.remote(Producer).options(num_cpus=0)
    producers = [actor.remote(transport, f"producer-{index}", address) for index in range(PRODUCERS)]
    ray.get([producer.__ray_ready__.remote() for producer in producers])
    size = ray.get(trainer.size.remote())
    seconds, copies, fresh, calls = [], [], [], []
    before = ray.get(trainer.peak.remote())
    for version in range(WARM_UP + repeats):
        taken = [producer.take.remote(version) for producer in producers]
        start, call = ray.get(trainer.publish.remote(version, step))
        seconds.append(max(ray.get(taken)) - start)
        calls.append(call)
        copies.append(ray.get(trainer.memcpy.remote()))
    peak = ray.get(trainer.peak.remote())
    fresh = [ray.get(trainer.fresh.remote()) for _ in range(repeats)]
    hashes = [ray.get(trainer.hash.remote()) for _ in range(repeats)]
    ray.get([producer.close.remote() for producer in producers])
    ray.get(trainer.close.remote())
    for one in (*producers, trainer):
        ray.kill(one)
    return {
        "end_to_end": statistics.median(seconds[WARM_UP:]),
        "stall": statistics.median(calls[WARM_UP:]),
        "memcpy": statistics.median(copies[WARM_UP:]),
        "fresh": statistics.median(fresh),
        "hash": statistics.median(hashes),
        "peak": (peak - before) / size,
        "size": float(size),
    }


def summary(results: dict[str, dict[str, float]], step: float) -> dict[str, float]:
    """What the last line says: of each transport the share of memcpy that it reaches end to end and in GB/s, and of the default the
    trainer's stall as a share of its step, beside that of a copy into fresh memory."""
    line = {f"{name}_gbs": round(one["size"] / one["end_to_end"] / 1e9, 3) for name, one in results.items()}
    line |= {f"{name}_share_of_memcpy": round(one["memcpy"] / one["end_to_end"], 3) for name, one in results.items()}
    if (one := results.get(DEFAULT)) is not None:
        line |= {f"{kind}_gbs": round(one["size"] / one[kind] / 1e9, 3) for kind in ("memcpy", "fresh", "hash")}
        line["stall_share_of_step"] = round(one["stall"] / (step + one["stall"]), 4)
        line["stall_share_of_step_fresh_copy"] = round(one["fresh"] / (step + one["fresh"]), 4)
        line["peak_copies"] = round(one["peak"], 2)
    return line


def table(results: dict[str, dict[str, float]], megabytes: float) -> Table:
    """One row a transport."""
    made = Table(title=f"{megabytes:g} MB, one trainer to {PRODUCERS} producers; milliseconds")
    for column in ("transport", "end to end", "stall", "memcpy", "fresh copy", "memcpy / end to end", "peak, copies"):
        made.add_column(column, justify="left" if column == "transport" else "right")
    for name, one in results.items():
        times = (f"{one[key] * 1e3:.1f}" for key in ("end_to_end", "stall", "memcpy", "fresh"))
        made.add_row(name, *times, f"{one['memcpy'] / one['end_to_end']:.2f}", f"{one['peak']:.2f}")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and the line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mb", type=float, default=400.0, help="size of a version in MB")
    parser.add_argument("--repeats", type=int, default=10, help="transfers that are timed, after warm-up")
    parser.add_argument("--step", type=float, default=1.0, help="seconds that the trainer computes between two versions")
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS)
    chosen = parser.parse_args(arguments)
    # Room for the versions that are under way at the same time: the old, the new, and one that is being freed.
    store = int(max(chosen.mb * 4e6, 200e6))
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=store, logging_level="warning")
    try:
        results = {transport: measure(transport, chosen.mb, chosen.repeats, chosen.step) for transport in chosen.transports}
    finally:
        ray.shutdown()
    Console().print(table(results, chosen.mb))
    print(json.dumps(summary(results, chosen.step)))


if __name__ == "__main__":
    main()
