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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))
from chromium import Browser, find_browser  # noqa: E402

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


def wait(page, *texts):
    """For one of the texts in the line of the page's state, once it is loaded: before, its nodes get other numbers."""
    found = f"document.readyState === 'complete' && {json.dumps(texts)}.some((text) => (document.getElementById('status')?.textContent ?? '').includes(text))"
    return page.wait_for(f"{found} && document.getElementById('status').textContent", texts)


def choose(page, path):
    root = page.ask("DOM.getDocument")["root"]["nodeId"]
    field = page.ask("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.ask("DOM.setFileInputFiles", nodeId=field, files=[str(path)])


def case_browser(site, generator, model):
    program = find_browser()
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
        try:
            with Browser(program, f"http://127.0.0.1:{server.server_address[1]}/", LIMIT) as browser:
                wait(browser, "Choose a model")
                choose(browser, folder / "damaged.gguf")
                said = wait(browser, "is not a usable GGUF file")
                check("damaged.gguf" in said and browser.value("document.getElementById('go').disabled"), said)
                for attempt in range(2):  # the worker stays, and another model takes the place of the first
                    shutil.copy(model, folder / f"model{attempt}.gguf")
                    choose(browser, folder / f"model{attempt}.gguf")
                    wait(browser, f"model{attempt}.gguf is loaded: 259 tokens")
                    browser.value(f"""(() => {{ const at = (id) => document.getElementById(id);
                        at('chat').checked = false; at('prompt').value = {json.dumps(PROMPT)};
                        at('tokens').value = 40; at('temperature').value = 0; at('go').click(); }})()""")
                    said = wait(browser, "Ended", "Stopped")
                    check(said.startswith("Ended: ") and " tokens, " in said, said)
                    text = browser.value("document.getElementById('text').textContent")
                    check(text == expected, f"the page wrote {text!r}, the generator {expected!r}")
                    if attempt == 0:
                        browser.value("document.getElementById('prompt').value = 'a '.repeat(1000), document.getElementById('go').click()")
                        wait(browser, "the prompt has 2000 tokens and the context 512")
                check(not browser.complaints, str(browser.complaints))
        finally:
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
