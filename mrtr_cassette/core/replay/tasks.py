"""Replay recorded tasks: which recorded state a poll gets now.

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

from mrtr_cassette.core.cassette.entries import Entries, ReplayEntry
from mrtr_cassette.core.cassette.lookup import LookupKey, answers_by_key
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.methods import (
    CANCEL_TASK,
    GET_TASK,
    TASK_STEPS,
    UPDATE_TASK,
)
from mrtr_cassette.core.protocol.tasks import (
    CREATED_AT,
    POLL_INTERVAL,
    TaskState,
    moved,
    notified_states,
    read_time,
)
from mrtr_cassette.core.replay.diagnosis import NoStep, Reason
from mrtr_cassette.core.secrets.names import renaming
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

    def __init__(
        self, creating: ReplayEntry, created: TaskState, steps: Sequence[ReplayEntry]
    ) -> None:
        self.creating = creating
        self.created = created
        self.steps = steps
        self.notified_keys: set[str] = set()
        self.is_notified = False
        self.questions: dict[str, Any] = {}
        self.polls: list[int] = []
        self.causes: list[int] = []
        self.updates: dict[int, Mapping[str, str]] = {}
        self.answers: dict[str, list[str]] = {}
        self._needed: dict[int, dict[str, int]] = {}
        for at, step in enumerate(steps):
            self.questions.update(step.asked)
            if step.key.method == GET_TASK:
                self.polls.append(at)
            else:
                self._add_cause(at, step)

    def _add_cause(self, at: int, step: ReplayEntry) -> None:
        """Take an update or a cancellation, and how often its answers have been given by it."""
        self.causes.append(at)
        update: Mapping[str, str] = {CANCEL_TASK: f"{at}"}
        if step.key.method == UPDATE_TASK:
            update = answers_by_key(step.matched.lookup) or _NO_KEY

        self.updates[at] = update
        self._needed[at] = {}
        for key, answer in update.items():
            given = self.answers.setdefault(key, [])
            if given[-1:] != [answer]:
                given.append(answer)

            self._needed[at][key] = len(given)

    @property
    def id(self) -> str:
        """Its id in the recording."""
        return self.created.id

    @property
    def asks(self) -> bool:
        """Whether a state asks for input."""
        return bool(self.notified_keys or self.questions)

    def is_branch_of(self, task: RecordedTask) -> bool:
        """Tell whether an equal call created another task, of which only polls tell."""
        if self is task or self.is_notified or task.is_notified:
            return False

        call = self.creating
        same = task.creating
        is_equal = call.numbers.path == same.numbers.path
        is_here = call.session == same.session

        return is_equal and is_here and call.matched.traits == same.matched.traits

    def in_terms_of(self, task: RecordedTask, lookup: LookupKey) -> LookupKey:
        """Return a lookup key that names another task as one that names this one."""
        call = lookup.call._replace(name=self.id)
        answers = lookup.answers
        if answers is not None:
            rename = renaming({task.id: self.id})
            answers = rename(answers.encode()).decode()

        return LookupKey(call, lookup.state, answers)

    def has_come(self, cause: int, given: Mapping[str, int]) -> bool:
        """Tell whether the answers of a cause have come; `given` counts those to each key."""
        for key, count in self._needed[cause].items():
            if given[key] < count:
                return False

        return True

    def has(self, lookup: LookupKey) -> bool:
        """Tell whether a request is like a recorded one, but for its answers."""
        is_recorded = False
        for step in self.steps:
            if step.key.method == lookup.call.method:
                is_recorded = True
                if step.matched.lookup[:2] == lookup[:2]:
                    return True

        return not is_recorded


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
        self._at = -1
        if is_over and recorded.polls:
            self._at = recorded.polls[-1] - 1

        self._asked: set[str] = set()
        self._given: Counter[str] = Counter()

    def copy(self) -> LiveTask:
        """Return the same play, which goes on by itself."""
        task = LiveTask(self.recorded, self._now, poll_interval=self._poll_interval)
        task._at = self._at
        task.accepted = list(self.accepted)
        task._asked = set(self._asked)
        task._given = Counter(self._given)

        return task

    def request_received(self, lookup: LookupKey) -> Step | NoStep:
        """Return what a request about the task gets now."""
        method = lookup.call.method
        if method == GET_TASK:
            return self._poll()

        if method == CANCEL_TASK:
            found = self._cancel()
        else:
            found = self._update(lookup)

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

        rename = renaming({self.recorded.id: recorded.id})
        asked = []
        for key in self._asked:
            renamed_key = rename(key.encode()).decode()
            question = recorded.questions.get(renamed_key)
            if question != self.recorded.questions.get(key):
                return None

            asked.append(renamed_key)

        if not taken.poll_until(asked):
            return None

        return taken

    def poll_until(self, keys: Iterable[str]) -> bool:
        """Poll until something has been asked under some keys; tell whether it was."""
        wanted = set(keys)
        for _ in self.recorded.polls:
            if wanted <= self._asked or isinstance(self._poll(), NoStep):
                break

        return wanted <= self._asked

    @property
    def _following(self) -> int:
        """The place of the cause that ends the present stretch, or the number of steps."""
        task = self.recorded
        for cause in task.causes:
            if not task.has_come(cause, self._given):
                return cause

        return len(task.steps)

    @property
    def _stretch(self) -> list[int]:
        """The polls of the present stretch, or the latest one before it."""
        task = self.recorded
        following = self._following
        before = -1
        for cause in task.causes:
            if cause < following:
                before = cause

        latest: list[int] = []
        present: list[int] = []
        for poll in task.polls:
            if before < poll < following:
                present.append(poll)
            elif poll < before:
                latest = [poll]

        return present or latest

    def _poll(self) -> Step | NoStep:
        """Return the next state of the present stretch, or its last one again."""
        steps = self.recorded.steps
        came: list[ReplayEntry] = []
        while True:
            present = self._stretch
            if not present:
                detail = "the task was not polled before this, while it was recorded"
                return NoStep(Reason.OUT_OF_ORDER, detail, steps[0])

            for poll in present:
                if poll > self._at:
                    self._at = poll
                    break

            entry = steps[self._at]
            self._asked.update(entry.asked)
            following = self._following
            came.append(entry)
            if not entry.asked or following == len(steps):
                return Step(entry, came)

            update = steps[following]
            # What the proxy answered while recording (`answers`), it answers now too.
            if not update.is_by_proxy:
                return Step(entry, came)

            came.append(update)
            for key in self.recorded.updates.get(following, ()):
                self._given[key] += 1

    def saw(self, state: TaskState) -> None:
        """Take note that the client was notified of a state."""
        self._asked.update(state.input_requests)
        for poll in self._stretch:
            if poll <= self._at:
                continue

            known = self.recorded.steps[poll].state
            if known is not None and known.digest == state.digest:
                self._at = poll

    def _update(self, lookup: LookupKey) -> Step | NoStep:
        """Take the answers of an update; return the recorded one that acknowledges them."""
        task = self.recorded
        answers = answers_by_key(lookup) or _NO_KEY
        refused = self._refused(answers)
        if refused is not None:
            return refused

        waiting = self._waiting()
        for key, answer in answers.items():
            expected = task.answers[key][self._given[key] :]
            if expected[:1] == [answer]:
                self._given[key] += 1

        came = []
        for cause in waiting:
            if task.has_come(cause, self._given):
                came.append(task.steps[cause])

        acknowledged = task.steps[0]
        for cause, update in task.updates.items():
            if answers.items() & update.items():
                acknowledged = task.steps[cause]

        return Step(acknowledged, came)

    def _waiting(self) -> list[int]:
        """Return the causes whose answers have not all come."""
        waiting = []
        for cause in self.recorded.causes:
            if not self.recorded.has_come(cause, self._given):
                waiting.append(cause)

        return waiting

    def _refused(self, answers: Mapping[str, str]) -> NoStep | None:
        """Return why answers are none of the recorded ones, or None."""
        task = self.recorded
        asking: dict[str, ReplayEntry] = {}
        for step in task.steps:
            asking.update(dict.fromkeys(step.asked, step))

        unasked = []
        for key in answers:
            is_asked_for = key in asking or key in task.notified_keys
            if is_asked_for and key not in self._asked:
                unasked.append(key)

        if unasked:
            detail = f"nothing that was played has asked for {', '.join(unasked)} yet"
            nearest = asking.get(unasked[0], task.creating)
            return NoStep(Reason.OUT_OF_ORDER, detail, nearest)

        differing: dict[str, Any] = {}
        for key, answer in answers.items():
            count = self._given[key]
            latest = max(count - 1, 0)
            # The next answer, or the latest one again.
            expected = task.answers.get(key, [])[latest : count + 1]
            if answer not in expected:
                differing[key] = None

        if not differing:
            return None

        return self._differing(differing, asking)

    def _differing(
        self, differing: dict[str, Any], asking: Mapping[str, ReplayEntry]
    ) -> NoStep:
        """Explain that other answers to some keys were recorded, or none."""
        task = self.recorded
        first = next(iter(differing))
        detail = "no answer to this was recorded"
        nearest = asking.get(first, task.creating)
        for cause in task.causes:
            answers = read_call(task.steps[cause].matched.request).answers
            given: Mapping[str, Any] = {}
            if answers is not None:
                given = answers.input_responses or {}

            for key in differing.keys() & given.keys():
                differing[key] = given[key]

            if first in given:
                detail = "other answers were recorded"
                nearest = task.steps[cause]

        return NoStep(Reason.ANSWERS_DIFFER, detail, nearest, differing)

    def _cancel(self) -> Step | NoStep:
        """Return the recorded cancellation that comes next, or the latest one again."""
        steps = self.recorded.steps
        following = self._following
        recorded = self.recorded.answers.get(CANCEL_TASK, [])
        if f"{following}" in recorded:
            self._given[CANCEL_TASK] += 1
            cancellation = steps[following]
            return Step(cancellation, [cancellation])

        count = self._given[CANCEL_TASK]
        if count:
            latest = int(recorded[count - 1])
            return Step(steps[latest])

        if not recorded:
            detail = "this task was not cancelled while it was recorded"
            return NoStep(Reason.UNKNOWN_METHOD, detail, steps[-1])

        detail = "this task was cancelled later while it was recorded, after an answer"
        return NoStep(Reason.OUT_OF_ORDER, detail, steps[int(recorded[0])])

    def value(self, name: str, recorded: bytes) -> bytes:
        """Return a member of a state as the client gets it."""
        if name == POLL_INTERVAL:
            if self._poll_interval is None or recorded == b"null":
                return recorded
            return b"%d" % self._poll_interval

        created_at = read_time(self.recorded.created.tree.get(CREATED_AT))
        if self._now is None or created_at is None:
            return recorded

        later: timedelta = datetime.fromtimestamp(self._now, UTC) - created_at
        time = moved(parse(recorded), later)
        if time is None:
            return recorded

        return f'"{time}"'.encode()


def _last_call(interaction: Sequence[ReplayEntry]) -> ReplayEntry | None:
    """Return the last round of an interaction's call, without answers and steps of its task."""
    for entry in reversed(interaction):
        if entry.answered_question is None and entry.created_by is None:
            return entry

    return None


