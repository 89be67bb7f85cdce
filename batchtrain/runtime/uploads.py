"""uploads.py DIRECTORY TASK: uploads what is new in stdout.txt and stderr.txt of a detached task, every minute.

BATCHTRAIN_RESULTS_TOKEN is the URL of the container of the run, with a signature that only writes. The lines of each
start of the task become append blobs below live/TASK/START/, so that what a lost node printed is not lost with it. It
ends with its stdin. What cannot be sent now is sent a minute later. Standard library, Python 3.6 or later.
"""

import contextlib
import http.client
import os
import select
import sys
import time
import urllib.error
import urllib.request

TOKEN = "BATCHTRAIN_RESULTS_TOKEN"
FILES = ("stdout.txt", "stderr.txt")
SECONDS = 60.0
BLOCK = 4 << 20
"""Most bytes of one request."""
MOST = 256 << 20
"""Bytes of a file that are uploaded."""
PATIENCE = 30
"""Seconds of one request."""


def put(url: str, body: bytes, **headers: str) -> None:
    """Raises OSError."""
    request = urllib.request.Request(url, data=body, method="PUT")
    request.add_header("x-ms-version", "2020-10-02")
    request.add_header("Content-Type", "application/octet-stream")
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    urllib.request.urlopen(request, timeout=PATIENCE).close()


class Upload:
    """A file that grows, and the blob that has its lines from `start` on."""

    def __init__(self, path: str, url: str, query: str) -> None:
        self.path, self.url, self.query = path, url, query
        self.begun, self.unanswered = False, 0
        """unanswered: bytes of the last request without an answer, or with an error; the blob may have them."""
        self.start = self.position = os.stat(path).st_size if os.path.exists(path) else 0

    def send_new(self) -> None:
        """Raises OSError."""
        if not self.begun:
            put(self.url + "?" + self.query, b"", x_ms_blob_type="AppendBlob")
            self.begun = True
        with open(self.path, "rb") as file:
            file.seek(self.position)
            while self.position - self.start < MOST:
                data = file.read(self.unanswered or BLOCK)
                if not data:
                    return
                self.append(data)
                self.position += len(data)

    def append(self, data: bytes) -> None:
        """Raises OSError and HTTPException. A block that the blob has already is refused by its position."""
        offset = str(self.position - self.start)
        try:
            put(self.url + "?comp=appendblock&" + self.query, data, x_ms_blob_condition_appendpos=offset)
        except urllib.error.HTTPError as error:
            if error.code >= 500:  # it may be there in spite of that
                self.unanswered = len(data)
            if error.code != 412 or not self.unanswered:
                raise
        except (OSError, http.client.HTTPException):
            self.unanswered = len(data)
            raise
        self.unanswered = 0


def main(directory: str, task: str) -> None:
    container, _, query = os.environ[TOKEN].partition("?")
    seconds = float(os.environ.get("BATCHTRAIN_UPLOAD_SECONDS") or SECONDS)
    folder = "{}/live/{}/{:.0f}/".format(container, task, time.time() * 1000)
    uploads = [Upload(os.path.join(directory, name), folder + name, query) for name in FILES]
    while True:
        for upload in uploads:
            with contextlib.suppress(OSError, http.client.HTTPException):
                upload.send_new()
        if select.select([0], [], [], seconds)[0]:
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
