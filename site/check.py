"""Looks at a built site: `python3 site/check.py target/site`.

Every link leads to a page and an anchor that exist. In Chromium, on a telephone's and on a wide screen, light and
dark: nothing is wider than the screen unless it scrolls, a page's text contrasts with its ground, and no page writes an
error into the console.
"""

import functools
import html.parser
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from typing import ClassVar

SCREENS = ((380, False), (380, True), (1600, False), (1600, True))
# A page that no server knows, a frame's list of pages, all pages in one for a printer.
UNSEEN = ("404.html", "toc.html", "print.html")
# Words in a book's own controls, and what highlighting paints, have the contrast that mdBook gave them.
LOOK = """
const results = [];
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page; document.body.append(frame); await loaded;
  await new Promise(done => setTimeout(done, 60));
  const inner = frame.contentDocument, view = frame.contentWindow, found = [];
  const root = inner.documentElement;
  const name = e => e.tagName + " " + e.textContent.trim().slice(0, 40);
  if (root.scrollWidth > width) found.push("scrolls to " + root.scrollWidth);
  for (const e of inner.querySelectorAll("main *")) {
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height || e.closest("pre, .table-wrapper, svg")) continue;
    if (box.right > width + 0.5) found.push("too wide: " + name(e));
  }
  const light = text => text.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(view.getComputedStyle(root).backgroundColor);
  const ink = light(view.getComputedStyle(inner.querySelector("main")).color);
  if ((Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05) < 4.5) found.push("faint");
  for (const e of inner.querySelectorAll("main img")) if (!e.naturalWidth) found.push("no picture: " + e.src);
  results.push({ page, dark: ground < 0.2, found });
  frame.remove();
}
(async () => {
  for (const page of PAGES) await look(page, WIDTH);
  await fetch("/seen", { method: "POST", body: JSON.stringify(results) });
})();
"""


class Page(html.parser.HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps what a tag names, and where it leads."""
        for name, value in attrs:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.append(value)


def dead_links(site: pathlib.Path) -> list[str]:
    """Links that lead nowhere within the site or the repository."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    repository = pathlib.Path(__file__).resolve().parents[1]
    listed = re.findall(r"\(([^)]+)\.md\)", (repository / "docs/SUMMARY.md").read_text())
    dead = [f"SUMMARY.md: {page} is no page" for page in listed if site / f"{page}.html" not in pages]
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            inside = re.fullmatch(r"https://github.com/bandmaster/bandmaster/blob/main/(.*)", link.split("#")[0])
            if inside and not (repository / urllib.parse.unquote(inside[1])).exists():
                dead.append(f"{path.relative_to(site)}: {link}")
            if url.scheme or url.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if url.path.startswith("/"):
                target = site / url.path.lstrip("/")
            if target.is_dir():
                target /= "index.html"
            anchor = urllib.parse.unquote(url.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                dead.append(f"{path.relative_to(site)}: {link}")
    return dead


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves the site and the page that looks at it, and takes what was seen."""

    looker = ""
    seen: ClassVar[list[dict[str, object]]] = []
    done = threading.Event()

    def do_GET(self) -> None:
        """A file, or the page that looks."""
        if self.path != "/look":
            super().do_GET()
            return
        body = Server.looker.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """What was seen."""
        Server.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        Server.done.set()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def seen(site: pathlib.Path, width: int, dark: bool) -> list[str]:
    """What is wrong with the pages on a screen."""
    pages = [f"/{path.relative_to(site)}" for path in sorted(site.rglob("*.html")) if path.name not in UNSEEN]
    script = LOOK.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width))
    Server.looker = (
        f'<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><body><script>{script}</script>'
    )
    Server.done.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile("w+") as log:
        browser = subprocess.Popen(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--enable-logging=stderr",
                f"--user-data-dir={profile}/profile",
                f"--window-size={width + 50},1000",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                "--remote-debugging-port=0",
                f"http://127.0.0.1:{server.server_address[1]}/look",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        finished = False
        for _ in range(240):
            finished = Server.done.wait(1)
            if finished or browser.poll() is not None:
                break
        browser.terminate()
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
        server.shutdown()
        server.server_close()
        log.seek(0)
        console = [line.strip() for line in log if ":CONSOLE" in line]
    where = f"{width} pixels, {'dark' if dark else 'light'}"
    wrong = [f"{where}: console: {line}" for line in console]
    if not finished:
        return [*wrong, f"{where}: the browser did not look at all pages"]
    for page in Server.seen:
        found = page["found"]
        assert isinstance(found, list)
        wrong += [f"{where}: {page['page']}: {what}" for what in found]
        if page["dark"] != dark:
            wrong.append(f"{where}: {page['page']}: the other theme")
    print(f"{where}: {len(Server.seen)} pages")
    return wrong


def main() -> None:
    """Ends with 1 where something is wrong."""
    site = pathlib.Path(sys.argv[1]).resolve()
    wrong = [f"dead link: {link}" for link in dead_links(site)]
    if shutil.which("chromium"):
        for width, dark in SCREENS:
            wrong += seen(site, width, dark)
    else:
        print("skipped: no chromium: pages are not looked at")
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


main()
