"""Rules of layouts: the update does not depend on the ranks that a model and a batch are divided over."""

from __future__ import annotations

import numpy as np

from rlcore.testing.training.layout_sessions import LayoutSessions, distance, policy_tokens, same_bits

__all__ = ["TrainingLayoutSuite"]


class TrainingLayoutSuite(LayoutSessions):
    """Layouts: however a model and a batch are divided over ranks, the update is that of one process.

    Part of ``TrainingBackendSuite``. Processes are started once for all rules.
    """

    def test_layouts_hand_out_the_same_weights(self) -> None:
        """Before any step, gathered weights have the bits of one process, on each rank that hands out any."""
        for who, notes, one, _ in self._whole():
            mine = notes[0].before
            assert set(mine) == set(one.before), f"{who}: tensors in one only: {sorted(set(mine) ^ set(one.before))}"
            for rank, each in enumerate(notes):
                wrong = [name for name, array in each.before.items() if not same_bits(array, one.before[name])]
                assert not wrong, (
                    f"{who}: before training rank {rank} hands out another {wrong[0]!r}, {distance(each.before, one.before, wrong)}"
                )

    def test_layouts_bound_their_buckets(self) -> None:
        """Buckets of any size are complete, and none holds more bytes than allowed, unless it is one tensor."""
        for who, notes, _, _ in self._whole():
            whole = sum(array.nbytes for array in notes[0].before.values())
            for rank, each in enumerate(notes):
                for note in each.buckets:
                    assert note.fullest <= note.allowed, f"{who}: rank {rank} had {note.fullest} bytes in a bucket of {note.allowed}"
            for note in notes[0].buckets:
                assert note.total == whole, f"{who}: buckets of {note.allowed} bytes have {note.total} bytes in all, the weights {whole}"

    def test_layouts_have_places(self) -> None:
        """``data_parallel`` numbers the replicas, and ``gather`` returns arrays of any length from each."""
        for who, notes, _, run in self._whole():
            size = run.layout.replicas
            places = [each.place for each in notes]
            due = {(place, size) for place in range(size)}
            assert set(places) == due, f"{who}: ranks have places {places}, {size} replicas are due"
            for rank, each in enumerate(notes):
                lengths = [len(values) for values in each.gathered]
                assert lengths == [3 * place for place in range(size)], f"{who}: rank {rank} gathered arrays of lengths {lengths}"
                wrong = [place for place, values in enumerate(each.gathered) if not np.array_equal(values, np.arange(3 * place))]
                assert not wrong, f"{who}: rank {rank} gathered from place {wrong[0]} what that did not give: {each.gathered[wrong[0]]}"

    def test_layouts_score_like_one_process(self) -> None:
        """Log probabilities of policy and reference, and entropies if declared, of each rank's share, are those of one process."""
        for who, notes, one, run in self._whole():
            for rank, each in enumerate(notes):
                kept = policy_tokens(run.script.steps[0], each.rows)
                pairs = [
                    ("log probabilities of the policy", each.logprobs, one.logprobs),
                    ("log probabilities of the reference", each.reference, one.reference),
                ]
                if one.entropies is not None and each.entropies is not None:
                    pairs.append(("entropies of the policy", each.entropies, one.entropies))
                for which, mine, theirs in pairs:
                    assert len(mine) == kept.sum(), f"{who}: rank {rank} has {len(mine)} {which} for {kept.sum()} tokens"
                    off = float(np.abs(mine - theirs[kept]).max(initial=0.0))
                    assert off <= self.tolerance, f"{who}: {which} on rank {rank} are off by {off:.2g} nats"

    def test_layouts_keep_the_reference(self) -> None:
        """Four steps do not change the reference."""
        for who, notes, _, _ in self._whole():
            for rank, each in enumerate(notes):
                off = float(np.abs(each.reference_after - each.reference).max(initial=0.0))
                assert off <= self.tolerance, f"{who}: after four steps the reference on rank {rank} has moved by {off:.2g} nats"

    def test_layouts_sync_the_reference(self) -> None:
        """``sync_reference(1.0)`` makes the reference the policy on every rank. Not checked without ``capabilities.syncs_reference``."""
        for who, notes, _, _ in self._whole():
            for rank, each in enumerate(notes):
                if each.synced:
                    off = float(np.abs(each.synced[1] - each.synced[0]).max(initial=0.0))
                    assert off <= self.tolerance, f"{who}: after sync_reference the reference on rank {rank} is {off:.2g} nats away"

    def test_layouts_report_the_whole_step(self) -> None:
        """Metrics are equal on all ranks and those of one process, even if one place has all rollouts and the others none."""
        for who, notes, one, _ in self._trained():
            for step in range(3):
                for rank, each in enumerate(notes):
                    self._check_figures(
                        each.metrics[step], notes[0].metrics[step], f"{who}, rank {rank} against rank 0, step {step + 1}", exactly=True
                    )
                self._check_figures(notes[0].metrics[step], one.metrics[step], f"{who}, step {step + 1}")

    def test_layouts_train_like_one_process(self) -> None:
        """After three clipped steps of AdamW, weights are those of one process, in any micro-batches and variant."""
        for who, notes, one, _ in self._trained():
            for rank, each in enumerate(notes):
                wrong = [name for name, array in each.trained.items() if not same_bits(array, notes[0].trained[name])]
                assert not wrong, f"{who}: after three steps tensor {wrong[0]!r} of rank {rank} is not that of rank 0"
            self._check_drift(who, notes[0].trained, one.trained, one.before)
            nats = max(float(np.abs(each.probed - one.probed).max()) for each in notes)
            assert nats <= self.tolerance * 10, f"{who}: after training the policy is off by {nats:.2g} nats from one process's"

    def test_layouts_skip_alike(self) -> None:
        """If nothing is in the loss, or one rank alone has a NaN or infinite gradient, no rank takes the step."""
        for who, notes, one, _ in self._whole():
            for rank, each in enumerate(notes):
                for what, (metrics, changed) in zip(("an all-masked batch", "a NaN", "an infinity"), each.not_taken, strict=True):
                    assert not changed, f"{who}: {what} changed tensor {changed[0]!r} on rank {rank}"
                    skipped = metrics.get("skipped_steps", 0.0)
                    due = 0.0 if what == "an all-masked batch" else 1.0
                    assert skipped == due, f"{who}: {what} gave skipped_steps {skipped} on rank {rank}, {due} is due"
            due, found = one.last["learning_rate"], notes[0].last["learning_rate"]
            assert due == found, f"{who}: after steps that were not taken the learning rate is {found}, {due} is due: the schedule moved"
            self._check_drift(f"{who}, one step after those that were not taken", notes[0].after, one.after, one.before)

    def test_layouts_save_whole(self) -> None:
        """A save returns on each rank when the checkpoint is whole, and one process reads the saved model bit for bit."""
        for who, notes, _, run in self._whole():
            for rank, each in enumerate(notes):
                assert each.saved == notes[0].saved, (
                    f"{who}: saving returned on rank {rank} with {each.saved}, on rank 0 with {notes[0].saved}"
                )
            read, mine = self._resumed_alone(run).before, notes[0].held
            assert set(read) == set(mine), f"{who}: tensors in one of saved and live model only: {sorted(set(read) ^ set(mine))}"
            wrong = [name for name, array in mine.items() if not same_bits(array, read[name])]
            assert not wrong, f"{who}: the saved model has another {wrong[0]!r}, {distance(read, mine, wrong)}"

    def test_layouts_continue_exactly(self) -> None:
        """A step after loading a checkpoint has the bits of an uninterrupted run: optimizer, schedule, random state."""
        for who, notes, _, run in self._whole():
            resumed = self._notes(run.layout, f"resumed {run.model}".strip())
            for rank, (each, again) in enumerate(zip(notes, resumed, strict=True)):
                wrong = [name for name, array in each.after.items() if not same_bits(array, again.after[name])]
                assert not wrong, (
                    f"{who}: a step after loading the checkpoint gave another {wrong[0]!r} on rank {rank}, "
                    f"{distance(again.after, each.after, wrong)}"
                )
                self._check_figures(again.last, each.last, f"{who}, rank {rank}, a step after loading the checkpoint", exactly=True)

    def test_layouts_load_elsewhere(self) -> None:
        """One process resumes from the checkpoint of a layout; with four processes, a layout resumes from one of two."""
        for who, notes, _, run in self._whole():
            if run.layout.ranks > 1:
                alone = self._resumed_alone(run)
                self._check_drift(f"{who}, resumed in one process", alone.after, notes[0].after, notes[0].before)
        for layout, source in self._grown():
            grown, straight = self._notes(layout, "grown")[0], self._notes(source, f"whole {next(iter(self.models()))}".strip())[0]
            self._check_drift(f"{layout.name}, resumed from {source.name}", grown.after, straight.after, straight.before)
