"""Payments as events: python3 pay.py FIRST COUNT"""
import os
import sys

import psycopg2

import outbox

db = psycopg2.connect(os.environ["DATABASE_URL"])
first, count = int(sys.argv[1]), int(sys.argv[2])
for n in range(first, first + count):
    account = n % 10
    with db, db.cursor() as cursor:
        cursor.execute("UPDATE accounts SET balance = balance - 1 WHERE id = %s", (account,))
        outbox.record(cursor, "account", account, "money.sent", {"n": n, "note": "f\u00fcr dich"})
