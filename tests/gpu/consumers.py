#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The DLPack structs of libgpushm, consumed by CuPy, PyTorch and Numba, from plain ctypes.

    python3 tests/gpu/consumers.py BUILD

One process fills a buffer of three arrays, publishes it, and a second process attaches to it and hands each array,
whole and as a view, to each library that is installed. What a library computes on the GPU must equal what NumPy
computes of the same bytes; what it writes into a shared buffer must reach the first process.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

BUILD = os.path.abspath(sys.argv[1])
lib = ctypes.CDLL(os.path.join(BUILD, "libgpushm.so"))
lib.gpushm_error.restype = ctypes.c_char_p
P = ctypes.POINTER
VOID = ctypes.c_void_p


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("itemsize", ctypes.c_uint32)]


class Spec(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", Dtype), ("ndim", ctypes.c_int),
                ("shape", P(ctypes.c_int64)), ("offset", ctypes.c_uint64), ("strides", P(ctypes.c_int64)),
                ("descr", ctypes.c_char_p)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("pool", ctypes.c_char_p), ("mode", ctypes.c_uint32),
                ("gid", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("device", ctypes.c_int),
                ("attrs", VOID), ("n_attrs", ctypes.c_size_t)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", VOID), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", P(ctypes.c_int64)), ("strides", P(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("ctx", VOID), ("deleter", VOID),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


def check(result):
    if result < 0:
        raise OSError(-result, lib.gpushm_error().decode())


ARRAYS = {"weights": ("float32", (33, 65)), "ids": ("int64", (7,)), "image": ("uint8", (5, 8, 3))}


def content(name):
    dtype, shape = ARRAYS[name]
    return (np.arange(np.prod(shape), dtype=np.int64) * 7 % 251).astype(dtype).reshape(shape)


def connect(socket):
    c = VOID()
    check(lib.gpushm_connect(socket.encode(), ctypes.byref(c)))
    return c


def open_buffer(c, name, access):
    b = VOID()
    check(lib.gpushm_open(c, name.encode(), access, ctypes.c_uint64(5000), None, ctypes.byref(b)))
    return b


def array_of(b, name):
    a = VOID()
    check(lib.gpushm_array_get(b, name.encode(), ctypes.byref(a)))
    return a


def create(c, name, pool):
    specs = (Spec * len(ARRAYS))()
    keep = []
    for spec, (array, (dtype, shape)) in zip(specs, ARRAYS.items()):
        dims = (ctypes.c_int64 * len(shape))(*shape)
        keep.append(dims)
        spec.struct_size = ctypes.sizeof(Spec)
        spec.name, spec.ndim, spec.shape = array.encode(), len(shape), dims
        check(lib.gpushm_dtype_parse(dtype.encode(), ctypes.byref(spec.dtype)))
    options = Options(ctypes.sizeof(Options), pool.encode())
    b = VOID()
    check(lib.gpushm_create_arrays(c, name.encode(), specs, ctypes.c_size_t(len(specs)), ctypes.byref(options),
                                   ctypes.byref(b)))
    for array in ARRAYS:
        a = array_of(b, array)
        data = np.ascontiguousarray(content(array))
        check(lib.gpushm_copy_from_host(a, data.ctypes.data_as(VOID), None))
        lib.gpushm_array_free(a)
    return b


class Tensor:
    """What a library's from_dlpack() asks for."""

    def __init__(self, array):
        self.array = array
        kind, ident = ctypes.c_int(), ctypes.c_int()
        lib.gpushm_array_dlpack_device(array, ctypes.byref(kind), ctypes.byref(ident))
        self.device = (kind.value, ident.value)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [VOID, ctypes.c_char_p, VOID]
        out = VOID()
        if max_version is not None and max_version[0] >= 1:
            check(lib.gpushm_array_to_dlpack(self.array, ctypes.byref(out)))
            return new(out, b"dltensor_versioned", None)
        check(lib.gpushm_array_to_dlpack_legacy(self.array, ctypes.byref(out)))
        return new(out, b"dltensor", None)


class Interface:
    """The same array through the CUDA Array Interface, built from the DLPack struct, for Numba."""

    def __init__(self, array):
        out = VOID()
        check(lib.gpushm_array_to_dlpack(array, ctypes.byref(out)))
        self.managed = ctypes.cast(out, P(Versioned)).contents
        t = self.managed.tensor
        typestr = ctypes.create_string_buffer(16)
        check(lib.gpushm_dtype_typestr(Dtype(t.code, t.bits, t.lanes, 0), typestr, ctypes.c_size_t(16)))
        size = t.bits * t.lanes // 8
        self.__cuda_array_interface__ = {
            "shape": tuple(t.shape[:t.ndim]), "typestr": typestr.value.decode(),
            "strides": tuple(s * size for s in t.strides[:t.ndim]), "version": 3, "stream": None,
            "data": (t.data + t.byte_offset, bool(self.managed.flags & 1))}

    def drop(self):
        ctypes.CFUNCTYPE(None, VOID)(self.managed.deleter)(ctypes.addressof(self.managed))


def transposed(array):
    out = VOID()
    check(lib.gpushm_array_transpose(array, None, ctypes.byref(out)))
    return out


def stepped(array):
    out = VOID()
    check(lib.gpushm_array_slice(array, 0, ctypes.c_int64(1), ctypes.c_int64(-2**63), ctypes.c_int64(2),
                                 ctypes.byref(out)))
    return out


VIEWS = {"whole": (lambda a: a, lambda n: n), "transposed": (transposed, lambda n: n.T),
         "stepped": (stepped, lambda n: n[1::2])}


def libraries():
    def torch_get(a):
        import torch
        t = torch.from_dlpack(Tensor(a))
        return (t + 1).cpu().numpy(), lambda: t.add_(1)

    def cupy_get(a):
        import cupy
        t = cupy.from_dlpack(Tensor(a))
        def write():
            t[...] = t + 1
            cupy.cuda.Stream.null.synchronize()
        return cupy.asnumpy(t + 1), write

    def numba_get(a):
        from numba import cuda
        source = Interface(a)
        t = cuda.as_cuda_array(source)
        host = t.copy_to_host()
        def write():
            t.copy_to_device(host + 1)
            cuda.synchronize()
            source.drop()
        return host + 1, write

    return {"torch": torch_get, "cupy": cupy_get, "numba": numba_get}


def consume(socket, pool, writable):
    """Run in a second process: every library, every array, every view."""
    c = connect(socket)
    b = open_buffer(c, "tensors", 2 if writable else 1)
    done, plus = 0, 0
    for library, get in libraries().items():
        for name in ARRAYS:
            for view, (take, reference) in VIEWS.items():
                a = array_of(b, name)
                v = take(a)
                got, write = get(v)
                want = reference(content(name)) + np.asarray(1 + plus).astype(content(name).dtype)
                if not np.array_equal(got, want):
                    raise AssertionError(f"{library} {pool} {name} {view}: wrong numbers")
                done += 1
                del got, write
        if writable:
            for name in ARRAYS:
                _, write = get(array_of(b, name))
                write()
            plus += 1
    print(f"ok: {pool} {'shared' if writable else 'sealed'}: {done} tensors in {', '.join(libraries())}", flush=True)
    os._exit(0)


def start_daemon(folder):
    socket = os.path.join(folder, "s")
    conf = os.path.join(folder, "conf")
    open(conf, "w").close()
    daemon = subprocess.Popen([os.path.join(BUILD, "gpushmd"), "--no-keeper", "--config", conf, "--socket", socket])
    deadline = time.monotonic() + 60
    while not os.path.exists(socket):
        if daemon.poll() is not None or time.monotonic() > deadline:
            sys.exit("the daemon did not start")
        time.sleep(0.02)
    return daemon, socket


def main():
    with tempfile.TemporaryDirectory() as folder:
        daemon, socket = start_daemon(folder)
        try:
            c = connect(socket)
            for pool in ("gpu0", "gpu0-mempool"):
                for writable in (False, True):
                    b = create(c, "tensors", pool)
                    check(lib.gpushm_publish(b, 3 if writable else 2))
                    subprocess.run([sys.executable, __file__, BUILD, "--consume", socket, pool, str(int(writable))],
                                   check=True)
                    if writable:
                        for name in ARRAYS:
                            a = array_of(b, name)
                            got = np.empty_like(content(name))
                            check(lib.gpushm_copy_to_host(a, got.ctypes.data_as(VOID), None))
                            lib.gpushm_array_free(a)
                            want = content(name) + np.asarray(len(libraries())).astype(got.dtype)
                            assert np.array_equal(got, want), f"{pool} {name}: writes did not reach the creator"
                    check(lib.gpushm_close(b))
                    check(lib.gpushm_unlink(c, b"tensors"))
            lib.gpushm_disconnect(c)
        finally:
            daemon.terminate()
            assert daemon.wait() == 0, "the daemon did not end well"
    print("consumers: ok")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2] == "--consume":
        consume(sys.argv[3], sys.argv[4], sys.argv[5] == "1")
    else:
        main()
