#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Watches real runs as people do: on a terminal (a pseudo terminal, whose screen is kept here), by the page, and in a
headless browser where one is installed; presses keys and looks at what becomes of the run.

    dashboards.py CASE --trainer PROGRAM --watch PROGRAM [--shepherd PROGRAM --worker PROGRAM --prepare PROGRAM] [--picture FILE]
"""
import argparse
import base64
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from chromium import Browser, find_browser  # noqa: E402

LIMIT = 60  # seconds, for whatever is waited for
ROWS, COLUMNS = 36, 110
TRAIN = ["--layers", "2", "--channels", "32", "--heads", "4", "--sequence", "32", "--vocabulary", "61", "--learning-rate", "3e-3",
         "--warmup", "3", "--threads", "1", "--batch", "2", "--backend", "threads", "--ranks", "2", "--validate-every", "50",
         "--validation-batches", "1"]
ENDLESS = ["--steps", "1000000"]


def fail(text):
    raise AssertionError(text)


def check(condition, text):
    if not condition:
        fail(text)


def write_shard(path, count, seed):
    """Tokens with some order in them, in llm.c's format."""
    draw, tokens = random.Random(seed), [0]
    while len(tokens) < count:
        tokens.append((tokens[-1] * 7 + 3) % 61 if draw.random() < 0.7 else draw.randrange(61))
    path.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *tokens))


