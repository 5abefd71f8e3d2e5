// Package outbox writes events for outboxd and acts on each one once: pgx and go-redis.
package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// Record writes one event in the transaction and returns its message_id.  headers may be nil.
func Record(ctx context.Context, tx pgx.Tx, aggregateType, aggregateID, eventType string, payload any, headers map[string]string) (string, error) {
	body, err := json.Marshal(payload)
	if err != nil {
		return "", err
	}
	var more *string
	if headers != nil {
		text, err := json.Marshal(headers)
		if err != nil {
			return "", err
		}
		value := string(text)
		more = &value
	}
	var id string
	err = tx.QueryRow(ctx, "SELECT outbox_record($1, $2, $3, $4, NULL, $5)::text",
		aggregateType, aggregateID, eventType, string(body), more).Scan(&id)
	return id, err
}

// Handler acts on one event inside the transaction that also notes it as handled.
type Handler func(ctx context.Context, tx pgx.Tx, event map[string]any) error

// Consumer works on some lanes of a group.  DB is for it alone; Redis has MaxRetries -1, for a reply that got lost has to be noticed.
type Consumer struct {
	DB     *pgx.Conn
	Redis  *redis.Client
	Group  string
	Lanes  []int
	Handle Handler
}

// Run returns nil once stop is closed.  It returns what the handler returns, or a connection's error: then end, and start anew; whatever was not
// acknowledged comes first then.
func (c *Consumer) Run(ctx context.Context, stop <-chan struct{}) error {
	if held, err := c.holdLanes(ctx, stop); !held || err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	me := fmt.Sprintf("%s:%d", host, os.Getpid())
	keys := make([]string, 0, 2*len(c.Lanes))
	for _, lane := range c.Lanes {
		keys = append(keys, fmt.Sprintf("outbox:{%d}", lane))
	}
	for _, key := range keys {
		err := c.Redis.XGroupCreateMkStream(ctx, key, c.Group, "0").Err()
		if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
			return err
		}
		// What a former worker left: its lane is ours, so it is gone.
		for !stopped(stop) {
			entries, _, err := c.Redis.XAutoClaim(ctx, &redis.XAutoClaimArgs{
				Stream: key, Group: c.Group, Consumer: me, Start: "0-0", Count: 100}).Result()
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				break
			}
			if err := c.act(ctx, key, entries, stop); err != nil {
				return err
			}
		}
	}
	streams := keys
	for range c.Lanes {
		streams = append(streams, ">")
	}
	for !stopped(stop) {
		read, err := c.Redis.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: c.Group, Consumer: me, Streams: streams, Count: 100, Block: time.Second}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		for _, stream := range read {
			if err := c.act(ctx, stream.Stream, stream.Messages, stop); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Consumer) act(ctx context.Context, key string, entries []redis.XMessage, stop <-chan struct{}) error {
	for _, entry := range entries {
		if stopped(stop) {
			return nil
		}
		if len(entry.Values) > 0 { // else it was trimmed from the stream
			if err := pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error { return c.once(ctx, tx, entry.Values) }); err != nil {
				return err
			}
		}
		if err := c.Redis.XAck(ctx, key, c.Group, entry.ID).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Consumer) once(ctx context.Context, tx pgx.Tx, event map[string]any) error {
	var isFirst bool
	err := tx.QueryRow(ctx, "SELECT outbox_process_once($1, $2)", event["message_id"], c.Group).Scan(&isFirst)
	if err != nil || !isFirst {
		return err
	}
	return c.Handle(ctx, tx, event)
}

// holdLanes waits until nobody else works on these lanes of the group.  The locks last as long as the session whose transactions do the work.
func (c *Consumer) holdLanes(ctx context.Context, stop <-chan struct{}) (bool, error) {
	for _, lane := range c.Lanes {
		for {
			var isOurs bool
			err := c.DB.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtext($1), $2)", c.Group, lane).Scan(&isOurs)
			if err != nil {
				return false, err
			}
			if isOurs {
				break
			}
			select {
			case <-stop:
				return false, nil
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
	return true, nil
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
