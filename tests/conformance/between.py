"""Client leg: puts a gateway between the suite's server and the reference host.

Usage: between.py SETTINGS URL. The suite runs it as "the client" and appends the URL of its server, whose only downstream
entry that becomes; the reference host is then run at the gateway, with the environment that the suite gave. Its exit code is
passed on, and left in the file `ended` in the folder of the settings; what went wrong with the gateway itself, in `trouble`.
"""

import json
import pathlib
import subprocess
import sys

from gateway import Gateway, Trouble, plain_env


def main(settings, url):
    settings = json.loads(settings)
    folder = pathlib.Path(settings["folder"])
    host = [sys.executable, settings["host"]]

    def run(target):
        try:
            code = subprocess.run([*host, target], env=plain_env(), timeout=settings["limit"], check=False).returncode
        except subprocess.TimeoutExpired:
            raise Trouble(f"the host did not end within {settings['limit']} s") from None
        (folder / "ended").write_text(str(code))
        return code

    try:
        if not settings["binary"]:
            return run(url)
        gateway = Gateway(settings["binary"], {"suite": {"url": url, "prefix": ""}}, folder)
        try:
            return run(gateway.url)
        finally:
            gateway.stop()
    except Trouble as error:
        (folder / "trouble").write_text(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
