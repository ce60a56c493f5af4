"""Whatever happens to workers, every task has exactly one end, and nothing is lost or judged without need."""

from hypothesis import given, settings
from hypothesis import strategies as st
from kit_rewards import task

from rlcore.rewards.task_queue import QueuedTask, TaskQueue


def queue_of(count, workers=1, mean=1e-5):
    queue = TaskQueue(workers)
    queue.extend(QueuedTask(task(number), b"") for number in range(count))
    queue.observe(mean)
    return queue


def numbers(job):
    return [item.task.task_id for item in job]


def test_a_job_is_small_where_tasks_are_slow_or_few():
    assert len(queue_of(100).next_job()) == 16
    assert len(queue_of(100, workers=5).next_job()) == 10
    assert len(queue_of(100, mean=0.005).next_job()) == 4
    assert len(queue_of(100, mean=1.0).next_job()) == 1
    assert len(queue_of(100).next_job(alone=True)) == 1
    fresh = TaskQueue(1)
    fresh.extend(QueuedTask(task(number), b"") for number in range(100))
    assert len(fresh.next_job()) == 1, "nothing is known of their duration yet"


def test_a_suspect_is_judged_alone():
    queue = queue_of(20)
    suspect = queue.next_job()[0]
    queue.retry(suspect)
    queue.extend(QueuedTask(task(number), b"") for number in range(100, 140))
    assert queue.next_job(suspects=False), "others stand before it"
    jobs = []
    while job := queue.next_job():
        jobs.append(job)
    assert [suspect] in jobs
    queue.retry(only := QueuedTask(task(999), b""))
    assert queue.next_job(suspects=False) == []
    assert queue.next_job() == [only]
    assert sum(suspect in job for job in jobs) == 1


def test_nobody_judges_what_has_an_end():
    queue = queue_of(40)
    first, second, *rest = queue.next_job()
    queue.lend([second])
    assert queue.answer(second)
    queue.cancel({first.task.task_id}, running=[first])
    assert not queue.retry(first)
    queue.put_back(rest)
    seen = []
    while more := queue.next_job():
        seen += numbers(more)
    assert sorted(seen) == list(range(2, 40))


def test_what_is_put_back_keeps_its_order():
    queue = queue_of(40)
    first = queue.next_job()
    queue.put_back(first[1:])
    assert numbers(queue.next_job()) == [*numbers(first)[1:], len(first)]


def test_lent_tasks_are_not_put_back_twice():
    queue = queue_of(40)
    job = queue.next_job()
    queue.lend(job[1:])
    queue.lend(job[1:])
    queue.put_back(job[1:])
    seen = []
    while more := queue.next_job():
        seen += numbers(more)
    assert sorted(seen) == list(range(1, 40))


@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_every_task_ends_exactly_once(source, count, workers):
    """Workers answer, die, hold up their jobs and lend them, in any order."""
    queue, jobs, ends = queue_of(count, workers), [[] for _ in range(workers)], []
    for _ in range(3000):
        free = [job for job in jobs if not job]
        if free:
            free[0].extend(queue.next_job())
        busy = [job for job in jobs if job]
        if not busy:
            break
        job = source.choice(busy)
        happening = source.choice(("answer", "answer", "answer", "die", "again", "lend"))
        if happening == "lend":
            queue.lend(job[1:])
            continue
        head = job.pop(0)
        if happening == "answer" or not queue.retry(head):
            ends += [head.task.task_id] * queue.answer(head)
        if happening == "die":
            queue.put_back(job)
            job.clear()
    assert sorted(ends) == list(range(count))
