"""`make bench-scale-paper`: what a run on 1,024 or 16,384 devices asks of each part: the tables of docs/explanation/scale.md.

Arithmetic over three sources: the clusters that `make planning` found (benchmarks/results/planning.json), the seconds of an update of the
weights that `rlcore plan` charges, and what ``--measure`` measured of one group, one rollout and one call (benchmarks/results/scale.json).
``--document`` writes the tables into the page. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from rlcore_plugin_tools.plan.simulated import Workload

from benchmarks.bubble import found_split
from benchmarks.planning import RESULTS as FOUND
from benchmarks.planning import transport
from benchmarks.scale_measured import MeasuredParts, measured_parts

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks/results/scale.json", ROOT / "docs/explanation/scale.md"
SIZES = (1024, 16384)
INTERRUPTIONS, OF_DEVICES, IN_DAYS = 419, 16384, 54
"""The Llama 3 report (arXiv 2407.21783), section 3.3.4: unexpected interruptions of the job."""
RAY_ACTORS, RAY_NODES = 10_000, 250
"""What Ray's own release tests try, or more: release/benchmarks/README.md of its repository."""
PARKED = 10_000
"""Calls that the coordinator's actor holds at a time; a producer that waits for prompts holds one."""
HEARTBEAT, SAVES, BATCHES_KEPT = 12.0, 600.0, 3
"""Seconds between questions to a process and between checkpoints; batches that a rank may hold. All defaults of rlcore."""
CHECKPOINT_BYTES, HASHING, FILES, HOST_MEMORY = 12, 1.5, 1.0, 2000.0
"""Bytes of a parameter in a checkpoint; GB/s of its checksums (docs/how_to/when_things_break.md). Assumed: GB/s into the shared file
system, GB of a host."""
METRICS, TIMES = 2107, 190
"""Bytes an update, and a worker and update (`make bench-files`)."""
CALLS_TO_A_RANK = 3
"""An update: to share the batch out, to bring its groups, to train."""
REQUEUED = 120.0
"""Seconds until Slurm starts a job again (docs/how_to/when_things_break.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCluster:
    """A cluster of docs/explanation/bubble.md: its devices, and its row in benchmarks/results/planning.json."""

    devices: int
    row: Mapping[str, Any]

    @property
    def way(self) -> Mapping[str, Any]:
        """Its zero-bubble split."""
        found: Mapping[str, Any] = self.row["zero_bubble"]
        return found

    @property
    def period(self) -> float:
        """Seconds of an update."""
        return 1 / float(self.way["updates_per_second"])

    @property
    def rollouts(self) -> int:
        """Of an update."""
        return int(self.way["train_batch_size"]) * Workload().group.num_generations

    def nodes(self, role: str) -> int:
        """Nodes of ``producers`` or ``trainers``."""
        return ceil(self.way[role] / Workload().weights.devices_per_node)

    def weights(self, by: str = "") -> Any:
        """What an update of the weights takes; by the transport of the row if none is named."""
        return found_split(self.row, by or transport(self.devices)).weight_update


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of one part, of how much it has, in one unit."""

    part: str
    asked: float
    has: float
    unit: str
    source: str

    @property
    def share(self) -> float:
        """From 1 on the part gives."""
        return self.asked / self.has


def demands(cluster: FoundCluster, parts: MeasuredParts) -> list[Demand]:
    """Of every part, the tightest first."""
    every = [*_weights(cluster), *_control(cluster, parts), *_rollouts(cluster, parts), *_files(cluster, parts), *_of_ray(cluster)]
    return sorted(every, key=lambda demand: -demand.share)


def _weights(cluster: FoundCluster) -> list[Demand]:
    rates, behind = Workload().weights, cluster.way["max_staleness"] * cluster.period
    own, each = cluster.weights(), f"{cluster.way['max_staleness']} updates, the staleness of this run"
    return [
        Demand(part="trainers: gather and copy the weights", asked=own.stall, has=cluster.period, unit="s", source="an update"),
        *(
            Demand(part=f"weights, if sent by `{by}`", asked=cluster.weights(by).sending, has=behind, unit="s", source=each)
            for by in ("object_store", "collective")
        ),
        Demand(
            part="network of the first trainer's node: weights",
            asked=own.sent_gb / cluster.period,
            has=rates.network_bandwidth,
            unit="GB/s",
            source="half of 400 Gb/s",
        ),
        Demand(part="engines: take the weights", asked=own.pause, has=cluster.period, unit="s", source="an update"),
    ]