class Terminal:
    """A program on a pseudo terminal, and the screen that it draws: of a VT100 as much as ncurses uses with TERM=vt100 or
    xterm."""
    begun = []

    def __init__(self, words, environment=None, rows=ROWS, columns=COLUMNS):
        self.rows, self.columns = rows, columns
        self.screen, self.row, self.column = [[" "] * columns for _ in range(rows)], 0, 0
        self.raw, self.pending, self.bytes, self.last = b"", "", b"", " "
        self.styles, self.style = [[""] * columns for _ in range(rows)], ""
        pid, self.file = pty.fork()
        if pid == 0:
            for one in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):  # whoever started the tests may ignore them
                signal.signal(one, signal.SIG_DFL)
            os.environ.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})})
            os.environ.pop("NO_COLOR", None) if "NO_COLOR" not in (environment or {}) else None
            os.execv(words[0], [str(word) for word in words])
        self.pid, self.code = pid, None
        Terminal.begun.append(self)
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.file)

    def resize(self, rows, columns):
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        grid = [[" "] * columns for _ in range(rows)]
        styles = [[""] * columns for _ in range(rows)]
        for r in range(min(rows, self.rows)):
            grid[r][:min(columns, self.columns)] = self.screen[r][:min(columns, self.columns)]
        self.screen, self.styles, self.rows, self.columns = grid, styles, rows, columns

    def read(self, seconds=0.1):
        """False once the program is gone."""
        ready, _, _ = select.select([self.file], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.file, 65536)
        except OSError:
            data = b""
        if not data:
            return False
        self.raw += data
        self.draw(data)
        return True

    def draw(self, data):
        # Bytes that were not whole characters wait.
        self.bytes += data
        try:
            text, self.bytes = self.bytes.decode(), b""
        except UnicodeDecodeError as error:
            text, self.bytes = self.bytes[:error.start].decode(), self.bytes[error.start:]
        text = self.pending + text
        self.pending = ""
        at = 0
        while at < len(text):
            c = text[at]
            if c == "\x1b":
                found = re.compile(r"\x1b(?:\[([?>]?)([\d;]*)([A-Za-z@`])|\][^\x07]*\x07|[()][A-Z0-9]|[=>78MDEcHZ])").match(text, at)
                if not found:
                    if len(text) - at > 200:
                        fail(f"an escape sequence that this test does not know: {text[at:at + 20]!r}")
                    self.pending = text[at:]
                    return
                self.obey(found)
                at = found.end()
                continue
            at += 1
            if c == "\r":
                self.column = 0
            elif c == "\n":
                if self.row == self.rows - 1:
                    self.scroll()
                else:
                    self.row += 1
            elif c == "\b":
                self.column = max(0, self.column - 1)
            elif c == "\t":
                self.column = min(self.columns - 1, (self.column // 8 + 1) * 8)
            elif c >= " ":
                self.put(c)

    def put(self, c):
        if self.column >= self.columns:
            self.column = 0
            if self.row == self.rows - 1:
                self.scroll()
            else:
                self.row += 1
        if self.row < self.rows:
            self.screen[self.row][self.column] = c
            self.styles[self.row][self.column] = self.style
        self.last = c
        self.column += 1

    def scroll(self):
        self.screen = self.screen[1:] + [[" "] * self.columns]
        self.styles = self.styles[1:] + [[""] * self.columns]

    def obey(self, found):
        private, words, letter = found[1], found[2], found[3]
        numbers = [int(word) if word else 0 for word in (words or "").split(";")]
        n = max(1, numbers[0])
        blank = lambda r, a, b: (self.screen[r].__setitem__(slice(a, b), [" "] * (b - a)),
                                 self.styles[r].__setitem__(slice(a, b), [""] * (b - a)))
        if letter is None or private:
            return
        row, column = min(self.row, self.rows - 1), min(self.column, self.columns - 1)
        if letter == "H":
            self.row = min(self.rows, n) - 1
            self.column = min(self.columns, max(1, numbers[1] if len(numbers) > 1 else 1)) - 1
        elif letter == "d":
            self.row = min(self.rows, n) - 1
        elif letter in "G`":
            self.column = min(self.columns, n) - 1
        elif letter == "A":
            self.row = max(0, row - n)
        elif letter == "B":
            self.row = min(self.rows - 1, row + n)
        elif letter == "C":
            self.column = min(self.columns - 1, column + n)
        elif letter == "D":
            self.column = max(0, column - n)
        elif letter == "J":
            for r in range(row if numbers[0] == 0 else 0, self.rows):
                blank(r, column if r == row and numbers[0] == 0 else 0, self.columns)
        elif letter == "K":
            blank(row, 0 if numbers[0] else column, self.columns if numbers[0] != 1 else column + 1)
        elif letter == "X":
            blank(row, column, min(self.columns, column + n))
        elif letter == "b":
            for _ in range(n):
                self.put(self.last)
        elif letter == "P":
            self.screen[row] = (self.screen[row][:column] + self.screen[row][column + n:] + [" "] * n)[:self.columns]
        elif letter == "@":
            self.screen[row] = (self.screen[row][:column] + [" "] * n + self.screen[row][column:])[:self.columns]
        elif letter == "L":
            for _ in range(n):
                self.screen.insert(row, [" "] * self.columns), self.screen.pop()
        elif letter == "M":
            for _ in range(n):
                self.screen.pop(row), self.screen.append([" "] * self.columns)
        elif letter == "m":
            for number in numbers:
                self.style = "" if number in (0, 39, 10) else f"{self.style} {number}".strip()

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.screen)

    def wait_for(self, *parts, without=None, pattern=""):
        """The screen once it holds every part, a match of `pattern` and nothing of `without`."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            text = self.text()
            if all(part in text for part in parts) and re.search(pattern, text) and (without is None or without not in text):
                return text
            if not self.read():
                fail(f"the program ended before {parts} {pattern} was seen:\n{self.text()}")
        fail(f"{parts} {pattern} was never seen:\n{self.text()}")

    def press(self, keys):
        os.write(self.file, keys.encode())

    def finish(self):
        """What it printed since, and its exit code."""
        end = time.monotonic() + LIMIT
        while self.read() and time.monotonic() < end:
            pass
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                return self.code
            time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        fail(f"it does not end:\n{self.text()}")

    def check_restored(self):
        check(self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h") >= 0, "the former screen was not given back")
        check(self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l") or b"\x1b[?12l\x1b[?25h" in self.raw[-4000:],
              "the cursor stays hidden")


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        write_shard(folder / "train.bin", 6000, 1)
        write_shard(folder / "validation.bin", 500, 2)
        self.processes = []

    def command(self, out, *words):
        return [self.options.trainer, *TRAIN, "--data", str(self.folder / "train.bin"), "--validation-data",
                str(self.folder / "validation.bin"), "--out", str(out), *words]

    def start(self, out, *words):
        """A run whose output goes to a file beside its folder."""
        said = out.with_suffix(".log")
        process = subprocess.Popen(self.command(out, *words), stdout=open(said, "w"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        process.said = said
        self.processes.append(process)
        return process

    def rows(self, out, kind):
        try:
            return [row for row in map(json.loads, open(out / "metrics.jsonl")) if row["type"] == kind]
        except (OSError, json.JSONDecodeError):
            return []

    def until(self, holds, what, process=None):
        end = time.monotonic() + LIMIT
        while not holds():
            check(process is None or process.poll() is None, f"the run ended before {what}: {process and process.said.read_text()}")
            check(time.monotonic() < end, f"{what} never came")
            time.sleep(0.05)

    def address(self, process):
        found = lambda: re.search(r"^dashboard  (http://127[.]0[.]0[.]1:\d+/#[0-9a-f]{32})\n", process.said.read_text(), re.M)
        self.until(found, "the address of the page", process)
        return found()[1]

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def get(address, path, headers=None, data=None):
    request = urllib.request.Request(address.split("#")[0].rstrip("/") + path, data=data, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def case_terminal(bench):
    """--dashboard draws the run; p pauses it and lets it go on, c keeps a checkpoint, q stops it; the terminal is as before."""
    out = bench.folder / "run"
    view = Terminal(bench.command(out, *ENDLESS, "--dashboard"))
    text = view.wait_for("training", "validation", "tok/s", "left", "rank 0", "rank 1", "processors busy", "q stop", "p pause",
                         f"{out}")
    check(re.search(r"step \d+ of 1000000", text), text)
    check("2 layers, 32 channels" in text, text)
    view.wait_for(pattern=r"step \d+: validation loss")  # which one: as fast as the machine is
    check(re.search("[\u2801-\u28ff]{2}", view.text()), f"no curve:\n{view.text()}")
    view.press("p")
    view.wait_for("paused", "p continue")
    bench.until(lambda: json.loads((out / "status.json").read_text()).get("phase") == "paused", "the pause")
    stood = len(bench.rows(out, "step"))
    time.sleep(0.5)
    check(len(bench.rows(out, "step")) == stood, "it goes on while it is paused")
    view.press("c")
    view.wait_for(f"step {stood}: checkpoint")
    check((out / "checkpoints" / f"step_{stood:08}" / "COMPLETE").exists(), "no checkpoint")
    view.press("p")
    view.wait_for("p pause", f"{out}  training")
    bench.until(lambda: len(bench.rows(out, "step")) > stood + 10, "the next steps")
    view.resize(20, 60)
    view.wait_for("loss  training  validation", "q stop")
    check(view.columns == 60 and len(view.text().splitlines()) <= 20, view.text())
    view.press("q")
    code = view.finish()
    check(code == 0, f"exit code {code}:\n{view.text()}")
    view.check_restored()
    check(bench.rows(out, "end")[0]["reason"] == "SIGINT", "it was not stopped as by Ctrl-C")
    check(b"stopped by SIGINT after step" in view.raw.replace(b"\r\n", b"\n").split(b"\x1b[?1049l")[-1], "its last words are not shown")
    done = bench.rows(out, "end")[0]["step"]
    check((out / "checkpoints" / f"step_{done:08}").exists(), "no checkpoint at the stop")


def case_signals(bench):
    """The terminal is given back by Ctrl-C, by a second one, by SIGQUIT and when the run fails; NO_COLOR and a plain locale count."""
    for name, keys in {"one": "\x03", "two": "\x03\x03", "quit": "\x1c"}.items():
        view = Terminal(bench.command(bench.folder / name, *ENDLESS, "--dashboard"))
        view.wait_for("training", "rank 0")
        view.press(keys[0])
        if len(keys) > 1:
            time.sleep(0.05)
            view.press(keys[1])
        code = view.finish()
        check(code in {"one": [0], "two": [0, 130], "quit": [-signal.SIGQUIT]}[name], f"{name}: {code}")
        view.check_restored()
    view = Terminal(bench.command(bench.folder / "plain", *ENDLESS, "--dashboard"), {"NO_COLOR": "1", "LC_ALL": "C"})
    view.wait_for("training", "rank 0", "|", "#")
    view.press("q")
    check(view.finish() == 0, view.text())
    view.check_restored()
    check(not re.search(rb"\x1b\[[\d;]*3[0-7]m", view.raw), "colours in spite of NO_COLOR")
    check(max(view.raw.split(b"\x1b[?1049l")[0]) < 128, "Unicode in spite of LC_ALL=C")
    view = Terminal(bench.command(bench.folder / "bad", "--steps", "400", "--learning-rate", "1000", "--warmup", "0", "--clip", "0",
                                  "--dashboard"))
    check(view.finish() == 1, view.text())
    view.check_restored()
    check("training has diverged" in view.text(), view.text())


def case_plain(bench):
    """Without a terminal --dashboard is the usual lines and a hint; an unknown terminal gets a sentence."""
    out = bench.folder / "run"
    done = subprocess.run(bench.command(out, "--steps", "20", "--dashboard"), capture_output=True, text=True, timeout=LIMIT,
                          stdin=subprocess.DEVNULL)
    check(done.returncode == 0 and "step 20/20" in done.stdout and "\x1b" not in done.stdout, done.stdout + done.stderr)
    check(f"no terminal, so there are plain lines; in another terminal: ./tutti watch {out}" in done.stdout, done.stdout)
    view = Terminal(bench.command(bench.folder / "unknown", "--steps", "20", "--dashboard"), {"TERM": "no-such-terminal"})
    check(view.finish() == 1, view.text())
    check("ncurses does not know this terminal, TERM=no-such-terminal" in " ".join(view.text().split()), view.text())


def case_folder(bench):
    """watch DIR shows a run that another process does, asks it, and leaves it alone when it quits; without a terminal, lines."""
    out = bench.folder / "run"
    process = bench.start(out, *ENDLESS)
    bench.until(lambda: len(bench.rows(out, "step")) > 5, "the first steps", process)
    # From early on: who comes late is shown the latest events, and the beginning may have left them.
    told = bench.folder / "told"
    with open(told, "w") as file:
        follower = subprocess.Popen([bench.options.watch, out], stdout=file, text=True, stdin=subprocess.DEVNULL)
    bench.processes.append(follower)
    a_step = re.compile(r"^step \d+/1000000  loss ", re.M)
    bench.until(lambda: a_step.search(told.read_text()), "a line of a step")
    view = Terminal([bench.options.watch, out])
    view.wait_for("training", "rank 1", "tok/s", "q quit", "s stop the run")
    view.press("p")
    view.wait_for("paused", "p continue")
    view.press("p")
    view.wait_for("p pause")
    before = len(bench.rows(out, "checkpoint"))
    view.press("c")
    bench.until(lambda: len(bench.rows(out, "checkpoint")) > before, "the checkpoint", process)
    view.press("q")
    check(view.finish() == 0, view.text())
    view.check_restored()
    check(process.poll() is None, "the run has ended with its view")
    once = subprocess.run([bench.options.watch, out, "--once", "--rows", "30", "--columns", "90"], capture_output=True, text=True,
                          timeout=LIMIT)
    lines = once.stdout.splitlines()
    check(once.returncode == 0 and len(lines) == 30 and max(map(len, lines)) <= 90 and "rank 0" in once.stdout, once.stdout)
    view = Terminal([bench.options.watch, out, "--drives"])
    view.wait_for("training", "q stop")
    view.press("q")
    check(view.finish() == 0, view.text())
    process.wait(LIMIT)
    check(bench.rows(out, "end")[0]["reason"] == "SIGINT", "not stopped")
    follower.wait(LIMIT)
    text = told.read_text()
    check("begins\n" in text and "ended: SIGINT\n" in text, text)
    for words, part in {("/nonexistent",): "there is no folder", (str(bench.folder),): "holds no metrics.jsonl",
                        ("localhost:1", "--once"): "does not answer"}.items():
        done = subprocess.run([bench.options.watch, *words], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
        check(done.returncode in (1, 2) and part in done.stderr, f"{words}: {done}")


def case_page(bench):
    """--dashboard-port serves the page and the picture; who has the address asks, nobody else does; watch HOST:PORT shows it."""
    out = bench.folder / "run"
    process = bench.start(out, *ENDLESS, "--dashboard-port", "0")
    address = bench.address(process)
    token = address.split("#")[1]
    bench.until(lambda: json.loads(get(address, "/state")[1])["step"] > 50, "step 50", process)
    status, page, headers = get(address, "/")
    check(status == 200 and "default-src 'none'" in headers["Content-Security-Policy"] and token not in page, f"{status} {headers}")
    state = json.loads(get(address, "/state")[1])
    check(len(state["workers"]) == 2 and state["losses"] and state["name"] == str(out), str(state)[:500])
    check(get(address, "/command", data=b"stop")[0] == 403, "asked without the token")
    check(get(address, "/command", {"X-Tutti-Token": token, "Origin": "http://evil.example"}, b"stop")[0] == 403, "another page asks")
    check(get(address, "/state", {"Host": "evil.example"})[0] == 403, "another name of this machine")
    check(get(address, "/command", {"X-Tutti-Token": token}, b"pause")[0] == 200, "not asked")
    bench.until(lambda: json.loads(get(address, "/state")[1])["phase"] == "paused", "the pause", process)
    view = Terminal([bench.options.watch, address])
    view.wait_for("paused", "rank 1", "p continue")
    view.press("p")
    view.wait_for(f"{out}  training")
    view.press("q")
    check(view.finish() == 0, view.text())
    view = Terminal([bench.options.watch, address.split("#")[0]])
    view.wait_for("training")
    view.press("c")
    view.wait_for("watch the whole address")
    view.press("q")
    view.finish()
    check(get(address, "/command", {"X-Tutti-Token": token}, b"stop")[0] == 200, "not asked")
    process.wait(LIMIT)
    check(process.returncode == 0 and bench.rows(out, "end")[0]["reason"] == "SIGINT", "not stopped")


def case_browser(bench):
    """The page in headless Chromium: curves, ranks and events are drawn, and its own policy is kept."""
    program = find_browser()
    if not program:
        print("SKIPPED: there is no Chromium. Install chromium, to see the page in a browser")
        sys.exit(77)
    out = bench.folder / "run"
    process = bench.start(out, *ENDLESS, "--dashboard-port", "0")
    address = bench.address(process)
    bench.until(lambda: json.loads(get(address, "/state")[1])["step"] > 60, "step 60", process)

    with Browser(program, address, LIMIT) as page:
        page.wait_for("/^M[0-9. L]+$/.test(document.querySelector('path.train')?.getAttribute('d'))", "the curve")
        text = page.value("document.body.innerText")
        for part in ("rank 0", "rank 1", "tokens a second", "validation loss", "step ", str(out)):
            check(part in text, f"no {part}:\n{text}")
        check(not page.value("document.getElementById('pause').disabled"), "with the whole address the buttons work")
        shown = "document.getElementById('progress-text').textContent"
        first = page.value(shown)
        page.wait_for(f"{shown} !== {json.dumps(first)}", "a later step")
        page.value("document.getElementById('pause').click()")
        page.wait_for("document.getElementById('pause').textContent === 'Continue'", "the pause")
        check(not page.complaints, "\n".join(page.complaints))
        if bench.options.picture:
            pathlib.Path(bench.options.picture).write_bytes(base64.b64decode(page.ask("Page.captureScreenshot")["data"]))
    process.send_signal(signal.SIGINT)
    process.wait(LIMIT)


def case_tensorboard(bench):
    """--tensorboard: TensorBoard reads every step of a run that was stopped and resumed once, with the numbers of the metrics."""
    python = os.environ.get("TUTTI_TENSORBOARD_PYTHON")
    if not python:
        print("SKIPPED: TUTTI_TENSORBOARD_PYTHON names no Python with the package tensorboard")
        sys.exit(77)
    out = bench.folder / "run"
    run = lambda *words: subprocess.run(bench.command(out, "--tensorboard", *words), check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
    run("--steps", "12", "--schedule", "constant", "--checkpoint-every", "6")
    run("--steps", "15", "--schedule", "constant", "--resume", "6")
    read = subprocess.run([python, pathlib.Path(__file__).resolve().parent.parent / "io" / "tensorboard_python.py", out / "tensorboard"],
                          capture_output=True, text=True, check=True, timeout=LIMIT).stdout
    found = {line.split()[0]: dict(pair.split("=") for pair in line.split()[1:]) for line in read.splitlines()}
    rows = bench.rows(out, "step")
    check([int(step) for step in found["train/loss"]] == [row["step"] for row in rows] == list(range(1, 16)), read)
    check(all(abs(float(found["train/loss"][str(row["step"])]) - row["loss"]) < 1e-4 for row in rows), read)
    check({"validation/loss", "train/lr", "train/tokens_per_second"} <= set(found), read)
    refused = subprocess.run([word for word in bench.command(out, "--tensorboard") if word not in ("--out", str(out))],
                             capture_output=True, text=True, timeout=LIMIT)
    check(refused.returncode == 2 and "--tensorboard: writes into --out" in refused.stderr, refused.stderr)


def case_federate(bench):
    """A shepherd's workers are shown with state, speed, bytes and address; d drains the chosen one, p gives nobody work, c keeps."""
    options, out = bench.options, bench.folder / "run"
    words = ["shepherd", "worker", "leads", "joins", "leaves", "round", "sample", "lease", "ledger", "gradient"]
    draw = random.Random(5)
    (bench.folder / "text").write_text("\n".join(" ".join(draw.choice(words) for _ in range(12)) + "." for _ in range(3000)))
    subprocess.run([options.prepare, "--input", bench.folder / "text", "--out", bench.folder / "data", "--vocabulary", "300"], check=True,
                   stdout=subprocess.DEVNULL, timeout=LIMIT)
    data = ["--data", str(bench.folder / "data"), "--threads", "1"]
    view = Terminal([options.shepherd, *data, "--layers", "2", "--channels", "32", "--heads", "4", "--sequence", "32", "--batch", "2",
                     "--steps", "1000000", "--workers", "2", "--inner-steps", "40", "--heartbeat", "0.2", "--lost-after", "5", "--port", "0",
                     "--out", str(out), "--dashboard"], columns=140)
    view.wait_for("waiting for workers")
    bench.until(lambda: (out / "shepherd" / "address").exists(), "the address")
    for number in range(2):
        bench.processes.append(subprocess.Popen(
            [options.worker, *data, "--connect", (out / "shepherd" / "address").read_text().strip(), "--patience", "20"],
            stdout=open(bench.folder / f"worker{number}.log", "w"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))
    text = view.wait_for("training", "outer step 3", "quorum", "state", "tok/s", "127.0.0.1:", "d drain", "cpu", "joined")
    names = re.findall(r"^([0-9a-f]{4})  \w", text, re.M)
    check(len(names) == 2, text)
    view.press("\x1bOB")  # the second one
    time.sleep(0.5)
    view.read()
    view.press("d")
    view.wait_for(f"worker {names[1]} left")
    leaver = [process for process in bench.processes if process.poll() is not None]
    end = time.monotonic() + LIMIT
    while not leaver and time.monotonic() < end:
        time.sleep(0.1)
        leaver = [process for process in bench.processes if process.poll() is not None]
    check(len(leaver) == 1 and leaver[0].returncode == 0, "a drained worker ends well")
    view.press("p")
    view.wait_for("paused", "p continue", "0 at work")
    stood = len(bench.rows(out, "outer_step"))
    time.sleep(1)
    check(len(bench.rows(out, "outer_step")) == stood, "rounds go on while it is paused")
    view.press("c")
    view.wait_for(f"outer step {stood}: checkpoint")
    view.press("p")
    view.wait_for("p pause")

    def outer_step():  # a screen shows some of them
        view.read()
        shown = re.search(r"outer step (\d+),", view.text())
        return int(shown[1]) if shown else 0
    bench.until(lambda: outer_step() > stood + 1, "more outer steps")
    view.press("q")
    check(view.finish() == 0, view.text())
    view.check_restored()
    check(bench.rows(out, "end")[0]["reason"] == "stopped", str(bench.rows(out, "end")))


def case_script(bench):
    """./tutti train and federate --dashboard draw a run that is beside the view, under mpiexec too; q stops it; ./tutti watch shows it."""
    options, root, tools = bench.options, bench.folder / "the root", bench.folder / "tools"
    (root / "build" / "examples").mkdir(parents=True)
    (root / "build" / "build.ninja").touch()
    source = pathlib.Path(options.script).resolve().parent
    shutil.copytree(source / "examples", root / "examples")
    shutil.copy(source / "tutti", root / "tutti")
    programs = {"train_gpt2": options.trainer, "watch": options.watch, "prepare_text": options.prepare, "generate": options.prepare,
                "tutti_shepherd": options.shepherd, "tutti_worker": options.worker}
    for name, program in programs.items():
        if program:
            (root / "build" / "examples" / name).symlink_to(os.path.abspath(program))
    tools.mkdir()
    for name, code in {"meson": 0, "ninja": 0, "apt-get": 1, "sudo": 1}.items():  # what would install or build does nothing
        (tools / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    text = bench.folder / "text.txt"
    text.write_text("the cat sat on the mat.\n\nthe dog sat on the cat.\n\n" * 300)
    sizes = "--threads 1 --layers 1 --channels 32 --heads 4 --sequence 32 --batch 2 --vocabulary 300 --steps 100000000".split()
    shell = shutil.which("sh")
    for backend in ["threads"] + (["mpi"] if shutil.which("mpiexec") else []):
        out = bench.folder / backend
        view = Terminal([shell, root / "tutti", "train", "--text", text, "--out", out, "--backend", backend, "--ranks", "2", *sizes,
                         "--dashboard"], environment)
        view.wait_for("training", "rank 0", "rank 1", "tok/s", "q stop", str(out))
        other = Terminal([shell, root / "tutti", "watch", out], environment)
        other.wait_for("rank 1", "q quit")
        other.press("p")
        view.wait_for("paused")
        other.wait_for("p continue")
        other.press("p")
        view.wait_for(f"{out}  training")
        other.press("q")
        check(other.finish() == 0, other.text())
        view.press("q" if backend == "threads" else "\x03")
        code = view.finish()
        check(code == 0, f"{backend}: {code}\n{view.text()}")
        view.check_restored()
        last = view.raw.decode(errors="replace").split("\x1b[?1049l")[-1]
        check("stopped by SIGINT after step" in last and f"checkpoint       {out}" in last and "next  " in last, f"{backend}: {last}")
        check("step 1/100000000" in re.sub(" +", " ", (out / "console.log").read_text()), "no lines beside the view")
    if not options.shepherd:
        return
    out = bench.folder / "together"
    view = Terminal([shell, root / "tutti", "federate", "--workers", "2", "--text", text, "--out", out, *sizes, "--heartbeat", "0.3",
                     "--dashboard"], environment)
    view.wait_for("outer step", "quorum", "d drain", "127.0.0.1:")
    view.press("q")
    code = view.finish()
    check(code == 0, f"{code}\n{view.text()}")
    view.check_restored()
    check("the same command goes on from there" in (out / "console.log").read_text(), (out / "console.log").read_text())


def as_svg(view):
    """The screen as a picture, in the colours of a dark terminal."""
    colours = {"32": "#4ade80", "31": "#f87171", "36": "#4cc9f0", "33": "#fbbf24", "2": "#8b96a3"}
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {view.columns * 7.82 + 20:.0f} {view.rows * 17 + 20}" '
             'font-family="DejaVu Sans Mono, monospace" font-size="13">',
             '<rect width="100%" height="100%" rx="6" fill="#14181d"/>']
    for number, (text, styles) in enumerate(zip(view.screen, view.styles)):
        at = 0
        while at < len(text):
            end = at
            while end < len(text) and styles[end] == styles[at]:
                end += 1
            words = "".join(text[at:end]).rstrip()
            if words:
                style = styles[at].split()
                colour = next((colours[word] for word in reversed(style) if word in colours), "#dde3ea")
                bold = ' font-weight="bold"' if "1" in style else ""
                length = len(words) * 7.82
                words = words.replace("&", "&amp;").replace("<", "&lt;").replace(" ", "\u00a0")
                lines.append(f'<text x="{10 + at * 7.82:.2f}" y="{24 + number * 17}" fill="{colour}"{bold} '
                             f'textLength="{length:.1f}">{words}</text>')
            at = end
    return "\n".join(lines) + "\n</svg>\n"


def case_draw(bench):
    """For the documentation: --run as it is shown on a terminal, as SVG in --picture."""
    view = Terminal([bench.options.watch, bench.options.run])
    view.wait_for("tutti", "quit")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        view.read()
    pathlib.Path(bench.options.picture).write_text(as_svg(view))
    print(view.text())
    view.press("q")
    view.finish()


def main():
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(cases))
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--watch", required=True)
    parser.add_argument("--script", default="")
    parser.add_argument("--shepherd", default="")
    parser.add_argument("--worker", default="")
    parser.add_argument("--prepare", default="")
    parser.add_argument("--picture", default="", help="where cases browser and draw leave a picture")
    parser.add_argument("--run", default="", help="what case draw shows: a folder or an address")
    options = parser.parse_args()
    print(f"{options.case}: {cases[options.case].__doc__}")
    with tempfile.TemporaryDirectory(prefix="tutti-watch-") as folder:
        bench = Bench(options, pathlib.Path(folder))
        try:
            cases[options.case](bench)
        finally:
            bench.close()
            for view in Terminal.begun:  # a case that fails leaves it running
                if view.code is None:
                    with contextlib.suppress(ProcessLookupError, ChildProcessError):
                        os.kill(view.pid, signal.SIGKILL)
                        os.waitpid(view.pid, 0)
    print("ok")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
