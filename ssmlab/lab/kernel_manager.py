"""Kernels that talk over socket files, for everything here that starts one: `make run`, `make notebooks` and nbval.

Over TCP a manager finds five free ports by binding and releasing them; its kernel binds them about a second later, and
meanwhile another process may take one (jupyter_client issue 487). That kernel dies, or hangs while it exits; its
manager reports an error, or waits for the whole startup timeout, or, if the control port now leads to a socket of
another kind, waits for ever to send its shutdown request. A socket file has a name that nobody else asks for.
"""

import os
import tempfile

from jupyter_client import AsyncKernelManager, KernelManager
from traitlets import default


class _SocketFiles:
    """The kernel's five sockets lie beside its connection file and bear its name, which is unique: mkstemp made it."""

    @default("transport")
    def _transport_default(self):
        return "ipc"

    @default("connection_file")
    def _connection_file_default(self):
        handle, path = tempfile.mkstemp(".json", "kernel-")
        os.close(handle)
        return path


class SocketFileKernelManager(_SocketFiles, KernelManager):
    pass


class AsyncSocketFileKernelManager(_SocketFiles, AsyncKernelManager):
    pass