class StepChoice(NamedTuple):
    """What a request about a task gets, or why it gets nothing, and the plays of tasks after it.

    Attributes:
        exchanged: the two tasks of equal calls whose plays have changed places, or none.
    """

    found: Step | NoStep
    plays: Mapping[str, LiveTask]
    exchanged: tuple[RecordedTask, RecordedTask] | None = None


class RecordedTasks:
    """The tasks that recorded calls created.

    Attributes:
        by_id: several may have the same id, of which one is played.
        created_by: all, by the calls that created them.
    """

    def __init__(self, entries: Entries) -> None:
        self.by_id: dict[str, RecordedTask] = {}
        self.created_by: dict[ReplayEntry, RecordedTask] = {}
        for interaction in entries.by_interaction:
            call = _last_call(interaction)
            if call is not None:
                self._add(call, entries.steps.get(call, []))

        if not self.by_id:
            return

        for entry in entries.by_arrival:
            if entry.is_listening:
                self._notify(entry)

    def _add(self, call: ReplayEntry, steps: Sequence[ReplayEntry]) -> None:
        """Take the task that a call created, if it did."""
        response = call.exchange.response
        # Most responses need not be read for this.
        if response is None or b'"taskId"' not in response.body:
            return

        created = call.exchange.created_task
        if created is not None:
            task = RecordedTask(call, created, steps)
            self.by_id[task.id] = task
            self.created_by[call] = task

    @property
    def changing(self) -> list[ReplayEntry]:
        """The calls whose tasks depend on what is answered or cancelled."""
        changing = []
        for task in self.by_id.values():
            if task.asks or task.causes:
                changing.append(task.creating)

        return changing

    def _notify(self, stream: ReplayEntry) -> None:
        """Take note of what a listening stream told of tasks."""
        for state in notified_states(stream.exchange.response):
            task = self.by_id.get(state.id)
            if task is not None:
                task.is_notified = True
                task.notified_keys.update(state.input_requests)

    def about(self, lookup: LookupKey) -> RecordedTask | None:
        """Return the task about which a request is, if steps of it were recorded."""
        task = self.by_id.get(lookup.call.name)
        if task is None or not task.steps:
            return None
        if lookup.call.method not in TASK_STEPS or not task.has(lookup):
            return None

        return task

    def choose(
        self,
        task: RecordedTask,
        lookup: LookupKey,
        plays: Mapping[str, LiveTask],
        *,
        has_branches: bool,
    ) -> StepChoice:
        """Return what a request about a task gets, among the plays of tasks in its session.

        With branches, it may go on as the task of an equal call that was answered so.
        """
        live = plays.get(task.id)
        if live is None:
            detail = "the call that creates this task has not been played"
            lacking = NoStep(Reason.OUT_OF_ORDER, detail, task.steps[0])
            return StepChoice(lacking, plays)

        played = live.copy()
        found = played.request_received(lookup)
        if isinstance(found, Step):
            return StepChoice(found, {**plays, task.id: played})

        if has_branches:
            branch = self._as_branch(task, lookup, plays)
            if branch is not None:
                return branch

        return StepChoice(found, plays)

    def _as_branch(
        self, task: RecordedTask, lookup: LookupKey, plays: Mapping[str, LiveTask]
    ) -> StepChoice | None:
        """Let a task go on as the one of an equal call that was answered so, if there is one.

        Its client goes on with the id that it knows, and the task of that call gets this recording.
        """
        for branch in self.by_id.values():
            if not branch.is_branch_of(task):
                continue

            taken = plays[task.id].taken_for(branch)
            if taken is None:
                continue

            given_back = None
            begun = plays.get(branch.id)
            if begun is not None:
                given_back = begun.taken_for(task)
                if begun.accepted or given_back is None:
                    continue

            found = taken.request_received(branch.in_terms_of(task, lookup))
            if isinstance(found, NoStep):
                continue

            after = {**plays, branch.id: taken}
            del after[task.id]
            if given_back is not None:
                after[task.id] = given_back

            return StepChoice(found, after, (task, branch))

        return None
