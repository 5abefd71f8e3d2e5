-- What the trigger of `outboxd init --notify` calls: tells the relays of this table that rows were committed.  Notifications of a transaction are one.
CREATE OR REPLACE FUNCTION :function() RETURNS trigger
  LANGUAGE plpgsql AS $outboxd$
BEGIN
  PERFORM pg_catalog.pg_notify(pg_catalog.concat('outboxd_', TG_RELID), '');
  RETURN NULL;
END
$outboxd$
