"""A local web server for files, which can send a part of a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serve(folder: Path, parts: bool = True) -> Iterator[str]:
    """Serve the files of a folder, or parts of them on request, and yield the address.

    ``serve.ranges`` lists the requested ranges.
    """
    serve.ranges = []  # type: ignore[attr-defined]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = folder / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            content = path.read_bytes()
            requested = self.headers.get("Range")
            if requested:
                serve.ranges.append(requested)  # type: ignore[attr-defined]
            start = int(requested.removeprefix("bytes=").rstrip("-")) if requested and parts else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                end = f"{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", f"bytes {start}-{end}")
            content = content[start:]
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
