<?php

use Illuminate\Database\Migrations\Migration;
use Illuminate\Support\Facades\DB;

// database/migrations/2026_01_01_000000_create_outbox.php, with outbox.sql beside it: outboxd init --print --plain > outbox.sql
return new class extends Migration
{
    /** outbox.sql opens its own transaction. */
    public $withinTransaction = false;

    public function up(): void
    {
        DB::unprepared(file_get_contents(__DIR__ . '/outbox.sql'));
    }

    public function down(): void
    {
        DB::unprepared('DROP TABLE outbox_messages, processed_messages;
            DROP FUNCTION outbox_record, outbox_process_once, outbox_uuid_v7');
    }
};
