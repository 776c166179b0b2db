# SPDX-License-Identifier: MIT
"""Many machines on this one, in figures: network namespaces on one bridge, as in tests/nodes.

    BUILD=build python3 tests/bench/nodes/bench.py [--out FOLDER] [--mib N] [--rounds N] [--only ROW,...]

Each round does all ways of a row one after the other. A way's figure is its median, and a ratio is the median of the
rounds' ratios: what else the machine does changes from second to second, and both sides of a ratio share its cores.
Rates of pulls and loads are those of gpushmctl's report: from the first byte that is asked for to the last one that
is written. Writes nodes.json to FOLDER, which plot.py draws and fleet.py takes its rates from.
"""
import argparse
import http.client
import json
import os
import platform
import re
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "nodes"), str(HERE.parent.parent / "python")]

import namespaces  # noqa: E402
from certificates import Authority  # noqa: E402
from node import BUILD, Node  # noqa: E402

from daemon import Daemon  # noqa: E402

MIB = 1 << 20
CONNECTIONS = 12  # of a pull, and of curl beside it
EIGHT = 8


def write_model(path, size, tensors):
    """A safetensors file. A block of random bytes is repeated: making others would take longer than the benchmark."""
    each, block = size // tensors, os.urandom(4 * MIB)
    text = json.dumps({f"layers.{i}.weight": {"dtype": "U8", "shape": [each], "data_offsets": [i * each, (i + 1) * each]}
                       for i in range(tensors)}).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, each * tensors, len(block)):
            f.write(block[: each * tensors - at])


class LeftOut(Exception):
    """Why a way can't be measured here."""


class Peak:
    """The most private memory that a process had, without the buffers that it maps: RssAnon, sampled."""

    def __init__(self, pid):
        self.path, self.bytes, self.ended = Path(f"/proc/{pid}/status"), 0, threading.Event()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()

    def sample(self):
        while not self.ended.wait(0.005):
            try:
                found = re.search(r"RssAnon:\s+(\d+) kB", self.path.read_text())
            except OSError:
                return
            if found:
                self.bytes = max(self.bytes, int(found[1]) * 1024)

    def end(self):
        self.ended.set()
        self.thread.join()
        return self.bytes


def await_port(node, port):
    """Until a server that was started listens there. A connection that is tried would make iperf3 print an error."""
    end = time.monotonic() + 30
    while not node.run("ss", "-Hltn", f"sport = :{port}").stdout:
        if time.monotonic() > end:
            raise TimeoutError(f"nothing listens at port {port} of {node.address}")
        time.sleep(0.02)


def finds_nixl(node):
    return bool(re.search(r"nixl.*(found|opened|/)", node.ctl("doctor", check=False).stdout, re.I))


