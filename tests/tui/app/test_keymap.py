"""Keys that the user has changed: what they do, what the screen says of them, and what is refused."""

from collections.abc import Iterator

import pytest
from textual.binding import Binding
from textual.widgets import TextArea

from chatops.domain.errors import ConfigError
from chatops.tui.app import ChatopsApp
from chatops.tui.commands.help import help_text
from chatops.tui.composer import Composer
from chatops.tui.dialogs.picker import Picker
from chatops.tui.dialogs.text import TextScreen
from chatops.tui.keys import DEFAULTS, KEYS, KeyHint, KeyLegend, Keymap, use_keymap
from chatops.tui.screens.chat import ChatScreen
from tests.support.cases import for_each
from tests.tui.app.fakes import pending_call
from tests.tui.app.support_app import stage

CHANGED = {"role": ["f5", "ctrl+e"], "newline": ["ctrl+n"], "help": ["alt+h"], "pending": ["ctrl+r"]}


async def test_changed_keys_do_what_they_are_chosen_for_and_the_old_ones_no_longer() -> None:
    async with stage(keys=CHANGED, size=(80, 40)) as running:
        await running.press("ctrl+g")
        assert running.app.screen is running.app.chat
        for key in ("f5", "ctrl+e"):
            await running.press(key)
            assert isinstance(running.app.screen, Picker)
            await running.press("escape")
        await running.press("a", "ctrl+n", "b")
        assert running.draft == "a\nb"


async def test_help_and_hints_name_the_keys_in_force() -> None:
    async with stage(keys=CHANGED, size=(100, 60)) as running:
        assert "F5  another role" in running.text
        assert "ctrl+n newline" in running.text
        await running.press("alt+h")
        assert isinstance(running.app.screen, TextScreen)
        assert "F5 / ctrl+e" in running.text
        assert "ctrl+r open what is pending" in " ".join(running.text.split())
        assert "ctrl+g" not in running.text


async def test_sentences_name_the_keys_in_force() -> None:
    async with stage(keys={"pending": ["f7"], "interrupt": ["f8"], "quit": ["f9"]}, size=(100, 40)) as running:
        assert "F9 quits" in running.text
        running.session.ask(pending_call())
        await running.settle()
        await running.press("escape")
        assert "1 approval pending – F7" in running.text
        await running.press("f8")
        assert "F8 again quits" in running.text
        assert "ctrl+g" not in running.text and "ctrl+c" not in running.text and "ctrl+q" not in running.text


@pytest.mark.more
async def test_a_dialog_keeps_its_keys_and_opens_the_help_with_the_chosen_one() -> None:
    async with stage(keys={"next-role": ["f6"], "help": ["alt+h"]}) as running:
        running.session.ask(pending_call(), pending_call(2))
        await running.settle()
        await running.press("tab", "shift+tab")
        assert running.dialog_is_open
        await running.press("alt+h")
        assert isinstance(running.app.screen, TextScreen)


@for_each(
    ("keys", "message"),
    [
        ({"rol": ["f5"]}, "no key with the id rol. Did you mean role?"),
        ({"x": ["f5"]}, "There are: role, "),
        ({"role": ["ctrl+g"]}, "ctrl+g would be both pending and role"),
        ({"role": ["f5"], "help": ["F5"]}, "F5 would be both role and help"),
        ({"role": ["r"]}, "role cannot be 'r'"),
        ({"role": ["Enter"]}, "role cannot be 'Enter'"),
        ({"role": ["ctl+e"]}, "role cannot be 'ctl+e'"),
        ({"role": ["ctrl+i"]}, "terminals send it for Tab"),
        ({"role": []}, "role has no key"),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_its_reason(keys: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Keymap(keys)
    assert message in str(refused.value)


def test_two_ids_can_change_places() -> None:
    keymap = Keymap({"role": ["ctrl+g"], "pending": ["Ctrl+R"]})
    assert keymap.translated("ctrl+g", in_dialog=False) == "ctrl+r"
    assert (keymap.labels("role"), keymap.labels("pending")) == (["ctrl+g"], ["ctrl+r"])


@pytest.mark.usefixtures("swapped")
def test_a_legend_names_swapped_keys_once_and_keys_of_dialogs_stay() -> None:
    keys = [KeyHint(does="pending", id="pending"), KeyHint(does="role", id="role"), KeyHint("ctrl+s", "checks them")]
    assert KeyLegend([keys]).draw().plain == "ctrl+r pending   ctrl+g role   ctrl+s checks them"
    assert "next call; shift+Tab, Left: the one before" in help_text()


@pytest.fixture
def swapped() -> Iterator[None]:
    changes = {"role": ["ctrl+g"], "pending": ["ctrl+r"], "correct": ["ctrl+x"], "next-role": ["f6"]}
    use_keymap(Keymap({**changes, "quit": ["ctrl+k"], "help": ["ctrl+c"], "interrupt": ["f1"]}))
    yield
    use_keymap(Keymap())


async def test_a_refused_keymap_is_named_and_the_default_keys_hold() -> None:
    async with stage(keys={"role": ["ctrl+g"]}, size=(120, 24)) as running:
        assert "settings.yaml: keys: ctrl+g would be both pending and role." in running.text
        await running.press("ctrl+r")
        assert isinstance(running.app.screen, Picker)


def test_each_key_of_app_and_chat_can_be_changed() -> None:
    bindings = [one for where in (ChatopsApp, ChatScreen) for one in where.BINDINGS]
    keys = {one.key if isinstance(one, Binding) else one[0] for one in bindings}
    assert keys <= set(DEFAULTS.values())


def test_each_id_has_a_key_of_its_own_that_the_help_explains_and_the_message_field_leaves_alone() -> None:
    assert len(set(DEFAULTS.values())) == len(DEFAULTS)
    texts = " ".join(f"{name} {does}" for group in KEYS.values() for name, does in group.items())
    assert [id for id in DEFAULTS if f"{{{id}}}" not in texts] == []
    passed_on = {one[0] for one in ChatScreen.BINDINGS if not isinstance(one, Binding)}
    field = [one.key if isinstance(one, Binding) else one[0] for one in (*TextArea.BINDINGS, *Composer.BINDINGS)]
    assert not passed_on & {key for keys in field for key in keys.split(",")}, "give it priority"
