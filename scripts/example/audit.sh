#!/bin/bash
# The check of make example, from database to database: is every committed payment's every event in the notifier's and in the analytics' database, once, in
# order, and nothing else?  Reads copies of the tables and knows nothing of Redis, of outboxd or of the marks.
#
#   audit.sh PAYMENTS NOTIFIER ANALYTICS     connection strings, or names of databases where libpq's variables say the rest
#
# Environment: PSQL   psql
# Prints what there is, then every finding and how often (audit.sql).  Exit status: 0 all are 0, 1 something is wrong, 2 the check could not be made.
set -uo pipefail
[ $# -eq 3 ] || { echo "usage: audit.sh PAYMENTS NOTIFIER ANALYTICS" >&2; exit 2; }
psql=${PSQL:-psql}
here=$(cd "$(dirname "$0")" && pwd) || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# copy DATABASE NAME QUERY
copy() { "$psql" -qAtX -v ON_ERROR_STOP=1 -d "$1" -c "COPY ($3) TO STDOUT" >"$dir/$2.copy" || exit 2; }
copy "$1" accounts 'SELECT id, balance, events FROM accounts'
copy "$1" payments 'SELECT id, payer, payee, amount FROM payments'
copy "$1" outbox "SELECT id, message_id, aggregate_id, payload->'n', payload->'payment', payload->'change' FROM outbox_messages"
copy "$2" notifications 'SELECT seq, message_id, account, n, payment, text FROM notifications'
copy "$3" account_events 'SELECT seq, message_id, account, n, payment, change FROM account_events'
copy "$3" account_totals 'SELECT account, events, received - sent FROM account_totals'

report=$(cd "$dir" && "$psql" -qAtX -v ON_ERROR_STOP=1 -d "$1" -f "$here/audit.sql") || exit 2
printf '%s\n' "$report"
# Fifteen findings, so that one which is missing does not pass for one that is 0.
[ "$(grep -oE '[a-z_]+=[0-9]+' <<<"$(sed -n 2p <<<"$report")" | wc -l)" -eq 15 ] || { echo "audit: findings are missing" >&2; exit 2; }
! sed -n 2p <<<"$report" | grep -qE '=[1-9]'
