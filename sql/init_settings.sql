-- Storage of a partition or of the plain table.  Every row is written twice: inserted, then marked as published.
-- fillfactor: the second version finds room in the page of the first, which saves most of the update's WAL.
-- autovacuum: only the newest pages and a small index are to be looked at, so vacuum often and little.
fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000
