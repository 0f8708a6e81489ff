"""Hooks of MkDocs for scripts/docs.sh.

The navigation is the list in docs/README.md. It also names the Markdown files outside docs/ that are pages. A link to another
file of the repository leads to a copy of its text in the site, since the site is read without the repository; a link to a folder
becomes text.
"""
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HOME = DOCS / "README.md"
NAMES = {ROOT / "README.md": "first_steps.md"}  # as README.md, it would be the site's first page
GROUP_OR_PAGE = re.compile(r"^## (.+)$|^- \[([^\]]+)\]\(([^)#]+)(?:#[^)]*)?\)", re.MULTILINE)
FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
CODE_OR_LINK = re.compile(r"^```.*?^```|`[^`\n]*`|\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)


def listed_pages():
    """(group, title, file) of the pages in docs/README.md."""
    group = None
    for heading, title, target in GROUP_OR_PAGE.findall(HOME.read_text()):
        if heading:
            group = heading
        else:
            yield group, title, (DOCS / target).resolve()


def place_in_site(path):
    """The place of a file or folder of the repository in the site; None for a folder. A page ends with .md."""
    if path.is_dir():
        return None
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if path in {page for _, _, page in listed_pages()}:
        return NAMES.get(path, path.name)
    return f"files/{path.relative_to(ROOT).as_posix().lstrip('.')}.txt"  # MkDocs ignores names with a dot in front


def links_of(path):
    """Files and folders of the repository that a page links to."""
    for text, target, _ in CODE_OR_LINK.findall(path.read_text()):
        linked = path.parent / target
        if target and not re.match(r"\w+:", target) and linked.exists():
            yield linked.resolve()


def in_dialect(markdown):
    """GitHub's Markdown for Python-Markdown, which wants blocks of list items indented by four spaces, a blank line between such a
    block and the next item, and no backslash before | in the code of a table."""
    parts = FENCED.split(markdown)
    for at in range(0, len(parts), 2):
        part = re.sub(r"^ {2,3}(?=\S)", "    ", parts[at], flags=re.MULTILINE)
        part = re.sub(r"(\n\n {4}.*(?:\n {4}.*)*\n)(?=- |\d+\. )", r"\1\n", part)
        parts[at] = re.sub(r"^\|.*", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), part,
                           flags=re.MULTILINE)
    return "".join(parts)


def on_config(config):
    groups = {}
    for group, title, path in listed_pages():
        groups.setdefault(group, []).append({title: place_in_site(path)})
    config.nav = [{"Documentation": "README.md"}, *({group: pages} for group, pages in groups.items())]
    return config


def on_files(files, config):
    pages = {path for _, _, path in listed_pages()} | set(DOCS.rglob("*.md"))
    for path in sorted(pages | {linked for page in pages for linked in links_of(page)}):
        place = place_in_site(path)
        if place and not files.get_file_from_path(place):
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    path = Path(page.file.abs_src_path).resolve()

    def rewritten(found):
        text, target, anchor = found.groups()
        linked = (path.parent / target).resolve() if target else None
        if not target or re.match(r"\w+:", target) or not linked.exists():
            return found[0]  # MkDocs reports a link that leads nowhere
        place = place_in_site(linked)
        return f"[{text}]({posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or '.')}{anchor or ''})" if place else text

    return in_dialect(CODE_OR_LINK.sub(rewritten, markdown))
