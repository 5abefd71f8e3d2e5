# Notes each payment once: ruby notify.rb GROUP WORKER WORKERS   (worker 0 of 2 takes lanes 0, 2, 4, ...)
require_relative "outbox"

stopping = false
%w[TERM INT].each { |name| trap(name) { stopping = true } }

group, worker, workers = ARGV[0], Integer(ARGV[1]), Integer(ARGV[2])
lanes = (worker...Integer(ENV.fetch("OUTBOXD_LANES", "16"))).step(workers).to_a
db = PG.connect(ENV.fetch("DATABASE_URL"))
redis = Redis.new(url: ENV.fetch("REDIS_URL"), reconnect_attempts: 0)
Outbox.consume(db, redis, group, lanes, -> { stopping }) do |connection, event|
  connection.exec_params("INSERT INTO notifications (message_id, account, n) VALUES ($1, $2, $3)",
                         [event["message_id"], event["aggregate_id"], JSON.parse(event["payload"])["n"]])
end
