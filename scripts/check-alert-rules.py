#!/usr/bin/env python3
"""Evaluates the rules of docs/alerting.md for Loki, Vector, Datadog and CloudWatch on log lines of outboxd; an integration test calls it.

  check-alert-rules.py ALERTING_PAGE LOGGING_PAGE LOG...

LOG: files that relays wrote, one JSON object a line.  What the rules select from them is compared with what LOGGING_PAGE says of each event (its
levels, and "page", "ticket" or "-").  Events of that page that no LOG has are made up, with event and level only, so that no name in a list of
a rule goes unseen.  The last line tells how many were real.

None of these systems is asked: this is a small evaluator of the part of their languages that the page uses, written from their manuals.  What it does not
know is an error, not a match:
  LogQL       {app="outboxd"}  | json NAME="FIELD", ...  | NAME="..."  | NAME=~"..." (the whole value)  | unwrap NAME
  VRL         includes([...], .FIELD)  .FIELD == "..."  ||  &&  parentheses
  CloudWatch  { $.FIELD = "..." }  !=  ||  &&  parentheses; $.FIELD as a metric's value
  Datadog     service:outboxd  status:LEVEL  @FIELD:VALUE  @FIELD:(A OR B)  - before a term
"""
import json
import re
import sys

problems = []


def complain(text):
    problems.append(text)
    print("check-alert-rules: " + text, file=sys.stderr)


# ---------------------------------------------------------------------------------------------------- the pages


def read_events(page):
    """{(event, level): "page" | "ticket" | "-"} of the tables; what is said at level info is never an alert."""
    found = {}
    is_table = False
    for line in page.splitlines():
        if not line.startswith("|"):
            is_table = False
        elif line.startswith("| event | level |"):
            is_table = True
        elif is_table and not line.startswith("| -"):
            cells = [cell.strip() for cell in line.split(" | ")]
            event = cells[0].strip("|` ")
            for level in cells[1].split(", "):
                found[(event, level)] = "-" if level == "info" else cells[2]
    return found


def section(page, title):
    match = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), page, re.M | re.S)
    if match is None:
        raise SystemExit("check-alert-rules: no section " + title)
    return match.group(1)


# ---------------------------------------------------------------------------------------------------- LogQL


def split_stages(text):
    """By | outside of quotes."""
    return [stage.strip() for stage in re.findall(r'(?:[^|"]|"(?:[^"\\]|\\.)*")+', text)]


def loki_selector(query):
    """A function of a line that says whether the log query selects it; None for a value that cannot be unwrapped."""
    stages = split_stages(query)
    if stages[0] != '{app="outboxd"}':
        raise ValueError("stream selector " + stages[0])

    def select(line):
        labels = {}
        for stage in stages[1:]:
            if stage.startswith("json "):
                for name, field in re.findall(r'(\w+)="(\w+)"', stage[5:]):
                    value = line.get(field)
                    labels[name] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
                continue
            match = re.fullmatch(r'(\w+)(=~|=)"([^"]*)"', stage)
            if match:
                name, operator, value = match.groups()
                have = labels.get(name, "")
                if not (re.fullmatch(value, have) if operator == "=~" else have == value):
                    return False
                continue
            match = re.fullmatch(r"unwrap (\w+)", stage)
            if match:
                try:
                    float(labels.get(match.group(1), ""))
                except ValueError:
                    return None
                continue
            raise ValueError("stage " + stage)
        return True

    return select


def read_loki(text):
    rules = {}
    for name, body in re.findall(r"- alert: (\w+)\n(.*?)(?=\n      - alert:|\n```)", text, re.S):
        expr = re.search(r"expr: (\|\n)?(.*?)\n        labels:", body, re.S).group(2)
        expr = " ".join(expr.split())
        query = re.search(r"(\{.*?)\s*\[\d+[mh]\]", expr)
        if query is None:
            raise ValueError("no log query in " + expr)
        rules[name] = loki_selector(query.group(1).strip())
    return rules


# ---------------------------------------------------------------------------------------------------- expressions of VRL and CloudWatch


def expression(text, term):
    """Or of ands of terms and parentheses; term(text) gives (function, rest) or None."""

    def chain(operator, read_part, is_true, rest):
        part, rest = read_part(rest)
        parts = [part]
        while rest.startswith(operator):
            part, rest = read_part(rest[len(operator):].lstrip())
            parts.append(part)
        return (lambda line: is_true(part(line) for part in parts)), rest

    def read_or(rest):
        return chain("||", read_and, any, rest)

    def read_and(rest):
        return chain("&&", read_one, all, rest)

    def read_one(rest):
        if rest.startswith("("):
            inner, rest = read_or(rest[1:].lstrip())
            if not rest.startswith(")"):
                raise ValueError("no ) before " + rest)
            return inner, rest[1:].lstrip()
        found = term(rest)
        if found is None:
            raise ValueError("not understood: " + rest)
        return found[0], found[1].lstrip()

    result, rest = read_or(text.strip())
    if rest:
        raise ValueError("not understood: " + rest)
    return result


