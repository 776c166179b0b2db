#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gpushm-exporter and gpushmctl metrics with a real daemon: numbers, HTTP, and hostile clients.

Known requests are made and the counts must grow by exactly these. The daemon dies, stops and comes
back. Everything is started from the build folder ($BUILD, else build) and ended again.
"""
import http.client
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.environ.get("BUILD", "build")
DEADLINE = 120  # seconds; to fail rather than to hang, never to be right
SLOW_S = 5  # that a client may take: CLIENTS_S of client/ctl/exporter/server.c
OPENMETRICS = "application/openmetrics-text"
checks = failures = 0


def check(right, what):
    global checks, failures
    checks += 1
    if not right:
        failures += 1
        print(f"exporter.py: failed: {what}", file=sys.stderr)


# ---- the programs ----


class Daemon:
    def __init__(self, folder):
        self.folder = folder
        self.socket = os.path.join(folder, "sock")
        self.process = None
        self.start()

    def start(self):
        config, notify = (os.path.join(self.folder, name) for name in ("conf", "notify"))
        with open(config, "w", encoding="ascii") as f:
            f.write("[pool host]\nkind=host\nsize=64M\n[pool small]\nkind=host\nsize=1M\n")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(notify)
            ready.settimeout(DEADLINE)
            command = [os.path.join(BUILD, "gpushmd"), "--no-keeper", "--config", config, "--socket", self.socket]
            self.process = subprocess.Popen(command, env=dict(os.environ, NOTIFY_SOCKET=notify), stderr=subprocess.DEVNULL)
            while b"READY=1" not in ready.recv(4096):
                pass
        os.unlink(notify)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        return self.process.wait(DEADLINE)


class Exporter:
    def __init__(self, path, *options):
        command = [os.path.join(BUILD, "gpushm-exporter"), "--listen", "127.0.0.1:0", "--socket", path, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/metrics", line).group(1))

    def ask(self, method="GET", url="/metrics", body=None, **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        c.request(method, url, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, dict(r.getheaders()), text

    def samples(self):
        """Of a daemon that replies; on a busy machine one scrape may be too early."""
        until = time.monotonic() + DEADLINE
        found = {}
        while found.get("gpushm_up") != 1 and time.monotonic() < until:
            found = samples(self.ask(Accept=OPENMETRICS)[2])
        return found

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), DEADLINE)
        s.settimeout(DEADLINE)
        return s

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(DEADLINE) == 0, "the exporter did not end well")
        self.process.stderr.close()


def ctl(daemon, *words, status=0):
    done = subprocess.run([os.path.join(BUILD, "gpushmctl"), "--socket", daemon.socket, *words],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    check(done.returncode == status, f"gpushmctl {' '.join(words)}: {done.returncode}, {done.stderr}")
    return done.stdout


def samples(text):
    """{sample with its labels: number}"""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, _, value in lines}
    check(len(found) == len(lines), "a sample occurs twice")
    return found


def grown(before, after):
    """What has changed, without times."""
    changes = {name: value - before.get(name, 0) for name, value in after.items() if not re.search("_seconds", name)}
    return {name: value for name, value in changes.items() if value}


# ---- numbers ----


def requests(**results):
    """requests(stat="NOT_FOUND") is the sample's name."""
    (verb, result), = results.items()
    return f'gpushm_requests_total{{verb="{verb}",result="{result}"}}'


