<?php

namespace App;

use App\Outbox\Outbox;
use Illuminate\Support\Facades\DB;

/** Payments as events: app/Payments.php */
final class Payments
{
    public function send(int $account, int $n): void
    {
        DB::transaction(function () use ($account, $n) {
            DB::update('UPDATE accounts SET balance = balance - 1 WHERE id = ?', [$account]);
            Outbox::record('account', $account, 'money.sent', ['n' => $n, 'note' => 'für dich']);
        });
    }
}