def _control(cluster: FoundCluster, parts: MeasuredParts) -> list[Demand]:
    groups, processes = cluster.way["groups_per_second"], cluster.way["producers"] + cluster.way["trainers"]
    services = 2 * cluster.nodes("producers")
    of_ranks = CALLS_TO_A_RANK * cluster.way["trainers"] + cluster.way["train_batch_size"]  # a read a group: each is for another rank
    calls = (processes + services) / HEARTBEAT + (of_ranks + cluster.way["producers"] + 2 * services) / cluster.period
    metadata = groups * parts.metadata_bytes / 1e6
    return [
        Demand(part="coordinator: groups, one a call", asked=groups, has=parts.groups, unit="groups/s", source="measured"),
        Demand(part="coordinator: groups, 128 a call", asked=groups, has=parts.groups_by_128, unit="groups/s", source="measured"),
        Demand(part="coordinator: metadata", asked=metadata, has=1e3 * Workload().weights.network_bandwidth, unit="MB/s", source="network"),
        Demand(
            part="coordinator: producers that wait", asked=cluster.way["producers"], has=PARKED, unit="calls", source="limit of its actor"
        ),
        Demand(part="driver: calls and answers", asked=calls, has=parts.calls, unit="calls/s", source="measured"),
    ]


def _rollouts(cluster: FoundCluster, parts: MeasuredParts) -> list[Demand]:
    rates, of_update = Workload().weights, cluster.rollouts * parts.rollout_bytes / 1e9
    out = of_update * cluster.nodes("trainers") / cluster.nodes("producers") / cluster.period
    held = of_update * BATCHES_KEPT * rates.devices_per_node
    return [
        Demand(
            part="network of a trainer's node: rollouts",
            asked=of_update / cluster.period,
            has=rates.network_bandwidth,
            unit="GB/s",
            source="half of 400 Gb/s",
        ),
        Demand(part="store of a producer's node: rollouts", asked=out, has=rates.store_bandwidth, unit="GB/s", source="Ray's own test"),
        Demand(
            part="each rank: unpack the batch, if it needs all of it",
            asked=cluster.rollouts * parts.unpack_seconds,
            has=cluster.period,
            unit="s",
            source="an update",
        ),
        Demand(part="memory of a trainer's node: batches", asked=held, has=HOST_MEMORY, unit="GB", source="assumed"),
    ]


def _files(cluster: FoundCluster, parts: MeasuredParts) -> list[Demand]:
    checkpoint = Workload().weights.weights_gb / 2 * CHECKPOINT_BYTES
    workers = cluster.way["producers"] + cluster.way["trainers"]
    logged = cluster.rollouts * parts.log_bytes / 1e6 / cluster.period
    return [
        Demand(
            part="driver: write every rollout",
            asked=cluster.rollouts * parts.log_seconds,
            has=cluster.period,
            unit="s",
            source="an update",
        ),
        Demand(part="file system: rollouts", asked=logged, has=1e3 * FILES, unit="MB/s", source="assumed"),
        Demand(
            part="file system: metrics and times",
            asked=(METRICS + TIMES * workers) / 1e6 / cluster.period,
            has=1e3 * FILES,
            unit="MB/s",
            source="assumed",
        ),
        Demand(part="file system: checkpoints", asked=checkpoint / FILES, has=SAVES, unit="s", source="between two checkpoints"),
        Demand(part="driver: checksums of a checkpoint", asked=checkpoint / HASHING, has=SAVES, unit="s", source="between two checkpoints"),
    ]


