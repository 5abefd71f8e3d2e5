<?php

namespace App\Outbox;

use Illuminate\Support\Facades\DB;
use LogicException;
use stdClass;

/** Writes events for outboxd: app/Outbox/Outbox.php */
final class Outbox
{
    /** Writes one event in the transaction that is open on the connection; returns its message_id. */
    public static function record(
        string $aggregateType,
        string|int $aggregateId,
        string $eventType,
        array $payload,
        ?array $headers = null,
        ?string $connection = null
    ): string {
        $db = DB::connection($connection);
        if ($db->transactionLevel() === 0) {
            throw new LogicException('Outbox::record outside of DB::transaction: the event could be committed without the change it tells of');
        }

        return $db->selectOne('SELECT outbox_record(?, ?, ?, ?, NULL, ?) AS id', [
            $aggregateType,
            (string) $aggregateId,
            $eventType,
            self::json($payload),
            $headers === null ? null : self::json($headers),
        ])->id;
    }

    private static function json(array $value): string
    {
        return json_encode($value ?: new stdClass(), JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION);
    }
}
