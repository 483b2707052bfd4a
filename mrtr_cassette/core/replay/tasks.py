"""Replay recorded tasks: which recorded state a poll gets now.

The updates and cancellations of the recording cut the recorded states into stretches. A poll gets
the next state of the present stretch, and its last one again and again; where nothing was polled in
a stretch, that is the latest state before it. An update may give the recorded answers in other
portions: the next stretch begins as soon as all answers of the recorded update have come. An
answer that the server refused need not come before the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.entries import Entries, ReplayEntry
from mrtr_cassette.core.cassette.lookup import LookupKey, answers_by_key
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.methods import (
    CANCEL_TASK,
    GET_TASK,
    UPDATE_TASK,
    method_of,
)
from mrtr_cassette.core.protocol.tasks import (
    CREATED_AT,
    POLL_INTERVAL,
    TaskState,
    notified_states,
    read_time,
    shifted_time,
)
from mrtr_cassette.core.replay.diagnosis import NoStep, Reason
from mrtr_cassette.core.secrets.names import id_replacer
from mrtr_cassette.core.wire.jsonbytes import parse

_NO_ANSWERS: Final = {"": ""}
"""Stands for the answers of an update that gives none."""


class PlayedStep(NamedTuple):
    """The recorded exchange that a request is played, and those that have come whole by it.

    An update that gives a part of the recorded answers is acknowledged, and has not come.
    """

    entry: ReplayEntry
    arrived_entries: Sequence[ReplayEntry] = ()


class RecordedTask:
    """A task that a recorded call created, and the steps that were recorded of it.

    Attributes:
        answers_by_cause: the steps after which the server went on, updates and cancellations, with
            their answers; a cancellation is one to a key of its own.
        cancellation_places: the steps that are cancellations.
        answers: the answers to each key, which may have been answered again in another way.
        notified_keys: what notifications ask for.
        is_notified: whether a stream told of it.
        questions: what its states ask for, by key.
    """

    def __init__(
        self,
        creating_call: ReplayEntry,
        created_state: TaskState,
        steps: Sequence[ReplayEntry],
    ) -> None:
        self.creating_call = creating_call
        self.created_state = created_state
        self.steps = steps
        self.notified_keys: set[str] = set()
        self.is_notified = False
        self.questions: dict[str, Any] = {}
        self.poll_places: list[int] = []
        self.answers_by_cause: dict[int, Mapping[str, str]] = {}
        self.cancellation_places: list[int] = []
        self.answers: dict[str, list[str]] = {}
        self._needed_counts: dict[int, dict[str, int]] = {}
        self._accepted_answers: set[tuple[str, str]] = set()
        for step_place, step in enumerate(steps):
            self.questions.update(step.asked_inputs)
            if step.key.method == GET_TASK:
                self.poll_places.append(step_place)
            else:
                self._add_update_or_cancellation(step_place, step)

    def _add_update_or_cancellation(self, step_place: int, step: ReplayEntry) -> None:
        """Take an update or a cancellation, and how often its answers have been given by it."""
        if step.key.method != UPDATE_TASK:
            self.cancellation_places.append(step_place)
            self.answers_by_cause[step_place] = {CANCEL_TASK: ""}
            self._needed_counts[step_place] = {
                CANCEL_TASK: len(self.cancellation_places)
            }
            return

        update_answers = answers_by_key(step.normalised.lookup) or _NO_ANSWERS
        self.answers_by_cause[step_place] = update_answers
        self._needed_counts[step_place] = {}
        for key, answer in update_answers.items():
            answers_to_key = self.answers.setdefault(key, [])
            if answers_to_key[-1:] != [answer]:
                answers_to_key.append(answer)

            self._needed_counts[step_place][key] = len(answers_to_key)
            if not step.is_refused:
                self._accepted_answers.add((key, answer))

    @property
    def id(self) -> str:
        """Its id in the recording."""
        return self.created_state.id

    @property
    def asks_for_input(self) -> bool:
        """Whether a state asks for input."""
        return bool(self.notified_keys or self.questions)

    def is_branch_of(self, task: RecordedTask) -> bool:
        """Tell whether an equal call created another task, of which only polls tell."""
        if self is task or self.is_notified or task.is_notified:
            return False

        call = self.creating_call
        call_of_task = task.creating_call
        if call.session != call_of_task.session:
            return False
        if call.normalised.traits != call_of_task.normalised.traits:
            return False

        return call.numbers.path == call_of_task.numbers.path

    def lookup_for_this_task(self, task: RecordedTask, lookup: LookupKey) -> LookupKey:
        """Return a lookup key that names another task as one that names this one."""
        call = lookup.call._replace(name=self.id)
        answers = lookup.answers
        if answers is not None:
            rename_task = id_replacer({task.id: self.id})
            answers = rename_task(answers.encode()).decode()

        return LookupKey(call, lookup.state, answers)

    def has_cause_arrived(self, cause: int, given_counts: Mapping[str, int]) -> bool:
        """Tell whether all answers of a cause have come, by their counts for each key."""
        for key, count in self._needed_counts[cause].items():
            if given_counts[key] < count:
                return False

        return True

    def due_count(self, key: str, given_count: int) -> int:
        """Return how many answers to a key have come with the next one that was not refused."""
        answers = self.answers.get(key, [])
        for count, answer in enumerate(answers[given_count:], start=given_count + 1):
            if (key, answer) in self._accepted_answers:
                return count

        return len(answers)

    def is_among_first_answers(self, cause: int, key: str, count: int) -> bool:
        """Tell whether the answer of a cause to a key is among the first ones to it."""
        return self._needed_counts[cause][key] <= count

    def has_request_like(self, lookup: LookupKey) -> bool:
        """Tell whether a request is like a step but for its answers, or no step has its method."""
        is_recorded = False
        for step in self.steps:
            if step.key.method == lookup.call.method:
                is_recorded = True
                if step.normalised.lookup[:2] == lookup[:2]:
                    return True

        return not is_recorded


class LiveTask:
    """A play of a recorded task, from the play of the call that created it.

    Attributes:
        accepted_lookups: the updates and cancellations that came and were recorded.
    """

    def __init__(
        self,
        recorded_task: RecordedTask,
        played_at: float | None,
        *,
        poll_interval: int | None = None,
        is_over: bool = False,
    ) -> None:
        """Begin the play of a task.

        Args:
            played_at: when the call was played, in seconds since 1970; None leaves times as
                recorded.
            poll_interval: the milliseconds between polls that the client is told.
            is_over: its last state is the only one.
        """
        self.recorded = recorded_task
        self.accepted_lookups: list[LookupKey] = []
        self._played_at = played_at
        self._poll_interval = poll_interval
        self._state_place = -1
        if is_over and recorded_task.poll_places:
            self._state_place = recorded_task.poll_places[-1] - 1

        self._asked_keys: set[str] = set()
        self._given_counts: Counter[str] = Counter()

    def copy(self) -> LiveTask:
        """Return the same play, which goes on by itself."""
        task = LiveTask(
            self.recorded, self._played_at, poll_interval=self._poll_interval
        )
        task._state_place = self._state_place
        task.accepted_lookups = list(self.accepted_lookups)
        task._asked_keys = set(self._asked_keys)
        task._given_counts = Counter(self._given_counts)

        return task

    def request_received(self, lookup: LookupKey) -> PlayedStep | NoStep:
        """Return what a request about the task gets now."""
        method = lookup.call.method
        if method == GET_TASK:
            return self._polled_step()

        if method == CANCEL_TASK:
            step = self._cancellation_step()
        else:
            step = self._update_step(lookup)

        if isinstance(step, PlayedStep):
            self.accepted_lookups.append(lookup)

        return step

    def as_play_of(self, recorded_task: RecordedTask) -> LiveTask | None:
        """Return this play as one of another recorded task; None if that went on otherwise."""
        branch_play = LiveTask(
            recorded_task, self._played_at, poll_interval=self._poll_interval
        )
        for lookup in self.accepted_lookups:
            renamed_lookup = recorded_task.lookup_for_this_task(self.recorded, lookup)
            branch_play.poll_until(answers_by_key(renamed_lookup))
            if isinstance(branch_play.request_received(renamed_lookup), NoStep):
                return None

        rename_task = id_replacer({self.recorded.id: recorded_task.id})
        asked_keys = []
        for key in self._asked_keys:
            renamed_key = rename_task(key.encode()).decode()
            question = recorded_task.questions.get(renamed_key)
            if question != self.recorded.questions.get(key):
                return None

            asked_keys.append(renamed_key)

        if not branch_play.poll_until(asked_keys):
            return None

        return branch_play

    def poll_until(self, keys: Iterable[str]) -> bool:
        """Poll until something has been asked under some keys; tell whether it was."""
        wanted_keys = set(keys)
        for _ in self.recorded.poll_places:
            if wanted_keys <= self._asked_keys:
                return True
            if isinstance(self._polled_step(), NoStep):
                break

        return wanted_keys <= self._asked_keys

    @property
    def _next_cause(self) -> int:
        """The place of the cause that ends the present stretch, or the number of steps."""
        return min(self._waiting_causes(), default=len(self.recorded.steps))

    @property
    def _current_polls(self) -> list[int]:
        """The polls of the present stretch, or the latest one before it."""
        task = self.recorded
        stretch_end = self._next_cause
        stretch_start = -1
        for cause_place in task.answers_by_cause:
            if cause_place < stretch_end:
                stretch_start = cause_place

        polls_so_far = [poll for poll in task.poll_places if poll < stretch_end]
        polls_in_stretch = [poll for poll in polls_so_far if poll > stretch_start]
        return polls_in_stretch or polls_so_far[-1:]

    def _polled_step(self) -> PlayedStep | NoStep:
        """Return the next state of the present stretch, or its last one again."""
        steps = self.recorded.steps
        arrived_entries: list[ReplayEntry] = []
        while True:
            polls_in_stretch = self._current_polls
            if not polls_in_stretch:
                detail = "the task was not polled before this, while it was recorded"
                return NoStep(Reason.OUT_OF_ORDER, detail, steps[0])

            for poll in polls_in_stretch:
                if poll > self._state_place:
                    self._state_place = poll
                    break

            entry = steps[self._state_place]
            self._asked_keys.update(entry.asked_inputs)
            next_cause = self._next_cause
            arrived_entries.append(entry)
            if not entry.asked_inputs or next_cause == len(steps):
                return PlayedStep(entry, arrived_entries)

            update = steps[next_cause]
            # What the proxy answered while recording (`answers`), it answers now too.
            if not update.is_by_proxy:
                return PlayedStep(entry, arrived_entries)

            arrived_entries.append(update)
            for key in self.recorded.answers_by_cause.get(next_cause, ()):
                self._given_counts[key] += 1

    def note_notified_state(self, state: TaskState) -> None:
        """Take note that the client was notified of a state."""
        self._asked_keys.update(state.input_requests)
        for poll in self._current_polls:
            if poll <= self._state_place:
                continue

            recorded_state = self.recorded.steps[poll].state
            if recorded_state is not None and recorded_state.digest == state.digest:
                self._state_place = poll

    def _update_step(self, lookup: LookupKey) -> PlayedStep | NoStep:
        """Take the answers of an update; return the recorded one that acknowledges them."""
        task = self.recorded
        answers = answers_by_key(lookup) or _NO_ANSWERS
        no_step = self._why_answers_not_recorded(answers)
        if no_step is not None:
            return no_step

        waiting_causes = self._waiting_causes()
        for key, answer in answers.items():
            given_count = self._given_counts[key]
            due_count = task.due_count(key, given_count)
            due_answers = task.answers[key][given_count:due_count]
            if answer in due_answers:
                self._given_counts[key] += due_answers.index(answer) + 1

        arrived_entries = []
        for cause in waiting_causes:
            if task.has_cause_arrived(cause, self._given_counts):
                arrived_entries.append(task.steps[cause])

        def nearness_of_cause(cause: int) -> tuple[int, int]:
            shared_answers = answers.items() & task.answers_by_cause[cause].items()
            return len(shared_answers), cause

        acknowledging_cause = max(task.answers_by_cause, key=nearness_of_cause)
        return PlayedStep(task.steps[acknowledging_cause], arrived_entries)

    def _waiting_causes(self) -> list[int]:
        """Return the causes whose answers have not all come."""
        waiting_causes = []
        for cause in self.recorded.answers_by_cause:
            if not self.recorded.has_cause_arrived(cause, self._given_counts):
                waiting_causes.append(cause)

        return waiting_causes

    def _why_answers_not_recorded(self, answers: Mapping[str, str]) -> NoStep | None:
        """Return why answers are none of the recorded ones, or None."""
        task = self.recorded
        asking_steps = {}
        for step in task.steps:
            asking_steps.update(dict.fromkeys(step.asked_inputs, step))

        unasked_keys = []
        for key in answers:
            is_asked_for = key in asking_steps or key in task.notified_keys
            if is_asked_for and key not in self._asked_keys:
                unasked_keys.append(key)

        if unasked_keys:
            keys_in_words = ", ".join(unasked_keys)
            detail = f"nothing that was played has asked for {keys_in_words} yet"
            nearest = asking_steps.get(unasked_keys[0], task.creating_call)
            return NoStep(Reason.OUT_OF_ORDER, detail, nearest)

        recorded_answers: dict[str, Any] = {}
        for key, answer in answers.items():
            given_count = self._given_counts[key]
            latest_place = max(given_count - 1, 0)
            # The next answer, or the latest one again.
            due_count = task.due_count(key, given_count)
            expected_answers = task.answers.get(key, [])[latest_place:due_count]
            if answer not in expected_answers:
                recorded_answers[key] = None

        if not recorded_answers:
            return None

        return self._why_answers_differ(recorded_answers, asking_steps)

    def _why_answers_differ(
        self, recorded_answers: dict[str, Any], asking_steps: Mapping[str, ReplayEntry]
    ) -> NoStep:
        """Explain that other answers to some keys were recorded, or none."""
        task = self.recorded
        first_key = next(iter(recorded_answers))
        detail = "no answer to this was recorded"
        nearest = asking_steps.get(first_key, task.creating_call)
        for cause in task.answers_by_cause:
            answers = read_call(task.steps[cause].normalised.request).answers
            cause_answers: Mapping[str, Any] = {}
            if answers is not None:
                cause_answers = answers.input_responses or {}

            for key in recorded_answers.keys() & cause_answers.keys():
                due_count = task.due_count(key, self._given_counts[key])
                if not task.is_among_first_answers(cause, key, due_count):
                    continue

                recorded_answers[key] = cause_answers[key]
                if key == first_key:
                    detail = "other answers were recorded"
                    nearest = task.steps[cause]

        return NoStep(Reason.ANSWERS_DIFFER, detail, nearest, recorded_answers)

    def _cancellation_step(self) -> PlayedStep | NoStep:
        """Return the recorded cancellation that comes next, or the latest one again."""
        steps = self.recorded.steps
        next_cause = self._next_cause
        cancellation_places = self.recorded.cancellation_places
        if next_cause in cancellation_places:
            self._given_counts[CANCEL_TASK] += 1
            cancellation = steps[next_cause]
            return PlayedStep(cancellation, [cancellation])

        cancelled_count = self._given_counts[CANCEL_TASK]
        if cancelled_count:
            return PlayedStep(steps[cancellation_places[cancelled_count - 1]])

        if not cancellation_places:
            detail = "this task was not cancelled while it was recorded"
            return NoStep(Reason.UNKNOWN_METHOD, detail, steps[-1])

        detail = "this task was cancelled later while it was recorded, after an answer"
        return NoStep(Reason.OUT_OF_ORDER, detail, steps[cancellation_places[0]])

    def live_value(self, name: str, recorded_value: bytes) -> bytes:
        """Return a member of a state as the client gets it."""
        if name == POLL_INTERVAL:
            if self._poll_interval is None or recorded_value == b"null":
                return recorded_value
            return b"%d" % self._poll_interval

        created_at = read_time(self.recorded.created_state.tree.get(CREATED_AT))
        if self._played_at is None or created_at is None:
            return recorded_value

        shift: timedelta = datetime.fromtimestamp(self._played_at, UTC) - created_at
        live_time = shifted_time(parse(recorded_value), shift)
        if live_time is None:
            return recorded_value

        return f'"{live_time}"'.encode()


class StepChoice(NamedTuple):
    """What a request about a task gets, or why it gets nothing, and the plays of tasks after it.

    Attributes:
        swapped_tasks: the two tasks of equal calls whose plays have changed places, or none.
    """

    step: PlayedStep | NoStep
    live_tasks: dict[str, LiveTask]
    swapped_tasks: tuple[RecordedTask, RecordedTask] | None = None

    @property
    def entry(self) -> ReplayEntry | None:
        """The recorded exchange that the request is played; None if it gets nothing."""
        return self.step.entry if isinstance(self.step, PlayedStep) else None


class RecordedTasks:
    """The tasks that recorded calls created; without memory each has only its last state."""

    def __init__(self, entries: Entries, *, is_stateless: bool) -> None:
        self._is_stateless = is_stateless
        self._by_id: dict[str, RecordedTask] = {}
        """Several may have the same id, of which one is played."""
        self._by_creating_call: dict[ReplayEntry, RecordedTask] = {}
        for call in chain.from_iterable(entries.by_interaction):
            response = call.exchange.response
            # Most responses need not be read for this.
            if response is None or b'"taskId"' not in response.body:
                continue

            created_state = call.exchange.created_task
            if created_state is not None:
                task = RecordedTask(call, created_state, entries.steps.get(call, []))
                self._by_id[task.id] = task
                self._by_creating_call[call] = task

        if not self._by_id:
            return

        for entry in entries.by_arrival:
            if entry.is_listening:
                self._note_notified_tasks(entry)

    @property
    def changing_calls(self) -> list[ReplayEntry]:
        """The calls whose tasks depend on what is answered or cancelled."""
        calls = []
        for task in self._by_id.values():
            if task.asks_for_input or task.answers_by_cause:
                calls.append(task.creating_call)

        return calls

    def _note_notified_tasks(self, stream: ReplayEntry) -> None:
        """Take note of what a listening stream told of tasks."""
        for state in notified_states(stream.exchange.response):
            task = self._by_id.get(state.id)
            if task is not None:
                task.is_notified = True
                task.notified_keys.update(state.input_requests)

    def begun_by(
        self, call: ReplayEntry, wall_s: float | None, poll_interval: int | None
    ) -> LiveTask | None:
        """Return a play of the task that a call creates; None if it creates none."""
        task = self._by_creating_call.get(call)
        return None if task is None else self._new_play(task, wall_s, poll_interval)

    def _new_play(
        self, task: RecordedTask, wall_s: float | None, poll_interval: int | None
    ) -> LiveTask:
        """Begin a play of a task, whose times are moved to now."""
        return LiveTask(
            task, wall_s, poll_interval=poll_interval, is_over=self._is_stateless
        )

    def _task_of_request(self, lookup: LookupKey) -> RecordedTask | None:
        """Return the task about which a request is, if steps of it were recorded."""
        task = self._by_id.get(lookup.call.name)
        if task is None or not task.steps:
            return None
        is_step = method_of(lookup.call.method).is_step
        return task if is_step and task.has_request_like(lookup) else None

    def choose_step(
        self,
        lookup: LookupKey,
        live_tasks: dict[str, LiveTask],
        wall_s: float | None,
        poll_interval: int | None,
    ) -> StepChoice | None:
        """Return what a request about a task gets, among the plays of tasks in its session.

        It may go on as the task of an equal call that was answered so. None for other requests.
        """
        task = self._task_of_request(lookup)
        if task is None:
            return None
        if self._is_stateless:
            live_tasks = {task.id: self._new_play(task, wall_s, poll_interval)}

        live_task = live_tasks.get(task.id)
        if live_task is None:
            detail = "the call that creates this task has not been played"
            no_step = NoStep(Reason.OUT_OF_ORDER, detail, task.steps[0])
            return StepChoice(no_step, live_tasks)

        task_play = live_task.copy()
        step = task_play.request_received(lookup)
        if isinstance(step, PlayedStep):
            return StepChoice(step, {**live_tasks, task.id: task_play})

        choice_in_branch = self._switch_to_branch(task, lookup, live_tasks)
        return choice_in_branch or StepChoice(step, live_tasks)

    def _switch_to_branch(
        self, task: RecordedTask, lookup: LookupKey, live_tasks: Mapping[str, LiveTask]
    ) -> StepChoice | None:
        """Let a task go on as the one of an equal call that was answered so, if there is one.

        Its client goes on with the id that it knows, and the task of that call gets this recording.
        """
        for branch in self._by_id.values():
            if not branch.is_branch_of(task):
                continue

            play_as_branch = live_tasks[task.id].as_play_of(branch)
            if play_as_branch is None:
                continue

            branch_given_back = None
            play_of_branch = live_tasks.get(branch.id)
            if play_of_branch is not None:
                branch_given_back = play_of_branch.as_play_of(task)
                if play_of_branch.accepted_lookups or branch_given_back is None:
                    continue

            step = play_as_branch.request_received(
                branch.lookup_for_this_task(task, lookup)
            )
            if isinstance(step, NoStep):
                continue

            tasks_after = {**live_tasks, branch.id: play_as_branch}
            del tasks_after[task.id]
            if branch_given_back is not None:
                tasks_after[task.id] = branch_given_back

            return StepChoice(step, tasks_after, (task, branch))

        return None
