"""The site: what is staged and, in ``make site``, what was built, as a reader's browser shows it.

The built site is looked at where ``BIF_SITE`` names its folder, which ``make site`` does; without a browser its links
and pages are still checked.
"""

import contextlib
import functools
import http.server
import json
import os
import re
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from packaging.utils import canonicalize_name
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

sys.path.insert(0, str(Path(__file__).parent))
import lab_browser  # noqa: E402

import bifkit  # noqa: E402
from experiments.runner import paths, site  # noqa: E402

ROOT = paths.root()
built = pytest.mark.skipif("BIF_SITE" not in os.environ, reason="make site builds the site and looks at it")


def names():
    """The pages that the built site must have, without .html."""
    ours = {f"docs/{f.stem}" for f in (ROOT / "docs").glob("*.md")}
    ours |= {f"notebooks/{f.stem}" for f in (ROOT / "notebooks").glob("*.ipynb")}
    return ours | {f"api/{name}" for name in site.REFERENCE} | {"index", "api/index", "search", "CHANGELOG"}


def test_every_page_is_staged_with_what_it_links_to(tmp_path):
    site.stage(tmp_path)
    staged = {f.relative_to(tmp_path).with_suffix("").as_posix() for f in tmp_path.rglob("*") if f.is_file()}
    assert names() - {"search"} <= staged and "figures/start_here_global" in staged
    front = (tmp_path / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^((?:docs|notebooks)/\w+)$", front, flags=re.M))
    assert listed == {n for n in names() if n.startswith(("docs/", "notebooks/"))}
    for file in tmp_path.glob("notebooks/*.ipynb"):
        assert json.loads(file.read_text(encoding="utf-8"))["cells"] and "NBVAL_CHECK" not in file.read_text()


def test_the_reference_shows_every_public_name_and_says_it_as_one_imports_it():
    text = "\n".join(site.reference(page) for page in site.REFERENCE)
    for name in set(bifkit.__all__) - {"plots", "metrics"}:
        assert re.search(rf"^\.\. auto(class|function):: {name}$", text, flags=re.M), name
    functions = site.reference("functions")
    assert "autofunction:: distill" in functions and "LocalBIF" not in functions
    assert ".. currentmodule:: bifkit\n" in site.reference("explainers")
    assert "autofunction:: importances" in site.reference("plots")


def test_its_pins_are_exact_and_none_is_among_the_others():
    def read(name):
        lines = [x for x in (ROOT / name).read_text().splitlines() if x and not x.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+(; sys_platform [!=]= \"\w+\")?", line) for line in lines)
        return {canonicalize_name(line.split("==")[0]) for line in lines}

    assert {"sphinx", "myst-nb", "furo"} <= read("requirements-site.txt")
    assert not read("requirements-site.txt") & read("requirements.txt")


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, file):
        super().__init__()
        self.links, self.anchors = [], {"", "top"}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.add(attrs.get("id"))
        self.links += [attrs[k] for k in ("href", "src") if attrs.get(k)]
        if tag in ("script", "link", "img", "iframe"):
            outside = [v for v in (attrs.get("src"), attrs.get("href")) if v and re.match("(https?:)?//", v)]
            assert not outside, f"needs {outside}"


def broken(folder):
    """'page: link' for every relative link of a folder of pages that leads nowhere."""
    pages = {file.resolve(): Page(file) for file in sorted(Path(folder).rglob("*.html"))}
    for file, page in pages.items():
        for link in page.links:
            if not re.match(r"[a-z]+:", link):
                name, _, anchor = link.partition("#")
                target = (file.parent / unquote(name.split("?")[0])).resolve() if name else file
                if not target.is_file() or (target in pages and unquote(anchor) not in pages[target].anchors):
                    yield f"{file.name}: {link}"


