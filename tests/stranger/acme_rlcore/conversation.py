"""A guessing game: guess a number, hear whether it is higher or lower, guess again."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api.conversations import Conversation, ConversationSteps, Message, Transcript


class GuessOptions(BaseModel):
    """Options of the conversation ``acme_guess``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    guesses: int = Field(2, ge=1, description="how often the policy may guess")
    higher: str = Field("higher", min_length=1, description="the answer if the number is higher")
    lower: str = Field("lower", min_length=1, description="the answer if the number is lower")
    unreadable: str = Field("say a number", min_length=1, description="the answer to any text that is not a number")
    guess_tokens: int = Field(8, ge=1, description="tokens of one guess")


class GuessAgain(Conversation):
    """The number is the row's ``gt_answer``. A right guess has a turn reward of 1, a wrong guess of 0."""

    Options = GuessOptions  # for users who name the class by its file

    def __init__(self, options: GuessOptions) -> None:
        self._options = options
        self.max_turns = options.guesses

    def converse(self, transcript: Transcript) -> ConversationSteps:
        """See Conversation."""
        number = transcript.prompt.columns["gt_answer"].strip()
        rewards: list[float] = []
        while True:
            guess = (yield from transcript.ask(self._options.guess_tokens)).strip()
            rewards.append(float(guess == number))
            hint = Message(role="user", content=self._hint(guess, number))
            if guess == number or len(rewards) == self._options.guesses or not transcript.say(hint):
                return transcript.dialogue(turn_rewards=rewards, extra={"guesses": len(rewards)})

    def _hint(self, guess: str, number: str) -> str:
        if not guess.isdecimal():
            return self._options.unreadable
        return self._options.higher if int(guess) < int(number) else self._options.lower