def test_metrics_count_what_happened(daemon, exporter):
    before = exporter.samples()
    ctl(daemon, "stat", "nothing", status=3)
    ctl(daemon, "stat", "nothing", status=3)
    ctl(daemon, "create", "--pool", "small", "--size", "2M", "big", status=1)
    ctl(daemon, "put", "tests/data/w1.npy", "w")
    after = exporter.samples()
    file = os.path.getsize("tests/data/w1.npy")
    got = grown(before, after)
    expected = {requests(hello="OK"): 4, requests(stat="NOT_FOUND"): 2, requests(create="TOO_LARGE"): 1,
                requests(create="OK"): 1, requests(describe="OK"): 1, requests(publish="OK"): 1, requests(close="OK"): 1,
                'gpushm_refusals_total{code="NOT_FOUND"}': 2, 'gpushm_refusals_total{code="TOO_LARGE"}': 1,
                'gpushm_buffers{pool="host",state="sealed"}': 1}
    used = got.pop('gpushm_pool_used_bytes{pool="host",kind="host"}', 0)
    got.pop("gpushm_open_fds", None)
    scrapes = [got.pop(requests(**{verb: "OK"}), 0) for verb in ("status", "metrics")]
    check(min(scrapes) >= 1, f"{scrapes} STATUS and METRICS of at least one scrape")
    check(got == expected, f"counts that differ: {set(got.items()) ^ set(expected.items())}")
    check(file // 4096 * 4096 <= used <= file + 4096, f"{used} bytes used of a file of {file}")
    check(after['gpushm_pool_size_bytes{pool="host",kind="host"}'] == 64 << 20, "the pool's size")
    check(before["gpushm_up"] == after["gpushm_up"] == 1, "up")
    # Each request that did not wait has its time.
    for verb in ("stat", "create", "hello"):
        results = sum(v for k, v in after.items() if k.startswith(f'gpushm_requests_total{{verb="{verb}"'))
        check(results == after[f'gpushm_request_seconds_count{{verb="{verb}"}}'], f"times of {verb}")
    ctl(daemon, "rm", "w")
    check(exporter.samples()['gpushm_buffers{pool="host",state="sealed"}'] == 0, "an unlinked buffer is counted")


def test_metrics_have_the_format_that_was_asked_for(daemon, exporter):
    status, headers, text = exporter.ask(Accept=f"{OPENMETRICS};version=1.0.0;q=0.5,text/plain;q=0.1")
    check(status == 200 and headers["Content-Type"].startswith(OPENMETRICS) and text.endswith("# EOF\n"), "OpenMetrics")
    check("# TYPE gpushm_requests counter\n" in text and "# UNIT gpushm_pool_used_bytes bytes\n" in text, "its heads")
    status, headers, text = exporter.ask()
    check(status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", "the classic format")
    check("# TYPE gpushm_requests_total counter\n" in text and "# EOF" not in text and "# UNIT" not in text, "its heads")
    printed = ctl(daemon, "metrics", "--format", "prometheus")

    def names(of):
        return re.findall("^# TYPE .*$", of, re.M)

    check(names(printed) == names(text), "gpushmctl metrics has other families")
    check(ctl(daemon, "metrics").endswith("# EOF\n"), "gpushmctl metrics is OpenMetrics")
    ctl(daemon, "--json", "short", "metrics", status=2)
    check("uid=" not in text, "a label of users without --by-owner")
    me = f'gpushm_owner_peers{{uid="{os.getuid()}"'
    check(any(s.startswith(me) for s in samples(ctl(daemon, "metrics", "--by-owner"))), "gpushmctl metrics --by-owner")
    by_owner = Exporter(daemon.socket, "--by-owner")
    check(any(s.startswith(me) for s in by_owner.samples()), "--by-owner")
    by_owner.end()


# ---- HTTP ----


def test_valid_requests_are_served_and_others_refused(exporter):
    for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"):
        status, headers, _ = exporter.ask(method, body=b"x" * 100000 if method in ("POST", "PUT") else None)
        check(status == 405 and headers["Allow"] == "GET", f"{method}: {status}")
    for url in ("/nothing", "/metrics/", "//metrics", "/metrics/../metrics", "/%6detricss"):
        check(exporter.ask(url=url)[0] == 404, url)
    status, _, text = exporter.ask(url="/")
    check(status == 200 and 'href="/metrics"' in text, "the index")
    check(exporter.ask(body=b"x" * 100000)[0] == 200, "a GET with a body")
    check(exporter.ask(url="/metrics?x=1")[0] == 200, "a query")
    check(exporter.ask(url="/" + "a" * 100000)[0] == 414, "a long URL")
    check(exporter.ask(X=("b" * 100000))[0] in (413, 431), "a long header")
    for rubbish in (b"\0" * 1000, b"\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\r\n" * 5000):
        with exporter.connect() as s:
            s.sendall(rubbish)
            s.shutdown(socket.SHUT_WR)
            read_to_end(s)
    with exporter.connect() as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 3 + b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = read_to_end(s)
        check(got.count(b"HTTP/1.1 200") == 4, f"pipelined requests: {got}")


def read_to_end(s):
    out = b""
    try:
        while piece := s.recv(65536):
            out += piece
    except ConnectionResetError:
        pass
    return out


def trickle(s):
    """Sends a header that never ends, a byte at a time, until the exporter has had enough."""
    s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    s.settimeout(0.2)
    for _ in range(5 * DEADLINE):
        try:
            s.send(b"x")
            if s.recv(4096) == b"":
                return True
        except TimeoutError:
            pass
        except (ConnectionResetError, BrokenPipeError):
            return True
    return False


def test_a_scrape_is_served_beside_many_silent_clients(exporter):
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(1000, most - 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, n + 100), most))
    silent = [exporter.connect() for _ in range(n)]
    for s in silent[::2]:
        s.sendall(b"GET /metrics HTTP/1.1\r\n")
    check(exporter.samples()["gpushm_up"] == 1, f"no scrape beside {n} silent clients")
    check(trickle(exporter.connect()), "a client that sends a byte at a time is served for ever")
    for s in silent:
        read_to_end(s)
        s.close()
    check(exporter.samples()["gpushm_up"] == 1, "no scrape after them")
    fds = len(os.listdir(f"/proc/{exporter.process.pid}/fd"))
    check(fds < 50, f"{fds} descriptors are still open")


