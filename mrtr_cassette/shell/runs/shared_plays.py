"""Cassettes that several tests share: keep each test's recording until the run publishes them."""

# The file stays as it is while the tests run. A folder of the run has what they record, in parts:
# one for all tests that name the file by the marker, each of which plays what those before it
# recorded, and one for the fixture of each class or module in each process.

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, NamedTuple

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.record.assembly import assemble
from mrtr_cassette.core.record.merge import RunPart, joined
from mrtr_cassette.core.record.naming import lasting
from mrtr_cassette.errors import MrtrCassetteError, Terms, counted
from mrtr_cassette.options import Existing
from mrtr_cassette.shell.files.cassettes import load_cassette, publish_recording
from mrtr_cassette.shell.runs.sessions import rules_of_both

TestOutcome = Literal["passed", "skipped", "xfailed", "failed"]
"""What a test has come to, by its reports; where it was run again, by those of the last time."""

_NAMED = "named"
_FACTS = "facts"


@dataclass(slots=True)
class _PartFacts:
    """Facts about one part of a shared cassette."""

    path: str
    existing: Existing
    sharers: Sequence[str]
    renews: bool = False
    """The file is too old as it stands."""
    recorded: int = 0
    """How many exchanges it has that the file had not."""
    uses: dict[str, list[int]] = field(default_factory=dict)
    """The numbers of those exchanges that each test recorded or played."""

    def places(self, order: Mapping[str, int]) -> dict[int, int]:
        """Return the place of the first test that used an exchange, by its number."""
        places: dict[int, int] = {}
        for test in sorted(self.uses, key=lambda test: order[test], reverse=True):
            places |= dict.fromkeys(self.uses[test], order[test])
        return places


class Share:
    """One use of a shared cassette: it records at `place`, and adds to `base`."""

    def __init__(
        self,
        folder: Path,
        path: Path,
        existing: Existing,
        sharers: Sequence[str],
        test: str | None,
        *,
        renews: bool,
    ) -> None:
        """Make a place in the folder of the run, for a test, class or module."""
        own = folder / hashlib.sha256(bytes(path)).hexdigest()[:16]
        own.mkdir(parents=True, exist_ok=True)
        self.place = Path(mkdtemp(dir=own, prefix="use-")) / path.name
        named = own / _NAMED / path.name
        self._home = self.place.parent if test is None else named.parent
        self._test = test
        self._facts = _PartFacts(str(path), existing, sharers, renews)
        if test is not None and named.exists():
            self._facts = _read_facts(named.parent)
        earlier = path if existing == "append" and path.exists() else None
        self._before = 0 if earlier is None else load_cassette(earlier).highest_number
        self.base = named if test is not None and named.exists() else earlier
        if self.base is not None:
            self.place.write_bytes(self.base.read_bytes())

    def test_ended(self, test: str, exchanges: int) -> None:
        """Note how many exchanges had been recorded at the end of a test."""
        facts = self._facts
        if exchanges > facts.recorded:
            facts.uses.setdefault(test, []).extend(range(facts.recorded + 1, exchanges + 1))
            facts.recorded = exchanges

    def keep(self, recorded: Path, played: Iterable[RecordedInteraction]) -> None:
        """Move a recording to where the end of the run finds it."""
        if not recorded.exists():
            return
        if self._test is not None:
            self.test_ended(self._test, load_cassette(recorded).highest_number - self._before)
            numbers = [each.number or 0 for interaction in played for each in interaction.own]
            mine = self._facts.uses.setdefault(self._test, [])
            mine += [number - self._before for number in numbers if number > self._before]
            self._home.mkdir(exist_ok=True)
        recorded.replace(self._home / recorded.name)
        (self._home / _FACTS).write_text(json.dumps(asdict(self._facts)), encoding="utf-8")


class Published(NamedTuple):
    """The outcome of a shared cassette, with a reason to fail the run or to warn."""

    outcome: str
    problem: str | None = None
    warning: str | None = None


