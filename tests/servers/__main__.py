"""Install the servers that are missing, say what could not be installed, and run the tests of the tier.

``python -m tests.servers [PYTEST ARGUMENT…]``. It needs a package index, and some 1.5 GB.
"""

import sys

import pytest

from tests.servers.installed import FOLDER, install

if __name__ == "__main__":
    missing = install()
    print(f"Servers are in {FOLDER}.", *(f"Not installed: {one}" for one in missing), sep="\n")
    sys.exit(pytest.main(["-m", "servers", "tests", *sys.argv[1:]]))
