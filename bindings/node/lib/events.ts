// The events of the library: what a program has to know although it asked for nothing.

import { EventEmitter } from 'node:events';
import { native } from './library.js';
import { result } from './waiting.js';

/** An event of the library, such as `limit_replaced`. The reference lists all events. */
export interface LibraryEvent {
  event: string;
  level: 'error' | 'warn' | 'info';
  message: string;
  fields: Record<string, string | number | boolean>;
}

/** Emits the events of the library. */
export interface Events extends EventEmitter {
  on(level: 'warning' | 'info', listener: (event: LibraryEvent) => void): this;
  once(level: 'warning' | 'info', listener: (event: LibraryEvent) => void): this;
}

/**
 * The events of all clients of this process: `warning`, for example when an operator's limit replaces yours or a
 * server came back empty, and `info`. While nothing listens for warnings, they are emitted as warnings of the process.
 */
export const events: Events = new EventEmitter();

let isBegun = false;

/** Begins to report events. They do not keep the process alive. */
export function report(): void {
  if (!isBegun) {
    isBegun = true;
    void reportAll();
  }
}

async function reportAll(): Promise<void> {
  for (;;) {
    const found = await result<string>(native.events(), { background: true });
    for (const { fields, ...event } of JSON.parse(found)) {
      // If a listener throws, its exception is uncaught, as with any listener, and the next event is still
      // reported.
      process.nextTick(tell, { ...event, fields: Object.fromEntries(fields) });
    }
  }
}

function tell(event: LibraryEvent): void {
  if (event.level === 'info') {
    events.emit('info', event);
  } else if (!events.emit('warning', event)) {
    const fields = Object.entries(event.fields).map(([name, value]) => ` ${name}=${JSON.stringify(value)}`);
    process.emitWarning(event.message + fields.join(''), { type: 'PermitsWarning', code: event.event });
  }
}
