"""Kernels that talk over socket files, for everything here that starts one: `make run`, `make notebooks` and nbval.

Over TCP a manager finds five free ports by binding and releasing them; its kernel binds them about a second later, and
meanwhile another process may take one (jupyter_client issue 487). That kernel dies, or hangs while it exits; its
manager reports an error, or waits for the whole startup timeout, or, if the control port now leads to a socket of
another kind, waits for ever to send its shutdown request. A socket file has a name that nobody else asks for. TCP, as
Jupyter does it, is left for systems without socket files, and for folders of temporary files whose path is too long.
"""

import os
import tempfile

import zmq
from jupyter_client import AsyncKernelManager, KernelManager
from traitlets import default

NAME = len("/kernel-12345678.json-5")  # [characters] behind the folder


class _SocketFiles:
    """The kernel's five sockets lie beside its connection file and bear its name, which is unique: mkstemp made it."""

    @default("transport")
    def _transport_default(self):
        fits = len(os.fsencode(tempfile.gettempdir())) + NAME <= zmq.IPC_PATH_MAX_LEN
        return "ipc" if zmq.has("ipc") and fits else "tcp"

    @default("connection_file")
    def _connection_file_default(self):
        handle, path = tempfile.mkstemp(".json", "kernel-")
        os.close(handle)
        return path


class SocketFileKernelManager(_SocketFiles, KernelManager):
    pass


class AsyncSocketFileKernelManager(_SocketFiles, AsyncKernelManager):
    pass
