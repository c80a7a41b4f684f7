"""A local web server for files, which can send a part of a file."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serve(folder: Path, parts: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Serve the files of a folder, or parts of them on request.

    Yields the address, and a list to which each requested range is added.
    """
    ranges: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = folder / self.path.lstrip("/")
            whole = path.read_bytes() if path.is_file() else b""
            requested = self.headers.get_all("Range", [])
            ranges.extend(requested)
            start = int(requested[0].strip("bytes=-")) if requested and parts else 0
            if start >= len(whole):
                self.send_error(416 if whole else 404)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
            self.send_header("Content-Length", str(len(whole) - start))
            self.end_headers()
            self.wfile.write(whole[start:])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", ranges
        finally:
            server.shutdown()
