"""The entry point of a run on Ray. It imports Ray only when the run's cluster is known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from rlcore_plugin_workers.driver_loop import DriverLoop
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.worker_runtime import WorkerRuntime

from rlcore.api.runtime import Plan, Runtime, fingerprints, load_data, read_texts
from rlcore_plugin_ray.cluster_address import ray_head, signals_blocked

__all__ = ["make_runtime"]


def make_runtime(plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> Runtime:
    """Build the runtime of a plan. Do the cheap checks before Ray starts."""
    data = load_data(plan, say)
    texts = read_texts(plan, data, say=say)
    plan_bundle = PlanBundle.of(plan, fingerprints(data, texts.tokenizer))
    keep_scored = plan.registry.observed("rlcore_groups_scored")
    address = closing.enter_context(ray_head(plan.config.run))
    with signals_blocked():
        from rlcore_plugin_ray.ray_deployment import RayDeployment
        from rlcore_plugin_ray.session import RaySession

    session = closing.enter_context(RaySession(address, plan.config.run, say))
    deployment = RayDeployment(plan, session, plan_bundle, texts, keep_scored=keep_scored, closing=closing)
    driver = DriverLoop(say)
    closing.callback(driver.close)
    return WorkerRuntime(plan, texts, plan_bundle, deployment, driver, closing)
