<?php

namespace App\Console\Commands;

use App\Outbox\Consumer;
use Illuminate\Console\Command;
use Illuminate\Database\Connection;
use Illuminate\Support\Facades\DB;
use Redis;

/** app/Console/Commands/ConsumeOutbox.php */
class ConsumeOutbox extends Command
{
    protected $signature = 'outbox:consume {group} {worker} {workers}';

    protected $description = 'Notes each payment once; worker 0 of 2 takes lanes 0, 2, 4, ...';

    public function handle(): int
    {
        $isStopping = false;
        pcntl_async_signals(true);
        foreach ([SIGTERM, SIGINT] as $signal) {
            pcntl_signal($signal, function () use (&$isStopping) {
                $isStopping = true;
            });
        }
        $url = parse_url(getenv('REDIS_URL') ?: 'redis://127.0.0.1:6379');
        $redis = new Redis();
        $redis->connect($url['host'], $url['port'] ?? 6379, 5.0);
        if (isset($url['pass'])) {
            $redis->auth(empty($url['user']) ? $url['pass'] : [$url['user'], $url['pass']]);
        }
        $worker = (int) $this->argument('worker');
        $lanes = range($worker, (int) (getenv('OUTBOXD_LANES') ?: 16) - 1, (int) $this->argument('workers'));
        $consumer = new Consumer(DB::connection(), $redis, $this->argument('group'), $lanes, [$this, 'note']);
        $consumer->run(function () use (&$isStopping) {
            return $isStopping;
        });

        return 0;
    }

    public function note(Connection $db, array $event): void
    {
        $db->insert('INSERT INTO notifications (message_id, account, n) VALUES (?, ?, ?)', [
            $event['message_id'],
            $event['aggregate_id'],
            json_decode($event['payload'], true, 512, JSON_THROW_ON_ERROR)['n'],
        ]);
    }
}
