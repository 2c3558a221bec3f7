"""docs/configuration.md says what the code says, and says it of every key."""

from chatops.config.document import keys_of
from chatops.config.registry_read import RegistryFile
from tests.docs.reference import PAGE, page


def test_the_page_is_as_the_code_says() -> None:
    """After a change: ``python -m tests.docs.reference``."""
    assert PAGE.read_text() == page()


def test_every_key_of_the_registry_is_on_it() -> None:
    text = PAGE.read_text()
    for name in keys_of(RegistryFile):
        assert f"| `{name}` |" in text
