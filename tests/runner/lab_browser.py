"""A real JupyterLab and a real browser, for test_lab.py: start both, run a notebook as a reader does, say what shows.

Everything lies in one temporary folder: copies of the notebooks (JupyterLab saves by itself, and the committed ones
must not change), Jupyter's and Chromium's settings, what the notebooks write. Nothing here asks the network: the
driver is found on this machine, and the browser can look up no address but the loopback one.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest import mock

import nbformat
import psutil
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as seen
from selenium.webdriver.support.ui import WebDriverWait

from experiments.runner import paths

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
           --disable-component-update --disable-sync --disable-dev-shm-usage --no-proxy-server""".split()
WINDOW = 1280, 900
LOOPBACK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
LOOKS_LIKE_AN_ERROR = re.compile(r"Traceback \(most recent call|^[\w.]*(Error|Exception|Interrupt)\b", re.MULTILINE)
# Cells out of sight stay in the page; no news, no question about news.
SETTINGS = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
            "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
DISABLED = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}

# What the page shows, asked of the page itself in one go.
LOOK = """
const all = (where, what) => [...where.querySelectorAll(what)];
const panel = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)');
const text = e => e.innerText.trim();
return panel && {
  ready: !panel.querySelector('.jp-Spinner') && text(panel.querySelector('.jp-KernelName')) != 'No Kernel',
  kernel: panel.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status,
  prompts: all(panel, '.jp-CodeCell .jp-InputPrompt').map(text),
  stderr: all(panel, '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]').map(text),
  images: all(panel, '.jp-OutputArea-output img').map(i => ({complete: i.complete, natural: i.naturalWidth,
    shown: i.getBoundingClientRect().width, room: i.closest('.jp-OutputArea-output').clientWidth})),
  tables: all(panel, '.jp-OutputArea-output table').map(text),
  dialogs: all(document, '.jp-Dialog').map(text),
  notices: all(document, '.Toastify__toast').map(text),
};
"""


class Absent(Exception):
    """There is no browser here that can be driven: why, in one sentence."""


