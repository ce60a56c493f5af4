"""The time that one update of the weights takes, part by part: which role stalls for how long, and which parts run in parallel with the
work.

This is the only arithmetic over the rates of ``[weights]``: the simulation charges these seconds, and the documentation's tables are
computed from them. Each transport is charged as rlcore implements it:

- Every existing transport gathers the weights bucket by bucket on the first trainer's device and then copies each bucket into a buffer of
  its host. The trainers stall for both, and for nothing else.
- Transports through host memory (``shared``, ``object_store``, ``collective``) compute checksums and send in a thread while training and
  generation continue. The engine copies the weights into its own memory, in parallel with its work if it has its own processes. It stalls
  while they are loaded into its devices.
- vLLM's transfer (``vllm_nccl``) broadcasts from that buffer, through the first trainer's device, to all engines, which stall.
- ``direct`` does not exist: a broadcast from the trainers' devices, in which both sides stall and nothing is copied.
- Colocated roles share their devices: the engine reads the weights where they were gathered (CUDA IPC). Only one device has been built.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from rlcore_plugin_tools.plan.workload_model import TransferSection

__all__ = ["WeightUpdate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """The transfer of one version from ``trainer_devices`` to ``engines`` of ``engine_devices`` each. Seconds and GB."""

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
        """The transport, with ``auto`` resolved as a run resolves it; ``ipc`` for colocated roles."""
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
        """The number of nodes with engines."""
        return ceil(self.engines * self.engine_devices / self.settings.devices_per_node)

    @property
    def gather(self) -> float:
        """Seconds to gather the other trainers' weights on the first one. The slowest link between them sets the rate."""
        of_others = self.settings.weights_gb * (1 - 1 / self.trainer_devices)
        same_node = self.trainer_devices <= self.settings.devices_per_node
        return of_others / (self.settings.device_bandwidth if same_node else self._between_nodes)

    @property
    def copy(self) -> float:
        """Seconds to copy the weights from its device into the buffer of its host."""
        return 0.0 if self.transport in ("direct", "ipc") else self.settings.weights_gb / self.settings.copy_bandwidth

    @property
    def stall(self) -> float:
        """Seconds for which the trainers stall."""
        match self.transport:
            case "direct":
                return max(self.gather, self._broadcast)  # bucket by bucket: one is gathered while another is sent
            case "ipc":
                return self.gather + self.settings.weights_gb / self.settings.device_bandwidth
            case _:
                return self.gather + self.copy

    @property
    def sending(self) -> float:
        """Seconds from the end of the stall until engines may take the version, while all roles work. Only one version is sent at a
        time."""
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
        """Seconds for which each engine stalls to take the version."""
        weights = self.settings.weights_gb
        if self.through_host:
            inside = 0.0 if self._collects_beside else self._collect
            return inside + weights / self.engine_devices / self.settings.load_bandwidth
        if self.transport == "vllm_nccl":
            return max(weights / self.settings.load_bandwidth, self._broadcast)  # alternating: onto the trainer's device and away from it
        return self._broadcast if self.transport == "direct" else 0.0

    @property
    def together(self) -> bool:
        """Whether the engines take the version during the trainers' stall instead of after it."""
        return self.transport == "direct"

    @property
    def holding(self) -> float:
        """Seconds for which the sender stays occupied after the engines have begun to take the version."""
        return self.pause if self.transport == "vllm_nccl" else 0.0

    @property
    def whole(self) -> float:
        """Seconds from the end of an update until engines serve its version, if they take it at once."""
        return max(self.stall, self.pause) if self.together else self.stall + self.sending + self.pause

    @property
    def sent_gb(self) -> float:
        """GB that leave the first trainer's node."""
        times = {"object_store": self.engine_nodes, "collective": self._sends, "vllm_nccl": 1, "direct": 1}
        return 0.0 if self.one_node else self.settings.weights_gb * times.get(self.transport, 0)

    # --- parts -------------------------------------------------------------------------------------------------------

    @property
    def _between_nodes(self) -> float:
        return min(self.settings.device_bandwidth, self.settings.network_bandwidth)

    @property
    def _broadcast(self) -> float:
        """Seconds of a broadcast in pieces that every member forwards: each link carries each byte once."""
        return self.settings.weights_gb / (self.settings.device_bandwidth if self.one_node else self._between_nodes)

    @property
    def _pulled(self) -> float:
        """Seconds until every node of engines has the object from the trainer's node."""
        return 0.0 if self.one_node else self.sent_gb / min(self.settings.store_bandwidth, self.settings.network_bandwidth)

    @property
    def _sends(self) -> int:
        """How often the first process sends: once for each level of gloo's tree of processes."""
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
        """Whether the engine copies in parallel: an engine of several devices has its own processes, which work while the producer's
        process copies."""
        of_its_own = self.settings.engine_process
        return self.engine_devices > 1 if of_its_own == "auto" else of_its_own == "own"
