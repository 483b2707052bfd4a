"""Names, values and times that a cassette keeps when something in it is recorded again."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.cassette.texts import TextChange, exchange_with_changed_texts
from mrtr_cassette.core.compare.responses import question_ids
from mrtr_cassette.core.drive.live_session import issued_values, with_texts_replaced_at
from mrtr_cassette.core.protocol.jsonrpc import Kind, messages_in, splice_pieces
from mrtr_cassette.core.protocol.methods import (
    ISSUED_VALUE_PATHS,
    SENT_BACK_PATHS,
    method_of,
)
from mrtr_cassette.core.secrets.credentials import RepeatedSecrets
from mrtr_cassette.core.secrets.names import (
    ANSWER,
    HASH,
    STATE,
    Ref,
    is_cassette_token,
    is_journal_token,
    occurrence_in,
    refs_in,
    reveal_states,
    sha256_of,
    state_surrogate,
    with_changed_refs,
)
from mrtr_cassette.core.wire.http import Piece, Response
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans
from mrtr_cassette.core.wire.pointers import value_at

_BODIES_KEY = ""
"""Stands for the target and the bodies of an exchange among the names of its headers."""


class KeptNames:
    """Maps names and values of a new recording to those that the cassette keeps.

    Every name in the cassette's file is mapped to itself.
    """

    def __init__(self, file: bytes = b"") -> None:
        self._taken_names = set(_names_and_secrets_in(file))
        """The names that nothing else may have."""
        self._kept_by_new_name = {name: name for name in self._taken_names}
        """The names that are kept, by those of the new recording."""
        self._later_by_taken: dict[Ref, Ref] = {}
        """For taken names, a later one; all between the two are taken."""
        self._kept_values: dict[str, str] = {}
        """The same for cursors and task ids."""
        self._question_ids = RepeatedSecrets(most_texts=None)
        """Puts kept ids in place of those that the server makes up for questions, all at once."""

    def keep_names(self, kept: RecordedExchange, new: RecordedExchange) -> None:
        """Map the names in a new exchange to those of the kept one, which says the same.

        A new exchange without a number was not recorded: the names of the kept one are only taken.
        """
        new_texts: dict[str, bytes] = {}
        if new.number is not None:
            new_texts = _texts_by_header(new)
            self.keep_issued_values(kept, new)

        for header, text in _texts_by_header(kept).items():
            names = _names_and_secrets_in(text)
            self._taken_names.update(names)
            new_names = _names_and_secrets_in(new_texts.get(header, b""))
            if len(new_names) == len(names):
                pairs = dict(zip(new_names, names, strict=True))
                for new_name, name in pairs.items():
                    self._kept_by_new_name.setdefault(new_name, name)

    def keep_issued_values(self, kept: RecordedExchange, new: RecordedExchange) -> None:
        """Map cursors and ids that a new response issues to those of the kept response."""
        self._kept_values |= issued_values(new.rpc_response, kept.rpc_response)
        kept_texts = _texts_by_header(kept)
        new_texts = _texts_by_header(new)
        kept_ids = question_ids(kept_texts[_BODIES_KEY])
        new_ids = question_ids(new_texts[_BODIES_KEY])
        for new_id, kept_id in zip(new_ids, kept_ids, strict=False):
            shown = kept_id.decode(errors="replace")
            self._question_ids.add_known_text(new_id.decode(errors="replace"), shown)

    def with_kept_names(
        self, new: RecordedExchange, partner: RecordedExchange | None
    ) -> RecordedExchange:
        """Return a new exchange with the kept names and values, and no other names that are taken.

        Its response issues the cursor, the task and the times that its partner's does.
        """
        response = new.response
        if partner is not None and response is not None:
            pieces = splice_pieces(response.pieces, _reissued_values(partner, new))
            response = replace(response, pieces=pieces)
            new = replace(new, response=response)

        renamed_exchange = exchange_with_changed_texts(new, self._text_with_kept_names)
        message = renamed_exchange.call.message
        if message is None or message.kind is not Kind.REQUEST:
            return renamed_exchange

        body = with_texts_replaced_at(
            renamed_exchange.request.body, SENT_BACK_PATHS, self._kept_values.get
        )
        request = replace(renamed_exchange.request, body=body)
        return replace(renamed_exchange, request=request)

    def _text_with_kept_names(self, text: bytes, _header: str) -> bytes:
        """Return a text of a new recording with the names and the question ids that are kept."""
        text = self._question_ids.sealed_bytes(text)
        return with_changed_refs(text, self._reference_with_kept_name)

    def _reference_with_kept_name(self, ref: Ref) -> Ref | None:
        """Return a reference with its kept name and its own turn; None if it isn't renamed."""
        name = _name_to_keep(ref)
        if name is None:
            return None

        kept_name = self._kept_name_for(name)
        turn = ref.parts[len(name.parts) :]
        parts = (*kept_name.parts, *turn)

        return Ref(kept_name.kind, parts, ref.spelling)

    def _kept_name_for(self, name: Ref) -> Ref:
        """Return the kept name for a new one, or the next name that is free."""
        if name not in self._kept_by_new_name:
            free_name = self._free_name_from(name)
            self._kept_by_new_name[name] = free_name
            self._taken_names.add(free_name)

        return self._kept_by_new_name[name]

    def _free_name_from(self, name: Ref) -> Ref:
        """Return a name if it is free, or the next that is; a journal's placeholders begin at 1."""
        if name.is_secret and is_journal_token(name.token):
            name = name.with_last_part(1)

        passed_names = []
        while name in self._taken_names:
            passed_names.append(name)
            name = self._later_by_taken.get(name) or _next_name(name)

        # The next search need not pass all of them again.
        self._later_by_taken.update(dict.fromkeys(passed_names, name))
        return name


