// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The program, in Python, in which IREE compiles and runs: graph/iree/runner.hpp starts it. It stands here so that a
/// program that was copied elsewhere has it with it.

namespace tutti::graph::iree {

/// Requests are two little-endian numbers, the sizes of what follows: a JSON object, bytes. Answers are 'y' or 'n', a
/// size, and so many bytes, which are text where it is 'n'.
inline constexpr char runner_text[] = R"python(
import fcntl, hashlib, importlib.metadata, json, os, select, socket, struct, subprocess, sys, time

connection = socket.socket(fileno=os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
programs, state = [], {}


def receive(size):
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = connection.recv_into(view)
        if got == 0:
            os._exit(0)  # whoever started this program has gone
        view = view[got:]
    return data


def dtype_of(name):
    if name == "bfloat16":
        import ml_dtypes
        return numpy.dtype(ml_dtypes.bfloat16)
    return numpy.dtype(name)


def arrays_of(ports, data):
    at = 0
    for port in ports:
        dtype = dtype_of(port["dtype"])
        count = int(numpy.prod(port["shape"], dtype=numpy.int64))
        yield numpy.frombuffer(data, dtype, count, at).reshape(port["shape"])
        at += count * dtype.itemsize


def bytes_of(value, port):
    array = numpy.ascontiguousarray(value.to_host(), dtype_of(port["dtype"]))
    return memoryview(array.reshape(-1).view(numpy.uint8))


def hello(request, data):
    global numpy, runtime, find_tool, version
    import numpy
    import iree.runtime as runtime
    from iree.compiler.tools.binaries import find_tool
    version = importlib.metadata.version("iree-base-compiler")
    return [version.encode()]


def processor():
    """What a module that is compiled for this processor depends on."""
    with open("/proc/cpuinfo") as file:
        lines = {line.split(":")[0].strip(): line for line in file}
    return "".join(lines.get(key, "") for key in ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part"))


def compile(request, text):
    """The path of the compiled module, made or found."""
    flags, folder, end = request["flags"], request["cache"], time.monotonic() + request["seconds"]
    facts = [version, *flags] + ([processor()] if "--iree-llvmcpu-target-cpu=host" in flags else [])
    path = os.path.join(folder, hashlib.sha256("\0".join(facts).encode() + b"\0" + text).hexdigest()[:40] + ".vmfb")
    os.makedirs(folder, exist_ok=True)
    with open(path + ".lock", "w") as lock:  # ranks that want the same wait for one
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pause(0.05, end)
        if not os.path.exists(path):
            make(path, text, flags, end)
            made = b"made"
        else:
            made = b"found"
        try:
            os.unlink(path + ".lock")
        except FileNotFoundError:
            pass
    return [path.encode(), b"\n", made]


def pause(seconds, end, process=None):
    """Ends this program when the other end has gone, or time is up."""
    if select.select([connection], [], [], seconds)[0]:
        if process:
            process.kill()
        os._exit(0)
    if time.monotonic() > end:
        if process:
            process.kill()
            process.wait()
        raise TimeoutError("the compiler did not come to an end in time")


def make(path, text, flags, end):
    own = f"{path}.{os.getpid()}"
    try:
        with open(own + ".mlir", "wb") as file:
            file.write(text)
        with open(own + ".log", "w+", errors="replace") as log:
            command = [find_tool("iree-compile"), *flags, own + ".mlir", "-o", own]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            while process.poll() is None:
                pause(0.02, end, process)
            if process.returncode != 0:
                log.seek(0)
                lines = log.read().replace(own + ".mlir", "module").splitlines()
                line = next((line for line in lines if "error:" in line), (lines or ["it says nothing"])[-1])
                raise RuntimeError(f"iree-compile {version} ended with status {process.returncode}: {line[:300]}")
        os.replace(own, path)
    finally:
        for end_of_name in ("", ".mlir", ".log"):
            try:
                os.unlink(own + end_of_name)
            except FileNotFoundError:
                pass


def open_device(request, data):
    global config
    if request["threads"] > 0:
        runtime.flags.parse_flags("--task_topology_group_count=" + str(request["threads"]))
    config = runtime.Config(request["driver"])
    return []


def load(request, data):
    module = runtime.VmModule.mmap(config.vm_instance, request["path"])
    function = runtime.load_vm_module(module, config)[request["function"]]
    programs.append((function, request["arguments"], request["results"]))
    return []


def write(request, data):
    for port, array in zip(request["ports"], arrays_of(request["ports"], data)):
        state[port["name"]] = runtime.asdevicearray(config.device, array)
    return []


def read(request, data):
    return [bytes_of(state[port["name"]], port) for port in request["ports"]]


def run(request, data):
    function, arguments, results = programs[request["program"]]
    given = arrays_of([port for port in arguments if port["role"] in ("input", "scalar")], data)
    values = [runtime.asdevicearray(config.device, next(given)) if port["role"] in ("input", "scalar")
              else state[port["name"]] for port in arguments]
    found = function(*values)
    found = found if isinstance(found, (tuple, list)) else [found]
    del values
    for port, value in zip(results, found):
        if port["role"] == "update":  # what it was is gone: the module may have written over it
            state[arguments[port["argument"]]["name"]] = value
    return [bytes_of(value, port) for port, value in zip(results, found) if port["role"] == "output"]


while True:
    sizes = struct.unpack("<QQ", receive(16))
    request = json.loads(receive(sizes[0]))
    data = receive(sizes[1])
    try:
        parts, sign = globals()[request["command"]](request, data), b"y"
    except Exception as error:
        parts, sign = [f"{type(error).__name__}: {error}".encode()], b"n"
    del data
    try:
        connection.sendall(sign + struct.pack("<Q", sum(len(part) for part in parts)))
        for part in parts:
            connection.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)
    del parts
)python";

}  // namespace tutti::graph::iree
