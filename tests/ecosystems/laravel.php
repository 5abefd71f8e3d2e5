<?php

// As much of a Laravel application as the examples need: a database connection, the facade DB, a console.
//
//   laravel.php migrate|rollback DIR | pay FIRST COUNT | outside | outbox:consume GROUP WORKER WORKERS

use App\Console\Commands\ConsumeOutbox;
use App\Outbox\Outbox;
use App\Payments;
use Illuminate\Console\Application;
use Illuminate\Container\Container;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Events\Dispatcher;
use Illuminate\Support\Facades\Facade;

error_reporting(E_ALL & ~E_DEPRECATED); // the library is older than the PHP
ini_set('display_errors', 'stderr');
foreach (['Database', 'Console', 'Events'] as $part) {
    require_once "/usr/share/php/Illuminate/$part/autoload.php";
}
$examples = __DIR__ . '/../../examples/laravel';
foreach (['Outbox', 'Consumer', 'Payments', 'ConsumeOutbox'] as $class) {
    require "$examples/$class.php";
}

$container = new Container();
$manager = new Manager($container);
$manager->addConnection(['driver' => 'pgsql', 'url' => getenv('DATABASE_URL'), 'charset' => 'utf8', 'prefix' => '', 'search_path' => 'public']);
$container->instance('db', $manager->getDatabaseManager());
Facade::setFacadeApplication($container);

switch ($argv[1]) {
    case 'migrate':
    case 'rollback':
        copy("$examples/2026_01_01_000000_create_outbox.php", "$argv[2]/migration.php");
        $migration = require "$argv[2]/migration.php";
        $argv[1] === 'migrate' ? $migration->up() : $migration->down();
        break;
    case 'pay':
        for ($n = (int) $argv[2]; $n < $argv[2] + $argv[3]; $n++) {
            (new Payments())->send($n % 10, $n);
        }
        break;
    case 'outside':
        Outbox::record('account', 1, 'money.sent', []);
        break;
    default:
        $console = new Application($container, new Dispatcher($container), '8');
        $console->setCatchExceptions(true);
        $console->add(new ConsumeOutbox());
        exit($console->run());
}
