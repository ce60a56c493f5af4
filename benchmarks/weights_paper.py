"""`make bench-weights-paper`: what one update of a large model moves, on paper, by each way for weights; the table of docs/planning.md.

Arithmetic, no measurement: bytes over bandwidths, and what is in memory at the peak. ``--document`` writes the table into the page. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/planning.md"
START, END = "<!-- weights on paper -->", "<!-- end of weights on paper -->"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A model and where it is served. GB/s: ``network`` of one adapter per node, ``device`` between host memory and one device (pinned),
    ``copy`` by one thread into warm memory, ``hash`` by one thread, ``devices`` from device to device inside a node."""

    billions: float = 32.0
    bytes_per_weight: int = 2
    engines: int = 16
    devices_per_engine: int = 4
    nodes: int = 8
    bucket_gb: float = 0.25
    network: float = 50.0
    device: float = 50.0
    copy: float = 18.0
    hash: float = 10.0
    devices: float = 400.0

    @property
    def weights(self) -> float:
        """GB of one version."""
        return self.billions * self.bytes_per_weight


@dataclass(frozen=True, kw_only=True)
class Way:
    """One update by one transfer. ``stall``: seconds that the trainer stands still; ``whole``: from its last step to the last engine that
    serves; GB: sent by the trainer's node, at the peak on the trainer's node, on a node of engines, and on a device beside its weights."""

    name: str
    sent: float
    stall: float
    whole: float
    trainer_host: float
    engine_host: float
    device: float


def ways(fleet: Fleet) -> list[Way]:
    """Every transfer that exists or is planned, for this fleet."""
    weights, bucket = fleet.weights, fleet.bucket_gb
    gather = weights / fleet.device  # bucket by bucket from the devices of the trainer, into a buffer of the host
    load = weights / fleet.devices_per_engine / fleet.device  # each device of an engine takes its slice of each bucket
    per_node = fleet.engines / fleet.nodes
    stored = gather + weights / fleet.hash + weights / fleet.copy
    pulled = fleet.nodes * weights / fleet.network  # every node pulls from the trainer's
    broadcast = weights / fleet.network  # in a pipeline of pieces, each adapter carries every byte once
    return [
        Way(
            name="one whole copy through one host (the first contract)",
            sent=fleet.nodes * per_node * weights,
            stall=gather + weights / 2.0,  # into fresh memory: 2 GB/s
            whole=gather + weights / 2.0 + 2 * weights / fleet.hash + fleet.nodes * per_node * weights / fleet.network + load,
            trainer_host=3 * weights,
            engine_host=per_node * 2 * weights,
            device=0.0,
        ),
        Way(
            name="`shared`, engines on the trainer's host alone",
            sent=0.0,
            stall=gather,
            whole=gather + weights / fleet.hash + bucket / fleet.hash + load,
            trainer_host=2 * weights,
            engine_host=0.0,
            device=bucket / fleet.devices_per_engine,
        ),
        Way(
            name="`object_store`",
            sent=fleet.nodes * weights,
            stall=gather,
            whole=stored + pulled + weights / fleet.hash + load,
            trainer_host=4 * weights,
            engine_host=2 * weights,
            device=bucket / fleet.devices_per_engine,
        ),
        Way(
            name="`collective` (gloo, through host memory)",
            sent=weights,
            stall=gather,
            whole=gather + weights / fleet.hash + broadcast * per_node + weights / fleet.hash + load,
            trainer_host=2 * weights,
            engine_host=per_node * 2 * weights,
            device=bucket / fleet.devices_per_engine,
        ),
        Way(
            name="an engine's own over NCCL (planned: vLLM, SGLang)",
            sent=weights,
            stall=broadcast,
            whole=broadcast + bucket / fleet.devices,
            trainer_host=0.0,
            engine_host=0.0,
            device=bucket,
        ),
        Way(
            name="CUDA IPC, both roles on the same devices (planned)",
            sent=0.0,
            stall=weights / fleet.devices,
            whole=weights / fleet.devices,
            trainer_host=0.0,
            engine_host=0.0,
            device=bucket,
        ),
    ]


def table(fleet: Fleet) -> str:
    """Markdown, a row a way."""
    head = (
        "transfer",
        "GB sent by the trainer's node",
        "trainer stands still",
        "last step to last engine",
        "GB on its host",
        "GB on a host of engines",
    )
    lines = [f"| {' | '.join((*head, 'GB a device'))} |", f"|---|{'---:|' * len(head)}"]
    for way in ways(fleet):
        seconds = f"{way.stall:.1f} s | {way.whole:.1f} s"
        lines.append(f"| {way.name} | {way.sent:.0f} | {seconds} | {way.trainer_host:.0f} | {way.engine_host:.0f} | {way.device:.2f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and the line; write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--document", action="store_true", help="write the table into docs/planning.md")
    for name, value in asdict(Fleet()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help="default: %(default)s")
    chosen = vars(parser.parse_args(arguments))
    document = chosen.pop("document")
    fleet = Fleet(**chosen)
    print(table(fleet))
    if document:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.partition(START)[0], page.partition(END)[2]
        PAGE.write_text(f"{before}{START}\n{table(fleet)}\n{END}{after}", encoding="utf-8")
    print(json.dumps({way.name: {"stall": round(way.stall, 2), "whole": round(way.whole, 2)} for way in ways(fleet)}))


if __name__ == "__main__":
    main()
