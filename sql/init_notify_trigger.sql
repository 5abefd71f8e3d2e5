-- Once a statement, however many rows it inserts.
CREATE OR REPLACE TRIGGER outboxd_notify AFTER INSERT ON :table FOR EACH STATEMENT EXECUTE FUNCTION :function()
