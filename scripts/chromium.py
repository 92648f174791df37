# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A headless Chromium for tests of pages, asked by the DevTools protocol over its pipe (--remote-debugging-pipe: it reads
descriptor 3 and writes 4, and a zero byte ends a message). What cannot be is an AssertionError."""
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time


def find_browser():
    """Its path, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
    return next(filter(None, map(shutil.which, names)), None)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


class Browser:
    """Shows one address. `limit`: seconds for whatever is waited for. `complaints`: exceptions of the page's scripts and
    entries of the browser's log, which has what breaks the page's policy."""

    def __init__(self, program, address, limit):
        self.limit = limit
        self.pending, self.number, self.session, self.complaints = b"", 0, None, []
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-chromium-", ignore_cleanup_errors=True)
        folder = pathlib.Path(self.folder.name)
        # Above 4, so that neither of them is in the way of the child's 3 and 4.
        pipes = [end for pair in (os.pipe(), os.pipe()) for end in pair]
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pipes]
        self.output, self.input = ends[1], ends[2]
        self.log = open(folder / "browser.log", "w+")
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={folder / 'profile'}", "--window-size=1000,1000", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, close_fds=False,
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[3], 4)))
        for end in (*pipes, ends[0], ends[3]):  # only now: what Popen itself opened was not to get 3 or 4
            os.close(end)
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Runtime", "Log", "DOM", "Page"):
                self.ask(f"{domain}.enable")
            self.ask("Page.navigate", url=address)
        except BaseException:
            self.close()
            raise

    def said(self):
        """The end of what the browser printed."""
        self.log.seek(0)
        return self.log.read()[-3000:]

    def receive(self, end):
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.input], [], [], max(0, end - time.monotonic()))
            data = os.read(self.input, 1 << 16) if ready else b""
            check(data, f"the browser does not answer, its code is {self.process.poll()}\n{self.said()}")
            self.pending += data
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.limit
        while True:
            answer = self.receive(end)
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(answer["params"])[:1000])
            if answer.get("id") == self.number:
                check("result" in answer, f"{method}: {answer}")
                return answer["result"]

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        check("exceptionDetails" not in result, f"{expression}: {result}")
        return result["result"].get("value")

    def wait_for(self, expression, what):
        """Its value once that counts as true."""
        end = time.monotonic() + self.limit
        while not (value := self.value(expression)):
            check(time.monotonic() < end,
                  f"{what} does not come; the page says {self.value('document.body.innerText')!r}; {self.complaints}")
            time.sleep(0.05)
        return value

    def close(self):
        os.close(self.output)
        os.close(self.input)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.said())
        self.close()
