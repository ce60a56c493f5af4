"""`make bench-weights`: weights from one trainer to two producers, in Ray actors on this machine, by every transport.

Timed from ``publish()`` to both producers holding a verified snapshot: checksums of both ends included, buffers warm, median of the
repeats. One-thread memcpy is timed in the trainer, between the transfers. The last line is one JSON object, in GB/s to each producer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
from rich.console import Console
from rich.table import Table

from rlcore.contracts.snapshots import BUCKET_BYTES, Tensor
from rlcore.host.registry import Registry
from rlcore.testing.weights import HostSource

TRANSPORTS = ("shared", "object_store", "collective")
DEFAULT = "shared"
PRODUCERS, TENSORS, WARM_UP, DEADLINE = 2, 48, 3, 120.0


class Trainer:
    """Owns the weights, bfloat16 in uint16, and a publisher."""

    def __init__(self, transport: str, megabytes: float) -> None:
        elements = max(1, int(megabytes * 1e6) // TENSORS // 2)
        self._weights = {f"model.layers.{index}.weight": np.zeros(elements, np.uint16) for index in range(TENSORS)}
        self._copy = [np.zeros_like(array) for array in self._weights.values()]
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

    def publish(self, version: int) -> tuple[float, float]:
        """Publish weights that tell their version; when, on the clock of this machine, and the seconds that it took the caller."""
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
        transfer = Registry.discover().load("transfer", transport)()
        self._receiver = transfer.receiver(name=name, address=address, deadline=DEADLINE, on_news=self._news.set)

    def take(self, version: int) -> float:
        """Wait for it; when it was there, whole, verified and readable."""
        while (snapshot := self._receiver.newer_than(version - 1)) is None:
            self._news.wait()
            self._news.clear()
        at = time.perf_counter()
        if any(int(tensor.data[0]) != version or int(tensor.data[-1]) != version for tensor in snapshot.tensors.values()):
            raise RuntimeError(f"version {version} holds other weights")
        del snapshot
        self._receiver.release(version)
        return at

    def close(self) -> None:
        """Leave nothing."""
        self._receiver.close()


def measure(transport: str, megabytes: float, repeats: int) -> dict[str, float]:
    """Medians over the repeats: GB/s to each producer, GB/s of memcpy, milliseconds that ``publish`` took, seconds of the first one."""
    trainer = ray.remote(Trainer).options(num_cpus=0).remote(transport, megabytes)
    address = ray.get(trainer.address.remote())
    actor = ray.remote(Producer).options(num_cpus=0)
    producers = [actor.remote(transport, f"producer-{index}", address) for index in range(PRODUCERS)]
    ray.get([producer.__ray_ready__.remote() for producer in producers])
    size = ray.get(trainer.size.remote())
    seconds, copies, calls = [], [], []
    for version in range(WARM_UP + repeats):
        copies.append(ray.get(trainer.memcpy.remote()))
        taken = [producer.take.remote(version) for producer in producers]
        start, call = ray.get(trainer.publish.remote(version))
        seconds.append(max(ray.get(taken)) - start)
        calls.append(call)
    ray.get([producer.close.remote() for producer in producers])
    ray.get(trainer.close.remote())
    for one in (*producers, trainer):
        ray.kill(one)
    return {
        "gbs": size / statistics.median(seconds[WARM_UP:]) / 1e9,
        "memcpy": size / statistics.median(copies[WARM_UP:]) / 1e9,
        "publish_ms": statistics.median(calls[WARM_UP:]) * 1e3,
        "first_s": seconds[0],
    }


def summary(results: dict[str, dict[str, float]]) -> dict[str, float]:
    """What the last line says; the share is of the memcpy that was timed between the default's own transfers."""
    line = {name: round(result["gbs"], 3) for name, result in results.items()}
    line["memcpy"] = round(statistics.median(result["memcpy"] for result in results.values()), 3)
    if DEFAULT in results:
        line["share_of_memcpy"] = round(results[DEFAULT]["gbs"] / results[DEFAULT]["memcpy"], 3)
    return line


def table(results: dict[str, dict[str, float]], megabytes: float) -> Table:
    """One row a transport."""
    made = Table(title=f"{megabytes:g} MB, one trainer to {PRODUCERS} producers")
    for column in ("transport", "GB/s to each", "memcpy GB/s", "share", "publish() ms", "first s"):
        made.add_column(column, justify="left" if column == "transport" else "right")
    for name, result in results.items():
        share = f"{result['gbs'] / result['memcpy']:.2f}"
        figures = (f"{result['gbs']:.2f}", f"{result['memcpy']:.1f}", share, f"{result['publish_ms']:.2f}", f"{result['first_s']:.2f}")
        made.add_row(name, *figures)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and the line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mb", type=float, default=400.0, help="size of a version in MB")
    parser.add_argument("--repeats", type=int, default=10, help="transfers that are timed, after warm-up")
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS)
    chosen = parser.parse_args(arguments)
    # Room for the versions that are under way at the same time: the old, the new, and one that is being freed.
    store = int(max(chosen.mb * 4e6, 200e6))
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=store, logging_level="warning")
    try:
        results = {transport: measure(transport, chosen.mb, chosen.repeats) for transport in chosen.transports}
    finally:
        ray.shutdown()
    Console().print(table(results, chosen.mb))
    print(json.dumps(summary(results)))


if __name__ == "__main__":
    main()
