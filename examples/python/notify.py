"""Notes each payment once: python3 notify.py GROUP WORKER WORKERS   (worker 0 of 2 takes lanes 0, 2, 4, ...)"""
import json
import os
import signal
import sys
import threading

import psycopg2
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import outbox

stopping = threading.Event()
for signum in (signal.SIGTERM, signal.SIGINT):
    signal.signal(signum, lambda *_: stopping.set())


def handle(cursor, event):
    cursor.execute(
        "INSERT INTO notifications (message_id, account, n) VALUES (%s, %s, %s)",
        (event["message_id"], event["aggregate_id"], json.loads(event["payload"])["n"]),
    )


group, worker, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
outbox.consume(
    psycopg2.connect(os.environ["DATABASE_URL"]),
    redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True, retry=Retry(NoBackoff(), 0)),
    group,
    range(worker, int(os.environ.get("OUTBOXD_LANES", "16")), workers),
    handle,
    stopping.is_set,
)
