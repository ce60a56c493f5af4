"""A server as authors of openenv write it: three answers, each of which must be as odd or even as the seed of the episode."""

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class ParityAction(Action):
    number: int


class ParityObservation(Observation):
    hint: str


class ParityEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._seed, self._state = seed, State(episode_id=episode_id, step_count=0)
        return ParityObservation(hint="a number")

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        reward = float(action.number % 2 == self._seed % 2)
        return ParityObservation(hint="a number", reward=reward, done=self._state.step_count == 3)

    @property
    def state(self):
        return self._state


app = create_fastapi_app(ParityEnvironment, ParityAction, ParityObservation, max_concurrent_envs=64)
