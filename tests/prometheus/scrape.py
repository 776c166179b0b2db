# SPDX-License-Identifier: MIT
"""The part of run.sh that needs processes: a daemon, the exporter and Prometheus."""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

BUILD = sys.argv[1]
RULES = ["systemd/prometheus/gpushm.rules.yml", "systemd/prometheus/gpushm-relay.rules.yml"]
DASHBOARD = "systemd/prometheus/gpushm-dashboard.json"
DEADLINE = 120  # seconds; to fail rather than to hang, never to be right
checks = failures = 0


def check(right, what):
    global checks, failures
    checks += 1
    if not right:
        failures += 1
        print(f"prometheus: failed: {what}", file=sys.stderr)


def await_(what, attempt):
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        value = attempt()
        if value:
            return value
        time.sleep(0.1)
    raise TimeoutError(what)


def program(name):
    return os.path.join(BUILD, name)


def run(*words, **more):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)


# ---- what is checked without a server ----


def check_text(text):
    done = run("promtool", "check", "metrics", input=text)
    check(done.returncode == 0 and not done.stdout, f"promtool check metrics: {done.stdout}")


def rules_text():
    text = ""
    for path in RULES:
        with open(path, encoding="utf-8") as f:
            text += f.read()
    return text


def check_rules():
    for words in (("check", "rules", *RULES), ("test", "rules", "tests/prometheus/rules_test.yml")):
        done = run("promtool", *words)
        check(done.returncode == 0, f"promtool {' '.join(words)}: {done.stdout}")
    alerts = re.findall(r"alert: (\w+)", rules_text())
    with open("tests/prometheus/rules_test.yml", encoding="utf-8") as f:
        tested = set(re.findall(r"alertname: (\w+)\n *exp_alerts:\n", f.read()))
    check(alerts and set(alerts) == tested, f"alerts without a test that they fire: {set(alerts) - tested}")


def expressions():
    """Of all alerts and panels, with values for Grafana's variables."""
    found = re.findall(r"^ *expr: (.*)$", rules_text(), re.M)
    with open(DASHBOARD, encoding="utf-8") as f:
        panels = json.load(f)["panels"]
    check(len(panels) > 10 and len({p["id"] for p in panels}) == len(panels), "panels with one id")
    found += [t["expr"] for p in panels for t in p["targets"]]
    return [e.replace("$__rate_interval", "1m").replace("$instance", ".*") for e in found]


def check_names(text):
    """Each metric of an expression is one that is printed."""
    there = set(re.findall(r"^(?:# TYPE )?(gpushm_\w+)", text, re.M))
    for e in expressions():
        for name in re.findall(r"\bgpushm_\w+", e):
            check(name in there, f"{name} is not printed: {e}")


def check_openmetrics(text):
    """By the strict parser of Prometheus' Python client, where it is installed."""
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
    except ImportError:
        return
    families = list(text_string_to_metric_families(text))
    check(len(families) > 20, f"{len(families)} families")


# ---- servers ----


