"""No key that chatops knows enters a row, in whatever spelling; nothing that was stored is lost or changed by that."""

import base64
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from chatops.domain.known_keys import HIDDEN, add_known_keys, is_distinctive, spellings, without_keys
from chatops.engine.state import CallState
from chatops.store import audit
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.support.cases import for_each

KEY = 'pq9-Kv/7"Xw+31zT'
SPELLED = {
    "as it is": KEY,
    "percent": quote(KEY, safe=""),
    "hex": KEY.encode().hex(),
    "HEX": KEY.encode().hex().upper(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "basic": base64.b64encode(f"user:{KEY}".encode()).decode(),
    "bearer, of a URL": base64.urlsafe_b64encode(f"Bearer {KEY}".encode()).decode(),
    "JSON": json.dumps({"key": KEY}),
    "JSON in JSON": json.dumps(json.dumps(KEY)),
    "JSON of PHP": json.dumps(KEY).replace("/", "\\/"),
    "HTML": KEY.replace('"', "&quot;"),
}
# The ends of a base64 text depend on what surrounds the key, so that its first and last bytes may stay.
FORMS = [form.encode() for form in spellings([KEY])]


def test_no_row_holds_a_known_key(tmp_path: Path) -> None:
    assert without_keys(KEY) == KEY
    add_known_keys(KEY)
    path, text = tmp_path / "chatops.db", " | ".join(SPELLED.values())
    with closing(Store(path)) as store:
        session = store.create_session(workspace="/w", role="coder", persona="", title=f"about {KEY}")
        turn = store.next_turn_id(session.id)
        begun = kit.first(turn, session.id, text=text)
        held = replace(begun.state, grant=replace(begun.state.grant, prompt=text))
        begun = replace(begun, state=held)
        store.commit(begun)
        call = replace(kit.a_call(turn), arguments=json.dumps({"command": text}))
        asked = kit.then(begun, kit.in_round(CallState(call=call, status=kit.awaiting())))
        store.commit(asked)
        over = kit.then(asked, kit.finished(text), kit.assistant(turn, text), results=())
        store.commit(over)
        store.commit(over)
        store.set_setting("draft", text)

        assert {HIDDEN in str(message) for message in store.history(session.id)} == {True}
        assert not kit.problems(store)
        rows = store.audit()
        assert audit.verify(rows, ())[0] == []
        (prompt,) = (entry for row in rows if (entry := audit.entry_of(row.body))["kind"] == "prompt")
        stored = store.history(session.id)[0]
        assert prompt["sha256"] == audit.sha256(getattr(stored, "text", ""))
        files = [path, *tmp_path.glob("chatops.db-*")]
        assert [form for form in FORMS for file in files if form in file.read_bytes()] == []


def test_a_turn_is_loaded_again_with_a_grant_that_held_a_key(tmp_path: Path) -> None:
    add_known_keys(KEY)
    with closing(Store(tmp_path / "chatops.db")) as store:
        session = store.create_session(workspace="/w", role="coder", persona="", title="t")
        begun = kit.first(store.next_turn_id(session.id), session.id)
        store.commit(replace(begun, state=replace(begun.state, grant=replace(begun.state.grant, prompt=KEY))))
        assert store.load_turn(begun.state.turn_id).grant.prompt == HIDDEN


@for_each("key", ["test", "ollama", "none", "password", "a1b2c3d", "letmeinplease", ""])
def test_what_could_be_a_word_is_no_known_key(key: str) -> None:
    add_known_keys(key)
    assert not is_distinctive(key)
    assert without_keys(f"the {key} is {key}") == f"the {key} is {key}"


@for_each("spelled", SPELLED.values())
def test_a_key_is_found_in_each_spelling(spelled: str) -> None:
    add_known_keys(KEY)
    hidden = without_keys(f"before {spelled} after")
    assert HIDDEN in hidden and not any(form.decode() in hidden for form in FORMS)
    assert without_keys(hidden) == hidden
    assert hidden.startswith("before ") and hidden.endswith(" after")
