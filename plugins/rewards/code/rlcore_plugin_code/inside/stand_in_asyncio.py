"""The functions of asyncio that tests use, for coroutines of the program: these run with the program, and the tests get their results."""

from importlib import import_module
from typing import Any

from rlcore_plugin_code.inside.stand_ins import Held, Unknown
from rlcore_plugin_code.inside.wire import Unusable

__all__ = ["awaitable_stand_ins", "finished"]


def finished(result: Any) -> None:
    """Run the result of a test function to its end, if it was an ``async def``."""
    if hasattr(result, "cr_frame"):
        import_module("asyncio").run(result)


async def _awaited(one: Any) -> Any:
    return await one


def awaitable_stand_ins() -> None:
    """Let asyncio's functions accept stand-ins for coroutines."""
    asyncio = import_module("asyncio")
    run, task, gather, wait_for = asyncio.run, asyncio.create_task, asyncio.gather, asyncio.wait_for

    async def together(*ones: Any, **options: Any) -> Any:
        if not ones or not all(isinstance(one, Held) for one in ones):
            return await gather(*(_coroutine(one) for one in ones), **options)
        if options.get("return_exceptions"):
            raise Unusable("the tests use return_exceptions of asyncio.gather, which is not supported here")
        return ones[0]._own("await", *ones[1:]) if len(ones) > 1 else [ones[0]._own("await")]

    def in_time(one: Any, timeout: Any = None) -> Any:
        if isinstance(one, Held) and timeout is not None:
            raise Unusable("the tests use asyncio.wait_for, whose timeout does not reach the program")
        return wait_for(_coroutine(one), timeout)

    asyncio.run = lambda one, **options: run(_coroutine(one), **options)
    asyncio.create_task = lambda one, **options: task(_coroutine(one), **options)
    asyncio.gather, asyncio.wait_for = together, in_time


def _coroutine(one: Any) -> Any:
    return _awaited(one) if isinstance(one, Held | Unknown) else one
