'use strict';
// Payments as events: node pay.js FIRST COUNT
const { Pool } = require('pg');
const outbox = require('./outbox.js');

async function main() {
  const pool = new Pool({ connectionString: process.env.DATABASE_URL });
  const [first, count] = process.argv.slice(2).map(Number);
  for (let n = first; n < first + count; n++) {
    const account = n % 10;
    await outbox.transaction(pool, async (client) => {
      await client.query('UPDATE accounts SET balance = balance - 1 WHERE id = $1', [account]);
      await outbox.record(client, 'account', account, 'money.sent', { n, note: 'für dich' });
    });
  }
  await pool.end();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
