-- Compares what the payments database has committed with what the notifier's and the analytics' databases hold: copies that audit.sh has made here, in files.
-- Prints two lines of name=value: what there is, and what is wrong with it.
CREATE TEMP TABLE accounts (id bigint, balance bigint, events bigint);
CREATE TEMP TABLE payments (id bigint, payer bigint, payee bigint, amount bigint);
CREATE TEMP TABLE outbox (id bigint, message_id uuid, account bigint, n bigint, payment bigint, change bigint);
CREATE TEMP TABLE notifications (seq bigint, message_id uuid, account bigint, n bigint, payment bigint, said text);
CREATE TEMP TABLE account_events (seq bigint, message_id uuid, account bigint, n bigint, payment bigint, said text);
CREATE TEMP TABLE account_totals (account bigint, events bigint, balance bigint);
\copy accounts FROM accounts.copy
\copy payments FROM payments.copy
\copy outbox FROM outbox.copy
\copy notifications FROM notifications.copy
\copy account_events FROM account_events.copy
\copy account_totals FROM account_totals.copy
CREATE INDEX ON outbox (message_id);
CREATE INDEX ON notifications (message_id);
CREATE INDEX ON account_events (message_id);
ANALYZE outbox, notifications, account_events, payments;

-- What each consumer should have, with what it says of it.
CREATE TEMP VIEW seen AS
  SELECT 'notifier' AS consumer, * FROM notifications UNION ALL SELECT 'analytics', * FROM account_events;
CREATE TEMP VIEW expected AS
  SELECT 'notifier' AS consumer, o.*,
         format('%s %s.%s', CASE WHEN change > 0 THEN 'received' ELSE 'sent' END, abs(change) / 100, lpad((abs(change) % 100)::text, 2, '0')) AS said
    FROM outbox o
  UNION ALL SELECT 'analytics', o.*, change::text FROM outbox o;

-- The first appearance of each committed event, beside the greatest n that its account had before.
CREATE TEMP TABLE appearance AS
  SELECT consumer, n, max(n) OVER (PARTITION BY consumer, account ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (SELECT DISTINCT ON (consumer, message_id) * FROM seen WHERE message_id IN (SELECT message_id FROM outbox)
          ORDER BY consumer, message_id, seq) first;

SELECT format('accounts=%s payments=%s events=%s notifications=%s account_events=%s',
  (SELECT count(*) FROM accounts), (SELECT count(*) FROM payments), (SELECT count(*) FROM outbox),
  (SELECT count(*) FROM notifications), (SELECT count(*) FROM account_events));

SELECT string_agg(name || '=' || value, ' ' ORDER BY name) FROM (
  SELECT consumer || '_lost' AS name, count(*) FILTER (WHERE s.message_id IS NULL) AS value
    FROM expected e LEFT JOIN seen s USING (consumer, message_id) GROUP BY consumer
  UNION ALL
  SELECT consumer || '_made_up', count(*) FILTER (WHERE e.message_id IS NULL)
    FROM seen s LEFT JOIN expected e USING (consumer, message_id) GROUP BY consumer
  UNION ALL
  SELECT consumer || '_twice', count(*) - count(DISTINCT message_id) FROM seen GROUP BY consumer
  UNION ALL
  SELECT consumer || '_out_of_order', count(*) FILTER (WHERE n < before) FROM appearance GROUP BY consumer
  UNION ALL
  SELECT consumer || '_altered', count(*) FILTER (WHERE (s.account, s.n, s.payment, s.said) IS DISTINCT FROM (e.account, e.n, e.payment, e.said))
    FROM seen s JOIN expected e USING (consumer, message_id) GROUP BY consumer
  UNION ALL -- of a payment that was not committed
  SELECT consumer || '_rolled_back', count(*) FILTER (WHERE p.id IS NULL)
    FROM seen s LEFT JOIN payments p ON p.id = s.payment GROUP BY consumer
  UNION ALL
  SELECT 'analytics_totals', count(*)
    FROM accounts a FULL JOIN account_totals t ON t.account = a.id
   WHERE (coalesce(t.balance, 0), coalesce(t.events, 0)) IS DISTINCT FROM (a.balance, a.events)
  UNION ALL -- the payment service itself: each payment has its two events, and nothing else has any
  SELECT 'payments_unrecorded', count(*)
    FROM (SELECT payer AS account, id AS payment, -amount AS change FROM payments UNION ALL SELECT payee, id, amount FROM payments) p
    FULL JOIN outbox o USING (account, payment, change) WHERE p.payment IS NULL OR o.payment IS NULL
  UNION ALL -- and in the order of their ids the events of an account are its first, second, ...
  SELECT 'payments_out_of_order', count(*)
    FROM (SELECT n, row_number() OVER (PARTITION BY account ORDER BY id) AS position FROM outbox) x WHERE n <> position
) finding;
