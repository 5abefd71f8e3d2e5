#!/bin/bash
# Does to one event of a consumer's database what the check of make example has to find.
#
#   damage.sh DATABASE notifications|account_events lost|twice|out_of_order|made_up|altered
#   damage.sh DATABASE account_totals altered
#
# Environment: PSQL   psql
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }

one='(SELECT seq FROM :events ORDER BY md5(seq::text) LIMIT 1)'
case $2 in
notifications) columns='message_id, account, n, payment, text' alter="text = text || '0'" made_up="'sent 1.00'" ;;
account_events) columns='message_id, account, n, payment, change' alter='change = change + 1' made_up='-100' ;;
account_totals) columns='' alter='received = received + 1' made_up='' ;;
*) echo "damage: no table $2" >&2; exit 2 ;;
esac
case $2:$3 in
account_totals:altered) sql="UPDATE :events SET $alter WHERE account = (SELECT min(account) FROM :events)" ;;
*:lost) sql="DELETE FROM :events WHERE seq = $one" ;;
*:twice) sql="INSERT INTO :events ($columns) SELECT $columns FROM :events WHERE seq = $one" ;;
# An account's first event behind its last.
*:out_of_order) sql="UPDATE :events SET seq = (SELECT max(seq) + 1 FROM :events) WHERE n = 1 AND account = (SELECT min(account) FROM :events WHERE n = 2)" ;;
*:made_up) sql="INSERT INTO :events ($columns) SELECT gen_random_uuid(), account, n + 1, 0, $made_up FROM :events WHERE seq = $one" ;;
*:altered) sql="UPDATE :events SET $alter WHERE seq = $one" ;;
*) echo "damage: no such damage as $3" >&2; exit 2 ;;
esac
"${PSQL:-psql}" -qAtX -v ON_ERROR_STOP=1 -v events="$2" -d "$1" <<<"$sql"
