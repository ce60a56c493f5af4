"""A reward file for verl, written by its page "Implement Reward Function for Dataset": the four parameters, a number or a mapping."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """By that page's description of GSM8K: the answer stands behind four #; 1 if right, 0.1 for the form, else 0."""
    if data_source != "openai/gsm8k":
        raise NotImplementedError(data_source)
    _, marks, answer = solution_str.rpartition("####")
    if not marks:
        return 0
    return 1 if answer.strip().replace(",", "") == ground_truth else 0.1


def with_details(data_source, solution_str, ground_truth, extra_info, factor=1.0):
    """A mapping, and an argument of reward_kwargs."""
    said = solution_str.split()[-1] if solution_str.split() else ""
    right = said == str(ground_truth) and extra_info["index"] == 7
    return {"score": factor if right else -factor, "acc": right, "pred": said, "length": len(solution_str), "note": "x"}


def without_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"reward": 1.0}


def no_extra_info(data_source, solution_str, ground_truth):
    return 1.0


def of_a_batch(data_sources, solution_strs, ground_truths, extra_infos):
    return [1.0] * len(data_sources)


def a_text(data_source, solution_str, ground_truth, extra_info):
    return "1"


def with_threshold(data_source, solution_str, ground_truth, extra_info, threshold):
    return threshold
