"""The site of scripts/docs.sh: it builds, its links lead to files of it, it searches in a browser without a network and requests
nothing but its own files. A broken link, a missing heading and an unlisted page are errors.

usage: docs_site.py ROOT
exit code 77: the site generator is not installed
"""
import json
import re
import shutil
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from chromium import Page
from common import in_folder, run, run_cases

ROOT = Path(sys.argv[1]).resolve()
COPIED = ["docs", "scripts", "configs", "experiments", ".github", "README.md", "CONTRIBUTING.md", "CHANGELOG.md",
          "THIRD_PARTY_LICENSES.md", "LICENSE", "CITATION.cff"]


def is_installed():
    installed, wanted = ROOT / ".deps/docs/requirements.txt", ROOT / "scripts/requirements/docs.txt"
    return installed.exists() and installed.read_bytes() == wanted.read_bytes()


class Links(HTMLParser):
    """`links` of a page, and `loaded`: addresses that a browser requests without a click."""

    def __init__(self, page):
        super().__init__()
        self.links, self.loaded = [], []
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        named = {key: value for key, value in attrs if key in ("href", "src") and value}
        (self.links if tag == "a" else self.loaded).extend(named.values())


def is_outside(address):
    return bool(re.match(r"\w+:|//", address))


def check_links(site):
    pages, count = sorted(site.rglob("*.html")), 0
    for page in pages:
        found = Links(page)
        outside = [address for address in found.loaded if is_outside(address)]
        assert not outside, f"{page.name} loads {outside}"
        if page.name == "404.html":
            continue  # its links start at the root of a server
        for address in [link for link in found.links if not is_outside(link)] + found.loaded:
            target = unquote(re.sub(r"[?#].*", "", address))
            assert (page.parent / target).exists(), f"{page.name} leads to {address}, which does not exist"
            count += 1
    return f"{count} links of {len(pages)} pages"


def check_index(site):
    index = json.loads((site / "search/search_index.js").read_text().removeprefix("var __index = "))
    found = {entry["location"].split("#")[0] for entry in index["docs"]}
    expected = {"first_steps.html", "CONTRIBUTING.html"}
    expected |= {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")
                 if page.name != "README.md"}
    assert expected <= found, f"the search index lacks {sorted(expected - found)}"
    return f"{len(index['docs'])} entries"


def search(page, words):
    page.value("document.querySelector('.md-search__input').focus()")
    page.value(f"""(() => {{ const input = document.querySelector('.md-search__input'); input.value = {json.dumps(words)};
        input.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}})); }})()""")
    end = time.monotonic() + 20
    while not page.count(".md-search-result__item"):
        assert time.monotonic() < end, f"no result of a search for {words}"
        time.sleep(0.1)
    return page.value("[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)")


def check_search(site):
    with Page() as page:
        page.open(site / "results/protocols.html")
        found = search(page, "rotary positions")
        outside = [address for address in page.requests if not address.startswith(site.as_uri())]
        assert not outside, f"requests {outside}"
        assert not page.messages, page.messages
    assert any("blocks_and_recipes.html" in address for address in found), found
    return f"{len(found)} results"


def check_site(folder):
    site = folder / "site"
    printed = run(ROOT / "scripts/docs.sh", "--output", site)
    assert printed.strip() == str(site / "index.html"), printed
    return ", ".join(check(site) for check in [check_links, check_index, check_search])


def check_faults(folder):
    tree = folder / "tree"
    (tree / ".deps").mkdir(parents=True)
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    (tree / ".deps/docs").symlink_to(ROOT / ".deps/docs")
    (tree / "docs/unlisted.md").write_text("# A page\n\n[a](nowhere.md) [b](configs.md#no-such-heading) [c](../src/nothing.h)\n")
    message = run(tree / "scripts/docs.sh", code=1)
    for fault in ["  - unlisted.md", "'nowhere.md'", "'#no-such-heading'", "'../src/nothing.h'"]:
        assert fault in message, f"{fault} is not reported: {message}"
    assert "in strict mode" in message and message.count("WARNING") == 4, message
    return "4 faults are found"


if __name__ == "__main__":
    if not is_installed():
        print("skipped: the generator of the site is not installed; scripts/docs.sh installs it")
        sys.exit(77)
    run_cases({"site": in_folder(check_site), "faults": in_folder(check_faults)})
