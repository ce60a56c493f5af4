"""Where a run on Ray begins. Imports no Ray until the cluster is known that the run joins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from rlcore_plugin_workers.driver_loop import DriverLoop
from rlcore_plugin_workers.shipment import Shipment
from rlcore_plugin_workers.worker_crew import WorkerCrew

from rlcore.api.runtime import Crew, Plan, fingerprints, load_data, read_texts
from rlcore_plugin_ray.joining import ray_head, signals_held

__all__ = ["make_crew"]


def make_crew(plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> Crew:
    """Build the crew of a plan. What is cheap to refuse is refused before Ray starts."""
    data = load_data(plan, say)
    texts = read_texts(plan, data)
    shipment = Shipment.of(plan, fingerprints(data, texts.tokenizer))
    keep_scored = plan.registry.observed("rlcore_groups_scored")
    address = closing.enter_context(ray_head(plan.config.run))
    with signals_held():
        from rlcore_plugin_ray.ray_site import RaySite
        from rlcore_plugin_ray.session import Session

    session = closing.enter_context(Session(address, plan.config.run, say))
    site = RaySite(plan, session, shipment, len(texts.training), keep_scored=keep_scored, closing=closing)
    driver = DriverLoop(say)
    closing.callback(driver.close)
    return WorkerCrew(plan, texts, shipment, site, driver, closing)
