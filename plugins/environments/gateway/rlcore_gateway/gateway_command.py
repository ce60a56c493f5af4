"""``rlcore gateway --model FOLDER``: a model behind the gateway, without a run, to debug an agent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.api import UsageError
from rlcore.api.commands import Command, ExampleFormatter, add_train_flags, plan_run, train_flags
from rlcore_gateway.tool_parsers import PARSERS

if TYPE_CHECKING:
    from rlcore.api.commands import Plan

__all__ = ["GatewayCommand"]

_TEXT = """\
Serve a model as an agent sees it in a run, without training: Chat Completions, Responses and Messages at one address, with one key. The
page at the printed address shows the ledger: chats, forks, turns, sampled tokens, and which of them would train. Ctrl-C ends it.

  rlcore gateway --model Qwen/Qwen2.5-0.5B-Instruct
  rlcore gateway run.toml --history template
"""
_READ = (
    *("model", "inference", "run.seed", "data.template", "data.chat_template", "data.control_tokens", "sampling.max_new_tokens"),
    *("sampling.max_context_tokens", "sampling.temperature", "sampling.top_p", "sampling.top_k", "sampling.min_p", "sampling.stop"),
    "sampling.extra",
)
_NOT_READ = ("inference.environment", "inference.num_inferencer", "inference.inference_batch_size")
_TOLD = {
    "sampling.max_context_tokens": "longest context with its answer; 4096 if neither a flag nor a file gives it",
}
_DEFAULTS: dict[str, Any] = {"algorithm.kl_coeff": 0.0, "rewards": [], "sampling.max_context_tokens": 4096}
"""Nobody is rewarded here: a reward of the files may need what is not read, such as the environment."""
_NEEDED = ("model.", "inference.")


class GatewayCommand(Command):
    """The command ``rlcore gateway``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the address, what the gateway does with histories and tools, and the flags of ``train`` that an engine reads."""
        parser.usage = "rlcore gateway [FILE.toml …] --model MODEL [--port PORT] [--dry-run] [--json] [flags of train]"
        parser.description = _TEXT
        parser.formatter_class = ExampleFormatter
        parser.add_argument("files", nargs="*", type=Path, metavar="FILE.toml", help="configuration files, merged from left to right")
        parser.add_argument("--port", type=_port, default=0, metavar="PORT", help="a port of this machine [one that is free]")
        parser.add_argument("--history", choices=("as_sampled", "template"), default="as_sampled", help="earlier answers [as_sampled]")
        parser.add_argument("--tool-parser", choices=("auto", *PARSERS), default="auto", help="format of tool calls [auto: the template's]")
        parser.add_argument("--dry-run", action="store_true", help="only check the settings")
        parser.add_argument("--json", action="store_true", help="print the addresses and the key as one JSON object")
        add_train_flags(parser, reads=_reads, told=_TOLD)

    def run(self, args: argparse.Namespace) -> int:
        """Serve until Ctrl-C."""
        overrides = {path: value for path, value in _DEFAULTS.items() if not args.files or path != "sampling.max_context_tokens"}
        plan = plan_run(args.files, train_flags(args), args.registry, overrides=overrides, require=False, reads=_reads)
        if missing := [item for item in plan.missing if item.path.startswith(_NEEDED)]:
            raise UsageError("; ".join(map(str, missing)))
        if not plan.config.model.model:
            raise UsageError("no model is given: type --model and a folder with a model, or a name on the hub")
        if args.dry_run:
            told = {"model": plan.config.model.model, "backend": plan.config.inference.name, "history": args.history}
            print(json.dumps(told) if args.json else f"would serve {told['model']} with {told['backend']}, history {told['history']}")
            return 0
        return _serve(plan, args)


def _reads(path: str) -> bool:
    return path not in _NOT_READ and any(f"{path}.".startswith(f"{known}.") for known in _READ)


def _serve(plan: Plan, args: argparse.Namespace) -> int:
    import asyncio

    from rlcore_gateway.served_model import served_model

    with served_model(plan, lambda line: print(line, flush=True)) as (tokenizer, thread):
        try:
            asyncio.run(_until_interrupted(plan, args, tokenizer, thread))
        except KeyboardInterrupt:
            print()
    return 0


async def _until_interrupted(plan: Plan, args: argparse.Namespace, tokenizer: Any, thread: Any) -> None:
    import asyncio

    from rlcore_gateway.gateway import Gateway, GatewaySettings
    from rlcore_gateway.ledger import EpisodeLimits
    from rlcore_gateway.ledger_page import add_ledger_page
    from rlcore_gateway.server import GatewayServer

    sampling, name = plan.config.sampling, Path(str(plan.config.model.model)).name
    settings = GatewaySettings(model=name, history=args.history, tool_parser=args.tool_parser)
    gateway, server = Gateway(tokenizer, thread.generate, settings), GatewayServer()
    add_ledger_page(gateway, tokenizer)
    context = plan.config.max_context_tokens
    key = gateway.open("debug", EpisodeLimits(tokens=1 << 40, context=context, stop=sampling.stop or ()))
    addresses = await server.start(gateway, port=args.port)
    thread.start()
    root = addresses.base_url.removesuffix("/v1")
    page = f"{root}/?key={key}"
    if args.json:
        print(json.dumps({"base_url": addresses.base_url, "anthropic_base_url": root, "api_key": key, "page": page}), flush=True)
    else:
        print(f"export OPENAI_BASE_URL={addresses.base_url} OPENAI_API_KEY={key}", flush=True)
        print(f"export ANTHROPIC_BASE_URL={root} ANTHROPIC_API_KEY={key}", flush=True)
        print(f"the ledger: {page} (Ctrl-C ends it)", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        gateway.close(key)
        await server.stop()
        thread.stop()


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)
