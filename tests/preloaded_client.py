"""Asks the server of tests/preloaded.py for a command: SOCKET COMMAND ARGUMENT...

Stands in the command's place for who starts it: same files, same exit status. Imports next to
nothing, so that it takes no time.
"""

import json
import os
import socket
import sys


def main() -> int:
    place, name, *arguments = sys.argv[1:]
    request = {
        "name": name,
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    content = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        socket.send_fds(connection, [f"{len(content)}\n".encode()], [0, 1, 2])
        connection.sendall(content)
        status = connection.makefile().readline()
    code = int(status or 1)
    if code < 0:  # ended by a signal: end by the same
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
