"""The two servers of the twin test: requests to them, and how they are started side by side."""
import base64
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("CONFORMANCE_BIN", os.path.expanduser("~/.cache/realhost/bin"))
AGENT = "twin"
ATTEMPTS = 4
# Upstream's code stumbles over a few objects, and closes the connection.
NO_ANSWER = 0


class Server:
    """Requests to the server of a kubeconfig, one connection per thread."""

    def __init__(self, kubeconfig, token=None):
        """With `token` this is who asks, whatever the kubeconfig says: what a server knows of its user must not differ."""
        kubectl = shutil.which("kubectl") or os.path.join(BIN, "kubectl")
        command = [kubectl, "--kubeconfig", kubeconfig, "config", "view", "--raw", "--flatten", "--minify", "-o", "json"]
        config = json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.address = urllib.parse.urlparse(cluster["server"])
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)
        self.headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": AGENT}
        if token or "token" in user:
            self.headers["Authorization"] = "Bearer " + (token or user["token"])
        if not token and "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
                pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"]))
                pem.flush()
                self.tls.load_cert_chain(pem.name)
        self.local = threading.local()

    def send(self, method, path, body=None):
        """Status, answer and warnings."""
        headers = {**self.headers, "Content-Type": "application/merge-patch+json"} if method == "PATCH" else self.headers
        data = None if body is None else json.dumps(body)
        for attempt in range(ATTEMPTS):
            if not hasattr(self.local, "connection"):
                self.local.connection = http.client.HTTPSConnection(self.address.hostname, self.address.port, context=self.tls, timeout=60)
            try:
                self.local.connection.request(method, path, data, headers)
                response = self.local.connection.getresponse()
                text = response.read()
            except (http.client.HTTPException, OSError):
                self.local.connection.close()
                del self.local.connection
                if attempt == ATTEMPTS - 1:
                    return NO_ANSWER, "no answer", []
                continue
            if response.status == 429 and b"TooManyRequests" in text and attempt < ATTEMPTS - 1:
                time.sleep(1)
                continue
            warnings = [value for name, value in response.getheaders() if name.lower() == "warning"]
            try:
                return response.status, json.loads(text), sorted(warnings)
            except ValueError:
                return response.status, text.decode(errors="replace"), sorted(warnings)

    def get(self, path):
        status, answer, _ = self.send("GET", path)
        if status != 200:
            sys.exit(f"GET {path}: {status} {answer}")
        return answer


TOKENS = "admin-token,admin,admin,system:masters\n"


def program(name):
    found = shutil.which(name) or os.path.join(BIN, name)
    if not os.access(found, os.X_OK):
        sys.exit(f"there is no {name}, neither in $PATH nor in {BIN}: `e2e/realhost/realhost build` builds it")
    return found


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def spawn(processes, command, log):
    with open(log, "w") as file:
        processes.append(subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL))


def kubeconfig(file, port, authority):
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": authority}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "twin", "cluster": cluster}]}
    config["users"] = [{"name": "admin", "user": {"token": TOKENS.split(",")[0]}}]
    config["contexts"], config["current-context"] = [{"name": "twin", "context": {"cluster": "twin", "user": "admin"}}], "twin"
    with open(file, "w") as written:
        json.dump(config, written)
    return file


def start_upstream(processes, state, tokens, out):
    """etcd and kube-apiserver, without controllers."""
    port, client, peer = free_ports(3)
    etcd, key, certificates = (os.path.join(state, name) for name in ("etcd", "sa.key", "certificates"))
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], stderr=subprocess.DEVNULL, check=True)
    url, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    spawn(processes, [
        program("etcd"), "--data-dir", etcd, "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers,
        "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
    ], os.path.join(out, "etcd.log"))
    spawn(processes, [
        program("kube-apiserver"), f"--etcd-servers={url}", f"--cert-dir={certificates}", f"--secure-port={port}",
        "--bind-address=127.0.0.1", "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC",
        f"--token-auth-file={tokens}", "--allow-privileged",
    ], os.path.join(out, "upstream.log"))
    return kubeconfig(os.path.join(state, "upstream.kubeconfig"), port, os.path.join(certificates, "apiserver.crt"))


def start_ours(processes, options, state, tokens, out):
    binary = options.sublet or os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "sublet")
    if not options.sublet:
        subprocess.run(["cargo", "build", "--release", "--bin", "sublet"], cwd=ROOT, check=True)
    ours = os.path.join(state, "ours")
    command = [binary, "apiserver", "--dir", ours, "--controllers", "", "--token-auth-file", tokens]
    spawn(processes, command, os.path.join(out, "server.log"))
    return os.path.join(ours, "admin.kubeconfig")


def wait(file, process):
    """A server is ready when it says so; then the Server of the kubeconfig is returned."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server = Server(file, TOKENS.split(",")[0])
            if server.send("GET", "/readyz")[0] == 200:
                return server
        except (OSError, subprocess.CalledProcessError):
            pass
        time.sleep(0.5)
    sys.exit(f"the server of {file} did not start")


def start(processes, options, state, out):
    tokens = os.path.join(state, "tokens")
    with open(tokens, "w") as file:
        file.write(TOKENS)
    files = [start_upstream(processes, state, tokens, out), start_ours(processes, options, state, tokens, out)]
    return [wait(file, process) for file, process in zip(files, processes[1:])]