def _next_name(name: Ref) -> Ref:
    """Return the next name of the same kind; hashes come in no order."""
    if name.kind == HASH:
        return name.with_last_part(sha256_of(name.name))
    return name.with_last_part(int(name.token) + 1)


def _name_to_keep(ref: Ref) -> Ref | None:
    """Return a reference without the turn of a state; None for one that is never renamed."""
    if ref.is_secret:
        if is_journal_token(ref.token) or is_cassette_token(ref.token):
            return ref.in_cassette_spelling
        return None

    if ref.kind == ANSWER:
        return None

    name = ref.in_cassette_spelling
    if name.kind == STATE:
        return name._replace(parts=name.parts[:2])

    return name


def _texts_by_header(exchange: RecordedExchange) -> dict[str, bytes]:
    """Return the values of headers by their names, and the target and the bodies in one."""
    texts: dict[str, list[bytes]] = defaultdict(list)

    def collect_text(text: bytes, header: str) -> bytes:
        texts[header].append(text)
        return text

    exchange_with_changed_texts(exchange, collect_text)
    return {header: b"".join(parts) for header, parts in texts.items()}


def _names_and_secrets_in(text: bytes) -> list[Ref]:
    """Return the names in a text, placeholders of secrets last."""
    names = []
    secrets = []
    for ref in refs_in(text):
        name = _name_to_keep(ref)
        if name is None:
            continue

        if name.is_secret:
            secrets.append(name)
        else:
            names.append(name)

    return names + secrets


def _reissued_values(
    kept_exchange: RecordedExchange, new_exchange: RecordedExchange
) -> Iterator[tuple[Span, bytes]]:
    """Yield where a new response issues what the kept one did, and what that was.

    These are a cursor, and what the members of a result have in each recording anew.
    """
    kept_response = kept_exchange.located_response
    new_response = new_exchange.located_response
    if kept_response is None or new_response is None:
        return

    paths = list(ISSUED_VALUE_PATHS)
    for path in method_of(kept_exchange.call.method).volatile:
        if len(path) == 1:
            paths.append(("result", *path))

    # Of duplicate keys the last one counts.
    for path, place in dict(find_spans(new_response.message.raw, paths)).items():
        value = value_at(kept_response.message.tree, path)
        span = new_response.in_body(place)
        if isinstance(value, str) and span is not None:
            yield span, canonical(value).encode()


