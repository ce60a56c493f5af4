"""The weight transfer of a plan, made in the process that needs one end of it."""

from __future__ import annotations

from rlcore.config import Plan
from rlcore.contracts.specs import PluginKind, WeightTransferSpec
from rlcore.weights import WeightTransfer

__all__ = ["make_transfer", "transfer_spec"]


def make_transfer(plan: Plan) -> WeightTransfer:
    """The plugin that ``[weights] transport`` names, with its options."""
    made: WeightTransfer = plan.registry.make(PluginKind.TRANSFER, plan.config.weights.transport, options=plan.transfer_options)
    return made


def transfer_spec(plan: Plan) -> WeightTransferSpec:
    """What that plugin declares of itself."""
    spec = plan.registry.spec(PluginKind.TRANSFER, plan.config.weights.transport)
    assert isinstance(spec, WeightTransferSpec)
    return spec