def vrl_term(text):
    match = re.match(r"includes\((\[.*?\]), \.(\w+)\)", text)
    if match:
        values, field = json.loads(match.group(1)), match.group(2)
        return (lambda line: line.get(field) in values), text[match.end():]
    match = re.match(r'\.(\w+) == "([^"]*)"', text)
    if match:
        field, value = match.groups()
        return (lambda line: line.get(field) == value), text[match.end():]
    return None


def cloudwatch_term(text):
    match = re.match(r'\$\.(\w+) (=|!=) "([^"]*)"', text)
    if match:
        field, operator, value = match.groups()
        return (lambda line: (line.get(field) == value) == (operator == "=")), text[match.end():]
    return None


def read_vector(text):
    routes = {name: expression(body, vrl_term) for name, body in re.findall(r"^route\.(\w+) = '(.*)'$", text, re.M)}
    fields = re.findall(r'^field = "(\w+)"$', text, re.M)
    return routes, fields


def read_cloudwatch(text):
    filters = {}
    for name, pattern, value in re.findall(r"^    filter (\w+) +'\{ (.*) \}' +(\S+)", text, re.M):
        filters[name] = (expression(pattern, cloudwatch_term), value.strip("'"))
    return filters


# ---------------------------------------------------------------------------------------------------- Datadog

DATADOG_LEVEL = {"warn": "warning", "error": "error"}


def datadog_selector(query):
    terms = re.findall(r"(-?)(@?\w+):(\([^)]*\)|\S+)", query)
    if "".join(f"{n}{k}:{v}" for n, k, v in terms).replace(" ", "") != query.replace(" ", ""):
        raise ValueError("not understood: " + query)

    def select(line):
        for negation, key, value in terms:
            values = value.strip("()").split(" OR ")
            if key == "service":
                holds = values == ["outboxd"]
            elif key == "status":
                holds = line.get("level") == DATADOG_LEVEL[value]
            elif key.startswith("@"):
                holds = line.get(key[1:]) in values
            else:
                raise ValueError("term " + key)
            if holds == bool(negation):
                return False
        return True

    return select


def read_datadog(text):
    monitors = {}
    for name, cell in re.findall(r"^\| (\w+) \| (.*`.*) \|", text, re.M):
        monitors[name] = [datadog_selector(q) for q in re.findall(r"`(service:[^`]*)`", cell)]
    return monitors


# ---------------------------------------------------------------------------------------------------- comparing


def any_of(*selectors):
    return lambda line: any(selector(line) for selector in selectors)


class Lines:
    """One line for each event and level: a real one where there is one."""

    def __init__(self, events, logs):
        self.wanted = events
        self.lines = {pair: {"event": pair[0], "level": pair[1]} for pair in events}
        self.real = set()
        self.real_n = 0
        for path in logs:
            with open(path, encoding="utf-8") as log:
                for text in log:
                    line = json.loads(text)
                    pair = (line["event"], line["level"])
                    if pair not in events:
                        complain(f"{path} has {pair}, which the page does not describe")
                        continue
                    self.lines[pair] = line
                    self.real.add(pair)
                    self.real_n += 1

    def compare(self, what, selector, expected):
        """expected(pair, alert) -> bool.  Of the real lines at least one has to be selected and one not."""
        matched_n = passed_n = 0
        for pair, line in self.lines.items():
            selected = selector(line)
            if selected is None:
                complain(f"{what}: the value is no number in {line}")
            if pair in self.real:
                matched_n += bool(selected)
                passed_n += not selected
            if bool(selected) != expected(pair, self.wanted[pair]):
                complain(f"{what}: {pair[0]} ({pair[1]}) is {'' if selected else 'not '}selected")
        if matched_n == 0 or passed_n == 0:
            complain(f"{what}: {matched_n} kinds of real lines are selected and {passed_n} are not: nothing is shown")
        print(f"{what}: selects {matched_n} kinds of real lines, passes over {passed_n}")

    def number(self, what, event, field):
        values = [line.get(field) for pair, line in self.lines.items() if pair[0] == event and pair in self.real]
        if not values or not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            complain(f"{what}: {field} of {event} is no number: {values}")


