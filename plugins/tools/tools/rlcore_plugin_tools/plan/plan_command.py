"""``rlcore plan [workload.toml] --devices N``: how to split devices between generation and training, by simulation."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.api import UsageError
from rlcore.api.commands import CollectWords, Command, ExampleFormatter
from rlcore_plugin_tools.plan.memory_command import WORD, add_memory_flags, refuse_memory_flags, show_memory

if TYPE_CHECKING:
    from rlcore_plugin_tools.plan.advice import Advice
    from rlcore_plugin_tools.plan.workload_model import Workload

__all__ = ["PlanCommand"]

_MOST_DEVICES = 100_000
_TEXT = """\
Find a split of devices between producers and trainers, how far generation should run ahead, and the gain over synchronous
training. Nothing is started: a virtual clock drives the coordinator of a run, with lengths and speeds that a workload describes.
The defaults assume a 7B model on H100-class devices; measure your own speeds and set them.
"""
_PRODUCERS = "simulate so many producers, each of --producer-devices devices [the best number]"
_TRAINERS = "and so many trainers, counted as in rlcore train: one per device, so a multiple of --trainer-devices [the best number]"
_EPILOG = """\
examples:
  rlcore plan --devices 64
  rlcore plan my_model.toml --devices 64 --slots 128 --max-staleness 2
  rlcore plan -i 40 -t 24 --json                      # this split, without a search
  rlcore plan memory --model-size 7b -t 8 -zero 3     # memory of one trainer rank, by arithmetic

A workload file has the tables [group], [generation], [update], [weights], [rewards], [faults] and [overheads]; every key is a flag below.
Tables [[sources]] (name, weight, accuracy, and what differs from [group]) and a sampler describe a run with several sources.
Exit codes: 0 success; 2 the arguments cannot work.
"""


class PlanCommand(Command):
    """The command ``rlcore plan``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the devices, the bounds of the simulation, and a flag for every setting of a workload."""
        parser.usage = "rlcore plan [WORKLOAD.toml] (--devices N | -i N -t N) [--max-staleness N] [--seed N] [--dry-run] [--json] [flags]\n"
        parser.usage += (
            "       rlcore plan memory (MODEL | --model-size 7b) [-t N] [-tp N] [-zero N] [--dtype D] [--lora-rank N] [--json] [flags]"
        )
        parser.description = _TEXT
        parser.epilog = _EPILOG
        parser.formatter_class = ExampleFormatter
        parser.set_defaults(typed={})
        parser.add_argument("file", nargs="?", type=Path, metavar="WORKLOAD.toml", help="the workload [a 7B model on H100-class devices]")
        parser.add_argument("--devices", metavar="N", help="devices to split")
        parser.add_argument("-i", "--num-inferencer", "--num_inferencer", metavar="N", help=_PRODUCERS)
        parser.add_argument("-t", "--num-trainers", "--num_trainers", metavar="N", help=_TRAINERS)
        parser.add_argument("--max-staleness", "--max_staleness", metavar="N", help="versions that a group may lag behind [the fewest]")
        parser.add_argument("--updates", metavar="N", help="measured updates, after a warm-up [30]")
        parser.add_argument("--seed", metavar="N", help="seed of all lengths, latencies and failures [0]")
        parser.add_argument("--dry-run", "--dry_run", action="store_true", help="print the workload; simulate nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
        add_memory_flags(parser)
        _add_workload_flags(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read the workload, search, and report."""
        if args.file == Path(WORD):
            return show_memory(args)
        refuse_memory_flags(args)
        from rlcore_plugin_tools.plan.source_sampler import sampler_among
        from rlcore_plugin_tools.plan.workload_file import load_workload

        workload = load_workload(args.file, args.typed)
        among = sampler_among(workload, args.file, args.registry) if workload.sources else None
        devices, split = _devices(args, workload)
        staleness, updates, seed = _numbers(args)
        if args.dry_run:
            return _show_workload(workload, devices, as_json=args.json)
        from rlcore_plugin_tools.plan.advice import advise
        from rlcore_plugin_tools.plan.plan_table import saying, show_advice

        with saying() as say:
            advice = advise(workload, devices, split=split, max_staleness=staleness, updates=updates, seed=seed, say=say, among=among)
        if args.json:
            print(json.dumps({**_as_json(advice), "workload": workload.plain()}, ensure_ascii=False, allow_nan=False))
        else:
            show_advice(advice)
        return 0


