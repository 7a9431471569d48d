"""Jupyter kernels that are talked to over unix sockets, for the notebook runner and for the tests.

Over TCP, Jupyter's default, the parent looks for five free ports, lets go of them and names them to the kernel, which
binds them a second later. Whoever is given one of them meanwhile ends the kernel: "Kernel died before replying to
kernel_info", or a start that times out. A socket in a folder that only this kernel knows cannot be taken. Where unix
sockets cannot be used (Windows, some file systems), a kernel is started over TCP as ever.

The tests' ``conftest.py`` loads this file alone, without the package and torch: it imports nothing of ours.
"""

import contextlib
import os
import shutil
import socket
import tempfile
import weakref

from jupyter_client import manager  # its classes, whatever the tests have put in their place in jupyter_client


def new_folder() -> str | None:
    """An empty folder of our own in which unix sockets can be bound, or None where there is no such place.

    The name of a socket has at most about 100 characters: ``/tmp`` is for systems whose own folder has a long name.
    """
    if not hasattr(socket, "AF_UNIX"):
        return None
    for parent in (tempfile.gettempdir(), "/tmp"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as on_failure:
            folder = tempfile.mkdtemp(prefix="bifkit-", dir=parent)
            on_failure.callback(shutil.rmtree, folder, ignore_errors=True)
            trial = os.path.join(folder, "longer-than-ours")
            with socket.socket(socket.AF_UNIX) as probe:
                probe.bind(trial)
            os.remove(trial)
            on_failure.pop_all()
            return folder
    return None


class _OverSockets:
    """The kernel's sockets and its connection file are in a folder of its own, which goes when the kernel is shut
    down, or else with this object, at the latest at exit: nbval does not shut down a kernel that has died."""

    _remove = None

    def __init__(self, **options):
        super().__init__(**options)
        if folder := new_folder():
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self.connection_file = os.path.join(folder, "kernel.json")
            self.transport, self.ip = "ipc", os.path.join(folder, "kernel")  # kernel-1 to kernel-5

    def cleanup_connection_file(self):
        """Called when the kernel is shut down for good, not for a restart."""
        super().cleanup_connection_file()
        if self._remove:
            self._remove()


class SocketKernelManager(_OverSockets, manager.KernelManager):
    """``jupyter_client.KernelManager`` over unix sockets."""


class AsyncSocketKernelManager(_OverSockets, manager.AsyncKernelManager):
    """``jupyter_client.AsyncKernelManager`` over unix sockets: what papermill and nbclient need."""
