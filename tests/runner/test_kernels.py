"""A kernel starts although its ports are taken before it binds them, and leaves nothing behind."""

import gc
import os
import socket
import tempfile
from pathlib import Path

import jupyter_client
import nbformat
import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import LocalProvisioner
from nbclient import NotebookClient

from experiments.runner import kernels
from experiments.runner import notebooks as reproduce

CELL = "print(6 * 7)"
sockets_only = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="without unix sockets kernels use TCP")


@pytest.fixture
def folders(monkeypatch):
    """A thief takes the shell channel's port after it was chosen and before the kernel binds it.

    Gives the folders of the connection files of the kernels that were started.
    """
    taken, folders, launch = [], [], LocalProvisioner.launch_kernel

    async def launch_late(self, cmd, **options):
        folders.append(Path(self.parent.connection_file).parent)
        if self.connection_info["transport"] == "tcp":
            taken.append(socket.create_server((self.connection_info["ip"], self.connection_info["shell_port"])))
        return await launch(self, cmd, **options)

    monkeypatch.setattr(LocalProvisioner, "launch_kernel", launch_late)
    yield folders
    for thief in taken:
        thief.close()


def notebook():
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])


def test_over_tcp_a_taken_port_ends_the_kernel(folders, tmp_path):
    """The failure that the rest of this file is about."""
    manager = KernelManager(kernel_name="python3")
    with open(os.devnull, "w") as nowhere:
        manager.start_kernel(stderr=nowhere, cwd=str(tmp_path))
        client = manager.client()
        client.start_channels()
        try:
            with pytest.raises(RuntimeError, match="Kernel died before replying to kernel_info"):
                client.wait_for_ready(timeout=60)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


@sockets_only
def test_nbval_starts_its_kernel(folders, tmp_path):
    kernel = nbval.kernel.RunningKernel(nbval.kernel.CURRENT_ENV_KERNEL_NAME, str(tmp_path))
    try:
        assert sorted(f.name for f in folders[0].iterdir()) == [*(f"kernel-{n}" for n in range(1, 6)), "kernel.json"]
        kernel.restart()  # in the same folder
        kernel.kc.wait_for_ready(timeout=60)
        kernel.await_reply(kernel.execute_cell_input(CELL), timeout=60)
    finally:
        kernel.stop()
    assert len(folders) == 2 and not any(f.exists() for f in folders) and not list(tmp_path.iterdir())


@sockets_only
def test_papermill_and_nbclient_start_theirs(folders, tmp_path):
    file, output = tmp_path / "in" / "a.ipynb", tmp_path / "b.ipynb"
    file.parent.mkdir()
    nbformat.write(notebook(), file)
    reproduce.execute(file, output, {})
    by_default = notebook()
    NotebookClient(by_default, kernel_name="python3", resources={"metadata": {"path": str(file.parent)}}).execute()
    for node in (nbformat.read(output, as_version=4), by_default):
        assert node.cells[0].outputs[0].text == "42\n"
    assert len(set(folders)) == 2 and not any(f.exists() for f in folders)
    assert [f.name for f in file.parent.iterdir()] == ["a.ipynb"]


@sockets_only
def test_a_kernel_that_nobody_shut_down_leaves_nothing():
    manager = kernels.SocketKernelManager()
    folder = Path(manager.connection_file).parent
    assert folder.is_dir() and not folder.stat().st_mode & 0o077
    del manager
    gc.collect()
    assert not folder.exists()


@sockets_only
def test_a_long_temporary_folder_is_not_used(tmp_path, monkeypatch):
    long = tmp_path / ("long" * 25)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    manager = kernels.SocketKernelManager()
    assert manager.transport == "ipc" and len(f"{manager.ip}-5") < 100 and not list(long.iterdir())


def test_tcp_where_there_are_no_unix_sockets(monkeypatch):
    monkeypatch.delattr(socket, "AF_UNIX", raising=False)
    manager = jupyter_client.KernelManager()
    assert manager.transport == "tcp" and manager.ip == "127.0.0.1" and manager.cache_ports
    manager.cleanup_connection_file()
