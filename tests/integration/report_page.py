"""Checks of a page or picture that Lockstep has written: well-formed, alone, and, if there is a
Chromium, shown by it."""
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree

NAMESPACES = {"http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"}
MAX_BYTES = 4 << 20


def check(path):
    """The text of a page or picture, after checks. Nothing in it may be loaded from elsewhere."""
    text = path.read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text)
    assert len(text) < MAX_BYTES, (path, len(text))
    addresses = set(re.findall(r"https?://[^\s\"'<>)]*", text))
    assert addresses <= NAMESPACES, addresses
    assert not re.search(r"<(script|link|iframe)\b", text), path
    for source in re.findall(r"\b(?:src|href)=\"([^\"]*)\"", text):
        assert source.startswith("data:"), source
    return text


def seen_by_a_browser(path):
    """The texts that Chromium makes of the page, or None if there is no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no chromium here: the page is not opened, skipped")
        return None
    with tempfile.TemporaryDirectory(prefix="lockstep-chromium-") as profile:
        done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu",
                               f"--user-data-dir={profile}", "--dump-dom", path.as_uri()],
                              capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
