"""Several hosts on one machine: network namespaces with a host name each, joined by a bridge whose
ports send at a given rate.

Needs root, iproute2 and a kernel with bridges, veth and the token bucket filter; available() tells.
"""
import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile

import lockstep_run

NET = "10.78.0"
_numbers = itertools.count()


def ip(*words, check=True):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


def available():
    """Whether such hosts can be made here, or else why not."""
    if os.geteuid() != 0:
        return "not root"
    if shutil.which("ip") is None or shutil.which("tc") is None or shutil.which("unshare") is None:
        return "no iproute2"
    if not lockstep_run.have_mpirun():
        return "no mpirun"
    try:
        with Hosts(1, "1gbit"):
            return None
    except (subprocess.CalledProcessError, OSError) as error:
        return f"no network namespaces: {getattr(error, 'stderr', error)}".strip()


class Hosts:
    """`count` hosts, from `with` to its end. rate: what each may send, as tc writes it; None: no
    limit."""

    def __init__(self, count, rate=None):
        self.count, self.rate = count, rate
        self.tag = f"ls{os.getpid() % 100000}n{next(_numbers) % 100}"
        self.folder = tempfile.TemporaryDirectory()

    def name(self, host):
        return f"{self.tag}h{host}"

    def __enter__(self):
        try:
            ip("link", "add", self.tag, "type", "bridge")
            ip("link", "set", self.tag, "up")
            for host in range(self.count):
                name = self.name(host)
                ip("netns", "add", name)
                ip("link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", f"{name}v", "master", self.tag, "up")
                ip("-n", name, "addr", "add", f"{NET}.{host + 1}/24", "dev", "eth0")
                for link in ("lo", "eth0"):
                    ip("-n", name, "link", "set", link, "up")
                if self.rate:
                    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf",
                                    "rate", self.rate, "burst", "256k", "latency", "50ms"],
                                   check=True, capture_output=True, text=True)
        except BaseException:
            self.__exit__()
            raise
        # What mpirun starts its daemons with, in the place of ssh: ADDRESS COMMAND...
        self.agent = pathlib.Path(self.folder.name) / "agent"
        self.agent.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host={self.tag}h$((${{1##*.}} - 1)); shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
""")
        self.agent.chmod(0o755)
        return self

    def __exit__(self, *_):
        # The links first: a namespace goes away in the background.
        for host in range(self.count):
            ip("link", "del", f"{self.name(host)}v", check=False)
            ip("netns", "del", self.name(host), check=False)
        ip("link", "del", self.tag, check=False)
        self.folder.cleanup()

    def inside(self, host):
        """What runs a command on the host."""
        name = self.name(host)
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c",
                'hostname "$0"; exec "$@"', name]

    def _network(self):
        return ["--mca", "plm_rsh_agent", str(self.agent), "--mca", "btl", "tcp,vader,self",
                *(word for key in ("oob_tcp_if_include", "btl_tcp_if_include")
                  for word in ("--mca", key, f"{NET}.0/24"))]

    def mpirun_words(self):
        """An mpirun that reaches the hosts, without how many ranks there are and where."""
        return [os.environ.get("MPIRUN", "mpirun"), "--bind-to", "none", *self._network()]

    def mpirun(self, ranks_per_host, **how):
        """The command line that starts so many ranks on each host, from the first one. `how`: of
        lockstep_run.mpirun()."""
        total = ranks_per_host * self.count
        places = ",".join(f"{NET}.{host + 1}:{ranks_per_host}" for host in range(self.count))
        return [*self.inside(0), *lockstep_run.mpirun(total, **how), "--host", places, "--map-by",
                "slot", *self._network()]

    def without_mpi(self, command, port=29555):
        """Starts the command once on each host as one rank of a run over Lockstep's own TCP."""
        return [self.start(host, command, port) for host in range(self.count)]

    def start(self, host, command, port=29555):
        """The same on one host."""
        environment = dict(os.environ, RANK=str(host), WORLD_SIZE=str(self.count),
                           MASTER_ADDR=f"{NET}.1", MASTER_PORT=str(port))
        return subprocess.Popen([*self.inside(host), *command], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                stdin=subprocess.DEVNULL)

    def close_to_lockstep(self):
        """From now on no host reaches the first one at the ports that it gives to programs that ask
        for none, as Lockstep does and Open MPI does not (mpirun's own connections need the words
        returned)."""
        subprocess.run(["ip", "netns", "exec", self.name(0), "sh", "-c",
                        "echo 25000 32000 > /proc/sys/net/ipv4/ip_local_port_range"], check=True)
        for host in range(1, self.count):
            ip("-n", self.name(host), "rule", "add", "ipproto", "tcp", "sport", "32768-60999",
               "dport", "25000-32000", "unreachable")
        return ["--mca", "oob_tcp_dynamic_ipv4_ports", "2000-2100"]

    def sent_bytes(self, host):
        """What the host has sent so far, as its network card counts."""
        counted = subprocess.run(["ip", "netns", "exec", self.name(host), "cat",
                                  "/sys/class/net/eth0/statistics/tx_bytes"], check=True,
                                 capture_output=True, text=True)
        return int(counted.stdout)
