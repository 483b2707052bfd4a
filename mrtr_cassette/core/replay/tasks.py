"""Replay a recorded task: a machine that says which of its states a poll gets now.

The updates and cancellations of the recording cut the recorded states into stretches. A poll gets
the next state of the present stretch, and its last one again and again; where nothing was polled in
a stretch, that is the latest state before it. An update may give the recorded answers in other
portions: the next stretch begins as soon as all answers of the recorded update have come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.lookup import LookupKey, answers_by_key
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, GET_TASK, UPDATE_TASK
from mrtr_cassette.core.protocol.tasks import (
    CREATED_AT,
    POLL_INTERVAL,
    TaskState,
    moved,
    notified_states,
    read_time,
)
from mrtr_cassette.core.replay.diagnosis import NoStep, Reason
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.secrets.names import renaming
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER
from mrtr_cassette.core.wire.jsonbytes import parse

_NO_KEY: Final = {"": ""}
"""Stands for the answers of an update that gives none."""


class Step(NamedTuple):
    """The recorded exchange that a request is played, and those that have come whole by it.

    An update that gives a part of the recorded answers is acknowledged, and has not come.
    """

    entry: ReplayEntry
    came: Sequence[ReplayEntry] = ()


class RecordedTask:
    """A task that a recorded call created, and the steps that were recorded of it.

    Attributes:
        causes: the steps after which the server went on: updates and cancellations.
        updates: the answers of each cause; a cancellation is one to a key of its own.
        answers: the answers to each key, which may have been answered again in another way.
        notified_keys: what notifications ask for.
        is_notified: whether a stream told of it.
        questions: what its states ask for, by key.
    """

    def __init__(self, creating: ReplayEntry, created: TaskState) -> None:
        self.creating, self.created, self.steps = creating, created, creating.steps
        steps = self.steps
        self.notified_keys: set[str] = set()
        self.is_notified = False
        self.questions = {key: asked for step in steps for key, asked in step.asked.items()}
        self.polls = [at for at, each in enumerate(steps) if each.key.method == GET_TASK]
        self.causes = [at for at, each in enumerate(steps) if each.key.method != GET_TASK]
        self.updates: dict[int, Mapping[str, str]] = {}
        self.answers: dict[str, list[str]] = {}
        self._needed: dict[int, dict[str, int]] = {}
        for at in self.causes:
            is_update = steps[at].key.method == UPDATE_TASK
            answers = answers_by_key(steps[at].lookup) or _NO_KEY
            self.updates[at] = answers if is_update else {CANCEL_TASK: f"{at}"}
            for key, value in self.updates[at].items():
                given = self.answers.setdefault(key, [])
                given += [value] if given[-1:] != [value] else []
            self._needed[at] = {key: len(self.answers[key]) for key in self.updates[at]}

    @property
    def asks(self) -> bool:
        """Whether a state asks for input."""
        return bool(self.notified_keys) or any(each.asked for each in self.steps)

    def is_branch_of(self, task: RecordedTask) -> bool:
        """Tell whether an equal call created another task, of which only polls tell."""
        first, second = self.creating, task.creating
        is_equal = (first.path, first.traits, first.session) == (
            second.path,
            second.traits,
            second.session,
        )
        return is_equal and self is not task and not (self.is_notified or task.is_notified)

    def in_terms_of(self, task: RecordedTask, lookup: LookupKey) -> LookupKey:
        """Return a lookup key that names another task as one that names this one."""
        change = renaming({task.created.id: self.created.id})

        def renamed(text: str) -> str:
            return change(text.encode()).decode()

        answers = None if lookup.answers is None else renamed(lookup.answers)
        return LookupKey(lookup.call._replace(name=self.created.id), lookup.state, answers)

    def has_come(self, cause: int, given: Mapping[str, int]) -> bool:
        """Tell whether the answers of a cause have come; `given` counts those to each key."""
        return all(given[key] >= count for key, count in self._needed[cause].items())

    def has(self, lookup: LookupKey) -> bool:
        """Tell whether a request is like a recorded one, but for its answers."""
        same = [each.lookup for each in self.steps if each.key.method == lookup.call.method]
        return not same or lookup[:2] in [each[:2] for each in same]


def recorded_tasks(interactions: Iterable[Sequence[ReplayEntry]]) -> list[RecordedTask]:
    """Return the tasks that recorded calls created; several may have the same id."""
    tasks: list[RecordedTask] = []
    for own in interactions:
        calls = [each for each in own if each.answers is None and each.created_by is None]
        created = calls[-1].exchange.created_task
        if created is not None:
            tasks.append(RecordedTask(calls[-1], created))
    by_id = {each.created.id: each for each in tasks}
    for each in (each for own in interactions for each in own if tasks and each.is_listening):
        for state in notified_states(each.exchange.response):
            if state.id in by_id:
                by_id[state.id].is_notified = True
                by_id[state.id].notified_keys.update(state.input_requests)
    return tasks


class LiveTask:
    """A play of a recorded task, from the play of the call that created it.

    Attributes:
        accepted: the updates and cancellations that came and were recorded.

    Args:
        now: when the call was played, in seconds since 1970; None leaves times as recorded.
        poll_interval: the milliseconds between polls that the client is told.
        is_over: its last state is the only one.
    """

    def __init__(
        self,
        recorded: RecordedTask,
        now: float | None,
        *,
        poll_interval: int | None = None,
        is_over: bool = False,
    ) -> None:
        self.recorded = recorded
        self.accepted: list[LookupKey] = []
        self._now = now
        self._poll_interval = poll_interval
        self._at = recorded.polls[-1] - 1 if is_over and recorded.polls else -1
        self._asked: set[str] = set()
        self._given: Counter[str] = Counter()
        created_at = read_time(recorded.created.tree.get(CREATED_AT))
        self._later: timedelta | None = None
        if now is not None and created_at is not None:
            self._later = datetime.fromtimestamp(now, UTC) - created_at

    def request_received(self, lookup: LookupKey) -> Step | NoStep:
        """Return what a request about the task gets now."""
        if lookup.call.method == GET_TASK:
            return self._poll()
        is_cancellation = lookup.call.method == CANCEL_TASK
        found = self._cancel() if is_cancellation else self._update(lookup)
        if isinstance(found, Step):
            self.accepted.append(lookup)
        return found

    def taken_for(self, recorded: RecordedTask) -> LiveTask | None:
        """Return this play as one of another recorded task; None if that went on otherwise."""
        taken = LiveTask(recorded, self._now, poll_interval=self._poll_interval)
        for lookup in self.accepted:
            renamed = recorded.in_terms_of(self.recorded, lookup)
            taken.poll_until(answers_by_key(renamed))
            if isinstance(taken.request_received(renamed), NoStep):
                return None
        change = renaming({self.recorded.created.id: recorded.created.id})
        asked = {key: change(key.encode()).decode() for key in self._asked}
        for key, renamed_key in asked.items():
            if recorded.questions.get(renamed_key) != self.recorded.questions.get(key):
                return None
        return taken if taken.poll_until(asked.values()) else None

    def poll_until(self, keys: Iterable[str]) -> bool:
        """Poll until something has been asked under some keys; tell whether it was."""
        wanted = set(keys)
        for _ in self.recorded.polls:
            if wanted <= self._asked or isinstance(self._poll(), NoStep):
                break
        return wanted <= self._asked

    @property
    def _stretch(self) -> tuple[list[int], int]:
        """The polls of the present stretch, or the latest one before it, and what ends it."""
        task, before = self.recorded, -1
        for following in (*task.causes, len(task.steps)):
            if following == len(task.steps) or not task.has_come(following, self._given):
                break
            before = following
        until = [at for at in task.polls if at < following]
        return [at for at in until if at > before] or until[-1:], following

    def _poll(self) -> Step | NoStep:
        steps, came = self.recorded.steps, list[ReplayEntry]()
        while True:
            present, following = self._stretch
            if not present:
                detail = "the task was not polled before this, while it was recorded"
                return NoStep(Reason.OUT_OF_ORDER, detail, steps[0])
            self._at = next((at for at in present if at > self._at), self._at)
            entry, update = steps[self._at], [*steps, None][following]
            self._asked.update(entry.asked)
            # What the proxy answered while recording (`answers`), it answers now too.
            if not entry.asked or update is None or not update.request.header(ANSWERED_BY_HEADER):
                return Step(entry, [*came, entry])
            came += [entry, update]
            for key in self.recorded.updates.get(following, ()):
                self._given[key] += 1

    def saw(self, state: TaskState) -> None:
        """Take note that the client was notified of a state."""
        self._asked.update(state.input_requests)
        for at in self._stretch[0]:
            known = self.recorded.steps[at].state
            if at > self._at and known is not None and known.digest == state.digest:
                self._at = at

    def _update(self, lookup: LookupKey) -> Step | NoStep:
        task, steps = self.recorded, self.recorded.steps
        answers = answers_by_key(lookup) or _NO_KEY
        refused = self._refused(answers)
        if refused is not None:
            return refused
        earlier = [at for at in task.causes if task.has_come(at, self._given)]
        for key, value in answers.items():
            given = task.answers[key][self._given[key] :]
            self._given[key] += given[:1] == [value]
        came = [at for at in task.causes if task.has_come(at, self._given) and at not in earlier]
        acknowledged = [at for at, each in task.updates.items() if answers.items() & each.items()]
        return Step(steps[acknowledged[-1]], [steps[at] for at in came])

    def _refused(self, answers: Mapping[str, str]) -> NoStep | None:
        """Return why answers are none of the recorded ones, or None."""
        task = self.recorded
        asking = {key: each for each in task.steps for key in each.asked}
        unasked = [
            key
            for key in answers
            if key not in self._asked and key in {*asking, *task.notified_keys}
        ]
        if unasked:
            detail = f"nothing that was played has asked for {', '.join(unasked)} yet"
            nearest = asking.get(unasked[0], task.creating)
            return NoStep(Reason.OUT_OF_ORDER, detail, nearest)
        differing: dict[str, Any] = {}
        for key, value in answers.items():
            recorded, count = task.answers.get(key, []), self._given[key]
            # The next answer, or the latest one again.
            if value not in recorded[max(count - 1, 0) : count + 1]:
                differing[key] = None
        if not differing:
            return None
        first, detail = next(iter(differing)), "no answer to this was recorded"
        nearest = asking.get(first, task.creating)
        for each in (task.steps[at] for at in task.causes):
            given = (each.call.answers and each.call.answers.input_responses) or {}
            differing |= {key: given[key] for key in differing if key in given}
            if first in given:
                detail, nearest = "other answers were recorded", each
        return NoStep(Reason.ANSWERS_DIFFER, detail, nearest, differing)

    def _cancel(self) -> Step | NoStep:
        steps, (_, following) = self.recorded.steps, self._stretch
        recorded = self.recorded.answers.get(CANCEL_TASK, [])
        if f"{following}" in recorded:
            self._given[CANCEL_TASK] += 1
            return Step(steps[following], [steps[following]])
        count = self._given[CANCEL_TASK]
        if count:
            return Step(steps[int(recorded[count - 1])])
        if not recorded:
            detail = "this task was not cancelled while it was recorded"
            return NoStep(Reason.UNKNOWN_METHOD, detail, steps[-1])
        detail = "this task was cancelled later while it was recorded, after an answer"
        return NoStep(Reason.OUT_OF_ORDER, detail, steps[int(recorded[0])])

    def value(self, name: str, recorded: bytes) -> bytes:
        """Return a member of a state as the client gets it."""
        if name == POLL_INTERVAL:
            interval = self._poll_interval
            return recorded if interval is None or recorded == b"null" else b"%d" % interval
        later = None if self._later is None else moved(parse(recorded), self._later)
        return recorded if later is None else f'"{later}"'.encode()
