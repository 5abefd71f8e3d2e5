-- The business of the demo: accounts, and payments between them.
CREATE TABLE accounts (
  id      bigint PRIMARY KEY,
  balance bigint NOT NULL DEFAULT 0, -- cents
  events  bigint NOT NULL DEFAULT 0  -- how many changes there have been: lets the demo count them again on the other side
) WITH (fillfactor = 70);
CREATE TABLE payments (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  payer      bigint NOT NULL REFERENCES accounts,
  payee      bigint NOT NULL REFERENCES accounts,
  amount     bigint NOT NULL CHECK (amount > 0),
  created_at timestamptz NOT NULL DEFAULT now(),
  CHECK (payer <> payee)
);
INSERT INTO accounts (id) SELECT generate_series(1, :accounts);
VACUUM ANALYZE accounts;
