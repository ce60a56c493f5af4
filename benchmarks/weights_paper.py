"""`make bench-weights-paper`: what one update of a large model moves, by each way for weights: the table of docs/explanation/bubble.md.

Arithmetic, no measurement: the seconds are those that `rlcore plan` charges (``WeightUpdate``), from the same rates; here what is in memory
at the peak is added. ``--document`` writes the table into the page. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlcore_plugin_tools.plan.simulated import WeightUpdate
from rlcore_plugin_tools.plan.workload_model import TransferSection

PAGE = Path(__file__).parents[1] / "docs/explanation/bubble.md"
START, END = "<!-- weights on paper -->", "<!-- end of weights on paper -->"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A model, how many devices train it, and where it is served; ``rates``: of [weights]. ``bucket_gb``: what leaves the trainers at a
    time."""

    billions: float = 32.0
    bytes_per_weight: int = 2
    engines: int = 16
    devices_per_engine: int = 4
    trainer_devices: int = 32
    bucket_gb: float = 0.25
    rates: TransferSection = field(default_factory=TransferSection)

    @property
    def weights(self) -> float:
        """GB of one version."""
        return self.billions * self.bytes_per_weight

    @property
    def engines_per_node(self) -> float:
        """How many engines share a node."""
        return max(1.0, self.rates.devices_per_node / self.devices_per_engine)

    def update(self, transport: str, *, colocated: bool = False) -> WeightUpdate:
        """What it takes by this transport; ``shared``: half of one node trains, and the other half serves."""
        half = max(1, self.rates.devices_per_node // 2)
        alone = transport == "shared"
        return WeightUpdate(
            settings=self.rates.model_copy(update={"weights_gb": self.weights, "transport": transport}),
            engines=max(1, half // self.devices_per_engine) if alone else self.engines,
            engine_devices=min(self.devices_per_engine, half) if alone else self.devices_per_engine,
            trainer_devices=half if alone else self.trainer_devices,
            colocated=colocated,
        )


@dataclass(frozen=True, kw_only=True)
class Way:
    """One update by one transport, and GB at the peak beside the weights that are trained and served: on the trainer's node, on a node of
    engines, and on a device."""

    name: str
    update: WeightUpdate
    trainer_host: float
    engine_host: float
    device: float


def ways(fleet: Fleet) -> list[Way]:
    """Every transport that exists or is planned, for this fleet."""
    weights, bucket, per_node = fleet.weights, fleet.bucket_gb, fleet.engines_per_node
    of_device = bucket / fleet.devices_per_engine
    collected = per_node * weights  # each engine copies what arrived before it loads it
    rows = (
        ("`shared`, both roles on one node", "shared", 2 * weights, collected, of_device),
        ("`object_store`", "object_store", 4 * weights, 2 * weights + collected, of_device),
        ("`collective` (gloo, through host memory)", "collective", 2 * weights, per_node * 2 * weights + collected, of_device),
        ("`vllm_nccl`", "vllm_nccl", 2 * weights, 0.0, bucket),
        ("`direct`: the same without the copy (planned)", "direct", 0.0, 0.0, bucket),
        ("CUDA IPC, both roles on the same devices (planned beyond one)", "ipc", 0.0, 0.0, bucket),
    )
    return [
        Way(
            name=name,
            update=fleet.update("auto", colocated=True) if kind == "ipc" else fleet.update(kind),
            trainer_host=trainer_host,
            engine_host=engine_host,
            device=device,
        )
        for name, kind, trainer_host, engine_host, device in rows
    ]


def table(fleet: Fleet) -> str:
    """Markdown, a row a way."""
    head = (
        "transfer",
        "GB sent by the trainer's node",
        "trainers stalled",
        "sent in parallel with the work",
        "engines stalled",
        "last step to last engine",
        "GB on the trainer's host",
        "GB on a host of engines",
        "GB a device",
    )
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for way in ways(fleet):
        update = way.update
        seconds = " | ".join(f"{one:.1f} s" for one in (update.stall, update.sending, update.pause, update.whole))
        memory = f"{way.trainer_host:.0f} | {way.engine_host:.0f} | {way.device:.2f}"
        lines.append(f"| {way.name} | {update.sent_gb:.0f} | {seconds} | {memory} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and the line; write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--document", action="store_true", help="write the table into docs/explanation/bubble.md")
    rates = {
        name: value for name, value in TransferSection().model_dump().items() if isinstance(value, float | int) and name != "weights_gb"
    }
    sizes = {name: value for name, value in asdict(Fleet()).items() if isinstance(value, float | int)}
    for name, value in {**sizes, **rates}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help="default: %(default)s")
    chosen = vars(parser.parse_args(arguments))
    fleet = Fleet(**{name: chosen[name] for name in sizes}, rates=TransferSection.model_validate({name: chosen[name] for name in rates}))
    print(table(fleet))
    if chosen["document"]:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.partition(START)[0], page.partition(END)[2]
        PAGE.write_text(f"{before}{START}\n{table(fleet)}\n{END}{after}", encoding="utf-8")
    print(json.dumps({way.name: {"stall": round(way.update.stall, 2), "whole": round(way.update.whole, 2)} for way in ways(fleet)}))


if __name__ == "__main__":
    main()
