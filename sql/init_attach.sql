ALTER TABLE :table ATTACH PARTITION :partition FOR VALUES FROM (:from) TO (:to)
