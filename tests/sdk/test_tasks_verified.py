"""A real server with tasks, called without a client and held to its recording."""

from __future__ import annotations

from pathlib import Path

from processes import PEERS, PROGRAM, PYTHON, listening, record_command, run, run_at

SERVER = (*PYTHON, str(PEERS / "server_tasks.py"))
CLIENT = (*PYTHON, str(PEERS / "client_tasks.py"))
RULES = """
[[rule]]
tool = "book"
message = "Whose name?"
action = "accept"
content = { name = "Ada" }

[[rule]]
message = "Which address?"
action = "accept"
content = { mail = "ada@example.com" }

[[rule]]
message = "Which meal for Ada?"
action = "accept"
content = { meal = "soup" }
"""


def test_unchanged_server_is_the_same_over_http_and_pipes(tmp_path: Path) -> None:
    """Tasks that ask twice, fail, are cancelled and are left; the ids and the pace are others."""
    cassette = tmp_path / "tasks.json"
    with listening(SERVER) as server:
        done = run_at(record_command(server.url, cassette), CLIENT)

    assert done.code == 0, done.stderr

    with listening(SERVER) as server:
        over_http = run((*PROGRAM, "verify", str(cassette), server.url))

    on_pipes = run((*PROGRAM, "verify", str(cassette), "--", *SERVER, "--stdio"))
    for verified in (over_http, on_pipes):
        assert verified.code == 0, verified.stdout + verified.stderr
        assert "9 interactions: 9 same" in verified.stdout


def test_changed_question_of_a_task_is_not_answered(tmp_path: Path) -> None:
    """It is told with its turn; what the sources answered while recording is recorded."""
    cassette = tmp_path / "tasks.json"
    rules = tmp_path / "answers.toml"
    rules.write_text(RULES)
    with listening(SERVER) as server:
        book = (server.url, "book", "seats:=2", "--answers", str(rules))
        done = run((*PROGRAM, "call", *book, "--record", str(cassette)))

        assert (done.code, done.stdout) == (0, "2 seats, soup\n")
        assert "answered by rule 3" in done.stderr

        edited = cassette.read_text().replace(
            "Which meal for Ada?", "Which drink for Ada?"
        )
        cassette.write_text(edited)

        assert run((*PROGRAM, "check", str(cassette), "--fix")).code == 0

        verified = run((*PROGRAM, "verify", str(cassette), server.url))

    assert verified.code == 1
    assert 'tools/call "book": question-changed' in verified.stdout
    assert (
        "turn 2 /inputRequests/task:1/params/message: question-changed"
        in verified.stdout
    )
