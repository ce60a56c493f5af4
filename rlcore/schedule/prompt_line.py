"""The prompts of a run in the order in which they are drawn, by source. Prompts that were given back go first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rlcore.contracts.errors import ConfigError
from rlcore.contracts.sampler import DrawResult, SamplerContext
from rlcore.schedule.chosen_sampler import ChosenSampler
from rlcore.schedule.ledger import Ledger
from rlcore.schedule.ordinals import Ordinals
from rlcore.schedule.prompt_order import EpisodeOrder, Sequential, Shuffled, Weighted
from rlcore.schedule.schedule_records import ScheduleSettings, SourceSchedule

__all__ = ["Ended", "PromptLine", "PromptPlace", "check_same"]

Ended = Literal["trained", "filtered", "failed"]
"""How a prompt ended."""


class PromptPlace(NamedTuple):
    """One issue of a prompt. Places compare by ``number``, that of the draw in the run.

    ``episode``: of its source. ``ordinal``: how often the prompt was issued before in this episode.
    """

    number: int
    source: int
    episode: int
    prompt: int
    ordinal: int = 0
    level: int = 0


class _Unseen(NamedTuple):
    """The end of a prompt that no sampler has seen."""

    place: PromptPlace
    ended: Ended
    accuracy: float | None
    reward: float | None


class _SourceLine:
    """The draws of one source, and its ledger. An episode is as many draws as the source has prompts."""

    def __init__(self, source: SourceSchedule, sampler: ChosenSampler) -> None:
        self.source = source
        self.sampler = sampler
        self.ledger = Ledger(source.prompts)
        self._drawn = 0
        self._ordinals = Ordinals()

    def draw(self, number: int, source: int) -> PromptPlace:
        episode, position = divmod(self._drawn, self.source.prompts) if self.source.prompts else (0, self._drawn)
        item, level = self.sampler.next()
        if position == 0:
            self._ordinals = Ordinals()
        ordinal = 0 if isinstance(self.sampler.sampler, EpisodeOrder) else self._ordinals.issue(item)
        self._drawn += 1
        self.ledger.issue(episode)
        return PromptPlace(number, source, episode, item, ordinal, level)

    def state(self) -> dict[str, Any]:
        told = {"name": self.source.name, "weight": self.source.weight, "prompts": self.source.prompts, "drawn": self._drawn}
        return {**told, **self.sampler.state(), "ordinals": self._ordinals.state(), "ledger": self.ledger.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        check_same(f"the sampler of source {self.source.name}" if self.source.name else "the sampler", state["sampler"], self.sampler.name)
        self._drawn, self._ordinals = state["drawn"], Ordinals(state["ordinals"])
        self.ledger = Ledger.restored(self.source.prompts, state["ledger"])
        self.sampler.restore(state)


class PromptLine:
    """Every place of the run, handed out in the order of the draws. A place that was put back is handed out again before any new one.

    Samplers see how prompts ended at ``updated``, in the order of the draws.
    """

    def __init__(self, settings: ScheduleSettings, samplers: Sequence[ChosenSampler] = (), among: ChosenSampler | None = None) -> None:
        """Start before the first draw.

        :param samplers: of the prompts, one for each source; (): as ``settings.shuffle`` says.
        :param among: the sampler of the sources; None: by weight.
        """
        parts = settings.parts
        self.sources = [
            _SourceLine(source, sampler)
            for source, sampler in zip(parts, samplers or [_prompts_of(source, settings) for source in parts], strict=True)
        ]
        self._among = (among or _among_sources(settings)) if len(parts) > 1 else None
        self._draws = settings.draws
        self._drawn = 0
        self._returned: list[PromptPlace] = []
        self._unseen: list[_Unseen] = []

    @property
    def plain(self) -> bool:
        """Whether the episode and the position in it say everything about a place: one source without a name, which ends, in the order of
        its episodes."""
        (first, *others) = self.sources
        return not others and not first.source.name and first.source.prompts is not None and isinstance(first.sampler.sampler, EpisodeOrder)

    @property
    def returned(self) -> int:
        """The number of places that were put back and wait."""
        return len(self._returned)

    @property
    def exhausted(self) -> bool:
        """Whether no place is left, unless one is put back."""
        return not self._returned and self._drawn == self._draws

    def take(self) -> PromptPlace:
        """Return the next place. Raise ValueError if ``exhausted``, and RunError if a sampler fails."""
        if self._returned:
            return heapq.heappop(self._returned)
        if self.exhausted:
            raise ValueError("every prompt of every episode has been handed out: check `exhausted` before `take`")
        source = 0 if self._among is None else self._among.next().item
        place = self.sources[source].draw(self._drawn, source)
        self._drawn += 1
        return place

    def put_back(self, place: PromptPlace) -> None:
        """Put a place back. It is handed out again before any new one."""
        heapq.heappush(self._returned, place)
        self.sources[place.source].ledger.reissued += 1

    def end(self, place: PromptPlace, ended: Ended, reason: str, accuracy: float | None, reward: float | None) -> None:
        """Record how the prompt ended. The samplers see it at the next ``updated``."""
        ledger = self.sources[place.source].ledger
        if ended == "failed":
            ledger.fail(place.episode, reason)
        elif ended == "filtered":
            ledger.filter(place.episode)
        else:
            ledger.train(place.episode)
        self._unseen.append(_Unseen(place, ended, accuracy, reward))

    def updated(self, version: int) -> None:
        """Show the samplers what has ended since the last call. Raise RunError if one fails."""
        unseen, self._unseen = sorted(self._unseen), []
        for number, line in enumerate(self.sources):
            line.sampler.observe(_seen(one, one.place.prompt, one.place.level, version) for one in unseen if one.place.source == number)
        if self._among is not None:
            self._among.observe(_seen(one, one.place.source, 0, version) for one in unseen)

    def state(self, held: Sequence[PromptPlace]) -> dict[str, Any]:
        """Return JSON values. The places ``held`` are open, as those that were put back."""
        among = {} if self._among is None else {"among": self._among.state()}
        return {
            "drawn": self._drawn,
            "open": [list(place) for place in sorted([*held, *self._returned])],
            "unseen": [[list(one.place), *one[1:]] for one in sorted(self._unseen)],
            "sources": [line.state() for line in self.sources],
            **among,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state`` returned, with the open places put back.

        :raises ConfigError: the sources, their prompts, their weights or a sampler have changed."""
        check_same("the list of sources", _names(state["sources"]), _names([line.state() for line in self.sources]))
        if self._among is not None:
            for line, kept in zip(self.sources, state["sources"], strict=True):
                check_same(f"the weight of source {line.source.name}", kept["weight"], line.source.weight)
            check_same("the sampler of the sources", state["among"]["sampler"], self._among.name)
            self._among.restore(state["among"])
        for line, kept in zip(self.sources, state["sources"], strict=True):
            line.restore(kept)
        self._drawn = state["drawn"]
        self._returned = [PromptPlace(*place) for place in state["open"]]
        self._unseen = [_Unseen(PromptPlace(*place), *rest) for place, *rest in state["unseen"]]