class Lab:
    """A machine that has a model and offers it by relays and by nginx, and one that gets it."""

    def __init__(self, folder, mib):
        self.folder, self.bytes = folder, mib * MIB
        self.file = folder / "model.safetensors"
        write_model(self.file, self.bytes, tensors=32)
        pools = f"[pool host]\nkind=host\nsize={mib + 64}M\n"
        self.authority = Authority(folder / "ca")
        self.source, self.puller = Node(pools=pools), Node(pools=pools)
        self.nginx = None

    def start(self):
        for node in (self.source, self.puller):
            node.join(self.authority)
        self.source.ctl("load", self.file, "model")
        allowed = "[allow *]\noffer=*\n"
        nixl = "nixl=yes\n" if finds_nixl(self.puller) else ""
        self.plain = self.source.relay(nixl, insecure=True)
        self.tls = self.source.relay(allowed)
        self.source.start("iperf3", "-s", stdout=subprocess.DEVNULL)
        self.start_nginx()
        for port in (5201, 8080, 8443):
            await_port(self.source, port)

    def start_nginx(self):
        at, mine = self.source.address, self.source.certificate
        # Its own are Debian's folders, which are there where its package is installed.
        temporary = "; ".join(f"{of}_temp_path {self.folder}/nginx" for of in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(
            f"user root; daemon off; pid {self.folder}/nginx.pid; error_log stderr crit; worker_processes auto;\n"
            "events { worker_connections 256; }\n"
            f"http {{ access_log off; sendfile on; root {self.folder};\n"
            f"{temporary};\n"
            f"server {{ listen {at}:8080; }}\n"
            f"server {{ listen {at}:8443 ssl http2; ssl_certificate {mine.cert}; ssl_certificate_key {mine.key}; }} }}\n")
        self.nginx = self.source.start("nginx", "-e", "stderr", "-p", self.folder, "-c", self.folder / "nginx.conf")
        self.web = {"http": f"http://{at}:8080/{self.file.name}", "https": f"https://{at}:8443/{self.file.name}"}

    def remove(self):
        if self.nginx:
            self.nginx.terminate()
            self.nginx.wait()
        self.puller.remove()
        self.source.remove()

    # ---- ways: each returns bytes/s ----

    def iperf(self):
        """-R: the source sends."""
        done = self.puller.run("iperf3", "-c", self.source.address, "-R", "-P8", "-t2", "-J")
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8

    def get(self, *command):
        """A pull or load, and the buffer goes again."""
        done = self.puller.ctl(*command, "--json=short")
        self.puller.ctl("rm", "model")
        return self.bytes / json.loads(done.stdout)["seconds"]

    def pull(self, relay, *more):
        return self.get("pull", relay.source("model"), "model", *more)

    def load(self, scheme):
        return self.get("load", self.web[scheme], "model")

    def curl(self, url, *more):
        """All ranges at once, to nowhere."""
        size = self.file.stat().st_size
        command = ["curl", "-sS", "--parallel", "--parallel-immediate", "--parallel-max", CONNECTIONS]
        for i in range(CONNECTIONS):
            command += ["--next"] * (i > 0) + ["--fail", "--cacert", self.authority.cert, *more, "-o", "/dev/null"]
            command += ["-r", f"{size * i // CONNECTIONS}-{size * (i + 1) // CONNECTIONS - 1}", url]
        began = time.monotonic()
        self.puller.run(*command)
        return size / (time.monotonic() - began)

    def curl_relay(self):
        mine = self.puller.certificate
        return self.curl(self.tls.source("model"), "--cert", mine.cert, "--key", mine.key)


# ---- rows ----


def in_turns(ways, rounds):
    """{label: bytes/s of each round}; a way that fails is left out, with its reason."""
    figures, errors = {label: [] for label in ways}, {}
    for _ in range(rounds):
        for label, way in ways.items():
            if label in errors:
                continue
            try:
                figures[label].append(way())
            except (LeftOut, AssertionError, OSError, subprocess.SubprocessError) as e:
                errors[label] = str(getattr(e, "stderr", "") or e).strip().splitlines()[-1][:200]
    return figures, errors


def row(what, ways, rounds, unit="GB/s", divisor=1e9, wanted=()):
    """wanted: (label, beside, least ratio)."""
    figures, errors = in_turns(ways, rounds)
    result = {"what": what, "unit": unit, "ways": []}
    for label in ways:
        if label in errors:
            result["ways"].append({"label": label, "error": errors[label]})
        else:
            result["ways"].append({"label": label, "median": statistics.median(figures[label]) / divisor,
                                   "min": min(figures[label]) / divisor, "max": max(figures[label]) / divisor})
    result["ratios"] = [judge(figures, *want) for want in wanted if figures[want[0]] and figures[want[1]]]
    return result


def judge(figures, label, beside, wanted):
    ratios = [a / b for a, b in zip(figures[label], figures[beside])]
    return {"label": label, "beside": beside, "median": statistics.median(ratios), "min": min(ratios),
            "max": max(ratios), "wanted": wanted}


def row_pull(lab, options):
    return row("pull between two machines, host pools", {
        "iperf3 -P8": lab.iperf,
        "pull, http": lambda: lab.pull(lab.plain),
        "pull, https": lambda: lab.pull(lab.tls),
        "curl --parallel, http, of the relay": lambda: lab.curl(lab.plain.source("model")),
        "curl --parallel, https, of the relay": lab.curl_relay,
    }, options.rounds, wanted=[("pull, http", "iperf3 -P8", 0.85), ("pull, https", "iperf3 -P8", 0.6)])


def row_link(lab, options):
    """Where the network is slower than the memory: what the protocol itself costs."""
    rate = "1gbit"
    lab.source.limit(up=rate)
    try:
        return row(f"pull over a link of {rate}, host pools", {
            "iperf3 -P8": lab.iperf,
            "pull, http": lambda: lab.pull(lab.plain),
            "pull, https": lambda: lab.pull(lab.tls),
        }, options.rounds, wanted=[("pull, http", "iperf3 -P8", 0.85), ("pull, https", "iperf3 -P8", 0.6)])
    finally:
        lab.source.unlimit()


def row_nginx(lab, options):
    return row("load from nginx", {
        "load, http": lambda: lab.load("http"),
        "curl --parallel, http": lambda: lab.curl(lab.web["http"]),
        "load, https": lambda: lab.load("https"),
        "curl --parallel, https, 12 connections": lambda: lab.curl(lab.web["https"], "--http1.1"),
        "curl --parallel, https, HTTP/2, one connection": lambda: lab.curl(lab.web["https"], "--http2"),
    }, options.rounds, wanted=[("load, http", "curl --parallel, http", 0.9),
                               ("load, https", "curl --parallel, https, 12 connections", 0.9)])


def row_nixl(lab, options):
    if not finds_nixl(lab.puller):
        raise LeftOut("no NIXL here: pip install nixl-cu12, or set GPUSHM_NIXL")
    return row("pull by NIXL, host memory, TCP", {
        "pull, http": lambda: lab.pull(lab.plain),
        "pull --via nixl": lambda: lab.pull(lab.plain, "--via", "nixl"),
    }, options.rounds, wanted=[("pull --via nixl", "pull, http", None)])


def row_memory(lab, options):
    """Private memory, the buffer itself not counted."""
    result = {"what": "peak of private memory", "unit": "MiB", "ways": [], "ratios": []}
    for label, relay in (("http", lab.plain), ("https", lab.tls)):
        of_relay = Peak(relay.process.pid)
        pull = lab.puller.start_ctl("pull", relay.source("model"), "model")
        of_puller = Peak(pull.pid)
        pull.communicate()
        for who, peak in (("relay", of_relay), ("puller", of_puller)):
            peak = peak.end() / MIB
            result["ways"].append({"label": f"{who}, {label}", "median": peak, "min": peak, "max": peak})
        lab.puller.ctl("rm", "model")
    return result


class Eight:
    """Eight machines and a source, each with a link of this rate."""

    def __init__(self, file, rate):
        pools = "[pool host]\nkind=host\nsize=160M\n"
        self.bytes = file.stat().st_size
        self.source = Node(pools=pools)
        self.nodes = [Node(pools=pools) for _ in range(EIGHT)]
        self.source.ctl("load", file, "model")
        self.relay = self.source.relay(insecure=True)
        for node in [self.source, *self.nodes]:
            node.limit(up=rate)
            assert node.daemon

    def one_by_one(self):
        began = time.monotonic()
        for node in self.nodes:
            node.ctl("pull", self.relay.source("model"), "model")
            node.ctl("rm", "model")
        return time.monotonic() - began

    def together(self):
        """The seconds, from the start of their relays on, and how many copies the source has sent."""
        began, sent = time.monotonic(), self.source.bytes_sent()
        for node in self.nodes:
            node.relay(f"[pull model]\nsource={self.relay.source('model')}\n", insecure=True)
        for node in self.nodes:
            node.ctl("wait", "model", "--timeout", 120)
        return time.monotonic() - began, (self.source.bytes_sent() - sent) / self.bytes

    def remove(self):
        for node in [self.source, *self.nodes]:
            node.remove()


def row_eight(lab, options):
    """Seconds for eight machines, from a source whose link is slow. One machine after the other is measured once."""
    rate, file = "400mbit", lab.folder / "eight.safetensors"
    write_model(file, 128 * MIB, tensors=8)
    apart, together, copies = 0, [], []
    for _ in range(options.rounds):
        eight = Eight(file, rate)
        try:
            apart = apart or eight.one_by_one()
            seconds, sent = eight.together()
        finally:
            eight.remove()
        together.append(seconds)
        copies.append(sent)
    ways = [("one after the other", [apart]), ("all at once, by their relays", together)]
    ratios = [t / apart for t in together]
    return {"what": f"eight machines from one source of {rate}", "unit": "s", "copies_from_source": statistics.median(copies),
            "ways": [{"label": label, "median": statistics.median(s), "min": min(s), "max": max(s)} for label, s in ways],
            "ratios": [{"label": ways[1][0], "beside": ways[0][0], "median": statistics.median(ratios), "min": min(ratios),
                        "max": max(ratios), "wanted": -3.5 / 8}]}


def row_gpu(lab, options):
    """Over the loopback, without namespaces: a GPU machine may have none."""
    if not Path("/dev/nvidiactl").exists():
        raise LeftOut("no GPU here")
    size = options.mib * MIB
    pools = f"[pool host]\nkind=host\nsize={3 * options.mib}M\n[pool gpu0]\nkind=vmm\ndevice=0\nsize={2 * options.mib}M\n"
    daemon = Daemon(pools)
    env = os.environ | {"GPUSHM_SOCKET": daemon.socket}

    def ctl(*arguments):
        return subprocess.run([BUILD / "gpushmctl", *map(str, arguments)], env=env, check=True, text=True,
                              capture_output=True).stdout

    config = lab.folder / "relay.conf"
    config.write_text("[relay]\n")
    ctl("load", lab.file, "model", "--pool", "host")
    relay = subprocess.Popen([BUILD / "gpushm-relay", "--config", config, "--listen", "127.0.0.1:0"], env=env,
                             stderr=subprocess.PIPE, text=True)
    url = next(m[0] for m in (re.search(r"https?://[^\s/]+:\d+", line) for line in relay.stderr) if m)

    def pull(pool):
        report = json.loads(ctl("pull", f"{url}/v1/buffers/model", "copy", "--pool", pool, "--json=short"))
        ctl("rm", "copy")
        return size / report["seconds"]

    try:
        return row("pull to a GPU, loopback", {"to a host pool": lambda: pull("host"), "to the GPU": lambda: pull("gpu0")},
                   options.rounds, wanted=[("to the GPU", "to a host pool", 0.95)])
    finally:
        relay.terminate()
        relay.communicate()
        daemon.remove()


ROWS = {"pull": row_pull, "link": row_link, "nginx": row_nginx, "eight": row_eight, "nixl": row_nixl, "memory": row_memory, "gpu": row_gpu}


# ---- what the simulation takes from here ----


def seconds_of_requests(lab):
    """Medians: of a connection with TLS, and of a request for one byte on it, without the network's delay."""
    context = ssl.create_default_context(cafile=lab.authority.cert)
    context.load_cert_chain(lab.puller.certificate.cert, lab.puller.certificate.key)
    context.check_hostname = False
    connects, requests = [], []
    host, port = lab.tls.url.split("//")[1].split(":")
    for _ in range(9):
        began = time.monotonic()
        c = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
        c.connect()
        connects.append(time.monotonic() - began)
        for _ in range(5):
            began = time.monotonic()
            c.request("GET", "/v1/buffers/model", headers={"Range": "bytes=0-0"})
            c.getresponse().read()
            requests.append(time.monotonic() - began)
        c.close()
    return statistics.median(connects), statistics.median(requests)


def for_simulation(lab, rows):
    rates = [w["median"] * 1e9 for r in rows for w in r["ways"] if w["label"] == "pull, https" and "median" in w]
    connect, request = seconds_of_requests(lab)
    return {"connect_s": connect, "request_s": request} | ({"relay": rates[0], "puller": rates[0]} if rates else {})


# ---- output ----


def print_row(r):
    print(f"\n{r['what']}, {r['unit']}")
    for way in r["ways"]:
        if "error" in way:
            print(f"  {way['label']:48} left out: {way['error']}")
        else:
            print(f"  {way['label']:48}{way['median']:8.2f}   ({way['min']:.2f} to {way['max']:.2f})")
    for ratio in r["ratios"]:
        aim = ratio["wanted"]
        words = "" if aim is None else f", wanted {'<=' if aim < 0 else '>='} {abs(aim):.2f}"
        print(f"  {ratio['label']} / {ratio['beside']}: {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}){words}")
    if "copies_from_source" in r:
        print(f"  the source sent {r['copies_from_source']:.2f} copies to the eight")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(ROWS))
    options = parser.parse_args()
    why = namespaces.enter() or next((f"no {p}" for p in ("iperf3", "nginx", "curl", "openssl") if not shutil.which(p)), "")
    if why:
        print(f"bench-nodes: skipped: {why}")
        return 0
    rows = []
    with tempfile.TemporaryDirectory(prefix="gpushm-bench-", dir="/dev/shm") as folder:
        lab = Lab(Path(folder), options.mib)
        try:
            lab.start()
            for name in options.only.split(","):
                try:
                    rows.append(ROWS[name](lab, options) | {"id": name})
                    print_row(rows[-1])
                except LeftOut as e:
                    print(f"\n{name}: skipped: {e}", flush=True)
            result = {"machine": f"Linux {platform.release()}, {os.cpu_count()} cores", "mib": options.mib,
                      "rounds": options.rounds, "rows": rows, "simulation": for_simulation(lab, rows)}
        finally:
            lab.remove()
    if options.out:
        Path(options.out, "nodes.json").write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
