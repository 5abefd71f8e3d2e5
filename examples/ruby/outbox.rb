# Writing events for outboxd, and acting on each one once: the gems pg and redis.
require "json"
require "pg"
require "redis"
require "socket"

module Outbox
  # Writes one event in the connection's transaction; returns its message_id.
  def self.record(db, aggregate_type, aggregate_id, event_type, payload, headers = nil)
    unless db.transaction_status == PG::PQTRANS_INTRANS
      raise ArgumentError, "Outbox.record outside of a transaction: the event could be committed without the change it tells of"
    end
    db.exec_params("SELECT outbox_record($1, $2, $3, $4, NULL, $5)",
                   [aggregate_type, aggregate_id.to_s, event_type, JSON.generate(payload), headers && JSON.generate(headers)]).getvalue(0, 0)
  end

  # Yields (db, event) for each event of these lanes, inside the transaction that also notes it as handled.
  #
  # Returns once stopping.call is true.  Raises what the block raises, or a connection's error: then end, and start anew; whatever was not
  # acknowledged comes first then.  db: a PG::Connection for this alone.  redis: Redis.new(url: ..., reconnect_attempts: 0), for a
  # reply that got lost has to be noticed.
  def self.consume(db, redis, group, lanes, stopping, &handle)
    return unless hold_lanes(db, group, lanes, stopping)
    me = "#{Socket.gethostname}:#{Process.pid}"
    streams = lanes.map { |lane| "outbox:{#{lane}}" }
    act = lambda do |key, entries|
      entries.each do |id, event|
        break if stopping.call
        once(db, group, event, &handle) if event && !event.empty? # else it was trimmed from the stream
        redis.xack(key, group, id)
      end
    end
    streams.each do |key|
      begin
        redis.xgroup(:create, key, group, "0", mkstream: true)
      rescue Redis::CommandError => error
        raise unless error.message.start_with?("BUSYGROUP")
      end
      # What a former worker left: its lane is ours, so it is gone.
      until stopping.call || (entries = redis.xautoclaim(key, group, me, 0, "0-0", count: 100)["entries"]).empty?
        act.call(key, entries)
      end
    end
    until stopping.call
      redis.xreadgroup(group, me, streams, [">"] * streams.size, count: 100, block: 1000).each { |key, entries| act.call(key, entries) }
    end
  end

  def self.once(db, group, event)
    db.transaction do
      is_first = db.exec_params("SELECT outbox_process_once($1, $2)", [event["message_id"], group]).getvalue(0, 0)
      yield db, event if is_first == "t"
    end
  end
  private_class_method :once

  # Waits until nobody else works on these lanes of the group.  The locks last as long as the session whose transactions do the work.
  def self.hold_lanes(db, group, lanes, stopping)
    lanes.each do |lane|
      until db.exec_params("SELECT pg_try_advisory_lock(hashtext($1), $2)", [group, lane]).getvalue(0, 0) == "t"
        return false if stopping.call
        sleep 0.5
      end
    end
    true
  end
  private_class_method :hold_lanes
end