class Servers:
    def __init__(self, folder):
        self.folder, self.all = folder, []
        self.socket = os.path.join(folder, "sock")
        self.start("gpushmd", program("gpushmd"), "--socket", self.socket)
        await_("the daemon", lambda: run(*self.ctl("status")).returncode == 0)
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
            self.port, self.exporter = free.getsockname()[1], other.getsockname()[1]
        self.start("exporter", program("gpushm-exporter"), "--socket", self.socket,
                   "--listen", f"127.0.0.1:{self.exporter}")
        self.relay = self.start_relay()
        self.start_prometheus()

    def start_relay(self):
        """Returns its port; 0 where it is not built."""
        if not os.path.exists(program("gpushm-relay")):
            return 0
        config = os.path.join(self.folder, "relay.conf")
        with open(config, "w", encoding="utf-8") as f:
            f.write(f"[relay]\nsocket={self.socket}\n")
        self.start("relay", program("gpushm-relay"), "--config", config, "--listen", "127.0.0.1:0")
        log = os.path.join(self.folder, "relay.log")
        return int(await_("the relay", lambda: re.search(r"http://127.0.0.1:(\d+)", open(log, encoding="utf-8").read()))[1])

    def relay_metrics(self):
        """Without a relay, names only. Its first reply counts in the second one."""
        if not self.relay:
            return "\n".join(re.findall(r"gpushm_relay_\w+", rules_text()))
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.relay}/metrics", timeout=DEADLINE) as r:
                text = r.read().decode()
        check_text(text)
        return text

    def start(self, name, *command):
        with open(os.path.join(self.folder, name + ".log"), "w", encoding="utf-8") as log:
            self.all.append(subprocess.Popen(command, stdout=log, stderr=log))

    def start_prometheus(self):
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as f:
            f.write("global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }\n"
                    f"rule_files: [ {', '.join(map(os.path.abspath, RULES))} ]\n"
                    "scrape_configs:\n  - job_name: gpushm\n    static_configs:\n"
                    f"      - targets: [ '127.0.0.1:{self.exporter}' ]\n")
        self.start("prometheus", "prometheus", "--config.file", config, "--web.listen-address",
                   f"127.0.0.1:{self.port}", "--storage.tsdb.path", os.path.join(self.folder, "data"))

    def ctl(self, *words):
        return (program("gpushmctl"), "--socket", self.socket, *words)

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE) as r:
                return json.load(r)["data"]
        except urllib.error.HTTPError as e:
            if e.code == 503:  # it starts
                return None
            check(False, f"{query}: {e.read().decode()}")
            return {"result": []}
        except OSError:
            return None

    def value(self, expression):
        data = self.ask("query", query=expression)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def end(self):
        for p in reversed(self.all):
            p.terminate()
            p.wait(DEADLINE)


def check_scrape(s):
    for _ in range(3):
        run(*s.ctl("stat", "nothing"))
    stat = 'gpushm_requests_total{verb="stat",result="NOT_FOUND"}'
    await_("the counts", lambda: s.value(stat) == 3)
    await_("up", lambda: s.value("up") == 1 and s.value("gpushm_up") == 1)
    await_("the target", lambda: s.ask("targets")["activeTargets"][0]["health"] == "up")
    await_("the histogram", lambda: s.value("gpushm_request_seconds_bucket{verb='stat',le='+Inf'}") == 3)
    check(s.value("time() - gpushm_start_time_seconds < bool 3600") == 1, "the daemon's start")
    for e in expressions():
        check(s.ask("query", query=e) is not None, e)
    rules = [r for g in s.ask("rules")["groups"] for r in g["rules"]]
    check(len(rules) >= 10 and all(r["health"] in ("ok", "unknown") for r in rules), "the health of a rule")
    if os.path.exists(os.path.join(BUILD, "fakecuda/libcuda.so.1")):
        check(s.value('count(gpushm_pool_size_bytes{UUID=~"GPU-[0-9a-f-]{36}"})') == 2, "the label UUID")
        check((s.value('gpushm_driver_calls_seconds_count{call="cuMemCreate"}') or 0) > 0, "driver calls")


def main():
    check_rules()
    with tempfile.TemporaryDirectory() as folder:
        s = None
        try:
            s = Servers(folder)
            # A wait, so that all families have a sample.
            run(*s.ctl("wait", "--timeout", "10ms", "nothing"))
            text = run(*s.ctl("metrics", "--format", "prometheus")).stdout
            check_text(text)
            check_names(text + s.relay_metrics())
            check_openmetrics(run(*s.ctl("metrics")).stdout)
            check_scrape(s)
        finally:
            if s:
                s.end()
    print(f"{(checks - failures) * 100 // checks}%: Checks: {checks}, Failures: {failures}, Errors: 0")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
