"""The reference server on standard streams: reference.py FOLDER, with FOLDER the unpacked source of the SDK.

Knows nothing of the gateway, which starts it.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "examples/servers/everything-server"))

from mcp_everything_server.server import mcp  # noqa: E402

mcp.run("stdio")
