<?php

namespace App\Outbox;

use Illuminate\Database\Connection;
use Redis;
use RuntimeException;

/** Acts on each event of some lanes once: app/Outbox/Consumer.php */
final class Consumer
{
    private string $me;

    /**
     * @param  Connection  $db  for this alone (a connection of its own in config/database.php)
     * @param  Redis  $redis  phpredis, connected, without a prefix
     * @param  int[]  $lanes
     * @param  callable  $handle  gets the connection and the event's fields
     */
    public function __construct(
        private Connection $db,
        private Redis $redis,
        private string $group,
        private array $lanes,
        private $handle,
        private string $stream = 'outbox:{%d}'
    ) {
        $this->me = gethostname() . ':' . getmypid();
        // The locks on the lanes belong to this session: a new one would work without them.
        $db->setReconnector(function () {
            throw new RuntimeException('the session with PostgreSQL is lost, and the lanes with it');
        });
    }

    /**
     * Returns once $isStopping returns true.  Throws what the handler throws, or a connection's error: then end, and let the supervisor
     * start anew; whatever was not acknowledged comes first then.
     */
    public function run(callable $isStopping): void
    {
        if (! $this->holdLanes($isStopping)) {
            return;
        }
        $streams = array_map(fn (int $lane) => sprintf($this->stream, $lane), $this->lanes);
        foreach ($streams as $key) {
            // False when the group is there already.
            if ($this->redis->rawCommand('XGROUP', 'CREATE', $key, $this->group, '0', 'MKSTREAM') === false
                && ! str_starts_with((string) $this->redis->getLastError(), 'BUSYGROUP')) {
                throw new RuntimeException('XGROUP CREATE: ' . $this->redis->getLastError());
            }
            $this->redis->clearLastError();
            // What a former worker left: its lane is ours, so it is gone.
            while ($entries = $this->claim($key)) {
                foreach ($entries as [$id, $fields]) {
                    if ($isStopping()) {
                        return;
                    }
                    $this->act($key, $id, self::pairs($fields ?: []));
                }
            }
        }
        while (! $isStopping()) {
            $read = $this->redis->xReadGroup($this->group, $this->me, array_fill_keys($streams, '>'), 100, 1000);
            if ($read === false) {
                throw new RuntimeException('XREADGROUP: ' . $this->redis->getLastError());
            }
            foreach ($read as $key => $entries) {
                foreach ($entries as $id => $event) {
                    if ($isStopping()) {
                        return;
                    }
                    $this->act($key, $id, $event ?: []);
                }
            }
        }
    }

    private function act(string $key, string $id, array $event): void
    {
        if ($event !== []) { // else it was trimmed from the stream
            $this->db->transaction(function () use ($event) {
                $is = $this->db->selectOne('SELECT outbox_process_once(?, ?) AS first', [$event['message_id'], $this->group]);
                if ($is->first) {
                    ($this->handle)($this->db, $event);
                }
            });
        }
        $this->redis->xAck($key, $this->group, [$id]);
    }

    /** The oldest unacknowledged entries, as [id, [name, value, ...]]. */
    private function claim(string $key): array
    {
        $reply = $this->redis->rawCommand('XAUTOCLAIM', $key, $this->group, $this->me, '0', '0-0', 'COUNT', '100');
        if ($reply === false) {
            throw new RuntimeException('XAUTOCLAIM: ' . $this->redis->getLastError());
        }

        return $reply[1];
    }

    /** Waits until nobody else works on these lanes of the group.  The locks last as long as the session whose transactions do the work. */
    private function holdLanes(callable $isStopping): bool
    {
        foreach ($this->lanes as $lane) {
            while (! $this->db->selectOne('SELECT pg_try_advisory_lock(hashtext(?), ?) AS ours', [$this->group, $lane])->ours) {
                if ($isStopping()) {
                    return false;
                }
                usleep(500000);
            }
        }

        return true;
    }

    private static function pairs(array $fields): array
    {
        return array_combine(
            array_values(array_filter($fields, fn ($i) => $i % 2 === 0, ARRAY_FILTER_USE_KEY)),
            array_values(array_filter($fields, fn ($i) => $i % 2 === 1, ARRAY_FILTER_USE_KEY))
        );
    }
}