def name_of_new_state(cassette: Cassette, interaction: RecordedInteraction) -> str:
    """Return the name of a request state that a turn of an interaction issues now."""
    call = interaction.exchanges[0].call
    digest = sha256_of("\n".join(call.key()))
    turn = len(interaction.exchanges) + 1
    highest_occurrence = 0
    for recorded in cassette.interactions:
        occurrences = _state_occurrences(recorded)
        if recorded is interaction and occurrences:
            return state_surrogate(digest, occurrences[0], turn)

        highest_occurrence = max([highest_occurrence, *occurrences])

    return state_surrogate(digest, highest_occurrence + interaction.number, turn)


def _state_occurrences(interaction: RecordedInteraction) -> list[int]:
    """Return the occurrences that the names of an interaction's request states have."""
    occurrences = []
    for exchange in interaction.exchanges:
        ask = exchange.ask
        if ask is None or ask.request_state is None:
            continue

        occurrence = occurrence_in(ask.request_state)
        if occurrence is not None:
            occurrences.append(occurrence)

    return occurrences


def text_change_to_recorded_names(
    recorded_keys: Mapping[str, str], recorded_by_live_hash: Mapping[str, str]
) -> TextChange:
    """Return what puts recorded names, and keys of a task's questions, in place of live ones."""
    spelled_pairs = []
    for live_key, recorded_key in recorded_keys.items():
        spelled_live = reveal_states(canonical(live_key), recorded_by_live_hash.get)
        spelled_recorded = canonical(recorded_key)
        spelled_pairs.append((spelled_live.encode(), spelled_recorded.encode()))

    def with_recorded_names(raw: bytes, _header: str) -> bytes:
        """Return a live text with recorded names, and recorded keys of a task's questions."""
        raw = reveal_states(raw, recorded_by_live_hash.get)
        for spelled_live_key, spelled_recorded_key in spelled_pairs:
            raw = raw.replace(spelled_live_key, spelled_recorded_key)

        return raw

    return with_recorded_names


def with_times_of(exchange: RecordedExchange, response: Response) -> Response:
    """Return a response whose messages came when those of the exchange's response did."""
    recorded_pieces: tuple[Piece, ...] = ()
    if exchange.response is not None:
        recorded_pieces = exchange.response.pieces

    if not response.is_message_stream and len(response.pieces) != len(recorded_pieces):
        return replace(response, pieces=(Piece(response.body, 0, 0),))

    pieces_with_times = _pieces_with_known_times(exchange, response)
    timed_pieces = []
    for index, piece in enumerate(response.pieces):
        piece_with_time = pieces_with_times[min(index, len(pieces_with_times) - 1)]
        timed_pieces.append(piece_with_time._replace(raw=piece.raw))

    return replace(response, pieces=tuple(timed_pieces))


def _pieces_with_known_times(
    exchange: RecordedExchange, response: Response
) -> Sequence[Piece]:
    """Return pieces with the times for those of a response; further ones have the last time."""
    end_of_response = Piece(
        b"", exchange.ended_ms, exchange.ended_after or exchange.number or 0
    )
    recorded_response = exchange.response
    if recorded_response is None:
        return [end_of_response]

    pieces_with_times = [
        piece for piece in recorded_response.pieces if piece.arrived_count
    ] or [end_of_response]
    all_known = len(pieces_with_times) == len(recorded_response.pieces)
    if all_known and len(pieces_with_times) != len(response.pieces):
        return _pieces_with_message_times(recorded_response, response)

    return pieces_with_times


def _pieces_with_message_times(
    recorded_response: Response, response: Response
) -> Sequence[Piece]:
    """Return for each piece of a response when the message came that is there in the recorded one.

    What is between two messages, such as a comment, came with the later one.
    """
    message_pieces = [
        recorded_response.pieces[located.piece]
        for located in messages_in(recorded_response)
    ]
    message_pieces.append(recorded_response.pieces[-1])
    last_index = len(message_pieces) - 1
    message_indexes = [located.piece for located in messages_in(response)]
    pieces_with_times = []
    for index in range(len(response.pieces)):
        message_index = bisect_left(message_indexes, index)
        pieces_with_times.append(message_pieces[min(message_index, last_index)])

    return pieces_with_times
