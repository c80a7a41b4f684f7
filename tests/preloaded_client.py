"""Ask the server of tests/preloaded.py to run a command: SOCKET COMMAND ARGUMENT...

It replaces the command for its caller, with the same files and exit status. It imports almost
nothing, so that it starts quickly.
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
    if code < 0:  # the command was ended by a signal, so end by the same one
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