def _prompts_of(source: SourceSchedule, settings: ScheduleSettings) -> ChosenSampler:
    """Return the sampler of the prompts of a source that names none."""
    made = Shuffled if settings.shuffle and source.prompts is not None else Sequential
    name = made.__name__.lower()
    return ChosenSampler(made(SamplerContext(items=source.prompts, seed=settings.seed)), name, f"sampler {name}", source.prompts)


def _among_sources(settings: ScheduleSettings) -> ChosenSampler:
    """Return the sampler of the sources in a run that names none."""
    context = SamplerContext(items=len(settings.parts), weights=[source.weight for source in settings.parts])
    return ChosenSampler(Weighted(context), "weighted", "sampler weighted", context.items)


def _seen(one: _Unseen, item: int, level: int, version: int) -> DrawResult:
    return DrawResult(item=item, level=level, ended=one.ended, accuracy=one.accuracy, reward=one.reward, version=version)


def _names(sources: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{source['name']} with {source['prompts'] or 'endless'} prompts".strip() for source in sources)


def check_same(what: str, was: Any, now: Any) -> None:
    """Raise ConfigError if something that a resumed run keeps has changed."""
    if was != now:
        raise ConfigError(
            f"{what} was {was} when this run began and is {now} now, which would change the order of its prompts: resume it with the "
            "data and settings with which it began, or start a new run from the checkpoint's model"
        )
