"""An environment with two roles: one asks, the other answers. The first is scored by the second's answer."""

import verifiers.v1 as vf

__all__ = ["TwoPlayersEnv", "TwoPlayersTaskset"]


class TwoPlayersTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    pass


class TwoPlayersTaskset(vf.Taskset[TwoPlayersTask, vf.TasksetConfig]):
    def load(self):
        for number in range(4):
            yield TwoPlayersTask(vf.TaskData(prompt=f"say {number}"), self.config.task)


class TwoPlayersEnvConfig(vf.EnvConfig):
    asker: vf.AgentConfig = vf.AgentConfig()
    answerer: vf.AgentConfig = vf.AgentConfig()


class TwoPlayersEnv(vf.Env[TwoPlayersEnvConfig]):
    async def run(self, task, agents):
        asked = await agents.asker.run(task)
        await agents.answerer.run(task.with_data(prompt=f"answer {asked.last_reply}"))

    async def finalize(self, task, episode):
        for trace in episode.traces:
            trace.record_reward("game", 1.0 if trace.agent.name == "asker" else -1.0)
            trace.record_metric("length", float(len(trace.last_reply)))