# ---- a daemon that goes ----


def test_a_missing_daemon_is_told_as_down(daemon, exporter):
    check(daemon.end(signal.SIGKILL) == -signal.SIGKILL, "the daemon had ended")
    status, _, text = exporter.ask()
    check(status == 200 and samples(text) == {"gpushm_up": 0}, f"without a daemon: {status} {text}")
    ctl(daemon, "metrics", status=4)
    daemon.start()
    end = time.monotonic() + DEADLINE
    while exporter.samples()["gpushm_up"] == 0 and time.monotonic() < end:
        pass  # on a busy machine it replies too late for a scrape
    check(exporter.samples()["gpushm_up"] == 1, "the next daemon is not found")
    daemon.process.send_signal(signal.SIGSTOP)
    for _ in range(2):
        status, _, text = exporter.ask()
        check(status == 200 and samples(text) == {"gpushm_up": 0}, "with a daemon that hangs")
    daemon.process.send_signal(signal.SIGCONT)
    check(exporter.samples()["gpushm_up"] == 1, "a daemon that goes on is not found")


def test_wrong_options_are_refused():
    program = os.path.join(BUILD, "gpushm-exporter")

    def run(*words):
        return subprocess.run([program, *words], capture_output=True, text=True, timeout=DEADLINE, check=False)

    check("--listen" in run("--help").stdout, "--help")
    check(run("--version").stdout.startswith("gpushm-exporter "), "--version")
    check(run("--nonsense").returncode == 2 and run("word").returncode == 2, "wrong options")
    for address in ("", "nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "::1:80", "127.0.0.1:70000", "300.1.1.1:80"):
        done = run("--listen", address)
        check(done.returncode == 1 and done.stderr.startswith(f"gpushm-exporter: {address}: "), f"--listen {address!r}")


def main():
    if not os.path.exists(os.path.join(BUILD, "gpushm-exporter")):
        print("skipped: no gpushm-exporter (libmicrohttpd)")
        print("100%: Checks: 0, Failures: 0, Errors: 0")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(folder)
        exporter = Exporter(daemon.socket)
        try:
            test_metrics_count_what_happened(daemon, exporter)
            test_metrics_have_the_format_that_was_asked_for(daemon, exporter)
            test_valid_requests_are_served_and_others_refused(exporter)
            test_a_scrape_is_served_beside_many_silent_clients(exporter)
            test_a_missing_daemon_is_told_as_down(daemon, exporter)
            test_wrong_options_are_refused()
        except Exception:  # pylint: disable=broad-except
            check(False, traceback.format_exc())
        finally:
            exporter.end()
            check(daemon.end() == 0, "the daemon did not end well")
    print(f"{(checks - failures) * 100 // checks}%: Checks: {checks}, Failures: {failures}, Errors: 0")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
