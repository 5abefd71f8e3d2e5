#!/usr/bin/env python3
"""What src/publish.lua costs Redis for a message, by itself and with what --ensure-group, the index of stream names and --stream-ttl add.

    measure-index.py [ROUNDS]     against a redis-server of its own ($TEST_REDIS_SERVER or redis-server), which ends with it

Each call adds 1,000 messages of 300 bytes. The variants take turns, ROUNDS (40) times each, so that a machine whose speed changes does not favour
one of them; the figure is the CPU time of the server's main thread (INFO cpu), its median in microseconds a message.
"""
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MESSAGES = 1000
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


class Redis:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def __call__(self, *words):
        encoded = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in encoded))
        return self.read()

    def read(self):
        line = self.file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise SystemExit("measure-index: " + rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        return rest


def wait_for(server, path):
    while server.poll() is None:
        try:
            return Redis(path)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
    raise SystemExit("measure-index: redis-server has ended")


def used_us(redis):
    """CPU time of the server's main thread so far: what others do on the machine meanwhile is not in it."""
    fields = dict(line.split(":") for line in redis("INFO", "cpu").decode().splitlines() if ":" in line)
    return 1e6 * (float(fields["used_cpu_user_main_thread"]) + float(fields["used_cpu_sys_main_thread"]))


def call(redis, sha, number, streams, upkeep):
    """One write: MESSAGES messages over so many streams. upkeep: [index, ttl, group...] or []."""
    keys = ["m:{0}:journal"] + ["m:{0}:s:%d" % i for i in range(streams)]
    if upkeep and upkeep[0] == 1:
        keys.append("m:{0}:streams")
    old = "t%d" % (number - 1) if number > 1 else ""
    names = "".join("%d 00000000-0000-4000-8000-%012d\n" % (i, i) for i in range(MESSAGES))
    words = [old, "t%d" % number, "t%d\n%s" % (number, names), 0, MESSAGES, 6, len(upkeep)] + upkeep
    for i in range(MESSAGES):
        if streams > 1:
            words.append(1 + i % streams)
        words += ["00000000-0000-4000-8000-%012d" % i, "order", i % streams, "order.paid", '{"note":"%s"}' % ("x" * 200),
                  "2026-01-31T00:00:00.000000Z"]
    before = used_us(redis)
    reply = redis("EVALSHA", sha, len(keys), *keys, *words)
    if reply[0] != b"WRITTEN" or len(reply) != 2:
        raise SystemExit("measure-index: %r" % reply)
    return (used_us(redis) - before) / MESSAGES


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    variants = [
        ("one stream a lane", 1, []),
        ("... --ensure-group", 1, [0, 0, "a"]),
        ("a stream for each message", MESSAGES, []),
        ("... index", MESSAGES, [1, 0]),
        ("... index, --ensure-group", MESSAGES, [1, 0, "a"]),
        ("... index, --stream-ttl", MESSAGES, [1, 3600000]),
        ("100 streams", 100, []),
        ("... index", 100, [1, 0]),
    ]
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "redis.sock")
        server = subprocess.Popen([os.environ.get("TEST_REDIS_SERVER", "redis-server"), "--port", "0", "--unixsocket", path,
                                   "--save", "", "--appendonly", "no", "--dir", directory], stdout=subprocess.DEVNULL)
        try:
            redis = wait_for(server, path)
            with open(os.path.join(ROOT, "src/publish.lua"), "rb") as script:
                sha = redis("SCRIPT", "LOAD", script.read().decode()).decode()
            figures = [[] for _ in variants]
            for _ in range(rounds):
                for v, (_, streams, upkeep) in enumerate(variants):
                    redis("FLUSHALL")
                    call(redis, sha, 1, streams, upkeep)  # streams, groups and names are new
                    figures[v].append([call(redis, sha, number, streams, upkeep) for number in (2, 3, 4)])
            for (name, _, _), figure in zip(variants, figures):
                all_of_it = sorted(us for three in figure for us in three)
                print("%-28s %5.2f us a message (%.2f to %.2f)" % (
                    name, statistics.median(all_of_it), all_of_it[len(all_of_it) // 10], all_of_it[-len(all_of_it) // 10]))
        finally:
            server.terminate()
            server.wait()


main()
