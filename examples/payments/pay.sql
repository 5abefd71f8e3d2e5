-- A payment, for pgbench: two balances, the payment, and an event for each account, in one transaction.
-- Both accounts are locked first, the smaller id before the other: so the events of an account get their ids in the order of the commits, and
-- no two payments deadlock.
\set payer random_exponential(1, :accounts, 4.0)
\set payee random_exponential(1, :accounts, 4.0)
\if :payer = :payee
\set payee 1 + :payer % :accounts
\endif
\set amount random(100, 50000)
\set fate random(1, 10)
BEGIN;
SELECT FROM accounts WHERE id IN (:payer, :payee) ORDER BY id FOR UPDATE;
UPDATE accounts SET events = events + 1, balance = balance - :amount WHERE id = :payer;
UPDATE accounts SET events = events + 1, balance = balance + :amount WHERE id = :payee;
INSERT INTO payments (payer, payee, amount) VALUES (:payer, :payee, :amount) RETURNING id AS payment \gset
SELECT outbox_record('account', :payer::text, 'money.sent', jsonb_build_object('n', events, 'payment', :payment::bigint, 'change', -:amount::bigint))
  FROM accounts WHERE id = :payer;
SELECT outbox_record('account', :payee::text, 'money.received', jsonb_build_object('n', events, 'payment', :payment::bigint, 'change', :amount::bigint))
  FROM accounts WHERE id = :payee;
\if :fate = 1
ROLLBACK;
\else
COMMIT;
\endif
