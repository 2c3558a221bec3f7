"""Install the servers that are missing, say what could not be installed, and run the tests of the tier.

``python -m tests.servers [--open-webui] [PYTEST ARGUMENT…]``. It needs a package index and some 1.5 GB; with Open WebUI
3 GB more.
"""

import sys

import pytest

from tests.servers.installed import FOLDER, install

LARGE_FLAG = "--open-webui"

if __name__ == "__main__":
    arguments = [one for one in sys.argv[1:] if one != LARGE_FLAG]
    missing = install(large=LARGE_FLAG in sys.argv)
    print(f"Servers are in {FOLDER}.", *(f"Not installed: {one}" for one in missing), sep="\n")
    sys.exit(pytest.main(["-m", "servers", "tests", *arguments]))
