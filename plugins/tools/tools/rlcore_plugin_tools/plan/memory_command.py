"""``rlcore plan memory [MODEL]``: gigabytes that one trainer rank needs, part by part, for one layout or for several to choose from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.api import UsageError

if TYPE_CHECKING:
    from rlcore_plugin_tools.plan.memory_model import RankBytes, TrainerSetting
    from rlcore_plugin_tools.plan.model_shape import DecoderShape

__all__ = ["WORD", "add_memory_flags", "refuse_memory_flags", "show_memory"]

WORD = "memory"
"""The word that is typed in place of a workload file."""

_FLAGS: dict[str, tuple[tuple[str, ...], str]] = {
    "model_size": (("--model-size", "--model_size"), "size of a published model instead of a folder, for example 7b"),
    "tensor": (("-tp", "--tensor-parallel-size", "--tensor_parallel_size"), "ranks that share one copy of the model [1]"),
    "zero": (("-zero", "--zero-stage", "--zero_stage"), "0, 1, 2 or 3: the state that data-parallel ranks divide among them [0]"),
    "dtype": (("--dtype", "--training-dtype", "--training_dtype"), "precision of the forward: bfloat16, float32 or float64 [bfloat16]"),
    "lora_rank": (("--lora-rank", "--lora_rank"), "rank of adapters on every linear layer; 0: all weights are trained [0]"),
    "tokens": (("--tokens-per-forward", "--tokens_per_forward"), "tokens of one forward pass [16384]"),
    "activations": (("--activations",), "keep, recompute or offload, as training.options.activations [keep]"),
    "offload": (("--offload",), "state kept on the host: optimizer, reference, or both separated by a comma"),
    "bucket_mb": (("--weights-bucket-mb", "--weights_bucket_mb"), "MiB of weights that are gathered at a time [256]"),
}
_PARTS = ("weights", "gradients", "moments", "reference", "gathered", "activations", "logits", "exchange")


def add_memory_flags(parser: argparse.ArgumentParser) -> None:
    """Add the second word, and the flags that only ``rlcore plan memory`` takes."""
    parser.add_argument(
        "model", nargs="?", type=Path, metavar="MODEL", help="after the word memory: folder of a model, for its config.json"
    )
    group = parser.add_argument_group(
        "rlcore plan memory", "gigabytes that one trainer rank needs, by arithmetic (-t and --json also apply)"
    )
    for name, (spellings, text) in _FLAGS.items():
        group.add_argument(*spellings, dest=name, metavar="VALUE", help=text)
    group.add_argument("--reference", action="store_true", help="count a reference model, which a KL penalty needs")


def refuse_memory_flags(args: argparse.Namespace) -> None:
    """Raise UsageError if a flag of ``plan memory`` was typed without that word."""
    typed = [spellings[0] for name, (spellings, _) in _FLAGS.items() if getattr(args, name) is not None]
    typed += ["--reference"] * args.reference
    if typed:
        raise UsageError(f"{typed[0]} belongs to rlcore plan memory; type rlcore plan memory {typed[0]} …")
    if args.model is not None:
        raise UsageError(f"{args.model}: one workload file is enough; type rlcore plan {args.file} --devices 8")


def show_memory(args: argparse.Namespace) -> int:
    """Count, print, and return the exit code. Raises UsageError or ConfigError."""
    from rlcore_plugin_tools.plan.memory_model import bytes_of_rank, layouts_of

    _refuse_others(args)
    shape, setting = _shape(args), _setting(args)
    typed = any(value is not None for value in (args.num_trainers, args.tensor, args.zero))
    rows = [(one, bytes_of_rank(shape, one)) for one in layouts_of(shape, setting, typed)]
    if args.json:
        plain = [{"setting": asdict(one), **asdict(found), "resident": found.resident, "peak": found.peak} for one, found in rows]
        print(json.dumps({"model": shape.name, "parameters": shape.parameters, "layouts": plain}))
    else:
        _print_table(shape, setting, rows)
    return 0


def _refuse_others(args: argparse.Namespace) -> None:
    others = {"--devices": args.devices, "-i": args.num_inferencer, "--max-staleness": args.max_staleness, "--updates": args.updates}
    typed = [flag for flag, value in {**others, "--seed": args.seed}.items() if value is not None] + ["--dry-run"] * args.dry_run
    typed += [f"the setting {path}" for path in args.typed]
    if typed:
        raise UsageError(f"{typed[0]} is for the simulation of rlcore plan; rlcore plan memory does not accept it, so leave it out")


def _shape(args: argparse.Namespace) -> DecoderShape:
    from rlcore_plugin_tools.plan.model_shape import named_shape, shape_of_folder

    if (args.model is None) == (args.model_size is None):
        raise UsageError("rlcore plan memory needs one model: type its folder, or --model-size 7b")
    return shape_of_folder(args.model) if args.model_size is None else named_shape(args.model_size)


def _setting(args: argparse.Namespace) -> TrainerSetting:
    from rlcore_plugin_tools.plan.memory_model import TrainerSetting

    tensor = _number("-tp", args.tensor, 1, 1024, 1)
    return TrainerSetting(
        ranks=_number("-t", args.num_trainers, 1, 100_000, tensor),
        tensor=tensor,
        zero=_number("-zero", args.zero, 0, 3, 0),
        dtype=_choice("--dtype", args.dtype, ("bfloat16", "float32", "float64")),
        tokens=_number("--tokens-per-forward", args.tokens, 1, 100_000_000, 16_384),
        lora_rank=_number("--lora-rank", args.lora_rank, 0, 65_536, 0),
        activations=_choice("--activations", args.activations, ("keep", "recompute", "offload")),
        offload=tuple(_choice("--offload", word, ("optimizer", "reference")) for word in (args.offload or "").split(",") if args.offload),
        reference=args.reference,
        bucket_mb=_number("--weights-bucket-mb", args.bucket_mb, 1, 1_000_000, 256),
    )


def _number(flag: str, word: str | None, least: int, most: int, default: int) -> int:
    if word is None:
        return default
    if not word.isascii() or not word.isdigit() or not least <= int(word[:30]) <= most:
        raise UsageError(f"{flag} {word}: must be a whole number from {least} to {most}; for example {flag} {default}")
    return int(word)


def _choice(flag: str, word: str | None, offered: Sequence[str]) -> str:
    if word is not None and word not in offered:
        raise UsageError(f"{flag} {word}: must be {', '.join(offered[:-1])} or {offered[-1]}")
    return word or offered[0]


def _print_table(shape: DecoderShape, setting: TrainerSetting, rows: list[tuple[TrainerSetting, RankBytes]]) -> None:
    from rich.table import Table

    from rlcore.api.commands import plain_console

    console = plain_console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("layout", *_PARTS, "between updates", "peak"):
        table.add_column(heading, justify="left" if heading == "layout" else "right")
    for one, found in rows:
        amounts: list[Any] = [getattr(found, part) for part in _PARTS]
        table.add_row(one.flags, *(f"{amount / 1e9:.1f}" for amount in (*amounts, found.resident, found.peak)))
    trained = f"LoRA of rank {setting.lora_rank}" if setting.lora_rank else "all weights trained"
    what = f"{setting.dtype}, {trained}, {setting.tokens:,} tokens per forward, activations: {setting.activations}"
    console.print(
        f"{shape.name}, {shape.parameters / 1e9:.2f} billion parameters; {what}; GB (1e9 bytes) on the device of one rank\n", soft_wrap=True
    )
    console.print(table, soft_wrap=True)
