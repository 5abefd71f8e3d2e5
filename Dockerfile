# outboxd in a container: docker build -t outboxd .
# Settings come by environment variables (OUTBOXD_DATABASE, OUTBOXD_REDIS, ...); docs/deployment.md.

FROM debian:bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev make pkg-config binutils libpq-dev libhiredis-dev libjansson-dev uthash-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN make DEPS=no CFLAGS="-O2 -g0" BUILD=/tmp/build && make DEPS=no CFLAGS="-O2 -g0" BUILD=/tmp/build DESTDIR=/out PREFIX=/usr install

FROM debian:bookworm-slim
# ca-certificates: for a PostgreSQL that is to prove who it is (sslmode=verify-full).
RUN apt-get update \
 && apt-get install -y --no-install-recommends libpq5 libhiredis0.14 libjansson4 ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin --uid 10001 outboxd
COPY --from=build /out/usr/bin/outboxd /usr/bin/outboxd
USER 10001
# SIGTERM settles what is in flight; give it longer than --shutdown-timeout (docker stop -t 40, terminationGracePeriodSeconds: 40).
STOPSIGNAL SIGTERM
# Unhealthy when a message has been pending for five minutes; takes the relay's environment (OUTBOXD_*, DATABASE_URL).
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["/usr/bin/outboxd", "status", "--max-age", "5m"]
ENTRYPOINT ["/usr/bin/outboxd"]
CMD ["run"]
