"""Writing events for outboxd, and acting on each one once: psycopg2 and redis-py."""
import json
import os
import socket
import time

import redis.exceptions


def record(cursor, aggregate_type, aggregate_id, event_type, payload, headers=None):
    """Writes one event in the cursor's transaction; returns its message_id."""
    cursor.execute(
        "SELECT outbox_record(%s, %s, %s, %s, NULL, %s)",
        (aggregate_type, str(aggregate_id), event_type, json.dumps(payload), headers and json.dumps(headers)),
    )
    return cursor.fetchone()[0]


def consume(db, client, group, lanes, handle, is_stopping, stream="outbox:{%d}"):
    """Calls handle(cursor, event) for each event of these lanes, inside the transaction that also notes it as handled.

    Returns once is_stopping() is true.  Raises what handle raises, or a connection's error: then end, and start anew; whatever
    was not acknowledged comes first then.  db: a psycopg2 connection with autocommit off, for this alone.
    client: redis.Redis with decode_responses=True and without retries, for a reply that got lost has to be noticed.
    """
    if not hold_lanes(db, group, lanes, is_stopping):
        return
    me = "%s:%d" % (socket.gethostname(), os.getpid())
    streams = [stream % lane for lane in lanes]

    def act(key, entry, event):
        if event:  # else it was trimmed from the stream
            with db, db.cursor() as cursor:  # commits, or rolls back on an exception
                cursor.execute("SELECT outbox_process_once(%s, %s)", (event["message_id"], group))
                if cursor.fetchone()[0]:
                    handle(cursor, event)
        client.xack(key, group, entry)

    for key in streams:
        try:
            client.xgroup_create(key, group, id="0", mkstream=True)
        except redis.exceptions.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        # What a former worker left: its lane is ours, so it is gone.
        while entries := claimed(client.xautoclaim(key, group, me, 0, "0-0", count=100)):
            for entry, event in entries:
                if is_stopping():
                    return
                act(key, entry, event)
    while not is_stopping():
        for key, entries in client.xreadgroup(group, me, dict.fromkeys(streams, ">"), count=100, block=1000):
            for entry, event in entries:
                if is_stopping():
                    return
                act(key, entry, event)


def hold_lanes(db, group, lanes, is_stopping):
    """Waits until nobody else works on these lanes of the group.  The locks last as long as the session whose transactions do the work."""
    db.autocommit = True
    with db.cursor() as cursor:
        for lane in lanes:
            while True:
                cursor.execute("SELECT pg_try_advisory_lock(hashtext(%s), %s)", (group, lane))
                if cursor.fetchone()[0]:
                    break
                if is_stopping():
                    return False
                time.sleep(0.5)
    db.autocommit = False
    return True


def claimed(reply):
    """The entries of XAUTOCLAIM's reply, which redis-py before 4.4 returns by themselves."""
    return reply[1] if reply and isinstance(reply[0], str) else reply
