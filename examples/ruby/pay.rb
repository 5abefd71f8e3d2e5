# Payments as events: ruby pay.rb FIRST COUNT
require_relative "outbox"

db = PG.connect(ENV.fetch("DATABASE_URL"))
first, count = ARGV.map { |word| Integer(word) }
first.upto(first + count - 1) do |n|
  account = n % 10
  db.transaction do
    db.exec_params("UPDATE accounts SET balance = balance - 1 WHERE id = $1", [account])
    Outbox.record(db, "account", account, "money.sent", { n: n, note: "für dich" }, { source: "pay.rb" })
  end
end
