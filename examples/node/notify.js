'use strict';
// Notes each payment once: node notify.js GROUP WORKER WORKERS   (worker 0 of 2 takes lanes 0, 2, 4, ...)
const Redis = require('ioredis');
const { Client } = require('pg');
const outbox = require('./outbox.js');

async function handle(db, event) {
  await db.query('INSERT INTO notifications (message_id, account, n) VALUES ($1, $2, $3)', [
    event.message_id,
    event.aggregate_id,
    JSON.parse(event.payload).n,
  ]);
}

async function main() {
  const [group, worker, workers] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT']) process.on(name, () => stop.abort());
  const lanes = [];
  for (let lane = worker; lane < Number(process.env.OUTBOXD_LANES ?? 16); lane += workers) lanes.push(lane);

  const db = new Client({ connectionString: process.env.DATABASE_URL });
  const redis = new Redis(process.env.REDIS_URL, { retryStrategy: () => null });
  db.on('error', () => {}); // the call that is under way, or the next one, fails with it
  redis.on('error', () => {});
  await db.connect();
  try {
    await outbox.consume({ db, redis, group, lanes, handle, signal: stop.signal });
  } finally {
    redis.disconnect();
    await db.end();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
