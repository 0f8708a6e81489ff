"""Drives a headless Chromium over the DevTools protocol. The protocol goes through two pipes (--remote-debugging-pipe), so that
nothing but the standard library is needed. The browser can reach no network but 127.0.0.1."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

TIMEOUT = 60  # seconds
NAMES = ["chromium-headless-shell", "chromium", "google-chrome"]


def find_browser():
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise SystemExit(f"no browser found; install the Debian package {NAMES[0]} (scripts/setup.sh --tests does)")


class Page:
    """One tab. `messages` collects console errors, exceptions and failed or attempted requests."""

    def __init__(self):
        self.next_id, self.messages, self.requests, self.events = 0, [], [], []
        self.buffer = b""
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()
        self.process = self.start(to_browser, from_browser)
        os.close(to_browser)
        os.close(from_browser)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")
        self.set_view(1200, 900)

    def start(self, reading, writing):
        def connect():  # the browser reads commands from 3 and writes answers to 4
            high_reading, high_writing = os.dup2(reading, 60), os.dup2(writing, 61)
            os.dup2(high_reading, 3)
            os.dup2(high_writing, 4)

        command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--disable-background-networking",
                   "--hide-scrollbars", f"--user-data-dir={self.profile.name}"]
        return subprocess.Popen(command, preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        self.profile.cleanup()

    # Sends a command and waits for its answer.
    def call(self, method, **parameters):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if hasattr(self, "session") and not method.startswith("Target."):
            message["sessionId"] = self.session
        self.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def write(self, data):
        while data:
            data = data[os.write(self.to_browser, data):]

    def read(self):
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.from_browser], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.from_browser, 1 << 16) if ready else b""
            if not piece:
                raise RuntimeError(f"the browser did not answer within {TIMEOUT} s")
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(line)
        self.note(message)
        return message

    def note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.messages.append(str([value.get("value") for value in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.messages.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("data:"):
            self.requests.append(parameters["request"]["url"])
        self.events.append(method)

    # `paper`: with the rules of CSS for print.
    def set_view(self, width, height, dark=False, paper=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])

    def open(self, path):
        self.open_url(Path(path).resolve().as_uri())

    def open_url(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + TIMEOUT
        while "Page.loadEventFired" not in self.events:
            if time.monotonic() > end:
                raise RuntimeError("the page did not load")
            self.read()

    # The value of a JavaScript expression.
    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def count(self, selector):
        return self.value(f"document.querySelectorAll({json.dumps(selector)}).length")

    # The middle of an element in the window, after scrolling to it.
    def place(self, selector, x=0.5, y=0.5):
        return self.value(f"""(async () => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center', behavior: 'instant'}});
            for (let frame = 0; frame < 2; ++frame) await new Promise(requestAnimationFrame);
            const b = e.getBoundingClientRect(); return [b.left + b.width * {x}, b.top + b.height * {y}]; }})()""")

    def mouse(self, kind, position, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=position[0], y=position[1], **more)

    def hover(self, selector, x=0.5, y=0.5):
        self.mouse("mouseMoved", self.place(selector, x, y))

    def click(self, selector):
        position = self.place(selector)
        self.mouse("mouseMoved", position)
        for kind in ["mousePressed", "mouseReleased"]:
            self.mouse(kind, position, button="left", clickCount=1)

    def drag(self, selector, start, end):
        first, last = self.place(selector, *start), self.place(selector, *end)
        self.mouse("mouseMoved", first)
        self.mouse("mousePressed", first, button="left", buttons=1, clickCount=1)
        self.mouse("mouseMoved", last, button="left", buttons=1)
        self.mouse("mouseReleased", last, button="left", clickCount=1)

    def press(self, key):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def pdf(self, path):
        data = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]
        Path(path).write_bytes(base64.b64decode(data))
