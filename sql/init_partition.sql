-- A partition, made beside the table and then attached, so that no writer waits.
-- Indexes, foreign keys and row triggers come with the attachment.
CREATE TABLE :partition (
  LIKE :table INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION
) :with :tablespace