def test_broken_links_and_pages_from_elsewhere_are_seen(tmp_path):
    (tmp_path / "a.html").write_text("<p id='here'><a href='b.html#there'>1</a> <a href='#here'>2</a>"
                                     "<a href='gone.html'>3</a><a href='#gone'>4</a><img src='no.png'>")
    (tmp_path / "b.html").write_text("<p id='there'><a href='https://example.org'>elsewhere</a>")
    assert list(broken(tmp_path)) == ["a.html: gone.html", "a.html: #gone", "a.html: no.png"]
    (tmp_path / "b.html").write_text("<script src='https://example.org/x.js'></script>")
    with pytest.raises(AssertionError, match="needs"):
        list(broken(tmp_path))


@built
def test_no_link_of_the_site_is_broken_and_nothing_comes_from_elsewhere():
    folder = Path(os.environ["BIF_SITE"])
    there = {f.relative_to(folder).with_suffix("").as_posix() for f in folder.rglob("*.html")}
    assert names() <= there
    assert list(broken(folder)) == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """(the browser, the address of the site on this machine)."""
    folder = tmp_path_factory.mktemp("browser")
    serve = functools.partial(Quiet, directory=os.environ["BIF_SITE"])
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        try:
            page = stack.enter_context(lab_browser.browser(folder))
        except lab_browser.Absent as reason:
            if os.environ.get("BIF_BROWSER") == "required":
                pytest.fail(f"BIF_BROWSER=required, but {reason}")
            pytest.skip(f"the site is not opened: {reason}")
        yield page, f"http://127.0.0.1:{server.server_port}/"


LOOK = """
const images = [...document.querySelectorAll('.content img')];
images.forEach(i => i.loading = 'eager');
return {title: document.querySelector('.content h1')?.innerText, words: document.body.innerText.length,
  images: images.length, loaded: images.every(i => i.complete),
  bad: images.filter(i => i.complete && (i.naturalWidth < 20 || i.getBoundingClientRect().width < 20)).map(i => i.src),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  outside: performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin))};
"""


def look(page, address, width):
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                         {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
    page.get(address)
    return WebDriverWait(page, 20, poll_frequency=0.1).until(
        lambda page: (found := page.execute_script(LOOK)) and found["loaded"] and found)


@built
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
def test_every_page_loads_with_its_figures_and_fits_the_screen(reader, width):
    page, address = reader
    for name in sorted(names() - {"search"}):
        found = look(page, f"{address}{name}.html", width)
        assert found["title"] and found["words"] > 200, name
        assert not found["bad"] and not found["outside"] and found["wide"] <= 1, (name, found)
        if name.startswith("notebooks/"):
            cells = json.loads((ROOT / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
            stored = sum("image/png" in o.get("data", {}) for c in cells for o in c.get("outputs", []))
            assert found["images"] >= stored, name
    # a shorthand that a page could not do without would be an error in the browser's log
    assert [e for e in page.get_log("browser") if e["level"] == "SEVERE" and "favicon" not in e["message"]] == []


@built
def test_the_search_finds_localbif(reader):
    page, address = reader
    page.get(f"{address}search.html?q=LocalBIF")
    wait = WebDriverWait(page, 30, poll_frequency=0.2)
    found = wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "#search-results ul.search li a"))
    assert any("api/explainers" in link.get_attribute("href") for link in found)
    found[0].click()
    assert wait.until(lambda page: "LocalBIF" in page.find_element(By.CSS_SELECTOR, ".content").text)


@built
def test_the_theme_can_be_light_and_dark(reader):
    page, address = reader
    look(page, address + "index.html", 1280)
    seen = {}
    for _ in range(3):  # the reader's own, light, dark
        page.execute_script("document.querySelector('.content-icon-container .theme-toggle').click()")
        colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        seen[page.execute_script("return document.body.dataset.theme")] = sum(map(int, re.findall(r"\d+", colour)[:3]))
    assert set(seen) == {"auto", "light", "dark"} and seen["light"] > 700 and seen["dark"] < 200
