#!/bin/bash
# A user for Redis with no more rights than a relay needs (docs/privileges.md): its commands, on the keys that follow from --stream.
#
#   redis-user.sh [--stream TEMPLATE] [--user NAME] [--ensure-group] [--trim] [--stream-ttl] [--config] [--apply REDIS_CLI_ARGUMENT...]
#
#   --stream   as outboxd run has it (outbox:{%l})
#   --user     outboxd
#   --ensure-group, --trim, --stream-ttl   (without a value) outboxd run has this option
#   --config   print a line for redis.conf or an ACL file instead of a command
#   --apply    run the command through redis-cli with the arguments that follow, the last option here: --apply -h redis.internal --user admin.
#              A user that is there loses all other keys and commands
#
# The password is taken from $OUTBOXD_REDIS_PASSWORD.  Without it the user keeps the one it has, or has none and cannot log in;
# stderr says so.
set -euo pipefail

stream='outbox:{%l}'
user=outboxd
is_config=
is_applied=
has_groups=
has_trim=
has_ttl=

fail() {
  echo "redis-user: $*" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
  --stream | --user)
    if [ $# -lt 2 ] || [ -z "$2" ]; then fail "$1 needs a value"; fi
    printf -v "${1#--}" '%s' "$2"
    shift 2
    ;;
  --ensure-group) has_groups=1 && shift ;;
  --trim) has_trim=1 && shift ;;
  --stream-ttl) has_ttl=1 && shift ;;
  --config) is_config=1 && shift ;;
  --apply)
    is_applied=1
    shift
    break
    ;;
  --help | -h)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
  *) fail "there is no option ${1%%=*}; --help lists them" ;;
  esac
done

# pattern TEXT: the keys that a template's text stands for.  What is special in a pattern stands for itself behind a backslash.
pattern() {
  local text=$1 out='' c
  while [ -n "$text" ]; do
    c=${text:0:1}
    case $text in
    %%*) out+=% && text=${text:1} ;;
    %[ltie]*) out+='*' && text=${text:1} ;;
    %*) fail "--stream $stream: it takes %l, %t, %i, %e and %%" ;;
    [*?[\\]* | ]*) out+="\\$c" ;;
    *) out+=$c ;;
    esac
    text=${text:1}
  done
  printf '%s' "$out"
}

case $stream in
*[[:space:]\'\"]*) fail "--stream $stream: a pattern cannot hold spaces or quotes" ;;
*'{%l}'*) ;;
*) fail "--stream $stream: it has no {%l}" ;;
esac
prefix=$(pattern "${stream%%'{%l}'*}")
streams=$(pattern "$stream")

rules=(resetkeys resetchannels -@all)
# The fleet's record; each lane's journal; the streams.
rules+=("~${prefix}lanes" "~${prefix}{*}:journal" "~$streams")
# On each connection.
rules+=('+select' '+client|setname' '+set' '+get')
# src/publish.lua: run, and what it calls.
rules+=('+eval' '+evalsha' '+getrange' '+xadd')
# More than one stream a lane: their index.
case $stream in
*%[tie]*)
  has_index=1
  rules+=("~${prefix}{*}:streams" '+zadd' '+zrem' '+zscan')
  ;;
*) has_index= ;;
esac
if [ -n "$has_groups" ]; then rules+=('+xgroup|create'); fi
if [ -n "$has_ttl" ]; then rules+=('+pexpire'); fi
# src/trim.lua, which also looks after the index.
if [ -n "$has_trim$has_index" ]; then rules+=('+xinfo|groups' '+exists'); fi
if [ -n "$has_trim$has_index$has_groups" ]; then rules+=('+xlen'); fi
if [ -n "$has_trim" ]; then rules+=('+xtrim' '+xrange' '+xpending' '+time'); fi
# --wait-replicas.
rules+=('+wait')
# The alerts: an answer at all, used memory.
rules+=('+ping' '+info')
# outboxd check: types of keys, and what this user may do.
rules+=('+type' '+acl|dryrun')
# As its hash: then it is on no screen and in no file.
password=${OUTBOXD_REDIS_PASSWORD:-}
if [ -n "$password" ]; then
  hash=$(printf '%s' "$password" | sha256sum)
  rules=(resetpass "#${hash%% *}" "${rules[@]}")
else
  echo "redis-user: no password set: export OUTBOXD_REDIS_PASSWORD" >&2
fi

if [ -n "$is_applied" ]; then
  # From the standard input: what is special in a pattern is so for redis-cli too.
  {
    printf 'ACL SETUSER "%s" on' "$user"
    for rule in "${rules[@]}"; do
      rule=${rule//\\/\\\\}
      printf ' "%s"' "${rule//\"/\\\"}"
    done
    printf '\n'
  } | redis-cli -e "$@"
elif [ -n "$is_config" ]; then
  printf 'user %s on %s\n' "$user" "${rules[*]}"
else
  # Quoted so that a shell and redis-cli's prompt both take it.
  printf 'ACL SETUSER %s on' "$user"
  for rule in "${rules[@]}"; do
    case $rule in
    *[!A-Za-z0-9:+]*) printf " '%s'" "$rule" ;;
    *) printf ' %s' "$rule" ;;
    esac
  done
  printf '\n'
fi
