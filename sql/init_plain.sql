-- The outbox in its plain form, as an application's own migration would make it; :payload as in init_table.sql.
CREATE TABLE IF NOT EXISTS :table (
  id             bigserial    PRIMARY KEY,
  message_id     uuid         NOT NULL UNIQUE DEFAULT gen_random_uuid(),
  aggregate_type varchar(255) NOT NULL,
  aggregate_id   varchar(255) NOT NULL,
  event_type     varchar(255) NOT NULL,
  payload        :payload NOT NULL,
  attempts       smallint     NOT NULL DEFAULT 0,
  last_error     text,
  created_at     timestamptz  NOT NULL DEFAULT now(),
  published_at   timestamptz
) WITH (:settings)
