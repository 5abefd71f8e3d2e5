"""The notifier's handler: a line for each event in, a line for each answer out.

outbox-consume --group notifier --exec 'python3 notify.py'

An event can be given twice, for a crash may come between this program's COMMIT and outbox-consume's.  So the transaction that writes the notification asks
first whether it was written before.
"""
import json
import os
import sys

import psycopg2


def notify(cursor, event):
    payload = event["payload"]
    verb = "received" if payload["change"] > 0 else "sent"
    text = "%s %d.%02d" % (verb, *divmod(abs(payload["change"]), 100))
    cursor.execute(
        "INSERT INTO notifications (message_id, account, n, payment, text) VALUES (%s, %s, %s, %s, %s)",
        (event["message_id"], event["aggregate_id"], payload["n"], payload["payment"], text),
    )


db = None
for line in sys.stdin:
    event = json.loads(line)
    try:
        db = db or psycopg2.connect(os.environ["NOTIFIER_DATABASE"])
        with db, db.cursor() as cursor:  # ends with COMMIT, on an exception with ROLLBACK
            cursor.execute("SELECT outbox_process_once(%s, 'notify.py')", (event["message_id"],))
            if cursor.fetchone()[0]:
                notify(cursor, event)
            else:
                print("given again:", event["message_id"], file=sys.stderr)
        print("ok", flush=True)
    except (psycopg2.OperationalError, psycopg2.InterfaceError):
        db = None  # connect anew with the next event
        print("later the database is away", flush=True)