def publish_shared(
    folder: Path, outcomes: Mapping[str, TestOutcome], narrowed: str | None, terms: Terms
) -> list[Published]:
    """Publish the shared cassettes of a run, and remove the folder.

    Args:
        narrowed: why the run may not have all tests, or None.
    """
    published = []
    for own in sorted(folder.iterdir()):
        homes = {file.parent: _read_facts(file.parent) for file in own.glob(f"*/{_FACTS}")}
        parts = {home: facts for home, facts in homes.items() if facts.recorded}
        if parts:
            published.append(_publish(parts, outcomes, narrowed, terms))
    shutil.rmtree(folder, ignore_errors=True)
    return published


def _publish(
    by_home: Mapping[Path, _PartFacts],
    outcomes: Mapping[str, TestOutcome],
    narrowed: str | None,
    terms: Terms,
) -> Published:
    homes, facts = list(by_home), list(by_home.values())
    path, existing = Path(facts[0].path), facts[0].existing
    sharers = list(dict.fromkeys(test for each in facts for test in each.sharers))
    tests = list(dict.fromkeys([*sharers, *sorted(test for each in facts for test in each.uses)]))
    for test in tests:
        if outcomes.get(test, "failed") == "failed":
            happened = "failed" if test in outcomes else "did not run"
            warning = f"{path} was not written: {test} shares it, and it {happened}"
            return Published(f"discarded (test {happened})", warning=warning)
    order = {test: place for place, test in enumerate(tests)}
    try:
        parts = [
            RunPart(load_cassette(home / path.name), each.places(order))
            for home, each in zip(homes, facts, strict=True)
        ]
        left_out = (test for test in tests if outcomes[test] in ("skipped", "xfailed"))
        partial = narrowed or next((f"{each} was {outcomes[each]}" for each in left_out), None)
        if existing == "replace" and partial is not None and path.exists():
            lost = _lost(load_cassette(path), [part.cassette for part in parts])
            if lost:
                return _refused(path, lost, partial, fails=partial is narrowed)
        earlier = load_cassette(path) if existing == "append" and path.exists() else None
        published = publish_recording(
            *(path, _as_one(parts, earlier), existing), renews=facts[0].renews
        )
    except MrtrCassetteError as error:
        return Published("discarded (not written)", problem=error.in_terms(terms))
    if published.is_same:
        return Published("same, kept")
    return Published("recorded" if earlier is None else "added to")


def _refused(path: Path, lost: Sequence[str], partial: str, *, fails: bool) -> Published:
    more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
    text = (
        f"{path} was not replaced: this run has not recorded {counted(len(lost), 'call')} that "
        f"it has ({lost[0]}{more}), and {partial}\nrun all tests that share it, add to it with "
        "--mrtr-mode=append, or delete it first"
    )
    outcome = "discarded (not all calls recorded)"
    return Published(outcome, problem=text) if fails else Published(outcome, warning=text)


def _lost(old: Cassette, parts: Iterable[Cassette]) -> list[str]:
    there = Counter(key for part in parts for key, _ in _calls(part))
    lost = []
    for key, title in _calls(old):
        there[key] -= 1
        if there[key] < 0:
            lost.append(title)
    return lost


def _calls(cassette: Cassette) -> Iterable[tuple[str, str]]:
    for interaction in cassette.interactions:
        call = interaction.exchanges[0].call
        yield lasting("\n".join(call.key())), call.title


def _as_one(parts: Sequence[RunPart], earlier: Cassette | None) -> Cassette:
    """Return the cassette as if the tests had run one after the other."""
    only = parts[0]
    in_order = [only.places[number] for number in sorted(only.places)]
    if len(parts) == 1 and in_order == sorted(in_order):
        return only.cassette
    known = () if earlier is None else earlier.recorders
    whole = joined(parts, {recorder.id for recorder in known})
    head = only.cassette
    for part in parts[1:]:
        rules = part.cassette.redaction
        redaction = None if rules is None else rules_of_both(head, rules)
        head = replace(head, redaction=redaction)
    interactions = tuple(assemble(whole.exchanges, earlier, whole.places))
    return replace(head, recorders=(*known, *whole.recorders), interactions=interactions)


def _read_facts(home: Path) -> _PartFacts:
    return _PartFacts(**json.loads((home / _FACTS).read_text(encoding="utf-8")))
