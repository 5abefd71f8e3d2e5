-- One payment, for pgbench: two balances, the payment, and an event for each account, all in one transaction.
--
-- Both accounts are locked before anything is written, the smaller id first.  So for each account the events get their ids in the order
-- in which the transactions commit, which is what "in order" means; and no two payments deadlock.
\set payer random_exponential(1, :accounts, 4.0)
\set payee random_exponential(1, :accounts, 4.0)
\if :payer = :payee
\set payee 1 + :payer % :accounts
\endif
\set amount random(100, 50000)
\set fate random(1, 10)
BEGIN;
SELECT FROM accounts WHERE id IN (:payer, :payee) ORDER BY id FOR UPDATE;
UPDATE accounts SET events = events + 1, balance = balance + CASE WHEN id = :payee THEN :amount::bigint ELSE -(:amount::bigint) END
 WHERE id IN (:payer, :payee);
INSERT INTO payments (payer, payee, amount) VALUES (:payer, :payee, :amount) RETURNING id AS payment \gset
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
SELECT 'account', id::text, CASE WHEN id = :payee THEN 'money.received' ELSE 'money.sent' END,
       jsonb_build_object('n', events, 'payment', :payment::bigint, 'balance', balance,
                          'change', CASE WHEN id = :payee THEN :amount::bigint ELSE -(:amount::bigint) END)
  FROM accounts WHERE id IN (:payer, :payee) ORDER BY id;
\if :fate = 1
ROLLBACK;
\else
COMMIT;
\endif
