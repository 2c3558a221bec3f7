"""The terminal is asked for its background, and the theme follows."""

from tests.e2e.installation import Installation


def test_the_terminal_is_asked_and_its_answer_is_no_key(installation: Installation) -> None:
    with installation.open() as terminal:
        terminal.wait_until(lambda _: b"\x1b]11;?\x1b\\" in terminal.raw, what="the query")
        terminal.send("\x1b]11;rgb:ffff/ffff/ffff\x1b\\")
        terminal.wait_until(lambda _: b"48;2;251;251;249" in terminal.raw, what="the light theme")
        assert "rgb" not in terminal.text()