def programs():
    """The browser and its driver on this machine; nothing is ever downloaded."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        lacking = " and no ".join(["Chromium"] * (not browser) + ["chromedriver"] * (not driver))
        raise Absent(f"no {lacking} on the PATH: on Debian, apt-get install chromium chromium-driver")
    return browser, driver


def family(pid):
    """A process and all it started, as objects that know a process from a later one with the same number."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def end(processes, seconds=15):
    """End the first, and those of the others that don't follow it. JupyterLab's kernels are in process groups of their
    own, so ending its group would leave them behind."""
    with suppress(psutil.NoSuchProcess):
        processes[0].terminate()  # JupyterLab then shuts its kernels down
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def lab(folder, seconds=120):
    """JupyterLab over ``folder/notebooks``, a server of its own with no one else's settings.

    Gives a function that waits until it is up and returns its address and token. Should someone take the port in the
    meantime, JupyterLab takes another: its own file says which.
    """
    config, runtime, log = folder / "config", folder / "runtime", folder / "lab.log"
    (config / "labconfig").mkdir(parents=True)
    for name, content in {"page_config": DISABLED, "default_setting_overrides": SETTINGS}.items():
        (config / "labconfig" / f"{name}.json").write_text(json.dumps(content))
    # MPLBACKEND would keep figures from being shown inline, JUPYTER* would bring someone's own settings
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "PYTEST", "IPYTHON", "MPLBACKEND"))}
    env = {**kept, "JUPYTER_CONFIG_DIR": str(config), "JUPYTER_DATA_DIR": str(folder / "share"),
           "JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_PREFER_ENV_PATH": "1", "IPYTHONDIR": str(folder / "ipython"),
           "JUPYTER_TOKEN": secrets.token_hex(16), "PYTHONPATH": str(paths.root()),
           "BIF_OUTPUT": str(folder / "output"), "BIF_OFFLINE": "1"}
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
             f"--port={_free_port()}", f"--ServerApp.root_dir={folder / 'notebooks'}",
             "--LabApp.extension_manager=readonly", "--LanguageServerManager.autodetect=False"],
            env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def address():
        stop = time.monotonic() + seconds
        while True:
            for file in runtime.glob("jpserver-*.json"):
                if (text := file.read_text()).rstrip().endswith("}"):
                    return json.loads(text)["url"], json.loads(text)["token"]
            if server.poll() is not None or time.monotonic() > stop:
                raise RuntimeError(f"JupyterLab did not start; its log ends:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)

    try:
        yield address
    finally:
        if server.poll() is None:
            end(family(server.pid))
        server.wait()


@contextmanager
def browser(folder):
    """A headless Chromium with an empty profile, through its driver."""
    program, driver = programs()
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, LOOPBACK, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(driver, env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)})
    local = {"SE_OFFLINE": "true", "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    with mock.patch.dict(os.environ, local):
        try:
            page = webdriver.Chrome(options=options, service=service)
        except WebDriverException as error:
            raise Absent(f"{program} can't be driven by {driver}: {error.msg}") from error
        processes = family(service.process.pid)
        try:
            yield page
        finally:
            with suppress(WebDriverException):
                page.quit()
            end(processes, seconds=5)


def run_all(page, url, token, file, seconds):
    """Open a notebook, press "restart and run all", confirm, wait for the end, save; gives what is then seen."""
    page.set_window_size(*WINDOW)
    page.get(f"{url}lab/tree/{file.name}?reset&token={token}")
    wait = WebDriverWait(page, 120, poll_frequency=0.2)
    wait.until(seen.invisibility_of_element_located((By.ID, "jupyterlab-splash")))
    wait.until(lambda page: (look := page.execute_script(LOOK)) and look["ready"] and look["kernel"] == "idle",
               f"{file.name} was not loaded, or its kernel did not start")
    press(wait, '.jp-NotebookPanel-toolbar [data-command="notebook:restart-run-all"]')
    press(wait, ".jp-Dialog .jp-mod-accept")
    wait.until(seen.invisibility_of_element_located((By.CSS_SELECTOR, ".jp-Dialog")))
    look = WebDriverWait(page, seconds, poll_frequency=0.2).until(Ended(), f"{file.name} did not end in {seconds} s")
    if not look["dialogs"]:
        before = file.stat().st_mtime_ns
        press(wait, '.jp-NotebookPanel-toolbar [data-command="docmanager:save"]')
        wait.until(lambda _: file.stat().st_mtime_ns > before and file.read_text().endswith("}\n"), "it was not saved")
        look = page.execute_script(LOOK)
    outputs = [o for cell in code_cells(file) for o in cell.outputs]
    return {**look, "errors": [f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"]}


def press(wait, selector):
    """Click as soon as that is possible."""
    wait.until(seen.element_to_be_clickable((By.CSS_SELECTOR, selector))).click()


class Ended:
    """Whether a run has ended: idle, every code cell numbered, every picture loaded. A run also ends at an error,
    which leaves the later cells unnumbered: seen by nothing changing any more. Or at a question of JupyterLab's."""

    def __init__(self):
        self.last, self.since = None, 0.0

    def __call__(self, page):
        look = page.execute_script(LOOK)
        if look != self.last:
            self.last, self.since = look, time.monotonic()
        numbers = numbered(look)
        idle = look["kernel"] == "idle" and "[*]:" not in look["prompts"] and any(numbers)
        done = all(numbers) and all(i["complete"] for i in look["images"])
        return look if look["dialogs"] or idle and (done or time.monotonic() > self.since + 2) else None


def numbered(look):
    """For each code cell, whether it has been executed."""
    return [re.fullmatch(r"\[\d+\]:", prompt) is not None for prompt in look["prompts"]]


def complaints(look, cells, images, tables):
    """What a reader would call wrong, a line each; none when all is well.

    ``cells`` and ``tables`` are how many of each the notebook must have run and shown, ``images`` how many at least.
    Text on stderr is no error by itself (a progress bar goes there), only when it looks like one.
    """
    lines = [f"error output: {text}" for text in look["errors"]]
    lines += [f"shown in red: {text[-300:]}" for text in look["stderr"] if LOOKS_LIKE_AN_ERROR.search(text)]
    lines += [f"JupyterLab asks or says: {text}" for text in look["dialogs"] + look["notices"]]
    if sum(numbered(look)) != cells:
        lines.append(f"executed code cells: {sum(numbered(look))}, not {cells}: {look['prompts']}")
    good = [i for i in look["images"] if i["natural"] > 100 and i["shown"] > 100]
    if len(good) < images:
        lines.append(f"figures: {len(good)}, fewer than {images}: {look['images']}")
    lines += [f"a figure is wider than its place: {i}" for i in look["images"] if i["shown"] > i["room"] + 1]
    if len(look["tables"]) != tables:
        lines.append(f"tables: {len(look['tables'])}, not {tables}: {look['tables']}")
    return lines


def code_cells(file):
    """The code cells of a notebook that have something to run."""
    return [c for c in nbformat.read(file, as_version=4).cells if c.cell_type == "code" and c.source.strip()]


def copy(source, target):
    """A copy without outputs: what the page shows later was made by this run."""
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, target)


def photograph(page, file):
    """The whole notebook in one picture: the window becomes as tall as the notebook."""
    tall = page.execute_script("return Math.max(0, ...[...document.querySelectorAll('.jp-WindowedPanel-viewport')]"
                               ".map(e => e.scrollHeight))")
    page.set_window_size(WINDOW[0], min(int(tall) + 300, 16000))
    file.parent.mkdir(parents=True, exist_ok=True)
    page.save_screenshot(str(file))


@contextmanager
def reader():
    """JupyterLab and a browser; gives ``run(notebook, picture, seconds)``, which keeps a screenshot in any case."""
    programs()
    with ExitStack() as stack:
        # a short path of its own: Chromium's socket lies in it, and a socket's path must be short
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True)))
        (folder / "notebooks").mkdir()
        address = stack.enter_context(lab(folder))  # comes up while the browser does
        page = stack.enter_context(browser(folder))

        def run(notebook, picture, seconds=300):
            copy(notebook, folder / "notebooks" / notebook.name)
            try:
                return run_all(page, *address(), folder / "notebooks" / notebook.name, seconds)
            finally:
                with suppress(WebDriverException):  # the browser may be what failed
                    photograph(page, picture)

        yield run
