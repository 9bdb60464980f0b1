#!/usr/bin/env python3
"""Checks that what the Markdown pages of the tree link to is there: files, folders, and headings of
pages. Prints `file:line: what is wrong` and ends with 1 if anything is. Links to other sites are
left alone.

  check_links.py [--root DIR]   check the tree (default: the one this script lies in)
  check_links.py --self-test    check this script on made-up pages
"""

import argparse
import os
import re
import sys
import tempfile
import urllib.parse

CODE = re.compile(r"`+[^`]*`+")
# [text](target), ![text](target), with a title or without.
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HTML = re.compile(r'<(?:a|img)\b[^>]*\b(?:href|src)="([^"]+)"')
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
NOT_OURS = ("build", "runs")  # as .gitignore has them
OTHER_SITE = re.compile(r"^[a-z][a-z0-9+.-]*:")


def find_pages(root):
    """Paths below root, relative to it, of all Markdown pages but those that builds and runs
    leave."""
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in NOT_OURS and name[0] != "."]
        found.extend(os.path.relpath(os.path.join(folder, name), root) for name in names
                     if name.endswith(".md"))
    return sorted(found)


def prose_lines(text):
    """(line number, line) of what is not in a fenced block."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark.group(1)[:3]
        elif mark and mark.group(1)[:3] == fence:
            fence = None
        elif fence is None:
            yield number, line


def heading_anchor(heading):
    """What GitHub calls a heading in links: small letters, no punctuation, a hyphen for each
    space."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(text):
    """All anchors of a page; of equal headings the second one ends in -1, and so on."""
    found = set()
    for _, line in prose_lines(text):
        heading = HEADING.match(line)
        if heading:
            anchor = heading_anchor(heading.group(2))
            count = 0
            while (anchor if count == 0 else f"{anchor}-{count}") in found:
                count += 1
            found.add(anchor if count == 0 else f"{anchor}-{count}")
        found.update(re.findall(r'<a\s+(?:id|name)="([^"]+)"', line))
    return found


def check_pages(root, pages):
    """`file:line: what is wrong` for each link that leads nowhere, and how many links there are."""
    texts = {}
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as file:
            texts[page] = file.read()
    errors = []
    count = 0
    for page, text in texts.items():
        for number, line in prose_lines(text):
            for target in LINK.findall(CODE.sub("", line)) + HTML.findall(CODE.sub("", line)):
                if OTHER_SITE.match(target):
                    continue
                count += 1
                path, _, anchor = urllib.parse.unquote(target).partition("#")
                where = (
                    os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page)
                if where.startswith(("..", "/")):
                    errors.append(f"{page}:{number}: {target}: outside the tree")
                elif not os.path.exists(os.path.join(root, where)):
                    errors.append(f"{page}:{number}: {target}: there is no {where}")
                elif anchor and where not in texts:
                    errors.append(f"{page}:{number}: {target}: {where} is no page with headings")
                elif anchor and anchor not in anchors(texts[where]):
                    errors.append(f"{page}:{number}: {target}: {where} has no heading #{anchor}")
    return errors, count


SELF_TEST_PAGES = {"README.md": "# Top\n[room](room/README.md) "
                   "[part](room/README.md#two-words-and-more) [own](#top)\n"
                   "[gone](room/gone.md) ![drawing](room/drawing.svg)\n"
                   "`[code](nowhere.md)` [site](https://example.org/x#y) [folder](room/)\n"
                   "```\n[fenced](nowhere.md)\n# not a heading\n```\n"
                   "[fenced heading](#not-a-heading)\n[out](../other.md)\n",
                   "room/README.md": "## Two words, *and* `more`\n## Same\n## Same\n"
                   "[up](../README.md#top) [second](#same-1) [third](#same-2)\n"
                   '[anchor in code](check.py#here) <img src="drawing.png">\n',
                   "room/check.py": "", "room/drawing.svg": ""}
SELF_TEST_ERRORS = [
    "README.md:3: room/gone.md: there is no room/gone.md",
    "README.md:9: #not-a-heading: README.md has no heading #not-a-heading",
    "README.md:10: ../other.md: outside the tree",
    "room/README.md:4: #same-2: room/README.md has no heading #same-2",
    "room/README.md:5: check.py#here: room/check.py is no page with headings",
    "room/README.md:5: drawing.png: there is no room/drawing.png",
]
SELF_TEST_LINKS = 13


def self_test():
    """The made-up pages have known wrong links and no others."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in SELF_TEST_PAGES.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        errors, count = check_pages(root,
                                    [path for path in SELF_TEST_PAGES if path.endswith(".md")])
    failures = [f"expected: {line}" for line in SELF_TEST_ERRORS if line not in errors]
    failures += [f"not expected: {line}" for line in errors if line not in SELF_TEST_ERRORS]
    if count != SELF_TEST_LINKS:
        failures.append(f"expected {SELF_TEST_LINKS} links; found {count}")
    for failure in failures:
        print(f"self-test: {failure}")
    if not failures:
        print(f"self-test: all {len(SELF_TEST_ERRORS)} findings as expected")
    return 1 if failures else 0


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    pages = find_pages(arguments.root)
    errors, count = check_pages(arguments.root, pages)
    for line in errors:
        print(line)
    print(f"links: {count} in {len(pages)} pages, {len(errors)} lead nowhere")
    return 1 if errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