def _add_workload_flags(parser: argparse.ArgumentParser) -> None:
    from rlcore_plugin_tools.plan.workload_file import workload_settings
    from rlcore_plugin_tools.plan.workload_model import Workload

    groups: dict[str, Any] = {}
    for setting in workload_settings().values():
        section = setting.section
        if section not in groups:
            title, _, text = (Workload.model_fields[section].annotation.__doc__ or section).partition("\n")[0].partition(": ")
            groups[section] = parser.add_argument_group(title, text)
        default = "none" if setting.default is None else f"{setting.default}"
        groups[section].add_argument(
            *setting.spellings,
            action=CollectWords,
            setting=setting,
            dest="typed",
            default=argparse.SUPPRESS,
            metavar="VALUE",
            help=f"{setting.help} [{default}]".replace("%", "%%"),
        )


def _numbers(args: argparse.Namespace) -> tuple[int | None, int, int]:
    """Return the staleness (None: to be found), the number of measured updates, and the seed."""
    staleness = None if args.max_staleness is None else _whole("--max-staleness", args.max_staleness, 0, 1000)
    updates = 30 if args.updates is None else _whole("--updates", args.updates, 1, 100_000)
    seed = 0 if args.seed is None else _whole("--seed", args.seed, 0, 2**63 - 1)
    return staleness, updates, seed


def _devices(args: argparse.Namespace, workload: Workload) -> tuple[int, tuple[int, int] | None]:
    """Return the number of devices, and the split that was typed: producers, and trainers that each hold a whole model."""
    if args.num_inferencer is None and args.num_trainers is None:
        if args.devices is None:
            raise UsageError("rlcore plan needs to know how many devices there are: type --devices 8, or a split with -i 4 -t 4")
        return _whole("--devices", args.devices, 2, _MOST_DEVICES), None
    if args.num_inferencer is None or args.num_trainers is None:
        missing = "-t" if args.num_trainers is None else "-i"
        raise UsageError(f"half a split was typed, and {missing} is missing: type -i 4 -t 4, or --devices 8 alone to search for one")
    producers, trainers = _whole("-i", args.num_inferencer, 1, _MOST_DEVICES), _whole("-t", args.num_trainers, 1, _MOST_DEVICES)
    each = workload.update.trainer_devices
    if trainers % each:
        raise UsageError(f"-t {trainers}: a trainer of this workload takes {each} devices; type a multiple, for example -t {each}")
    taken = producers * workload.generation.producer_devices + trainers
    if args.devices is not None and _whole("--devices", args.devices, 2, _MOST_DEVICES) != taken:
        raise UsageError(f"--devices {args.devices}: the split that was typed takes {taken} devices; leave --devices out")
    return taken, (producers, trainers // each)


def _whole(flag: str, word: str, least: int, most: int) -> int:
    if not word.isascii() or not word.isdigit() or not least <= int(word[:30]) <= most:
        raise UsageError(f"{flag} {word}: must be a whole number from {least} to {most}; for example {flag} {max(least, 8)}")
    return int(word)


def _show_workload(workload: Workload, devices: int, *, as_json: bool) -> int:
    plain = workload.plain()
    if as_json:
        print(json.dumps({"devices": devices, "workload": plain}, ensure_ascii=False))
        return 0
    import tomli_w

    print(f"# {devices} devices; nothing was simulated. Save this as workload.toml, change it, and type rlcore plan workload.toml.\n")
    if plain["faults"]["device_hours"] is None:
        plain["faults"]["device_hours"] = "none"
    print(tomli_w.dumps(plain), end="")
    return 0


def _as_json(advice: Advice) -> dict[str, Any]:
    return {
        "devices": advice.devices,
        "speedup_over_sync": advice.speedup,
        "speedup_over_colocated": advice.zero_bubble.speed / advice.colocated.speed,
        "flags": advice.flags,
        "zero_bubble": advice.zero_bubble.as_json(),
        "synchronous": advice.synchronous.as_json(),
        "colocated": advice.colocated.as_json(),
        "simulations": len(advice.tried),
    }
