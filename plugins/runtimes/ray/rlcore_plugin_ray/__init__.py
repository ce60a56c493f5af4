"""The Ray runtime: producers and trainer ranks as actors, on one machine or on many. This module does not import Ray."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, RuntimeSpec, WeightTransferSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_runtimes() -> Sequence[RuntimeSpec]:
    """Register the runtime ``ray``."""
    return [
        RuntimeSpec(
            name="ray",
            target="rlcore_plugin_ray.ray_runtime:make_runtime",
            summary="Producers and trainer ranks as Ray actors, on one machine or on many",
            reach="cluster",
            preference=10,
            settings=(
                "run.master_address",
                "run.master_port",
                "run.ray_dir",
                "schedule.producer_restarts",
                "schedule.producer_deadline",
                "schedule.producer_load_deadline",
                "schedule.heartbeat_deadline",
                "schedule.lease_deadline",
                "schedule.trainer_deadline",
                "inference.environment",
                "training.environment",
            ),
            requires_module="ray",
        )
    ]


@hookimpl
def rlcore_register_weight_transfers() -> Sequence[WeightTransferSpec]:
    """Register two weight transfers between hosts."""
    return [
        WeightTransferSpec(
            name="object_store",
            target="rlcore_plugin_ray.weights_store:StoreTransfer",
            summary="One object for each version in Ray's object store; each node fetches it once",
            reach="cluster",
            runtimes=("ray",),
            preference=10,
        ),
        WeightTransferSpec(
            name="collective",
            target="rlcore_plugin_ray.weights_collective:CollectiveTransfer",
            summary="Broadcast over gloo or NCCL, in a new group for each set of producers",
            reach="cluster",
            runtimes=("ray",),
            preference=5,
        ),
    ]


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Register ``rlcore launch``."""
    return [
        CommandSpec(
            name="launch",
            target="rlcore_plugin_ray.launch_command:LaunchCommand",
            summary="write the batch file that trains on a Slurm cluster",
            position=30,
        )
    ]