def check(alerting, lines):
    def is_page(pair, alert):
        return alert == "page"

    def is_ticket(pair, alert):
        return alert == "ticket"

    def is_alert(pair, alert):
        return alert in ("page", "ticket")

    def is_event(*names):
        return lambda pair, alert: pair[0] in names

    loki = read_loki(section(alerting, "Loki"))
    # An unwrapped value exists in real lines only; those made up have no fields.
    made_up = [pair for pair in lines.lines if pair == ("outbox_stale", "critical") and pair not in lines.real]
    if made_up:
        complain("there is no real line outbox_stale")
        return
    lines.compare("Loki, OutboxStale", loki["OutboxStale"], is_event("outbox_stale"))
    lines.compare("Loki, OutboxSilent", loki["OutboxSilent"], is_event("stats"))
    lines.compare("Loki, stale and page", any_of(loki["OutboxStale"], loki["OutboxPage"]), is_page)
    lines.compare("Loki, OutboxDetached", loki["OutboxDetached"],
                  lambda pair, alert: pair == ("partition_detach_finished", "warning"))
    lines.compare("Loki, ticket and detached", any_of(loki["OutboxTicket"], loki["OutboxDetached"]), is_ticket)

    routes, fields = read_vector(section(alerting, "Vector"))
    lines.compare("Vector, page", routes["page"], is_page)
    lines.compare("Vector, ticket", routes["ticket"], is_ticket)
    lines.compare("Vector, stats", routes["stats"], is_event("stats"))
    for field in fields:
        lines.number("Vector", "stats", field)

    monitors = read_datadog(section(alerting, "Datadog"))
    lines.compare("Datadog, stale", any_of(*monitors["stale"]), is_event("outbox_stale"))
    lines.compare("Datadog, silent", any_of(*monitors["silent"]), is_event("stats"))
    lines.compare("Datadog, stale and page", any_of(*monitors["stale"], *monitors["page"]), is_page)
    # By level: what pages as an error comes here as well.
    lines.compare("Datadog, ticket", any_of(*monitors["ticket"]),
                  lambda pair, alert: alert == "ticket" or (alert == "page" and pair[1] == "error"))

    filters = read_cloudwatch(section(alerting, "CloudWatch"))

    def cloudwatch(*names):
        return any_of(*(filters[name][0] for name in names))

    lines.compare("CloudWatch, OutboxStale", cloudwatch("OutboxStale"), is_event("outbox_stale"))
    lines.compare("CloudWatch, OutboxStats", cloudwatch("OutboxStats"), is_event("stats"))
    # An error out_of_memory is one that is tried again; it comes with the errors.
    lines.compare("CloudWatch, OutboxCritical and OutboxLanes", cloudwatch("OutboxCritical", "OutboxLanes"),
                  lambda pair, alert: alert == "page" and pair != ("out_of_memory", "error"))
    lines.compare("CloudWatch, OutboxErrors", cloudwatch("OutboxErrors"),
                  lambda pair, alert: pair[1] == "error" and pair[0] != "postgres_down")
    lines.compare("CloudWatch, OutboxWarnings", cloudwatch("OutboxWarnings"),
                  lambda pair, alert: pair[1] == "warning" and alert == "ticket")
    lines.compare("CloudWatch, all alerts",
                  cloudwatch("OutboxStale", "OutboxCritical", "OutboxErrors", "OutboxLanes", "OutboxWarnings"), is_alert)
    for name, event in (("OutboxStale", "outbox_stale"), ("OutboxLagP99", "stats"), ("OutboxPublished", "stats")):
        lines.compare("CloudWatch, " + name, filters[name][0], is_event(event))
        lines.number("CloudWatch, " + name, event, filters[name][1].removeprefix("$."))

    # journald goes by level alone.
    for pair, alert in lines.wanted.items():
        if alert == "page" and pair[1] not in ("error", "critical"):
            complain(f"journald: -p err does not have {pair}")


def main():
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        alerting = file.read()
    with open(sys.argv[2], encoding="utf-8") as file:
        events = read_events(file.read())
    lines = Lines(events, sys.argv[3:])
    try:
        check(alerting, lines)
    except (ValueError, KeyError, AttributeError) as error:
        complain(f"the page cannot be read: {error!r}")
    alerts = [pair for pair, alert in events.items() if alert in ("page", "ticket")]
    print(f"{lines.real_n} real lines of {len(lines.real)} kinds ({len([p for p in alerts if p in lines.real])} of "
          f"{len(alerts)} alerts); {len(events) - len(lines.real)} kinds made up from {sys.argv[2]}")
    sys.exit(1 if problems else 0)


main()
