#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that checks every answer of a server on 127.0.0.1.

    load.py redis PORT      SET and GET of values of many sizes
    load.py http PORT PATH  GET; the body must be what it was the first time

Prints "ready" after the first answer. At a line or the end of stdin it stops
and prints "answered N failed N slowest_ms N".
"""

import http.client
import select
import socket
import sys
import time


class Redis:
    def __init__(self, port):
        self.file = socket.create_connection(("127.0.0.1", port), 30).makefile("rwb")
        self.round = 0

    def call(self, *words):
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        head = self.file.readline()
        if head[:1] != b"$":
            return head.strip()
        return self.file.read(int(head[1:]) + 2)[:-2]

    def ask(self):
        self.round += 1
        key = b"key:%d" % (self.round % 1000)
        value = b"%d." % self.round * (1 + self.round % 97)
        return self.call(b"SET", key, value) == b"+OK" and self.call(b"GET", key) == value


class Http:
    def __init__(self, port, path):
        self.path = path
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.body = None

    def ask(self):
        self.connection.request("GET", self.path)
        answer = self.connection.getresponse()
        body = answer.read()
        if self.body is None:
            self.body = body
        return answer.status == 200 and len(body) > 0 and body == self.body


def connect(kind, port, rest):
    deadline = time.monotonic() + 30
    while True:
        try:
            client = Redis(port) if kind == "redis" else Http(port, rest[0])
            if client.ask():
                return client
        except OSError:
            pass
        if time.monotonic() > deadline:
            sys.exit(f"load: no answer from port {port}")
        time.sleep(0.05)


def main():
    client = connect(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    print("ready", flush=True)
    answered = failed = 0
    slowest = 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        start = time.monotonic()
        try:
            right = client.ask()
        except (OSError, http.client.HTTPException) as error:
            print(f"load: {error}", file=sys.stderr)
            failed += 1
            break
        slowest = max(slowest, time.monotonic() - start)
        answered += right
        failed += not right
    print(f"answered {answered} failed {failed} slowest_ms {slowest * 1000:.0f}", flush=True)


main()
