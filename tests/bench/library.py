# SPDX-License-Identifier: MIT
"""The functions of libgpushm that the comparison needs, by plain ctypes, and a daemon."""
import ctypes
import os
import subprocess
import sys
import time

VOID = ctypes.c_void_p
U64 = ctypes.c_uint64
READ, SEALED = 1, 2


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("itemsize", ctypes.c_uint32)]


class Spec(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", Dtype), ("ndim", ctypes.c_int),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("descr", ctypes.c_char_p)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("pool", ctypes.c_char_p), ("mode", ctypes.c_uint32),
                ("gid", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("device", ctypes.c_int),
                ("attrs", VOID), ("n_attrs", ctypes.c_size_t), ("wait_ms", ctypes.c_uint64)]


class Library:
    """One connection of this process."""

    def __init__(self, build, socket):
        self.lib = ctypes.CDLL(os.path.join(build, "libgpushm.so"))
        self.lib.gpushm_error.restype = ctypes.c_char_p
        self.lib.gpushm_array_device_ptr.restype = VOID
        self.lib.gpushm_array_host_ptr.restype = VOID
        self.c = VOID()
        self.check(self.lib.gpushm_connect(socket.encode(), ctypes.byref(self.c)))

    def check(self, result):
        if result < 0:
            raise OSError(-result, self.lib.gpushm_error().decode())

    def publish(self, name, pool, count, each):
        """Publishes a sealed buffer of that many arrays of bytes and closes it."""
        specs = (Spec * count)()
        shape = (ctypes.c_int64 * 1)(each)
        for i, spec in enumerate(specs):
            spec.struct_size = ctypes.sizeof(Spec)
            spec.name, spec.ndim, spec.shape = b"array.%d" % i, 1, shape
            spec.dtype = Dtype(1, 8, 1, 0)
        options = Options(ctypes.sizeof(Options), pool.encode())
        b = VOID()
        self.check(self.lib.gpushm_create_arrays(self.c, name.encode(), specs, ctypes.c_size_t(count),
                                                 ctypes.byref(options), ctypes.byref(b)))
        self.check(self.lib.gpushm_publish(b, SEALED))
        self.check(self.lib.gpushm_close(b))

    def open(self, name):
        b = VOID()
        self.check(self.lib.gpushm_open(self.c, name, READ, U64(0), None, ctypes.byref(b)))
        return b

    def array_at(self, b, index):
        a = VOID()
        self.check(self.lib.gpushm_array_at(b, ctypes.c_size_t(index), ctypes.byref(a)))
        return a

    def close(self, b, arrays=()):
        for a in arrays:
            self.lib.gpushm_array_free(a)
        self.check(self.lib.gpushm_close(b))

    def unlink(self, name):
        self.check(self.lib.gpushm_unlink(self.c, name.encode()))


def start_context():
    """Makes a context on GPU 0 current in this thread, as any program that uses the GPU does."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = VOID()
    for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                   cuda.cuCtxSetCurrent(context)):
        if result != 0:
            raise OSError(f"no context on GPU 0: CUresult {result}")


def start_daemon(build, folder):
    """Starts a daemon with its default pools; returns the process and its socket."""
    socket, conf = os.path.join(folder, "s"), os.path.join(folder, "conf")
    open(conf, "w").close()
    daemon = subprocess.Popen([os.path.join(build, "gpushmd"), "--no-keeper", "--config", conf, "--socket", socket],
                              stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not os.path.exists(socket):
        if daemon.poll() is not None or time.monotonic() > deadline:
            sys.exit("the daemon did not start")
        time.sleep(0.02)
    return daemon, socket
