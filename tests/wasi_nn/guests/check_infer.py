#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inference inside of WebAssembly writes what the native generator writes: in Node, and in a page of headless Chromium.

    check_infer.py exceptions MODULE.wasm
    check_infer.py node|browser SITE GENERATOR MODEL.gguf
"""
import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 100  # seconds, for whatever is waited for
PROMPT = "Once upon a time"
HERE = pathlib.Path(__file__).resolve().parent
ANSWERS = [{"max_tokens": 40, "temperature": 0}, {"max_tokens": 40, "temperature": 0.9, "seed": 5}]


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def skip(text):
    print(f"SKIPPED: {text}")
    sys.exit(77)


def native(generator, model, options):
    """What the native program writes. Without vectors: their sums have another order."""
    words = [part for key, value in options.items() for part in ("--" + {"max_tokens": "tokens"}.get(key, key), str(value))]
    done = subprocess.run([generator, "--model", model, "--prompt", PROMPT, "--quiet", "--threads", "1", *words], timeout=LIMIT,
                          capture_output=True, check=True, env={**os.environ, "TUTTI_ISA": "scalar"})
    check(done.stdout.endswith(b"\n") and len(done.stdout) > 1, f"{done}")
    return done.stdout[:-1].decode(errors="replace")  # the generated model writes any bytes


def node():
    program = next(filter(None, map(shutil.which, ("node", "nodejs"))), None)
    if not program:
        skip("there is no Node. Install nodejs, to run the module there")
    return program


def in_node(script, *words, text=None):
    done = subprocess.run([node(), HERE / script, *words], timeout=LIMIT, input=text, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="")
    check(done.returncode == 0, f"{script}: {done.returncode}")


def case_node(site, generator, model):
    expected = [{"options": options, "text": native(generator, model, options)} for options in ANSWERS]
    in_node("check_infer.mjs", pathlib.Path(site).resolve(), model, text=json.dumps({"prompt": PROMPT, "answers": expected}))


class Browser:
    """Chromium by the protocol of its developer tools, over pipes."""

    def __init__(self, program, folder):
        from_browser, to_us = os.pipe()
        from_us, to_browser = os.pipe()
        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                 f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self.log = open(folder / "browser.log", "w")
        self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "sh", *words], pass_fds=(from_us, to_us),
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(from_us), os.close(to_us)
        self.write, self.read, self.number, self.session, self.rest, self.wrong = to_browser, from_browser, 0, None, b"", []
        self.until = time.monotonic() + LIMIT

    def message(self):
        while b"\0" not in self.rest:
            check(time.monotonic() < self.until, "the browser does not answer")
            part = os.read(self.read, 1 << 16)
            check(part, f"the browser has ended: {self.process.poll()}")
            self.rest += part
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.wrong.append(json.dumps(answer["params"])[:1000])
            if answer.get("id") == self.number:
                check("result" in answer, f"{method}: {answer}")
                return answer["result"]

    def open(self, address):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "DOM", "Page"):
            self.ask(f"{domain}.enable")
        self.ask("Page.navigate", url=address)

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        check("exceptionDetails" not in result, f"{expression}: {result}")
        return result["result"].get("value")

    def wait(self, *texts):
        """For one of the texts in the line of the page's state."""
        last = None
        while time.monotonic() < self.until:
            last = self.value("document.getElementById('status')?.textContent ?? ''")
            if any(text in last for text in texts):
                return last
            time.sleep(0.05)
        raise AssertionError(f"{texts} does not come; the page says {last!r}; {self.wrong}")

    def choose(self, path):
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        field = self.ask("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        self.ask("DOM.setFileInputFiles", nodeId=field, files=[str(path)])

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def case_browser(site, generator, model):
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        skip("there is no Chromium. Install chromium, to run the page in a browser")
    expected = native(generator, model, ANSWERS[0])
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass
    handler = functools.partial(Quiet, directory=site)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        folder = pathlib.Path(name)
        (folder / "damaged.gguf").write_bytes(pathlib.Path(model).read_bytes()[:1000])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(program, folder)
        try:
            browser.open(f"http://127.0.0.1:{server.server_address[1]}/")
            browser.wait("Choose a model")
            browser.choose(folder / "damaged.gguf")
            said = browser.wait("is not a usable GGUF file")
            check("damaged.gguf" in said and browser.value("document.getElementById('go').disabled"), said)
            for attempt in range(2):  # the worker stays, and another model takes the place of the first
                shutil.copy(model, folder / f"model{attempt}.gguf")
                browser.choose(folder / f"model{attempt}.gguf")
                browser.wait(f"model{attempt}.gguf is loaded: 259 tokens")
                browser.value(f"""(() => {{ const at = (id) => document.getElementById(id);
                    at('chat').checked = false; at('prompt').value = {json.dumps(PROMPT)};
                    at('tokens').value = 40; at('temperature').value = 0; at('go').click(); }})()""")
                said = browser.wait("Ended", "Stopped")
                check(said.startswith("Ended: ") and " tokens, " in said, said)
                text = browser.value("document.getElementById('text').textContent")
                check(text == expected, f"the page wrote {text!r}, the generator {expected!r}")
                if attempt == 0:
                    browser.value("document.getElementById('prompt').value = 'a '.repeat(1000), document.getElementById('go').click()")
                    browser.wait("the prompt has 2000 tokens and the context 512")
            check(not browser.wrong, str(browser.wrong))
        except AssertionError:
            print((folder / "browser.log").read_text()[-3000:])
            raise
        finally:
            browser.close()
            server.shutdown()
    print(f"the page wrote what the generator writes: {expected!r}")


def main():
    case, *words = sys.argv[1:]
    if case == "exceptions":
        in_node("check_exceptions.mjs", *words)
    elif case == "node":
        case_node(*words)
    else:
        case_browser(*words)


if __name__ == "__main__":
    main()
