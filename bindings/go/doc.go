// Package permits is a distributed semaphore: at most N holders of a name at once, on any number of
// machines, in the order in which they asked. The places are counted by a Redis or Valkey server.
//
//	client, err := permits.Connect(ctx, "redis://127.0.0.1/")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	exports := client.Semaphore("exports", 4)
//
//	err = exports.Do(ctx, func(ctx context.Context) error {
//		return export(ctx) // at most 4 of these run at once, anywhere
//	})
//
// # The command
//
// The package is Go alone, without cgo and without dependencies. The work is done by the command
// permits: [Connect] starts one "permits hold --many" for the client, and [Attach] uses one that serves
// a Unix socket, such as a sidecar. Connect finds the command in PATH, or by the variable
// PERMITS_PROGRAM. All permits of a client share one connection to the server.
//
// The command ends when the program ends, in any way, and releases what the program held. If the
// command itself dies, every [Permit.Context] ends, and the next acquisition starts another one.
//
// # Losing a permit
//
// A permit lasts for a lease of 15 seconds, which is renewed in the background. If that fails for too long,
// or an operator revokes the permit, it is lost: another holder may work now. [Permit.Context] ends then,
// and [context.Cause] returns a [*LostError]. So pass this context to everything that must not happen
// without the permit. [Semaphore.Do] does it for you.
//
// # Cancellation
//
// The context of an acquisition covers the wait. If it ends, the request leaves the line; if the grant was
// on its way, it is released. The permit outlives that context.
package permits
