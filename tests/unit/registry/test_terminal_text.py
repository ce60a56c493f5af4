"""Text of strangers for a terminal."""

from __future__ import annotations

from rlcore.api.commands import escape_control


def test_what_is_made_visible_and_what_stays() -> None:
    assert escape_control("naïve 数学 🙂 é") == "naïve 数学 🙂 é"
    assert escape_control("a\tb\nc") == "a    b\\nc"
    assert escape_control("a\nb", lines=True) == "a\nb"
    every = "".join(map(chr, [*range(32), *range(127, 160), 0x200B, 0x200E, 0x2066, 0xFEFF, 0xE0001]))
    assert all(character.isprintable() for character in escape_control(every))