def _of_ray(cluster: FoundCluster) -> list[Demand]:
    nodes = cluster.nodes("producers") + cluster.nodes("trainers")
    actors = cluster.way["producers"] + cluster.way["trainers"] + 2 * cluster.nodes("producers") + 2
    return [
        Demand(part="Ray: actors", asked=actors, has=RAY_ACTORS, unit="", source="Ray's own tests"),
        Demand(part="Ray: nodes", asked=nodes, has=RAY_NODES, unit="", source="Ray's own tests"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyFailure:
    """What fails ``often`` times a day, what rlcore does, and seconds that it costs all devices each time."""

    what: str
    often: float
    done: str
    seconds: float

    @property
    def share(self) -> float:
        """Of a day that is lost."""
        return self.often * self.seconds / 86_400


def failures(cluster: FoundCluster) -> list[DailyFailure]:
    """By role: every device fails alike."""
    rate, node = INTERRUPTIONS / OF_DEVICES / IN_DAYS, Workload().weights.devices_per_node
    restart = Workload().faults.restart_seconds
    producers, trainers = cluster.way["producers"], cluster.way["trainers"]
    return [
        DailyFailure(
            what="a trainer's device",
            often=rate * (trainers - node),
            done="back to the last checkpoint by itself",
            seconds=SAVES / 2 + restart,
        ),
        DailyFailure(
            what="a producer's device",
            often=rate * producers,
            done="replaced; its groups are generated again",
            seconds=restart / producers,
        ),
        DailyFailure(
            what="the node of driver and coordinator",
            often=rate * node,
            done="ends; the scheduler types the same command",
            seconds=REQUEUED + SAVES / 2 + restart,
        ),
    ]


# --- tables --------------------------------------------------------------------------------------------------------------


def asked_table(clusters: Sequence[FoundCluster], parts: MeasuredParts) -> str:
    """Markdown: a row a part, in the order of the first cluster."""
    first, *others = (demands(cluster, parts) for cluster in clusters)
    lines = [["part", f"asked, {clusters[0].devices:,} devices", "of", "share"]]
    lines[0] += [f"share, {cluster.devices:,}" for cluster in clusters[1:]]
    lines.append(["---", "---:", "---", *["---:"] * len(clusters)])
    for demand in first:
        same = [next(one for one in other if one.part == demand.part) for other in others]
        has = f"{_short(demand.has)} {demand.unit}".strip()
        asked = f"{_short(demand.asked)} {demand.unit}".strip()
        lines.append([demand.part, asked, f"{has} ({_source(demand)})", *(_percent(one.share) for one in (demand, *same))])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def failures_table(clusters: Sequence[FoundCluster]) -> str:
    """Markdown: what fails a day, and what that costs."""
    columns = [failures(cluster) for cluster in clusters]
    lines = [["what fails", "what rlcore does"], ["---", "---"]]
    for cluster in clusters:
        lines[0] += [f"a day, {cluster.devices:,} devices", "costs each time", "of the day"]
        lines[1] += ["---:"] * 3
    for rows in zip(*columns, strict=True):
        cells = [text for one in rows for text in (f"{one.often:.2g}", f"{_short(one.seconds)} s", _percent(one.share))]
        lines.append([rows[0].what, rows[0].done, *cells])
    sums = [("", "", f"{sum(one.often for one in rows):.2g}", "", _percent(sum(one.share for one in rows))) for rows in columns]
    lines.append(["together", "", *(text for one in sums for text in one[2:])])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _source(demand: Demand) -> str:
    return re.sub(r"^\d+ updates", "updates", demand.source)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _percent(share: float) -> str:
    percent = 100 * share
    return "< 0.1 %" if percent < 0.1 else f"{percent:.1f} %" if percent < 10 else f"{percent:,.0f} %"


def found_clusters() -> list[FoundCluster]:
    """Of the sizes of the page."""
    rows = json.loads(FOUND.read_text(encoding="utf-8"))
    return [FoundCluster(devices=devices, row=rows[str(devices)]) for devices in SIZES]


def kept_parts() -> MeasuredParts:
    """What was measured last."""
    return MeasuredParts(**json.loads(RESULTS.read_text(encoding="utf-8")))


def blocks() -> dict[str, str]:
    """The tables of the page by their names."""
    clusters = found_clusters()
    return {"asked": asked_table(clusters, kept_parts()), "failures": failures_table(clusters)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure if asked to; print the tables and the line; write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="measure sizes and seconds on this machine first, a minute")
    parser.add_argument("--document", action="store_true", help="write the tables into docs/explanation/scale.md")
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        RESULTS.write_text(json.dumps(measured_parts(), indent=1) + "\n", encoding="utf-8")
    print("\n\n".join(blocks().values()))
    if chosen.document:
        text = PAGE.read_text(encoding="utf-8")
        for name, table in blocks().items():
            block = re.compile(rf"(<!-- scale: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            text = block.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)  # type: ignore[misc]
        PAGE.write_text(text, encoding="utf-8")
    print(json.dumps({str(cluster.devices): _line(cluster) for cluster in found_clusters()}))


def _line(cluster: FoundCluster) -> dict[str, Any]:
    every = demands(cluster, kept_parts())
    gives = [demand.part for demand in every if demand.share >= 1]
    lost = sum(one.share for one in failures(cluster))
    a_day = sum(one.often for one in failures(cluster))
    return {"first": every[0].part, "gives": gives, "failures_a_day": round(a_day, 2), "lost_to_failures": round(lost, 4)}


if __name__ == "__main__":
    main()
