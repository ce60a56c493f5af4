"""What one update of the weights takes, part by part: who stands still for how long, and what goes on beside the work.

Arithmetic over the rates of ``[weights]``, the only one: the simulation charges these seconds, and the tables of the documentation are made
of them. Each transport is charged as rlcore carries it out:

- every transport that exists gathers the weights bucket by bucket on the first trainer's device and copies each bucket into a buffer of its
  host, one after the other; the trainers stand still for both, and for nothing else;
- through the memory of hosts (``shared``, ``object_store``, ``collective``) a thread takes the checksums and sends while everybody works.
  The engine copies what arrived into memory of its own, beside its work if it has processes of its own, and stands still while that is
  loaded into its devices;
- vLLM's transfer (``vllm_nccl``) broadcasts from that buffer, by way of the first trainer's device, to all engines, which stand still;
- ``direct`` does not exist: a broadcast from the trainers' devices, in which both sides stand still and nothing is copied;
- colocated roles share their devices: what was gathered there is read there (CUDA IPC), of which only one device has been built.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from rlcore_plugin_tools.plan.workload_model import TransferSection

__all__ = ["WeightUpdate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """One version on its way from ``trainer_devices`` to ``engines`` of ``engine_devices`` each. Seconds and GB."""

    settings: TransferSection
    engines: int
    engine_devices: int
    trainer_devices: int
    colocated: bool = False

    @property
    def one_node(self) -> bool:
        """Whether both roles are on one node."""
        return self.trainer_devices + self.engines * self.engine_devices <= self.settings.devices_per_node

    @property
    def transport(self) -> str:
        """The transport, ``auto`` resolved as a run resolves it; ``ipc`` for colocated roles."""
        if self.colocated:
            return "ipc"
        if self.settings.transport != "auto":
            return self.settings.transport
        return "shared" if self.one_node else "object_store"

    @property
    def through_host(self) -> bool:
        """Whether the engines read the weights in the memory of their hosts."""
        return self.transport in ("shared", "object_store", "collective")

    @property
    def engine_nodes(self) -> int:
        """Nodes with engines."""
        return ceil(self.engines * self.engine_devices / self.settings.devices_per_node)

    @property
    def gather(self) -> float:
        """The weights that the other trainers hold come to the first one. It waits for the slowest link between them."""
        of_others = self.settings.weights_gb * (1 - 1 / self.trainer_devices)
        same_node = self.trainer_devices <= self.settings.devices_per_node
        return of_others / (self.settings.device_bandwidth if same_node else self._between_nodes)

    @property
    def copy(self) -> float:
        """From its device into the buffer of its host."""
        return 0.0 if self.transport in ("direct", "ipc") else self.settings.weights_gb / self.settings.copy_bandwidth

    @property
    def stall(self) -> float:
        """The trainers stand still."""
        match self.transport:
            case "direct":
                return max(self.gather, self._broadcast)  # bucket by bucket, one is gathered while another is sent
            case "ipc":
                return self.gather + self.settings.weights_gb / self.settings.device_bandwidth
            case _:
                return self.gather + self.copy

    @property
    def sending(self) -> float:
        """From the end of the stall until engines may take the version; everybody works. One version is sent at a time."""
        weights, hashing = self.settings.weights_gb, self.settings.weights_gb / self.settings.hash_bandwidth
        match self.transport:
            case "shared":
                moved = hashing  # each engine verifies a bucket as soon as it has its checksum
            case "object_store":
                moved = hashing + weights / self.settings.copy_bandwidth + self._pulled + hashing
            case "collective":
                moved = hashing + self._tree + hashing
            case "vllm_nccl":
                moved = 0.0
            case _:
                return 0.0
        beside = self._collect if self.through_host and self._collects_beside else 0.0
        return self.settings.transfer_seconds + moved + beside

    @property
    def pause(self) -> float:
        """Each engine stands still when it takes the version."""
        weights = self.settings.weights_gb
        if self.through_host:
            inside = 0.0 if self._collects_beside else self._collect
            return inside + weights / self.engine_devices / self.settings.load_bandwidth
        if self.transport == "vllm_nccl":
            return max(weights / self.settings.load_bandwidth, self._broadcast)  # onto the trainer's device and away from it, in turns
        return self._broadcast if self.transport == "direct" else 0.0

    @property
    def together(self) -> bool:
        """Whether the engines take the version while the trainers stand still for it, and not afterwards."""
        return self.transport == "direct"

    @property
    def holding(self) -> float:
        """How long the sender is still taken once the engines have begun to take the version."""
        return self.pause if self.transport == "vllm_nccl" else 0.0

    @property
    def whole(self) -> float:
        """From the end of an update to engines that serve its version, if they are asked at once."""
        return max(self.stall, self.pause) if self.together else self.stall + self.sending + self.pause

    @property
    def sent_gb(self) -> float:
        """What leaves the first trainer's node."""
        times = {"object_store": self.engine_nodes, "collective": self._sends, "vllm_nccl": 1, "direct": 1}
        return 0.0 if self.one_node else self.settings.weights_gb * times.get(self.transport, 0)

    # --- parts -------------------------------------------------------------------------------------------------------

    @property
    def _between_nodes(self) -> float:
        return min(self.settings.device_bandwidth, self.settings.network_bandwidth)

    @property
    def _broadcast(self) -> float:
        """In pieces that every member hands on: each link carries each byte once."""
        return self.settings.weights_gb / (self.settings.device_bandwidth if self.one_node else self._between_nodes)

    @property
    def _pulled(self) -> float:
        """Every node of engines has the object from the trainer's node."""
        return 0.0 if self.one_node else self.sent_gb / min(self.settings.store_bandwidth, self.settings.network_bandwidth)

    @property
    def _sends(self) -> int:
        """A tree of processes in which the first one sends to as many as there are levels: gloo's."""
        return ceil(log2(1 + self.engines))

    @property
    def _tree(self) -> float:
        sent = self.settings.weights_gb * self._sends
        return sent / (
            self.settings.collective_bandwidth if self.one_node else min(self.settings.collective_bandwidth, self._between_nodes)
        )

    @property
    def _collect(self) -> float:
        return self.settings.weights_gb / self.settings.collect_bandwidth

    @property
    def _collects_beside(self) -> bool:
        """An engine of several devices has processes of its own, which work while the producer's process copies."""
        of_its_own = self.settings.engine_process
        return self.engine_devices > 1 if of_its_own == "auto" else of_its_own == "own"
