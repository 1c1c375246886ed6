// Makes the texts of `console.log` and `util.inspect` for objects whose properties are getters, or private.

import { inspect, type InspectOptions } from 'node:util';

/** Makes the text of an object with these properties, for its method `inspect.custom`. */
export function shown(name: string, properties: object, depth: number, options: InspectOptions): string {
  return depth < 0 ? `[${name}]` : `${name} ${inspect(properties, { ...options, depth })}`;
}
