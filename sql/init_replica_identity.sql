-- Without a key of its own the table needs this, or else the relay's updates fail once a publication includes them.
-- Costs nothing unless wal_level is logical.
ALTER TABLE :table REPLICA IDENTITY :identity
