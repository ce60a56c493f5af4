"""The part of reasoning-gym that is used: ``create_dataset(name, size=, seed=, …)``, entries by index, ``score_answer(answer, entry)``,
and curricula (``factory``).

The package itself brings matplotlib and packages that are compiled; the tests do not ask for it.
"""

import random
from random import Random


class Sums:
    def __init__(self, size=500, seed=None, largest=9):
        assert size > 0, "size must be positive"
        self.size, self.seed, self.largest = size, seed, largest

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = Random(f"{self.seed} {index}")
        terms = (draw.randint(1, self.largest), draw.randint(1, self.largest))
        metadata = {"source_dataset": "sums", "source_index": index, "terms": terms}
        return {"question": f"{terms[0]} + {terms[1]}?", "answer": str(sum(terms)), "metadata": metadata}

    def score_answer(self, answer, entry):
        if answer == entry["answer"]:
            return 1.0
        return 0.5 if isinstance(answer, str) and entry["answer"] in answer else 0.0


class Drawn(Sums):
    """Draws from the global generator, as list_functions does, and cannot read a text that is no number, as prime_factorization."""

    def __getitem__(self, index):
        print("...")
        number = str(random.randrange(10**9))
        return {"question": number, "answer": number, "metadata": {"source_dataset": "drawn"}}

    def score_answer(self, answer, entry):
        return float(int(answer) == int(entry["answer"]))


class Words(Sums):
    """Has answers that stand for none elsewhere."""

    def __getitem__(self, index):
        return {"question": "?", "answer": ("nan", "", "none")[index % 3], "metadata": {"source_dataset": "words"}}


DATASETS = {"sums": Sums, "drawn": Drawn, "words": Words, "word_ladder": Sums}


def create_dataset(name, **settings):
    if name not in DATASETS:
        raise ValueError(f"Dataset '{name}' not registered")
    return DATASETS[name](**settings)
