"""An agent of Harbor whose record of the sampled tokens has a wrong one."""

import os

from harbor.agents.terminus_2 import Terminus2


class WrongRecord(Terminus2):
    def __init__(self, *args, **options):
        settings = {"collect_rollout_details": True, "enable_summarize": False, "record_terminal_session": False}
        super().__init__(*args, **{**options, **settings, "llm_kwargs": {"api_key": os.environ["RLCORE_HARBOR_KEY"]}})

    async def run(self, instruction, environment, context):
        await super().run(instruction, environment, context)
        context.rollout_details[0]["completion_token_ids"][0][0] += 1
