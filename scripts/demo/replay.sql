-- What the streams alone tell (read by streams.lua), beside what PostgreSQL knows: one line of name=value pairs.
CREATE TABLE replayed (account bigint, position bigint, payload jsonb);
\copy replayed FROM pstdin
WITH told AS (
  SELECT account, position, (payload->>'n')::bigint AS n, (payload->>'payment')::bigint AS payment,
         (payload->>'change')::bigint AS change, (payload->>'balance')::bigint AS balance
  FROM replayed
), step AS (
  SELECT *, lag(balance, 1, 0::bigint) OVER (PARTITION BY account ORDER BY position) AS before FROM told
), result AS (
  SELECT account, count(*) AS events, sum(change) AS balance,
         bool_and(n = position AND before + change = balance) AS is_in_order
  FROM step GROUP BY account
)
SELECT format('events=%s payments=%s phantom_payments=%s rolled_back_payments=%s accounts=%s out_of_order=%s wrong_balances=%s story=%s',
  (SELECT count(*) FROM told),
  (SELECT count(*) FROM payments),
  (SELECT count(*) FROM told t WHERE NOT EXISTS (SELECT FROM payments p WHERE p.id = t.payment)),
  (SELECT last_value FROM payments_id_seq) - (SELECT count(*) FROM payments),
  (SELECT count(*) FROM result),
  (SELECT count(*) FROM result WHERE NOT is_in_order),
  (SELECT count(*) FROM accounts a LEFT JOIN result r ON r.account = a.id
   WHERE a.balance <> coalesce(r.balance, 0) OR a.events <> coalesce(r.events, 0)),
  -- an account whose whole history fits on a screen
  (SELECT account FROM result ORDER BY abs(events - 9), account LIMIT 1));
