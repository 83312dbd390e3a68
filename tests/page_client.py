"""The page of a command, as a program uses it."""

import json
import re
import urllib.error
import urllib.request

from common import WAIT_TIMEOUT_S, until


class Page:
    """The page at the address that a process prints next."""

    def __init__(self, process):
        line = process.popen.stderr.readline()
        found = re.match(r"page: (http://\S+/)#token=([0-9a-f]{32})$", line)
        assert found, line
        self.url, self.token = found.groups()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=WAIT_TIMEOUT_S) as reply:
            return json.load(reply)

    def phase(self):
        # Between two runs the page is opened again.
        try:
            return self.get("api/status")["phase"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def control(self, **action):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + "api/control", json.dumps(action).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_TIMEOUT_S) as reply:
                return json.load(reply)["done"]
        except urllib.error.HTTPError as error:
            return json.load(error)["error"]

    def wait_for(self, phase):
        until(lambda: self.phase() == phase, what=f"phase {phase}")

    def metrics(self):
        """Returns the values by name and labels, as they stand in the text."""
        with urllib.request.urlopen(self.url + "metrics", timeout=WAIT_TIMEOUT_S) as reply:
            lines = reply.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def table(self, title):
        """Returns the rows of a table, each by its columns; none if it is not shown."""
        tables = [table for table in self.get("api/status")["tables"] if table["title"] == title]
        return [dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["rows"]]
