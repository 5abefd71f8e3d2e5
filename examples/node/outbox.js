'use strict';
// Writing events for outboxd, and acting on each one once: pg and ioredis.
const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { escapeLiteral } = require('pg');

/** Runs work(client) in a transaction of its own. */
async function transaction(pool, work) {
  const client = await pool.connect();
  let failed;
  try {
    await client.query('BEGIN');
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    failed = error;
    await client.query('ROLLBACK').catch(() => {});
    throw error;
  } finally {
    client.release(failed);
  }
}

/**
 * Writes one event in the client's transaction; resolves to its message_id.
 *
 * The values stand in the statement: sent beside it, as parameters, PostgreSQL could not tell a call outside of a transaction.
 */
async function record(client, aggregateType, aggregateId, eventType, payload, headers = null) {
  const values = [aggregateType, String(aggregateId), eventType, JSON.stringify(payload)].map((value) => escapeLiteral(value));
  const last = headers === null ? 'NULL' : escapeLiteral(JSON.stringify(headers));
  const { rows } = await client.query(`SELECT outbox_record(${values.join(', ')}, NULL, ${last}) AS id`);
  return rows[0].id;
}

/**
 * Calls handle(db, event) for each event of these lanes, inside the transaction that also notes it as handled.
 *
 * Resolves once signal is aborted.  Rejects with what handle throws, or a connection's error: then end, and start anew; whatever
 * was not acknowledged comes first then.  db: a connected pg.Client, for this alone.  redis: an ioredis client that does not
 * connect again (retryStrategy), for a reply that got lost has to be noticed.
 */
async function consume({ db, redis, group, lanes, handle, signal, stream = (lane) => `outbox:{${lane}}` }) {
  if (!(await holdLanes(db, group, lanes, signal))) return;
  const me = `${os.hostname()}:${process.pid}`;
  const streams = lanes.map(stream);

  async function act(key, entries) {
    for (const [id, fields] of entries) {
      if (signal.aborted) return;
      if (fields) await once(event(fields)); // else it was trimmed from the stream
      await redis.xack(key, group, id);
    }
  }

  async function once(message) {
    await db.query('BEGIN');
    try {
      const { rows } = await db.query('SELECT outbox_process_once($1, $2) AS is_first', [message.message_id, group]);
      if (rows[0].is_first) await handle(db, message);
      await db.query('COMMIT');
    } catch (error) {
      await db.query('ROLLBACK').catch(() => {});
      throw error;
    }
  }

  for (const key of streams) {
    await redis.xgroup('CREATE', key, group, '0', 'MKSTREAM').catch((error) => {
      if (!error.message.startsWith('BUSYGROUP')) throw error;
    });
    // What a former worker left: its lane is ours, so it is gone.
    for (;;) {
      const [, entries] = await redis.xautoclaim(key, group, me, 0, '0-0', 'COUNT', 100);
      if (entries.length === 0 || signal.aborted) break;
      await act(key, entries);
    }
  }
  while (!signal.aborted) {
    const read = await redis.xreadgroup('GROUP', group, me, 'COUNT', 100, 'BLOCK', 1000, 'STREAMS', ...streams, ...streams.map(() => '>'));
    for (const [key, entries] of read ?? []) await act(key, entries);
  }
}

/** Waits until nobody else works on these lanes of the group.  The locks last as long as the session whose transactions do the work. */
async function holdLanes(db, group, lanes, signal) {
  for (const lane of lanes) {
    for (;;) {
      const { rows } = await db.query('SELECT pg_try_advisory_lock(hashtext($1), $2) AS is_ours', [group, lane]);
      if (rows[0].is_ours) break;
      if (signal.aborted) return false;
      await sleep(500);
    }
  }
  return true;
}

/** [name, value, name, value, ...] as an object. */
function event(fields) {
  const message = {};
  for (let i = 0; i < fields.length; i += 2) message[fields[i]] = fields[i + 1];
  return message;
}

module.exports = { transaction, record, consume };
